#!/usr/bin/env python3
"""What a run writes and where: nothing outside its output folder, with the user's umask, through nobody's links, and no
prompt or completion in what it prints."""

import argparse
import json
import os
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
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
