#!/usr/bin/env python3
"""Tests what `cmake --install` gives: its files, the README's quickstart in it after it was moved, the modulefile.

Exit code 77, with the reason, where the module system to be tested is not installed.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from installed_tree import (MODULE_SYSTEMS, SOURCE, contents, install, loaded_environment, module_shell, must,
                            plain_environment, start_file)

PROGRAMS = {"bin/metro", "bin/metro_mpirun"} | {
    f"share/metro/{path.relative_to(SOURCE)}" for path in (SOURCE / "tools").glob("*.py")}


def expected_files(version):
    folders = ["docs", "inputs", "slurm"]
    copied = {f"share/metro/{path.relative_to(SOURCE)}"
              for folder in folders for path in (SOURCE / folder).rglob("*") if path.is_file()}
    return PROGRAMS | copied | {f"share/metro/{name}" for name in ("README.md", "CONTRIBUTING.md", "LICENSE")} | {
        "share/metro/docs/parameters.md", "share/metro/inputs/quickstart.toml", "share/metro/tools/chat_renderer.py",
        "share/metro/inputs/prompts/stories.jsonl", "share/metro/inputs/models/tiny/model.safetensors",
        f"share/metro/modulefiles/metro/{version}"}


def names_of_folders(tree, folders, scratch):
    """Files below `tree` that name one of `folders`. Of programs, what debuggers and sanitizers read does not count."""
    pattern = re.compile(rb"(?<![\w./-])(" + b"|".join(re.escape(str(folder).encode()) for folder in folders) + rb")\b")
    named = []
    for name in contents(tree):
        path = tree / name
        if path.read_bytes()[:4] == b"\x7fELF":
            must(["strip", "--strip-debug", "-o", scratch / "stripped", path])
            path = scratch / "stripped"
        content = path.read_bytes()
        if b"__asan_init" not in content:
            named += [f"{name} names {found.decode()}" for found in set(pattern.findall(content))]
    return named


def broken_links(tree):
    """Links of the installed pages to files that are not installed."""
    return [f"{page.relative_to(tree)} links {link}" for page in tree.rglob("*.md")
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
            if not (page.parent / link).exists()]


def check_files(arguments, scratch):
    tree = install(arguments.cmake, arguments.build, scratch / "a prefix")
    staged = install(arguments.cmake, arguments.build, scratch / "elsewhere", destdir=scratch / "stage")

    found = set(contents(tree))
    wrong = [f"{name} is missing" for name in expected_files(arguments.version) - found]
    wrong += [f"{name} is not expected" for name in found - expected_files(arguments.version)]
    wrong += [f"{name} cannot be executed" for name in PROGRAMS & found if not os.access(tree / name, os.X_OK)]
    wrong += [f"{name} differs with DESTDIR" for name in found ^ set(contents(staged))]
    wrong += ["an install with DESTDIR touched the prefix"] if (scratch / "elsewhere").exists() else []
    wrong += names_of_folders(tree, [SOURCE, arguments.build, scratch], scratch)
    return wrong + broken_links(tree)


def readme_commands():
    """What the README says to type once the module is loaded."""
    section = (SOURCE / "README.md").read_text().split("## Install\n")[1]
    block = next(text for text in section.split("```")[1::2] if "module load metro" in text)
    return [line.split("  #")[0].strip() for line in block.strip().splitlines() if not line.startswith("module load")]


def completions(path):
    """custom_id to text and finish reason."""
    bodies = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, path.read_text().splitlines())}
    return {name: (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) for name, body in bodies.items()}


def wrong_completions(here):
    """What the quickstart's deck and checkpoint do not complete as transformers does (tests/data/README.md)."""
    cases = json.loads((SOURCE / "tests/data/tiny/reference.json").read_text())["cases"]
    prompts = "".join(json.dumps({"prompt": case["prompt"]}) + "\n" for case in cases)
    (here["cwd"] / "prompts.jsonl").write_text(prompts)
    must(["metro_mpirun", "-n", "2", "metro", "run", "inputs/quickstart.toml", "model.checkpoint=tiny.h5",
          "requests.input=prompts.jsonl", "output.directory=reference"], **here)
    expected = {f"line-{number}": (case["text"], case["finish_reason"]) for number, case in enumerate(cases, start=1)}
    found = completions(here["cwd"] / "reference/completions.jsonl")
    return [f"{name}: {found.get(name)}, expected {expected.get(name)}"
            for name in sorted(expected.keys() | found.keys()) if found.get(name) != expected.get(name)]


def program_of_slurm(share):
    """The program that the Slurm scripts below `share` take when no module is loaded."""
    script = 'source "$0/slurm/site.env"; readlink -m "$METRO"'
    return must(["bash", "-c", script, share], env=plain_environment()).strip()


