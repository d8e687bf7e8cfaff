#!/usr/bin/env python3
"""`metro import-trace` and `metro replay` on an excerpt of a real trace: numbers against an independent check."""

import argparse
import csv
import json
import sys
import tempfile

from metro_runs import SOURCE, Metro
from replay_oracle import activated_of, faults, least_lambda

EXCERPT = SOURCE / "tests/data/traces/gpt-oss-20b"
SWEEP = ["--placement", "trivial,eplb", "--batch", "4,8", "--ranks", "4,8", "--replication", "1.0,1.125,1.5",
         "--layers", "0,5,21-23", "--draws", "4", "--stride", "5", "--seed", "3"]


class Checks:
    def __init__(self):
        self.failures = 0

    def expect(self, name, right, detail=""):
        print("ok   " if right else "WRONG", name, "" if right else detail)
        self.failures += not right


def check_dump(checks, batches):
    wrong = [(batch["policy"], fault) for batch in batches for fault in faults(batch)]
    checks.expect(f"{len(batches)} routed batches are what their ids and placements say", not wrong, wrong[:5])

    experts = (EXCERPT / "experts.u8").read_bytes()
    wrong = [batch["rows"] for batch in batches for row, ids in zip(batch["rows"], batch["topk_idx"])
             if list(experts[row * 96 + batch["layer"] * 4:][:4]) != ids]
    checks.expect("the ids are those of the trace", not wrong, wrong[:5])

    # Rows 24 i .. 24 i + 23 of the excerpt are request i: batches come from the odd ones, and no request twice.
    requests = [[row // 24 for row in batch["rows"]] for batch in batches]
    checks.expect("batches are of different requests of the judged half",
                  all(len(set(found)) == len(found) and all(i % 2 == 1 for i in found) for found in requests))

    sequences = {}
    for batch in batches:
        counts = [batch["row_to_rank"].count(rank) for rank in range(batch["ranks"])]
        sequences.setdefault((batch["ranks"], batch["batch"]), []).append(max(counts) - min(counts))
    checks.expect("the first batch is spread evenly over ranks", all(spread[0] <= 1 for spread in sequences.values()))


def check_statistics(checks, results, batches):
    """The statistics of every case and layer, from the dumped batches."""
    wrong = []
    for result in results:
        for layer in result["layers"]:
            mine = [batch for batch in batches if batch["layer"] == layer["layer"]
                    and all(batch[key] == result[key] for key in ("placement", "ranks", "replication", "batch", "policy"))]
            lambdas = sorted(max(activated_of(batch)) for batch in mine)
            optima = [least_lambda(batch) for batch in mine]
            active = [len({e for row in batch["topk_idx"] for e in row}) for batch in mine]
            slots_per_rank = result["slots_per_rank"]
            rows = [[sum(slot // slots_per_rank == rank for row in batch["slot"] for slot in row)
                     for rank in range(batch["ranks"])] for batch in mine]
            n = len(mine)
            expected = {
                "batches": 4, "lambda": sum(lambdas) / n, "lambda_max": lambdas[-1], "lambda_p95": lambdas[-1],
                "optimum": sum(optima) / n, "gap": sum(lambdas) / sum(optima) - 1, "active": sum(active) / n,
                "activated": sum(sum(activated_of(batch)) for batch in mine) / n,
                "bound": sum(-(-count // result["ranks"]) for count in active) / n,
                "rows_max_over_mean": sum(map(max, rows)) * result["ranks"] / sum(map(sum, rows))}
            wrong += [(result["policy"], key, layer[key], value) for key, value in expected.items()
                      if abs(layer[key] - value) > 1e-12 * max(1, abs(value))]
    checks.expect(f"the statistics of {len(results)} cases follow from their batches", not wrong, wrong[:5])


def check_replay(checks, metro, trace):
    metro.must(["replay", trace, *SWEEP, "--json", "a.json", "--csv", "a.csv", "--dump", "a.jsonl"])
    document = json.loads((metro.folder / "a.json").read_text())
    results = document["results"]
    batches = [json.loads(line) for line in (metro.folder / "a.jsonl").read_text().splitlines()]
    policies = {result["policy"] for result in results}
    checks.expect("every combination is there", len(results) == 2 * 2 * 3 * 2 * len(policies)
                  and len(batches) == len(results) * 5 * 4 and len(policies) >= 10, (len(results), len(batches)))
    check_dump(checks, batches)
    check_statistics(checks, results, batches)

    lines = list(csv.DictReader((metro.folder / "a.csv").open(newline="")))
    checks.expect("the CSV says the same as the JSON",
                  [float(line["lambda"]) for line in lines if line["layer"] == "all"]
                  == [result["overall"]["lambda"] for result in results] and len(lines) == 6 * len(results))

    metro.must(["replay", trace, *SWEEP, "--dump", "b.jsonl"])
    checks.expect("a second replay draws and routes the same",
                  (metro.folder / "a.jsonl").read_bytes() == (metro.folder / "b.jsonl").read_bytes())


def check_errors(checks, metro, trace):
    content = trace.read_bytes()
    (metro.folder / "short.h5").write_bytes(content[: len(content) // 2])
    tiny = metro.convert_tiny()
    cases = [
        ("no trace", ["replay", "nowhere.h5"], 3, ["nowhere.h5"]),
        ("a truncated trace", ["replay", "short.h5"], 3, ["short.h5", "truncated"]),
        ("a checkpoint", ["replay", tiny], 3, ["tiny.h5", "is not a trace"]),
        ("an unknown policy", ["replay", trace, "--policies", "metro,best"], 2, ["--policies", "'best'", "metro-scarce"]),
        ("an unknown placement", ["replay", trace, "--batch", "4", "--placement", "nowhere.json"], 2, ["nowhere.json"]),
        ("a layer that is not there", ["replay", trace, "--layers", "24"], 2, ["--layers", "'24'", "0, 1"]),
        ("a range that runs backwards", ["replay", trace, "--layers", "7-3"], 2, ["--layers", "'7-3'"]),
        ("unknown rows", ["replay", trace, "--rows", "some"], 2, ["--rows", "decode, prefill or all"]),
        ("rows that are not there", ["replay", trace, "--rows", "prefill"], 2, ["no prefill rows"]),
        ("an unknown half", ["replay", trace, "--judge-on", "half"], 2, ["--judge-on", "even, odd or all"]),
        ("too large a batch", ["replay", trace, "--batch", "9"], 2, ["a batch of 9", "offers 8"]),
        ("an output in the way", ["replay", trace, "--json", "a.json"], 2, ["a.json", "--overwrite"]),
        ("an output over the trace", ["replay", trace, "--json", trace, "--overwrite"], 2, ["the trace or another output"]),
        ("two outputs in one file", ["replay", trace, "--json", "b", "--csv", "./b"], 2, ["the trace or another output"]),
        ("a negative seed", ["replay", trace, "--seed", "-1"], 2, ["--seed", "not in range 0 to"]),
        ("a seed too large", ["replay", trace, "--seed", "99999999999999999999"], 2, ["--seed"]),
        ("an output that cannot be made", ["replay", trace, "--batch", "4", "--dump", "none/a"], 2, ["none/a"]),
        ("an unknown kind", ["import-trace", "gptoss", EXCERPT, "x.h5"], 2, ["'gptoss'", "gpt-oss-20b"]),
        ("a source that is not there", ["import-trace", "gpt-oss-20b", "none", "x.h5"], 3, ["none/index.tsv"]),
        ("a trace in the way", ["import-trace", "gpt-oss-20b", EXCERPT, trace], 2, ["gpt.h5", "--overwrite"]),
    ]
    for name, arguments, exit_code, texts in cases:
        process = metro.start(arguments)
        errors = process.stderr.splitlines()
        checks.expect(name, process.returncode == exit_code and len(errors) == 1 and all(t in errors[0] for t in texts),
                      (process.returncode, process.stderr))


def check_imports(checks, metro):
    metro.must(["import-trace", "gpt-oss-20b", EXCERPT, "loads.json"])
    loads = json.loads((metro.folder / "loads.json").read_text())["loads"]
    experts = (EXCERPT / "experts.u8").read_bytes()
    counted = [[0] * 32 for _ in range(24)]
    for i, expert in enumerate(experts):
        counted[i // 4 % 24][expert] += 1
    checks.expect("loads are the counts of the trace", loads == counted)

    metro.must(["import-trace", "olmoe-counts", SOURCE / "tests/data/traces/olmoe/olmoe_c4.json", "olmoe.h5",
                "--tokens", "4000", "--seed", "2"])
    drawn = metro.must(["replay", "olmoe.h5", "--batch", "8", "--draws", "3", "--policies", "exact"]).stdout
    checks.expect("drawn tokens can be replayed", "counts" in drawn and "64 experts, top 8, 3 layers" in drawn, drawn)
    metro.must(["import-trace", "deepseek-v2-lite", SOURCE / "tests/data/traces/deepseek-v2-lite", "ds.h5"])
    prefill = metro.must(["replay", "ds.h5", "--batch", "2", "--draws", "3", "--policies", "exact"]).stdout
    checks.expect("a trace without decode rows is replayed from all rows", "batches of all rows" in prefill, prefill)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="metro-replay-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        trace = metro.folder / "gpt.h5"
        imported = metro.must(["import-trace", "gpt-oss-20b", EXCERPT, trace]).stdout
        checks.expect("an import says what it wrote", "384 tokens of 16 requests, 24 layers, 32 experts, top 4" in imported,
                      imported)
        check_replay(checks, metro, trace)
        check_errors(checks, metro, trace)
        check_imports(checks, metro)
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
