#!/usr/bin/env python3
"""Runs slurm/scaling_sweep.sbatch without Slurm on the embedded model: the table it makes, and that all runs of an input
answer the same. Nothing is said of times."""

import argparse
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/regression"))
from metro_runs import ENVIRONMENT, Metro, reference_cases

PARTS = ("compute", "experts", "exchange", "waiting", "routing", "other")


class Sweep:
    def __init__(self, metro):
        self.metro = metro
        lines = [{"prompt": case["prompt"], "max_tokens": 12} for case in reference_cases()[:12]]
        self.deck = metro.write_deck(metro.write_requests("requests.jsonl", lines), "unused")
        self.right = True

    def expect(self, what, holds, detail=""):
        print("ok   " if holds else "WRONG", what, "" if holds else f"\n{detail}")
        self.right &= bool(holds)

    def start(self, output, *overrides, **variables):
        """The finished process of a sweep, outside of Slurm even if the test runs in a job."""
        environment = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("SLURM_")}
        environment |= {"METRO": self.metro.binary, "METRO_SWEEP_POLICIES": "exact even", "METRO_SWEEP_RANKS": "1 2", "METRO_SWEEP_RUNS": "1"}
        return subprocess.run(["bash", SOURCE / "slurm/scaling_sweep.sbatch", self.deck, output, *overrides], text=True,
                              cwd=self.metro.folder, capture_output=True, timeout=200, env=environment | variables)

    def rows(self, output, *overrides, **variables):
        done = self.start(output, *overrides, **variables)
        if done.returncode != 0:
            self.expect(f"{output} ends well", False, done.stdout + done.stderr)
            return []
        with open(self.metro.folder / output / "table.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.expect(f"{output}: the table is printed too",
                    (self.metro.folder / output / "table.txt").read_text() in done.stdout, done.stdout)
        shares = [sum(float(row[part]) for part in PARTS) for row in rows]
        self.expect(f"{output}: the parts of a step add up", all(abs(share - 1) < 1e-9 for share in shares), shares)
        return rows

    def strong(self):
        rows = self.rows("strong", METRO_SWEEP_SEQUENCES="4", METRO_SWEEP_RUNS="2")
        self.expect("strong: every row is the fastest of two runs", {row["runs"] for row in rows} == {"2"}, rows)
        self.expect("strong: a row for each number of ranks and policy",
                    [(row["ranks"], row["policy"]) for row in rows] ==
                    [("1", "even"), ("1", "exact"), ("2", "even"), ("2", "exact")], rows)
        self.expect("strong: steps have the rows of as many sequences on all ranks together",
                    len({row["rows"] for row in rows}) == 1 and 1 < float(rows[0]["rows"]) <= 4, rows)
        self.expect("strong: the busiest of two ranks activates fewer experts than one",
                    float(rows[0]["lambda"]) > float(rows[2]["lambda"]) > 1, rows)
        answers = {row["name"]: self.metro.completions(f"strong/{row['name']}")
                   for row in ({"name": f"{ranks}-{policy}"} for ranks in (1, 2)
                    for policy in ("exact", "even", "exact.2", "even.2"))}
        self.expect("strong: all runs answer the same", len(set(map(tuple, answers.values()))) == 1 and
                    len(answers["1-exact"]) == 12, answers)
        return answers["1-exact"]

    def weak(self, answers):
        rows = self.rows("weak", "batch.max_sequences_per_rank=2", METRO_SWEEP="weak")
        self.expect("weak: one rank has half of the sequences of two", len(rows) == 4 and
                    float(rows[0]["rows"]) <= 2 < float(rows[2]["rows"]) <= 4, rows)
        for policy in ("exact", "even"):
            half = self.metro.completions(f"weak/1-{policy}")
            self.expect(f"weak, {policy}: one rank answers half of the lines, two all, and in the same way",
                        len(half) == 6 and set(half) < set(answers) and
                        self.metro.completions(f"weak/2-{policy}") == answers, half)

    def crowded(self):
        rows = self.rows("crowded", f"run.threads={os.cpu_count() + 1}", METRO_SWEEP_RANKS="1")
        self.expect("more threads than cores have a mark, and no efficiency",
                    all(row["crowded"] == "True" and row["efficiency"] == "" for row in rows) and len(rows) == 2 and
                    "mean nothing" in (self.metro.folder / "crowded/table.txt").read_text(), rows)

    def refused(self):
        for what, variables, text in [
                ("a mode that is none", {"METRO_SWEEP": "half"}, "METRO_SWEEP=half: must be strong or weak"),
                ("ranks that are none", {"METRO_SWEEP_RANKS": "1 x"}, "METRO_SWEEP_RANKS: x: must be numbers"),
                ("sequences that are no number", {"METRO_SWEEP_SEQUENCES": "-1"}, "METRO_SWEEP_SEQUENCES=-1: must be"),
                ("sequences that ranks cannot share", {"METRO_SWEEP_SEQUENCES": "5"}, "must be a multiple of 2 ranks"),
                ("runs that are no number", {"METRO_SWEEP_RUNS": "0"}, "METRO_SWEEP_RUNS=0: must be"),
                ("ranks that cannot share an input", {"METRO_SWEEP": "weak", "METRO_SWEEP_RANKS": "2 3",
                                                      "METRO_SWEEP_SEQUENCES": "6"}, "3 ranks must be a multiple of 2"),
                ("no program", {"METRO": "/nowhere"}, "no program at METRO=/nowhere")]:
            done = self.start("refused", **variables)
            self.expect(f"{what}: refused", done.returncode == 2 and text in done.stderr, done.stdout + done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="metro-sweep-") as folder:
        sweep = Sweep(Metro(arguments.metro, arguments.mpiexec, pathlib.Path(folder)))
        answers = sweep.strong()
        sweep.weak(answers)
        sweep.crowded()
        sweep.refused()
    return 0 if sweep.right else 1


if __name__ == "__main__":
    sys.exit(main())
