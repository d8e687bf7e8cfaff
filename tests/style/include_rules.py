#!/usr/bin/env python3
"""Checks the rules about files and includes that compilers do not check. Needs nothing but Python.

usage: include_rules.py ROOT    prints one line per violation, "path:line: what is wrong"; exit code 1 if there are any
"""
import fnmatch
import pathlib
import re
import sys

# The arrows between rooms: what the files of a room may include besides their own room. An entry is a room or, where a
# whole room would be too much, one file.
ARROWS = {
    "base": [],
    "hdf5": ["base"],
    "model": ["base", "checkpoint/layout.hpp"],
    "checkpoint": ["base", "hdf5", "model"],
    "tokenizer": ["base"],
    "deck": ["base"],
    "placement": ["base"],  # pure functions on host arrays
    "routing": ["base"],  # likewise
    "transport": ["base", "kernels/buffer.hpp", "kernels/queue.hpp"],  # memory of kernels is exchanged too
    "requests": ["base", "tokenizer"],
    "chat": ["base", "requests/chat_renderer.hpp", "requests/field_values.hpp"],
    "resume": ["base", "requests"],
    "sampling": ["base", "tokenizer", "requests", "kernels"],
    "trace": ["base", "hdf5"],
    "plan": ["base", "placement", "trace"],
    "replay": ["base", "placement", "routing", "trace", "plan"],
    "kernels": ["base"],
    "mpi_launch": ["base", "transport", "kernels/queue_lifetime.hpp", "kernels/cuda/cuda_check.hpp"],
    "decoder": ["base", "model", "checkpoint", "placement", "routing", "transport", "requests", "kernels"],
    "report": ["base", "hdf5", "model", "checkpoint", "deck", "placement", "routing", "requests", "decoder"],
    "engine": ["base", "model", "checkpoint", "tokenizer", "deck", "placement", "routing", "transport", "requests",
               "chat", "resume", "sampling", "trace", "plan", "kernels", "mpi_launch", "decoder", "report"],
    "bench": ["base", "deck", "model", "checkpoint", "placement", "routing", "transport", "requests", "kernels",
              "decoder", "engine"],
    "cli": ["base", "bench", "hdf5", "model", "checkpoint", "tokenizer", "deck", "placement", "routing", "transport",
            "requests", "trace", "replay", "plan", "kernels", "mpi_launch", "decoder", "report", "engine"],
    "main.cpp": ["base", "mpi_launch", "cli"],
}

# Libraries that only some files may include: name, header, where.
CONFINED = [
    ("MPI", r"mpi(-ext)?\.h", ["mpi_launch/*", "src/transport/*mpi*", "src/checkpoint/*parallel*", "tests/*"]),
    ("NCCL", r"nccl\.h", ["src/transport/*nccl*", "tests/device_double/*"]),
    ("Kokkos", r"Kokkos_.*", ["kernels/*", "mpi_launch/*", "tests/support/kokkos_main.cpp"]),
    ("CUDA", r"(cuda|cublas|cudnn).*\.h",
     ["kernels/cuda/*", "mpi_launch/*cuda*", "src/transport/*nccl*", "tests/device_double/*"]),
]
CUDA_SYNTAX = re.compile(r"<<<|\b__(global|device|host|shared|constant)__\b")

# A unit with Kokkos may have to be compiled by nvcc, which these headers do not survive or slow down.
APART_FROM_KOKKOS = re.compile(r"(hwy/|nlohmann/|toml|fmt/)")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
CODE = {".cpp", ".hpp", ".h", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake", ".sbatch"}
TEXTS = {".txt", ".md", ".toml", ".yml"}
MAX_LINES = 500
# Data, and what is not part of the project.
SKIPPED = [".git", ".git/*", "build/*", "output/*", "*__pycache__*", "tests/data/*", "inputs/models/*"]
# A path that exists on some machine only.
FOREIGN_PATH = re.compile(r"/wor[k]/|/hom[e]/\w|(?<![\w/\"'.-])share[d]/")


class Source:
    """A text file of the project: its path relative to the root, and its text."""

    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.suffix = path.suffix
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()

    def is_code(self):
        return self.suffix in CODE

    def includes(self):
        """Yields (line number, path in quotes or None, path in angle brackets or None)."""
        for match in INCLUDE.finditer(self.text):
            yield self.text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)

    def room(self):
        parts = self.path.split("/")
        if parts[0] == "src" and len(parts) > 1:
            return parts[1]
        return parts[0] if parts[0] in ARROWS else None


