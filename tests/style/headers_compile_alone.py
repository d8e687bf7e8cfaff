#!/usr/bin/env python3
"""Compiles every header of the project by itself, with the warnings and include folders of the build.

usage: headers_compile_alone.py ROOT BUILD COMPILER    exit code 1 if a header needs something it does not include
"""
import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys

ROOMS = ["src", "kernels", "mpi_launch", "tests"]


def build_options(build):
    """Options of all compile commands that matter to a header; the folders in the order of their first use."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    options = {}
    for command in commands:
        words = shlex.split(command["command"])
        for i, word in enumerate(words):
            if word == "-isystem":
                options[(word, words[i + 1])] = None
            elif word.startswith(("-I", "-std=", "-W", "-march=", "-f", "-D")):
                options[(word,)] = None
    return [word for option in options for word in option]


def compile_alone(compiler, options, header):
    """The compiler's complaints about a unit that includes nothing but this header."""
    result = subprocess.run([compiler, *options, "-fsyntax-only", "-include", str(header), "-x", "c++", "/dev/null"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return result.stdout if result.returncode != 0 else ""


def main():
    root, build, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    options = build_options(build)
    headers = sorted(header for room in ROOMS for header in (root / room).rglob("*.hpp"))
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        complaints = list(pool.map(lambda header: compile_alone(compiler, options, header), headers))
    for header, complaint in zip(headers, complaints):
        if complaint:
            print(f"{header.relative_to(root)} does not compile alone:\n{complaint}")
    print(f"{len(headers)} headers, {sum(map(bool, complaints))} do not compile alone")
    return 1 if any(complaints) or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
