#!/usr/bin/env python3
"""Runs shellcheck on the scripts of slurm/. Exit codes: its own, 77 where it is missing."""

import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]

if shutil.which("shellcheck") is None:
    print("skipped: shellcheck is missing (Debian: apt-get install shellcheck)")
    sys.exit(77)
scripts = sorted(path for path in (SOURCE / "slurm").iterdir() if path.suffix in (".sbatch", ".sh", ".env"))
if len(scripts) < 9:
    sys.exit(f"only {len(scripts)} scripts in {SOURCE / 'slurm'}")
sys.exit(subprocess.run(["shellcheck", "--shell=bash", "--external-sources", *scripts], cwd=SOURCE).returncode)
