#!/usr/bin/env python3
"""Tests tools/scaling_table.py on summaries of made-up runs of known efficiency, and what it refuses."""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DECK = """\
[requests]
input = "a = b # c.jsonl"  # file of requests
shard = "{shard}"  # part

[batch]
max_sequences_per_rank = {sequences}  # sequences

[run]
threads = 2  # threads

[routing]
decode = "{policy}"  # policy

[output]
directory = "{directory}"  # folder
"""
# Of 10 s in steps: 4 s compute, 2 s experts and so on; waiting is what is left.
PHASES = {"compute": 4.0, "routing": 0.5, "experts": 2.0, "exchange": 1.0, "waiting": 1.75, "sampling": 0.25,
          "requests": 0.25, "scheduling": 0.25}


def summary(ranks, policy, run_s, tokens=1000, sequences=None, shard="0/1", cores=8, **changes):
    deck = DECK.format(policy=policy, sequences=sequences or 16 // ranks, shard=shard, directory=f"out/{ranks}-{policy}")
    threads = 2 * ranks
    return {"build": "metro 1 (test)", "software": "some MPI", "checkpoint_digest": "0123", "placement": "eplb",
            "decode_policy": policy, "ranks": ranks, "nodes": 1, "deck": deck, "has_ended": True, "run_s": run_s,
            "cores": cores and {"threads": threads, "cores": cores, "is_crowded": threads > cores},
            "completed": 20, "prompt_tokens": 50, "generated_tokens": tokens, "decode_steps": 100, "decode_s": 10.0,
            "decode_phase_mean_s": PHASES, "lambda": 4.25, "optimum": 4.0} | changes


def table(*arguments, path=None):
    return subprocess.run([sys.executable, "-B", SOURCE / "tools/scaling_table.py", *map(str, arguments)], text=True,
                          capture_output=True, env={"PYTHONPATH": str(path)} if path else None)


class Checks:
    def __init__(self, folder):
        self.folder = folder
        self.right = True

    def write(self, name, *summaries, ending=""):
        for run in summaries:
            path = self.folder / name / f"{run['ranks']}-{run['decode_policy']}{ending}/summary.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(run))
        return self.folder / name

    def expect(self, what, holds, detail):
        print("ok   " if holds else "WRONG", what, "" if holds else f"\n{detail}")
        self.right &= holds

    def rows(self, name, *arguments):
        """The table of a folder as dictionaries, and the process that made it."""
        made = table(self.folder / name, *arguments, "--csv", self.folder / "table.csv")
        if made.returncode != 0:
            self.expect(f"{name} makes a table", False, made)
            return [], made
        with open(self.folder / "table.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file)), made

    def refused(self, what, name, *parts, mode="strong"):
        made = table(self.folder / name, "--mode", mode)
        self.expect(what, made.returncode == 3 and all(part in made.stderr for part in parts) and not made.stdout, made)


def tables(checks):
    # 100, 160 and 200 tokens/s on 1, 2 and 4 ranks; even begins at 2 ranks.
    checks.write("strong", summary(1, "exact", 10.0), summary(2, "exact", 6.25), summary(4, "exact", 5.0),
                 summary(2, "even", 8.0), summary(4, "even", 4.0))
    rows, made = checks.rows("strong", "--out", checks.folder / "table.txt")
    found = [(row["ranks"], row["policy"], float(row["tokens/s"]), float(row["speed-up"]), float(row["efficiency"]))
             for row in rows]
    checks.expect("strong: T1 / (n Tn) against the fewest ranks of a policy", found == [
        ("1", "exact", 100.0, 1.0, 1.0), ("2", "even", 125.0, 1.0, 1.0), ("2", "exact", 160.0, 1.6, 0.8),
        ("4", "even", 250.0, 2.0, 1.0), ("4", "exact", 200.0, 2.0, 0.5)], found)
    parts = {name: float(rows[0][name]) for name in ("compute", "experts", "exchange", "waiting", "routing", "other")}
    checks.expect("the parts of a step are shares of all its phases", parts == {
        "compute": 0.4, "experts": 0.2, "exchange": 0.1, "waiting": 0.175, "routing": 0.05, "other": 0.075}, parts)
    checks.expect("a step, its rows and lambda", [rows[0][name] for name in ("ms/step", "rows", "lambda", "optimum")] ==
                  ["100.0", "9.8", "4.25", "4.0"], rows[0])
    checks.expect("the table is printed, and without marks", made.stdout == (checks.folder / "table.txt").read_text() and
                  made.stdout.startswith("strong scaling\nranks") and "!" not in made.stdout and
                  "80%" in made.stdout, made)

    # Twice the work on twice the ranks takes 10 s, then 12.5 s.
    checks.write("weak", summary(1, "exact", 10.0, sequences=4, shard="0/2"),
                 summary(2, "exact", 12.5, tokens=2000, sequences=4, shard="0/1"))
    rows, made = checks.rows("weak", "--mode", "weak")
    checks.expect("weak: T1 / Tn", [float(row["efficiency"]) for row in rows] == [1.0, 0.8] and
                  made.stdout.startswith("weak scaling\n"), made)

    # The fastest of three runs, of which the slowest took four times as long.
    checks.write("several", summary(1, "exact", 20.0), summary(2, "exact", 40.0))
    checks.write("several", summary(1, "exact", 10.0), summary(2, "exact", 6.25), ending=".2")
    checks.write("several", summary(2, "exact", 12.5), ending=".3")
    rows, made = checks.rows("several")
    found = [(row["ranks"], row["runs"], row["slowest"], row["efficiency"]) for row in rows]
    checks.expect("the fastest of several runs, and the slowest beside it",
                  found == [("1", "2", "0.5", "1.0"), ("2", "3", "0.15625", "0.8")], made)


def marks(checks):
    checks.write("crowded", summary(1, "exact", 10.0, cores=4), summary(2, "exact", 6.25, cores=4),
                 summary(4, "exact", 5.0, cores=4))
    rows, made = checks.rows("crowded")
    checks.expect("a run with more threads than cores has a mark, and no efficiency",
                  [(row["crowded"], row["efficiency"]) for row in rows] ==
                  [("False", "1.0"), ("False", "0.8"), ("True", "")] and
                  made.stdout.splitlines()[-2].endswith("  !") and
                  made.stdout.splitlines()[-1].startswith("! more threads than cores: the times of this run mean noth"), made)
    checks.write("base", summary(1, "exact", 10.0, cores=1), summary(2, "exact", 5.0, cores=8))
    rows, made = checks.rows("base")
    checks.expect("nothing is compared with such a run", [row["efficiency"] for row in rows] == ["", ""], made)
    checks.write("unknown", summary(1, "exact", 10.0, cores=None), summary(2, "exact", 6.25, cores=None))
    rows, made = checks.rows("unknown")
    checks.expect("cores that are not known have a mark", [row["efficiency"] for row in rows] == ["1.0", "0.8"] and
                  "? it is not known how many cores" in made.stdout, made)


def refusals(checks):
    first = summary(1, "exact", 10.0)
    for name, other, parts, mode in [
            ("build", summary(2, "exact", 5.0, build="metro 2"), ["1-exact and 2-exact", "build is metro 1 (test) and metro 2"],
             "strong"),
            ("checkpoint", summary(2, "exact", 5.0, checkpoint_digest="4567"), ["checkpoint_digest is 0123 and 4567"], "strong"),
            ("software", summary(2, "exact", 5.0, software="other MPI"), ["software is some MPI and other MPI"], "strong"),
            ("deck", summary(2, "exact", 5.0) | {"deck": summary(2, "exact", 5.0)["deck"].replace("threads = 2", "threads = 3")},
             ["the deck's run.threads is 2 and 3"], "strong"),
            ("input", summary(2, "exact", 5.0) | {"deck": summary(2, "exact", 5.0)["deck"].replace("# c.jsonl", "# d.jsonl")},
             ["the deck's requests.input", "# c.jsonl", "# d.jsonl"], "strong"),
            ("work", summary(2, "exact", 5.0, tokens=999), ["generated_tokens, is 1000 and 999"], "strong"),
            ("batch", summary(2, "exact", 5.0, sequences=16), ["sequences of all ranks", "is 16 and 32"], "strong"),
            ("strong as weak", summary(2, "exact", 5.0), ["batch.max_sequences_per_rank is 16 and 8"], "weak"),
            ("shard", summary(2, "exact", 5.0, sequences=16), ["requests.shard x ranks) is 1 and 2"], "weak")]:
        checks.write(name, first, other)
        checks.refused(f"runs that differ in {name}", name, *parts, mode=mode)
    checks.write("not ended", summary(1, "exact", 10.0, has_ended=False))
    checks.refused("a run that has not ended", "not ended", "1-exact", "has not ended")
    checks.write("not decoded", summary(1, "exact", 10.0, decode_steps=0))
    checks.refused("a run that has not decoded", "not decoded", "has not decoded")
    for text in ("metro: error: no such file", "[]", "{}", '{"has_ended": 1, "decode_steps": "x"}'):
        (checks.write("broken", first) / "1-exact/summary.json").write_text(text)
        checks.refused(f"a summary that is {text}", "broken", "1-exact", "is not what `metro inspect")
    checks.refused("a folder without runs", "nowhere", "holds no */summary.json")


def files(checks):
    (checks.folder / "matplotlib.py").write_text("raise ImportError\n")
    without = table(checks.folder / "strong", "--picture", checks.folder / "a.png", path=checks.folder)
    checks.expect("no picture without matplotlib, but a word", without.returncode == 0 and
                  "matplotlib is missing" in without.stderr and not (checks.folder / "a.png").exists(), without)
    unwritable = table(checks.folder / "strong", "--out", checks.folder / "no/a.txt")
    checks.expect("a table that cannot be written", unwritable.returncode == 2 and "no/a.txt" in unwritable.stderr, unwritable)
    try:
        import matplotlib
    except ImportError:
        print("skip  the picture: no matplotlib")
        return
    drawn = table(checks.folder / "crowded", "--picture", checks.folder / "crowded.png")
    checks.expect(f"a picture by matplotlib {matplotlib.__version__}", drawn.returncode == 0 and
                  (checks.folder / "crowded.png").read_bytes().startswith(b"\x89PNG"), drawn)


def main():
    with tempfile.TemporaryDirectory() as name:
        checks = Checks(pathlib.Path(name))
        for group in (tables, marks, refusals, files):
            group(checks)
    return 0 if checks.right else 1


if __name__ == "__main__":
    sys.exit(main())
