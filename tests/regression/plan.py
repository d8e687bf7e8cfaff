#!/usr/bin/env python3
"""From a run to a better placement: record a trace, plan with it, replay it, run with the plan. Completions stay the same."""

import argparse
import json
import sys
import tempfile

from metro_runs import Metro, reference_cases

RANKS = 4


def checked(name, right, detail=""):
    print("ok   " if right else "WRONG", name, "" if right else detail, flush=True)
    return 0 if right else 1


def is_complete(placement, num_experts, num_slots):
    """Every layer has as many slots as it should and every expert in one of them."""
    return all(len(layer) == num_slots and set(layer) == set(range(num_experts))
               for layer in placement["physical_to_logical_map"])


def mean_lambda(metro, placement):
    """Mean lambda of `exact` over the recorded trace, planned (where it is to be planned) and judged on all requests."""
    metro.must(["replay", "trace.h5", "--placement", placement, "--policies", "exact", "--batch", "8", "--ranks", RANKS,
                "--replication", "1.5", "--draws", "40", "--plan-on", "all", "--judge-on", "all", "--json", "replay.json",
                "--overwrite"])
    results = json.loads((metro.folder / "replay.json").read_text())["results"]
    return results[0]["overall"]["lambda"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    failures = 0
    with tempfile.TemporaryDirectory(prefix="metro-plan-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        requests = [{"custom_id": f"case-{number}", "prompt": case["prompt"], "max_tokens": 40, "ignore_eos": True}
                    for number, case in enumerate(reference_cases())]
        deck = metro.write_deck(metro.write_requests("requests.jsonl", requests), "output")
        metro.must(["run", deck, "output.directory=baseline", "trace.record=trace.h5"], ranks=3)
        baseline = metro.completions("baseline")

        plan = metro.must(["plan", "--trace", "trace.h5", "--ranks", RANKS, "--replication", "1.5", "--batch", "4,8",
                           "--steps", "600", "--moves", "60", "--model", metro.convert_tiny(), "--out", "plan.json"])
        placement = json.loads((metro.folder / "plan.json").read_text())
        failures += checked("a plan has every expert in every layer", is_complete(placement, 32, RANKS * 12), placement)
        for text in ("lambda", "node", "expert bytes", "one slot"):
            failures += checked(f"the plan's table has '{text}'", text in plan.stdout, plan.stdout)
        metro.must(["plan", "--trace", "trace.h5", "--ranks", RANKS, "--replication", "1.5", "--placement", "eplb", "--out",
                    "eplb.json"])
        ours, eplb = mean_lambda(metro, "plan.json"), mean_lambda(metro, "eplb.json")
        failures += checked("the plan activates less than EPLB where it was planned", ours < eplb, (ours, eplb))
        in_replay = mean_lambda(metro, "activation-aware")
        failures += checked("so does one that replay makes", in_replay < eplb, (in_replay, eplb))

        wrong = metro.start(["run", deck, "--overwrite", "experts.placement=plan.json", "experts.replication=2"], RANKS)
        failures += checked("a replication that contradicts the plan is refused",
                            wrong.returncode == 2 and "12 slots per rank" in wrong.stderr, wrong.stderr)
        for name, options in [("nodes that do not divide ranks", ["--nodes", "3"]), ("spread of EPLB", ["--spread"]),
                              ("another ending", ["--out", "plan.txt"])]:
            wrong = metro.start(["plan", "--trace", "trace.h5", "--ranks", RANKS, "--placement", "eplb", *options])
            failures += checked(f"{name}: refused", wrong.returncode == 2 and options[0] in wrong.stderr, wrong.stderr)
        many = metro.must(["plan", "--trace", "trace.h5", "--ranks", RANKS, "--batch", "4", "--steps", "8", "--moves", "1",
                           "--threads", "200000"])
        failures += checked("more threads than layers are no harm", "lambda" in many.stdout)

        for name, overrides in [
                ("the plan's file", ["experts.placement=plan.json"]),
                ("activation-aware from the trace", ["experts.placement=activation-aware", "experts.trace=trace.h5",
                                                     "experts.replication=1.25"]),
                ("EPLB's file, costs for makespan", ["experts.placement=eplb.json", "routing.decode=makespan",
                                                     "routing.read_fixed_ns=100", "routing.read_per_expert_ns=700",
                                                     "routing.compute_per_row_ns=300"])]:
            metro.must(["run", deck, "--overwrite", *overrides], ranks=RANKS)
            failures += checked(f"{name}: the same completions", metro.completions("output") == baseline)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
