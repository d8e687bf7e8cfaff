#!/usr/bin/env python3
"""What a run writes and where: nothing outside its output folder, with the user's umask, through nobody's links, and no
prompt or completion in what it prints; and what Open MPI keeps and opens for it while it runs."""

import argparse
import json
import os
import pathlib
import resource
import stat
import subprocess
import sys
import tempfile
import time

from metro_runs import ENVIRONMENT, Metro

SECRET = "Zanzibar"  # stands in prompts and nowhere else


def files_below(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def expect(faults, condition, text):
    if not condition:
        faults.append(text)


def run_and_look(metro, deck, faults):
    """A good run with some bad lines, under a strict umask: what is there afterwards, and what was printed."""
    before = files_below(metro.folder)
    old = os.umask(0o077)
    process = metro.start(["run", deck, "output.directory=out"], ranks=2)
    os.umask(old)
    out = metro.folder / "out"
    expect(faults, process.returncode == 0, f"exit code {process.returncode}: {process.stderr}")
    added = files_below(metro.folder) - before
    expected = {"out/" + name for name in ("completions.jsonl", "errors.jsonl", "metrics.h5", "deck.toml")}
    expect(faults, added == expected, f"files made: {sorted(added)}")
    for path in [out, *out.iterdir()]:
        mode = stat.S_IMODE(path.stat().st_mode)
        expect(faults, mode & 0o077 == 0, f"{path.name} has mode {mode:o} under umask 077")
    expect(faults, SECRET not in process.stdout + process.stderr, "a prompt was printed")
    for name in ("metrics.h5", "deck.toml"):
        expect(faults, SECRET.encode() not in (out / name).read_bytes(), f"a prompt is in {name}")
    for line in metro.completions("out"):
        text = json.loads(line)["response"]["body"]["choices"][0]["text"].strip()
        expect(faults, len(text) > 5 and text not in process.stdout + process.stderr, "a completion was printed")
    expect(faults, len(metro.errors("out")) == 3, "three lines are bad")


def links_in_the_way(metro, deck, faults):
    """Links that somebody put where a run writes: refused, and what they lead to is untouched."""
    for name in ("completions.jsonl", "errors.jsonl", "metrics.h5", "deck.toml"):
        folder = metro.folder / f"link_{name}"
        folder.mkdir()
        victim = metro.folder / f"victim_{name}"
        victim.write_text("theirs")
        (folder / name).symlink_to(victim)
        for extra in ([], ["--overwrite"]):
            process = metro.start(["run", deck, f"output.directory={folder}", *extra], ranks=1)
            expect(faults, process.returncode == 2 and name in process.stderr and "plain file" in process.stderr,
                   f"link at {name} {extra}: exit code {process.returncode}, {process.stderr}")
            expect(faults, victim.read_text() == "theirs", f"{name}: the file behind the link was changed")


def open_when_read(fifo, process):
    """The writing end, once the run has opened its input, which it does after all of its set-up; None if it ended."""
    for _ in range(1000):
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            if process.poll() is not None:
                return None
            time.sleep(0.1)
    return None


def core_limit(metro, deck, faults):
    """The limit of a rank while it waits for input, off and on."""
    fifo = metro.folder / "input.fifo"
    os.mkfifo(fifo)
    for setting in ("off", "on"):
        command = metro.command(["run", deck, f"requests.input={fifo}", f"run.core_dumps={setting}",
                                 f"output.directory=core_{setting}"])
        most = resource.getrlimit(resource.RLIMIT_CORE)[1]
        process = subprocess.Popen(command, cwd=metro.folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, most)))
        writer = open_when_read(fifo, process)
        soft = resource.prlimit(process.pid, resource.RLIMIT_CORE)[0] if writer is not None else None
        if writer is not None:
            os.close(writer)
        process.wait(timeout=100)
        wanted = most if setting == "on" or most == 0 else 1
        expect(faults, soft == wanted, f"run.core_dumps = {setting}: limit {soft} instead of {wanted}")
        expect(faults, process.returncode == 0, f"run.core_dumps = {setting}: exit code {process.returncode}")


def children_of(pid):
    children = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            begin, end = path.read_text().rsplit(")", 1)
        except OSError:
            continue  # it ended meanwhile
        if int(end.split()[1]) == pid:
            children.append(int(begin.split()[0]))
    return children


def open_sockets_that_listen(pid):
    """Local addresses (in hexadecimal) of a process's TCP sockets in state LISTEN."""
    links = {os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                found.append(fields[1])
    return found


def look_at_ranks(launcher, session, faults):
    """Ranks of one host, told to use shared memory only, under umask 0."""
    ranks = children_of(launcher.pid)
    expect(faults, len(ranks) == 2, f"mpirun has {len(ranks)} children instead of 2")
    for rank in ranks:
        listening = open_sockets_that_listen(rank)
        expect(faults, not listening, f"a rank listens on {listening} in spite of btl self,vader")
        mapped = {line.split()[-1] for line in pathlib.Path(f"/proc/{rank}/maps").read_text().splitlines()
                  if line.split()[-1].startswith("/dev/shm/")}
        expect(faults, mapped, "no memory of a rank in /dev/shm")
        for path in map(pathlib.Path, mapped):
            mode = stat.S_IMODE(path.stat().st_mode)
            expect(faults, mode & 0o077 == 0, f"{path} has mode {mode:o}")
    tops = [path for path in session.iterdir() if path.name.startswith("ompi.")]
    expect(faults, tops, f"no folder of Open MPI in {session}")
    for path in tops:
        mode = stat.S_IMODE(path.stat().st_mode)
        expect(faults, mode & 0o077 == 0, f"{path.name} has mode {mode:o}")


def shared_memory_and_ports(metro, deck, faults):
    """What the launcher and two ranks keep where others could look, while they wait for input."""
    fifo, session = metro.folder / "ranks.fifo", metro.folder / "session"
    os.mkfifo(fifo)
    session.mkdir()
    arguments = ["--mca", "btl", "self,vader", metro.binary, "run", deck, f"requests.input={fifo}",
                 "model.sharing=node", "output.directory=ranks"]
    command = [metro.mpiexec, "-n", "2", "--bind-to", "none", *map(str, arguments)]
    old = os.umask(0)
    process = subprocess.Popen(command, cwd=metro.folder, env=ENVIRONMENT | {"TMPDIR": str(session)},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.umask(old)
    writer = open_when_read(fifo, process)
    if writer is not None:
        look_at_ranks(process, session, faults)
        os.close(writer)
    process.wait(timeout=100)
    expect(faults, process.returncode == 0, f"ranks on shared memory: exit code {process.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    faults = []
    with tempfile.TemporaryDirectory(prefix="metro-security-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        requests = metro.folder / "requests.jsonl"
        requests.write_text("\n".join([
            json.dumps({"custom_id": "a", "prompt": f"{SECRET} was a cat who", "max_tokens": 12}),
            json.dumps({"custom_id": "a", "prompt": f"One day {SECRET}", "max_tokens": 12}),
            json.dumps({"prompt": f"{SECRET}", "max_tokens": -1}),
            json.dumps({"prompt": f"{SECRET}", f"{SECRET}": 1}),
            json.dumps(f"{SECRET}"),
        ]) + "\n", encoding="utf-8")
        deck = metro.write_deck(requests, "output")
        run_and_look(metro, deck, faults)
        links_in_the_way(metro, deck, faults)
        core_limit(metro, deck, faults)
        shared_memory_and_ports(metro, deck, faults)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
