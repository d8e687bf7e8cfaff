#!/usr/bin/env python3
"""Very many short requests on two ranks: every one is answered once, and memory does not grow with their number.

ctest runs it with 2,000 requests; a large run by hand:

    python3 tests/regression/million.py --metro build/cpu-release/bin/metro --requests 1000000

Prints requests/s, tokens/s and the largest resident memory of rank 0 so far at 10% and at the end (VmHWM). Fails if
requests are missing or repeated, or if memory grew from 10% to the end by more than --bytes-per-request for each request
(16 are for the digests of custom_ids) and --slack-mib.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from metro_runs import ENVIRONMENT, Metro

WORDS = ["A cat", "The dog", "Once upon a time", "Grandma", "One day the sun", "Tom and Lily", "It was", "Mom said"]


def write_requests(path, count):
    with open(path, "w") as out:
        for number in range(count):
            out.write(json.dumps({"custom_id": f"request-{number}", "prompt": WORDS[number % len(WORDS)],
                                  "max_tokens": 1}) + "\n")


def rank_0_of(launcher):
    """The process of rank 0 among the children of mpiexec, which is told its rank by the launcher; None if not there."""
    try:
        children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        for child in children:
            environment = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            if b"OMPI_COMM_WORLD_RANK=0" in environment or b"PMI_RANK=0" in environment:
                return int(child)
    except OSError:
        pass
    return None


def peak_memory(process):
    """Largest resident memory of a process so far, in bytes; None when it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{process}/status").read_text())
        return int(found.group(1)) * 1024 if found else None
    except OSError:
        return None


def count_new_lines(file):
    """Lines that `file` has got since the last call."""
    count = 0
    while block := file.read(1 << 20):
        count += block.count(b"\n")
    return count


def watch(process, completions, count):
    """Samples rank 0 until the job ends; returns its peak memory at 10% of the requests and at the end."""
    rank_0, at_tenth, last, done, file = None, None, None, 0, None
    while process.poll() is None:
        time.sleep(0.01)
        rank_0 = rank_0 or rank_0_of(process.pid)
        file = file or (open(completions, "rb") if completions.exists() else None)
        sample = peak_memory(rank_0) if rank_0 else None
        done += count_new_lines(file) if file else 0
        last = sample or last
        if at_tenth is None and done >= count // 10:
            at_tenth = last
    return at_tenth, last


def check_ids(completions, count):
    """What is wrong with the custom_ids of the completions, in words; None if each is there once."""
    seen = bytearray(count)
    identifier = re.compile(rb'"custom_id":"request-(\d+)"')
    with open(completions, "rb") as lines:
        for line in lines:
            number = int(identifier.search(line).group(1))
            if seen[number]:
                return f"request-{number} is answered twice"
            seen[number] = 1
    missing = seen.find(0)
    return None if missing < 0 else f"request-{missing} is not answered"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--bytes-per-request", type=int, default=16)
    parser.add_argument("--slack-mib", type=int, default=8)
    arguments = parser.parse_args()
    count = arguments.requests

    with tempfile.TemporaryDirectory(prefix="metro-million-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        write_requests(metro.folder / "requests.jsonl", count)
        deck = metro.write_deck("requests.jsonl", "output")
        with open(metro.folder / "log.txt", "w") as log:
            command = metro.command(["run", deck, "batch.max_sequences_per_rank=256"], ranks=2)
            process = subprocess.Popen(command, cwd=metro.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=ENVIRONMENT)
            at_tenth, at_end = watch(process, metro.folder / "output/completions.jsonl", count)
        log = (metro.folder / "log.txt").read_text()
        if process.returncode != 0:
            sys.exit(f"exit code {process.returncode}\n{log}")
        wrong = check_ids(metro.folder / "output/completions.jsonl", count)

    seconds = float(re.search(r"time +([\d.]+) s", log).group(1))
    prompt, generated = map(int, re.search(r"tokens +(\d+) prompt, (\d+) generated", log).groups())
    print(log)
    print(f"{count} requests in {seconds:.1f} s: {count / seconds:.0f} requests/s, "
          f"{(prompt + generated) / seconds:.0f} tokens/s (prompt and generated)")
    if at_tenth and at_end:
        print(f"largest resident memory of rank 0: {at_tenth / 2**20:.1f} MiB at 10%, {at_end / 2**20:.1f} MiB at the end")
        allowed = 0.9 * count * arguments.bytes_per_request + arguments.slack_mib * 2**20
        if at_end - at_tenth > allowed:
            wrong = wrong or f"memory grew by {at_end - at_tenth} bytes, allowed are {allowed:.0f}"
    else:
        print("the run was too short to see the memory of rank 0")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
