#!/usr/bin/env python3
"""A rank fails while the others wait for it: the job ends soon, with an exit code that is not 0, the reason printed once,
no process left, and whole lines of what was finished.

Failures: a disk that is full for rank 0, a rank that is killed, a rank that crashes, a rank that stops without a word,
all ranks and their launcher killed at once, a checkpoint that is damaged before experts are fetched from it again.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from metro_runs import ENVIRONMENT, Metro, reference_cases

PATIENCE_S = 60  # for what takes a second or two on a machine that does nothing else
TIMEOUT_S = 4  # run.timeout_s, where it is to pass


def wait_for(condition, what):
    begin = time.monotonic()
    while not (value := condition()):
        if time.monotonic() - begin > PATIENCE_S:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.01)
    return value


def ranks_of(launcher):
    """The processes of a job, by rank, as the launcher told them; empty until all are there."""
    found = {}
    try:
        for child in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            for entry in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                if entry.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")):
                    found[int(entry.split(b"=")[1])] = int(child)
    except OSError:
        pass
    return found


class Job:
    """A long run on three ranks, under way."""

    def __init__(self, metro, deck, name, overrides=(), prefix=()):
        self.completions = metro.folder / name / "completions.jsonl"
        command = metro.command(["run", deck, f"output.directory={metro.folder / name}", *overrides], ranks=3)
        at = command.index(metro.binary)
        self.log = open(metro.folder / f"{name}.log", "w+")
        self.process = subprocess.Popen(command[:at] + list(prefix) + command[at:], cwd=metro.folder, env=ENVIRONMENT,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def ranks_at_work(self):
        """Process of each rank, once some requests are finished."""
        wait_for(lambda: self.completions.exists() and self.completions.stat().st_size > 0, "the first completion")
        return wait_for(lambda: len(found := ranks_of(self.process.pid)) == 3 and found, "three ranks")

    def faults(self, exit_codes, texts, once=()):
        """What is not as it should be after the job has ended."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return ["the job does not end"]
        self.log.seek(0)
        output = self.log.read()
        found = [] if code in exit_codes else [f"exit code {code}, expected one of {exit_codes}"]
        found += [f"missing: {text}" for text in texts if text not in output]
        found += [f"{output.count(text)} times instead of once: {text}" for text in once if output.count(text) != 1]
        content = self.completions.read_text()
        if content and not content.endswith("\n"):
            found.append("the last completion is no whole line")
        for line in content.splitlines():
            json.loads(line)
        return [*found, output] if found else []


def is_gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def disk_full(metro, deck):
    # 40 blocks of 1024 bytes: the completions do not fit, everything that is written before does.
    job = Job(metro, deck, "full", prefix=["bash", "-c", 'ulimit -f 40; exec "$0" "$@"'])
    return job.faults([5], ["full/completions.jsonl"], once=["metro: error"])


def killed_rank(metro, deck):
    job = Job(metro, deck, "killed")
    ranks = job.ranks_at_work()
    os.kill(ranks[1], signal.SIGKILL)
    faults = job.faults([137, 5], ["metro: error: rank 1 (", ") is gone: ", "rank 0 waits for it in "], once=["metro: "])
    wait_for(lambda: all(map(is_gone, ranks.values())), "the end of all ranks")
    return faults


def crashed_rank(metro, deck):
    job = Job(metro, deck, "crashed")
    ranks = job.ranks_at_work()
    os.kill(ranks[1], signal.SIGSEGV)
    faults = job.faults([139, 5], ["rank 1 ("], once=["metro: "])
    wait_for(lambda: all(map(is_gone, ranks.values())), "the end of all ranks")
    return faults


def silent_rank(metro, deck):
    job = Job(metro, deck, "silent", overrides=[f"run.timeout_s={TIMEOUT_S}"])
    ranks = job.ranks_at_work()
    os.kill(ranks[2], signal.SIGSTOP)
    faults = job.faults([5], ["metro: error: rank 2 (", ") does not answer: ", "; its process is stopped",
                              f"ranks 0 and 1 have waited {TIMEOUT_S:.1f} s for it in "], once=["metro: "])
    wait_for(lambda: all(map(is_gone, ranks.values())), "the end of all ranks")
    return faults


def shared_memory():
    return {path.name for path in pathlib.Path("/dev/shm").glob("metro.*")}


def all_killed(metro, deck):
    before = shared_memory()
    job = Job(metro, deck, "all", overrides=["model.sharing=node"])
    ranks = job.ranks_at_work()
    for process in (job.process.pid, *ranks.values()):
        os.kill(process, signal.SIGKILL)
    faults = job.faults([-signal.SIGKILL], [])
    wait_for(lambda: all(map(is_gone, ranks.values())), "the end of all ranks")
    return faults + [f"left in /dev/shm: {name}" for name in shared_memory() - before]


def damaged_checkpoint(metro, deck):
    checkpoint = metro.folder / "damaged.h5"
    shutil.copyfile(metro.convert_tiny(), checkpoint)
    job = Job(metro, deck, "damaged", overrides=[f"model.checkpoint={checkpoint}", "experts.rebalance_steps=20",
                                                 "experts.rebalance_source=checkpoint"])
    job.ranks_at_work()
    with open(checkpoint, "r+b") as file:  # the same file, as the ranks have it open
        file.write(bytes(checkpoint.stat().st_size))
    return job.faults([4], ["damaged.h5", "does not have the digest"], once=["metro: error"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    failed = 0
    with tempfile.TemporaryDirectory(prefix="metro-failures-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        prompts = [case["prompt"] for case in reference_cases()]
        requests = [{"prompt": prompts[number % len(prompts)], "max_tokens": 60, "ignore_eos": True}
                    for number in range(20_000)]
        deck = metro.write_deck(metro.write_requests("requests.jsonl", requests), "output")
        for failure in (disk_full, killed_rank, crashed_rank, silent_rank, all_killed, damaged_checkpoint):
            faults = failure(metro, deck)
            failed += bool(faults)
            print("WRONG" if faults else "ok   ", failure.__name__, *faults, sep="\n  " if faults else " ", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
