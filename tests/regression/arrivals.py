#!/usr/bin/env python3
"""Arrival times change when requests run, not what comes out; waiting for requests is no time-out."""

import argparse
import json
import subprocess
import sys
import tempfile
import time

from metro_runs import ENVIRONMENT, SOURCE, Metro, reference_cases

TRACES = SOURCE / "tests/data/arrivals"
# Seconds without requests, and the shorter time after which a rank takes the others for dead.
SILENCE_S, TIMEOUT_S = 5.0, 3.0


def request_lines(arrival_of=None):
    lines = [{"custom_id": f"case-{number}", "prompt": case["prompt"], "max_tokens": 16}
             for number, case in enumerate(reference_cases()[:12])]
    for number, line in enumerate(lines if arrival_of else []):
        line["arrival_s"] = arrival_of(number)
    return lines


def from_slow_pipe(metro, deck, lines):
    """Half of the requests, silence, the other half, through standard input."""
    arguments = ["run", deck, "--overwrite", "requests.input=-", f"run.timeout_s={TIMEOUT_S}"]
    process = subprocess.Popen(metro.command(arguments, ranks=2), cwd=metro.folder, text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    texts = [json.dumps(line) + "\n" for line in lines]
    process.stdin.write("".join(texts[:6]))
    process.stdin.flush()
    time.sleep(SILENCE_S)
    stdout, stderr = process.communicate("".join(texts[6:]), timeout=110)
    if process.returncode != 0:
        sys.exit(f"a slow pipe: exit code {process.returncode}\n{stdout}{stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    failures = 0

    def check(name, holds, details=""):
        nonlocal failures
        failures += not holds
        print("ok   " if holds else "WRONG", name, "" if holds else details)

    with tempfile.TemporaryDirectory(prefix="metro-arrivals-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        plain = metro.write_requests("plain.jsonl", request_lines())
        timed = metro.write_requests("timed.jsonl", request_lines(lambda number: 0.05 * (number // 2)))
        gap = metro.write_requests("gap.jsonl", request_lines(lambda number: SILENCE_S * (number >= 6)))
        deck = metro.write_deck(plain, "output")
        no_arrivals = metro.must(["run", deck, "output.directory=baseline"])
        baseline = metro.completions("baseline")
        check("without arrivals nothing is said of queueing", "queueing" not in no_arrivals.stdout, no_arrivals.stdout)

        azure = f"requests.arrivals={TRACES / 'azure/code_first12.csv'}"
        mooncake = f"requests.arrivals={TRACES / 'mooncake/conversation_first12.jsonl'}"
        for name, overrides, ranks in [
                ("Azure trace", [azure, "requests.arrival_scale=0.2"], 3),
                ("Mooncake trace", [mooncake, "requests.arrival_scale=0.1"], 1),
                ("arrival_s in the lines", [f"requests.input={timed}", "batch.max_sequences_per_rank=2"], 2),
                ("a gap longer than the time-out", [f"requests.input={gap}", f"run.timeout_s={TIMEOUT_S}"], 2)]:
            run = metro.must(["run", deck, "--overwrite", *overrides], ranks=ranks)
            check(f"{name}: the same completions", metro.completions("output") == baseline)
            check(f"{name}: queueing in the summary", "  queueing    median" in run.stdout, run.stdout)
            check(f"{name}: no warning", "warning" not in run.stderr, run.stderr)

        from_slow_pipe(metro, deck, request_lines())
        check("a slow pipe: the same completions", metro.completions("output") == baseline)

        (metro.folder / "short.csv").write_text("TIMESTAMP\n2024-01-01 00:00:00\n2024-01-01 00:00:00.1\n")
        run = metro.must(["run", deck, "--overwrite", "requests.arrivals=short.csv"], ranks=2)
        check("a short trace: the same completions", metro.completions("output") == baseline)
        check("a short trace: a warning", run.stderr.count("requests.arrivals has fewer rows") == 1, run.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
