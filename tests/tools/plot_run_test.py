#!/usr/bin/env python3
"""Tests tools/plot_run.py: pictures of real runs, and one clear line for whatever is wrong.

Exit code 77, with the reason, where h5py or matplotlib is missing; `--without-packages` needs neither.
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
    return subprocess.run([sys.executable, "-B", SOURCE / "tools/plot_run.py", *map(str, arguments)], text=True,
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
    (folder / "h5py.py").write_text("raise ModuleNotFoundError(\"No module named 'h5py'\", name='h5py')\n")
    return expect("a missing package", plot("metrics.h5", python_path=folder), 2, "plot_run: ", "package h5py",
                  "apt-get install python3-h5py python3-matplotlib")


def png_size(path):
    content = path.read_bytes()
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        raise SystemExit(f"{path} is not a PNG picture")
    return struct.unpack(">II", content[16:24])


def draws_runs(metro):
    lines = [{"prompt": "A cat " * (i % 3 + 1), "max_tokens": 3 + i} for i in range(9)]
    one = [{"prompt": "A cat", "max_tokens": 1}]  # nothing is decoded
    right = True
    for name, requests, ranks in (("several", lines, 2), ("one", one, None)):
        deck = metro.write_deck(metro.write_requests(f"{name}.jsonl", requests), name)
        metro.must(["run", deck, "routing.decode=even", "experts.replication=1.5"], ranks=ranks)
        metrics = metro.folder / name / "metrics.h5"
        picture = metro.folder / f"{name}.png"
        right &= expect(f"picture of a run with {name}", plot(metrics, "-o", picture), 0)
        right &= min(png_size(picture)) > 500
    right &= expect("picture beside the file", plot(metrics), 0) and metrics.with_suffix(".png").exists()
    right &= expect("picture that cannot be written", plot(metrics, "-o", "nowhere/a.png"), 2, "nowhere/a.png")
    right &= expect("a file that is not there", plot("nowhere.h5"), 3, "nowhere.h5")
    right &= expect("a checkpoint", plot(metro.convert_tiny()), 3, "tiny.h5", "is not a metrics.h5")
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
        for package in ("h5py", "matplotlib"):
            if subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=False).returncode != 0:
                print(f"skipped: {sys.executable} has no package {package}")
                return SKIPPED
        return 0 if draws_runs(Metro(arguments.metro, arguments.mpiexec, folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
