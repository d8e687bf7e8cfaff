#!/usr/bin/env python3
"""Tests tools/plot_replay.py: pictures of real replays, and one clear line for whatever is wrong.

Exit code 77, with the reason, where matplotlib is missing; `--without-packages` does not need it.
"""
import argparse
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77

sys.path.insert(0, str(SOURCE / "tests/regression"))
from metro_runs import Metro  # noqa: E402  (found by the line before)


def plot(*arguments, python_path=None):
    environment = dict(os.environ, **({"PYTHONPATH": str(python_path)} if python_path else {}))
    return subprocess.run([sys.executable, "-B", SOURCE / "tools/plot_replay.py", *map(str, arguments)], text=True,
                          capture_output=True, env=environment, check=False)


def expect(name, process, exit_code, *texts):
    """The exit code, and one line on standard error with these texts (none if the exit code is 0)."""
    lines = process.stderr.splitlines()
    if exit_code == 0:
        # Matplotlib may say that it builds its cache of fonts.
        lines = [line for line in lines if "font cache" not in line]
    right = process.returncode == exit_code and len(lines) == (1 if texts else 0)
    right = right and all(part in process.stderr for part in texts)
    print("ok   " if right else "WRONG", name)
    if not right:
        print(f"  exit code {process.returncode}, expected {exit_code} with {texts}\n{process.stdout}{process.stderr}")
    return right


def missing_package_is_named(folder):
    """A package that cannot be imported, as seen by the script."""
    (folder / "matplotlib.py").write_text("raise ModuleNotFoundError(\"No module named 'matplotlib'\", name='matplotlib')\n")
    return expect("a missing package", plot("a.json", python_path=folder), 2, "plot_replay: ", "package matplotlib",
                  "apt-get install python3-matplotlib")


def png_size(path):
    content = path.read_bytes()
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        raise SystemExit(f"{path} is not a PNG picture")
    return struct.unpack(">II", content[16:24])


def draws_replays(metro):
    json_file, csv_file = metro.folder / "a.json", metro.folder / "a.csv"
    metro.must(["import-trace", "gpt-oss-20b", SOURCE / "tests/data/traces/gpt-oss-20b", "t.h5"])
    metro.must(["replay", "t.h5", "--placement", "trivial,eplb", "--batch", "2,4,8", "--ranks", "4,8", "--draws", "3",
                "--replication", "1.0,1.5", "--json", json_file, "--csv", csv_file])
    right = expect("picture beside the JSON", plot(json_file), 0) and min(png_size(json_file.with_suffix(".png"))) > 500
    right &= expect("picture of the CSV", plot(csv_file, "-o", metro.folder / "b.png"), 0)
    right &= png_size(metro.folder / "b.png") == png_size(json_file.with_suffix(".png"))
    right &= expect("another placement and rank count",
                    plot(json_file, "--placement", "eplb", "--ranks", "8", "-o", metro.folder / "c.png"), 0)
    right &= (metro.folder / "c.png").read_bytes() != json_file.with_suffix(".png").read_bytes()
    right &= expect("a placement that is not there", plot(json_file, "--placement", "best"), 2, "trivial, eplb")
    right &= expect("a picture that cannot be written", plot(json_file, "-o", "nowhere/a.png"), 2, "nowhere/a.png")
    right &= expect("a file that is not there", plot("nowhere.json"), 3, "nowhere.json")
    for name, text in (("text", "no JSON"), ("other", "{}"), ("list", "[]"), ("empty", '{"format": "metro-replay", "version": 1, "results": []}'),
                       ("short", '{"format": "metro-replay", "version": 1}')):
        (metro.folder / f"{name}.json").write_text(text)
        right &= expect(f"a file that is not what it should be: {name}", plot(metro.folder / f"{name}.json"), 3, f"{name}.json")
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--without-packages", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="metro-plot-") as folder:
        if arguments.without_packages:
            return 0 if missing_package_is_named(pathlib.Path(folder)) else 1
        if subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True, check=False).returncode != 0:
            print(f"skipped: {sys.executable} has no package matplotlib")
            return SKIPPED
        return 0 if draws_replays(Metro(arguments.metro, arguments.mpiexec, folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