def matches(path, patterns):
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def read_sources(root):
    sources = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        wanted = path.suffix in CODE | SCRIPTS | TEXTS or path.name == "CMakePresets.json" or name.startswith(".ci/")
        if wanted and path.is_file() and not matches(name, SKIPPED):
            sources.append(Source(root, path))
    return sources


def check_text(source):
    for number, line in enumerate(source.lines, start=1):
        if "\t" in line:
            yield number, "tab"
        if line != line.rstrip():
            yield number, "space at the end of the line"
        if FOREIGN_PATH.search(line):
            yield number, "path outside the repository"
    if source.suffix in CODE | SCRIPTS and len(source.lines) >= MAX_LINES:
        yield MAX_LINES, f"file has {len(source.lines)} lines; the limit is {MAX_LINES - 1}"


def check_test_names(source):
    for number, line in enumerate(source.lines, start=1):
        # CMake takes a name with a bracket and all that follow it for one test, and splits one at a semicolon: what it
        # then calls runs nothing.
        if re.search(r'TEST_CASE\("[^"]*[\[\];]', line):
            yield number, "name of a test with a square bracket or a semicolon"


def check_header(source):
    if source.suffix not in {".hpp", ".cuh", ".h"}:
        return
    if "#pragma once" not in source.lines:
        yield 1, "header without #pragma once"
    if not source.text.startswith("//"):
        yield 1, "header does not open with a comment that says what it is for"


def check_arrows(source):
    room = source.room()
    if room is None:
        return
    if room not in ARROWS:
        yield 1, f"room {room} is not in the table of arrows"
        return
    for number, path, _ in source.includes():
        target = path.split("/")[0] if path and "/" in path else None
        if target and target != room and target not in ARROWS[room] and path not in ARROWS[room]:
            yield number, f"{room} must not include {path}: it may use {', '.join(ARROWS[room]) or 'no other room'}"


def check_confined(source):
    for number, path, system in source.includes():
        for library, header, places in CONFINED:
            if re.fullmatch(header, system or path) and not matches(source.path, places):
                yield number, f"{library} header outside {', '.join(places)}"


def check_cuda_syntax(source):
    if matches(source.path, ["kernels/cuda/*"]):
        return
    for number, line in enumerate(source.lines, start=1):
        code = re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]
        if CUDA_SYNTAX.search(code):
            yield number, "CUDA syntax outside kernels/cuda"


def included_libraries(source, by_include_path, seen):
    """All headers in angle brackets that a unit includes, also through the project's own headers."""
    libraries = set()
    for _, path, system in source.includes():
        if system:
            libraries.add(system)
        elif path in by_include_path and path not in seen:
            seen.add(path)
            libraries |= included_libraries(by_include_path[path], by_include_path, seen)
    return libraries


def check_kokkos_unit(source, by_include_path):
    libraries = included_libraries(source, by_include_path, set())
    if any(library.startswith("Kokkos_") for library in libraries):
        for library in sorted(libraries):
            if APART_FROM_KOKKOS.match(library):
                yield 1, f"includes Kokkos and <{library}>, maybe through another header"


def violations(root):
    sources = read_sources(pathlib.Path(root))
    by_include_path = {source.path.removeprefix("src/"): source for source in sources if source.is_code()}
    found = []
    for source in sources:
        found += [(source.path, *fault) for fault in check_text(source)]
        if source.is_code():
            for check in (check_test_names, check_header, check_arrows, check_confined, check_cuda_syntax):
                found += [(source.path, *fault) for fault in check(source)]
            found += [(source.path, *fault) for fault in check_kokkos_unit(source, by_include_path)]
    return found


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1], "src").is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    found = violations(sys.argv[1])
    for path, line, fault in found:
        print(f"{path}:{line}: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
