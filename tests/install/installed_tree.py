"""Installs the project for the tests of the installed tree, and puts it into the environment as its users do."""

import os
import pathlib
import shlex
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# What defines `module` in a bash: as Debian has it, as Red Hat has it.
MODULE_SYSTEMS = {"environment-modules": ["/usr/share/modules/init/bash", "/usr/share/Modules/init/bash"],
                  "lmod": ["/usr/share/lmod/lmod/init/bash"]}


def must(command, **options):
    """Runs a command whose failure fails the test. Returns what it printed, standard error included."""
    process = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, timeout=200, **options)
    if process.returncode != 0:
        raise SystemExit(f"{shlex.join(map(str, command))}: exit code {process.returncode}\n{process.stdout}")
    return process.stdout


def install(cmake, build, prefix, destdir=None):
    """`cmake --install`; with `destdir` below that folder, as packages are made. Returns where the tree is."""
    environment = os.environ | ({"DESTDIR": str(destdir)} if destdir else {})
    must([cmake, "--install", build, "--prefix", prefix], env=environment)
    return destdir / prefix.relative_to("/") if destdir else prefix


def contents(tree):
    """Path below `tree`, size and time of change of every file."""
    return {str(path.relative_to(tree)): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in tree.rglob("*") if path.is_file()}


def plain_environment():
    """What a login gives: the MPI, but no metro, and nothing of loaded modules or of Python's."""
    path = [folder for folder in os.environ["PATH"].split(":") if not os.path.exists(f"{folder}/metro")]
    return {"PATH": ":".join(path), "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"} | {
        name: value for name, value in os.environ.items()
        if name.startswith(("OMPI_", "OMP_", "ASAN_", "LD_LIBRARY_PATH"))}


def start_file(system):
    """The file that defines `module`, or None where the module system is not installed."""
    return next((path for path in MODULE_SYSTEMS[system] if os.path.exists(path)), None)


def module_shell(system, folder, commands):
    """The finished bash that ran `commands`, lines with `module` in them, where `folder` has the modulefiles."""
    script = f"source {start_file(system)}\nmodule use {shlex.quote(str(folder))}\n{commands}"
    return subprocess.run(["bash", "-c", script], text=True, capture_output=True, timeout=60, env=plain_environment())


def loaded_environment(system, tree):
    """The environment after `module load metro`; with `path` as system, after it was set by hand."""
    plain = plain_environment()
    if system == "path":
        return plain | {"PATH": f"{tree}/bin:{plain['PATH']}", "METRO_ROOT": f"{tree}/share/metro"}
    process = module_shell(system, tree / "share/metro/modulefiles", "module load metro && echo loaded && env -0")
    before, loaded, variables = process.stdout.partition("loaded\n")
    if not loaded:
        raise SystemExit(f"module load metro of {system}: {before}{process.stderr}")
    found = dict(variable.split("=", 1) for variable in variables.split("\0") if variable)
    # Only what the modulefile is for: the rest is the shell's and the module system's own.
    return plain | {name: found[name] for name in ("PATH", "METRO_ROOT")}