def check_run(arguments, scratch):
    system = arguments.environment
    if system != "path" and start_file(system) is None:
        print(f"skipped: {system} is not installed ({' or '.join(MODULE_SYSTEMS[system])})")
        sys.exit(77)
    # The oldest Lmod in use (8.6) reads no modulefile in a folder with a space in its name.
    place = scratch / ("moved" if system == "lmod" else "moved here")
    tree = install(arguments.cmake, arguments.build, scratch / "a prefix").rename(place)
    for path in [tree, *tree.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    before = contents(tree)
    folder = scratch / "empty"
    folder.mkdir()
    environment = loaded_environment(system, tree)
    here = {"cwd": folder, "env": environment}

    version = must(["metro", "--version"], **here)
    output = "".join(must(["bash", "-c", command], **here) for command in readme_commands())
    plot = subprocess.run([f"{environment['METRO_ROOT']}/tools/plot_run.py", "--help"], text=True,
                          capture_output=True, timeout=60, **here)

    must(["metro_mpirun", "-n", "2", "metro", "run", "inputs/chat.toml", "model.checkpoint=tiny.h5"], **here)

    wrong = wrong_completions(here)
    num_answers = len((folder / "output/chat/completions.jsonl").read_text().splitlines())
    wrong += [f"{num_answers} answers to chat"] * (num_answers != 4)
    num_done = len(completions(folder / "output/quickstart/completions.jsonl"))
    wrong += [f"{num_done} completions of the quickstart"] * (num_done != 24)
    wrong += [f"METRO_ROOT is {environment['METRO_ROOT']}"] * (environment["METRO_ROOT"] != f"{tree}/share/metro")
    if version != must([arguments.build / "bin/metro", "--version"]) or f"metro {arguments.version} (" not in version:
        wrong += [f"metro --version: {version}"]
    wrong += [f"the run does not say that it is {version}"] * (version not in output)
    # Without the packages for plots the tool says which is missing: it has been found and started all the same.
    if "usage: plot_run" not in plot.stdout and "is missing; plots" not in plot.stderr:
        wrong += [f"plot_run.py --help: {plot}"]
    wrong += ["the tree has changed"] * (contents(tree) != before)
    if program_of_slurm(tree / "share/metro") != f"{tree}/bin/metro":
        wrong += [f"the Slurm scripts take {program_of_slurm(tree / 'share/metro')}"]
    if system != "path":
        shown = module_shell(system, tree / "share/metro/modulefiles",
                             "module help metro 2>&1; module whatis metro 2>&1").stdout
        wrong += [f"module help lacks: {text}" for text in [*readme_commands(), "language models"] if text not in shown]
    return wrong


def check_links(arguments, scratch):
    """Folders of modulefiles beside the tree: one with a link into it, one with a copy."""
    systems = [system for system in MODULE_SYSTEMS if start_file(system)]
    if not systems:
        print(f"skipped: no {' or '.join(MODULE_SYSTEMS)}")
        sys.exit(77)
    tree = install(arguments.cmake, arguments.build, scratch / "tree")
    modulefile = tree / "share/metro/modulefiles/metro" / arguments.version
    for folder in ("linked", "copied"):
        (scratch / folder / "metro").mkdir(parents=True)
    (scratch / "linked/metro/mine").symlink_to(modulefile)
    shutil.copy(modulefile, scratch / "copied/metro/mine")

    wrong = []
    for system in systems:
        linked = module_shell(system, scratch / "linked",
                              "module load metro/mine; echo $METRO_ROOT; type -p metro metro_mpirun")
        copied = module_shell(system, scratch / "copied", "module load metro/mine; type -p metro || echo none")
        if linked.stdout.split() != [f"{tree}/share/metro", f"{tree}/bin/metro", f"{tree}/bin/metro_mpirun"]:
            wrong += [f"{system}, linked: {linked.stdout}{linked.stderr}"]
        message = " ".join(copied.stderr.split())  # module systems wrap it
        if "this modulefile may be linked, not copied" not in message or copied.stdout != "none\n":
            wrong += [f"{system}, copied: {copied.stdout}{copied.stderr}"]
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=["files", "run", "links"])
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder in which metro has been built")
    parser.add_argument("--version", required=True)
    parser.add_argument("--environment", choices=["path", *MODULE_SYSTEMS], default="path")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()

    scratch = pathlib.Path(tempfile.mkdtemp(prefix="metro-install-")).resolve()
    try:
        check = {"files": check_files, "run": check_run, "links": check_links}[arguments.check]
        wrong = check(arguments, scratch)
    finally:
        for path in scratch.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)  # or what is in it could not be removed
        shutil.rmtree(scratch)
    print("\n".join(wrong) or "all as expected")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
