"""What the tests of the plotting tools share: running a tool, checking how it ends, and their command line."""

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


class Tool:
    """A script of tools/ that draws; packages: what it cannot do without."""

    def __init__(self, name, packages):
        self.name, self.packages = name, packages

    def plot(self, *arguments, python_path=None):
        environment = dict(os.environ, **({"PYTHONPATH": str(python_path)} if python_path else {}))
        return subprocess.run([sys.executable, "-B", SOURCE / f"tools/{self.name}.py", *map(str, arguments)], text=True,
                              capture_output=True, env=environment, check=False)

    def names_missing_package(self, folder):
        """A package that cannot be imported, as seen by the script."""
        package = self.packages[0]
        (folder / f"{package}.py").write_text(
            f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')\n")
        debian = " ".join(f"python3-{name}" for name in self.packages)
        return expect("a missing package", self.plot("a.file", python_path=folder), 2, f"{self.name}: ",
                      f"package {package}", f"apt-get install {debian}")

    def main(self, description, draws):
        """draws(metro): whether all pictures are as they should be. Returns the exit code of the test."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--metro")
        parser.add_argument("--mpiexec", default="mpiexec")
        parser.add_argument("--without-packages", action="store_true")
        arguments = parser.parse_args()
        with tempfile.TemporaryDirectory(prefix="metro-plot-") as folder:
            if arguments.without_packages:
                return 0 if self.names_missing_package(pathlib.Path(folder)) else 1
            for package in self.packages:
                if subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True,
                                  check=False).returncode != 0:
                    print(f"skipped: {sys.executable} has no package {package}")
                    return SKIPPED
            return 0 if draws(Metro(arguments.metro, arguments.mpiexec, folder)) else 1


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


def png_size(path):
    content = path.read_bytes()
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        raise SystemExit(f"{path} is not a PNG picture")
    return struct.unpack(">II", content[16:24])
