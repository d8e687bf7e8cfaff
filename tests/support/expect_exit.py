#!/usr/bin/env python3
"""Runs a command and checks how it ends.

usage: expect_exit.py --code N [--text TEXT]... [--once TEXT]... [--never TEXT]... -- COMMAND ARGUMENT...

--text: must appear in what the command prints, --once: exactly once, --never: not at all.
"""
import argparse
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--code", type=int, required=True)
    for option in ("--text", "--once", "--never"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args()

    result = subprocess.run(wanted.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", check=False)

    output = result.stdout
    faults = []
    if result.returncode != wanted.code:
        faults.append(f"exit code {result.returncode} instead of {wanted.code}")
    faults += [f"missing: {text!r}" for text in wanted.text if text not in output]
    faults += [f"{output.count(text)} times instead of once: {text!r}" for text in wanted.once
               if output.count(text) != 1]
    faults += [f"not expected: {text!r}" for text in wanted.never if text in output]
    if faults:
        print("\n".join(faults), "\n--- output of", " ".join(wanted.command), "\n" + output)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
