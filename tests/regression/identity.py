#!/usr/bin/env python3
"""Completions are the same bytes for every setting that only affects where and when things run.

Compares completions.jsonl (lines sorted) of many settings with a run on one rank. `--runs 12` takes a spread sample,
`--runs all` every combination (days on two cores). Used by ctest with a small number:

    python3 tests/regression/identity.py --metro build/cpu-release/bin/metro --runs 60
"""

import argparse
import itertools
import pathlib
import random
import sys
import tempfile

from metro_runs import SOURCE, Metro, reference_cases


def simd_levels():
    """Those that this CPU has."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split() if pathlib.Path("/proc/cpuinfo").exists() else []
    return [level for level, flag in [("scalar", ""), ("avx2", "avx2"), ("avx512", "avx512f")] if not flag or flag in flags]


SETTINGS = {
    "ranks": [1, 2, 3, 4, 8],
    "routing.decode": ["even", "metro", "metro-scarce", "exact", "vllm-random", "vllm-modulo", "vllm-knuth", "static",
                       "local", "makespan"],
    "routing.prefill": ["even", "metro", "metro-scarce", "exact", "vllm-random", "vllm-modulo", "vllm-knuth", "static",
                        "local", "makespan"],
    "experts.replication": [1.0, 1.25, 2.0],
    "decode.exchange": ["auto", "allgather", "ids_then_alltoall"],
    "decode.gate": ["local", "gathered"],
    "batch.max_sequences_per_rank": [1, 3, 32],
    "batch.prefill_chunk": [16, 512],
    "batch.prefill_min": [0.0, 0.5, 1.0],
    "kv.block_tokens": [4, 16],
    "kv.share_prefixes": ["on", "off"],
    "experts.placement": ["trivial", "eplb"],
    "experts.rebalance_steps": [0, 3, 17],
    "experts.rebalance_source": ["auto", "peers", "checkpoint"],
    "exchange.memory": [65536, 268435456],
    "exchange.levels": ["auto", "one", "two"],
    "requests.arrivals": ["", str(SOURCE / "tests/data/arrivals/azure/code_first12.csv")],
    "model.sharing": ["auto", "node", "rank"],
    "run.threads": [1, 2],
    "run.simd": ["auto", *simd_levels()],
    "input order": ["forward", "backward", "shuffled"],
}


def requests():
    """The reference prompts: plain, as token ids, with logprobs, past the end token, with short limits."""
    lines = []
    for number, case in enumerate(reference_cases()):
        body = {"prompt": case["prompt_ids"] if number % 4 == 1 else case["prompt"], "max_tokens": 24 + number % 3 * 20,
                "return_token_ids": True}
        if number % 3 == 0:
            body["logprobs"] = number % 6
        if number % 5 == 0:
            body["ignore_eos"] = True
        lines.append({"custom_id": f"case-{number}", "method": "POST", "url": "/v1/completions", "body": body})
    return lines + sampled_requests()


def sampled_requests():
    """Every way of choosing tokens and of ending a completion, on some of the prompts."""
    prompts = [case["prompt"] for case in reference_cases()]
    bodies = [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.9, "seed": 1},
        {"temperature": 1.5, "top_k": 20, "n": 2},
        {"temperature": 2.5, "min_p": 0.05, "n": 3, "seed": 2, "logprobs": 2},
        {"temperature": 0.9, "presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"temperature": 0, "repetition_penalty": 1.3},
        {"temperature": 1.0, "logit_bias": {"443": 4, "13": -100}, "seed": 3},
        {"temperature": 0.8, "stop": ["to the", "the ", "."], "n": 2},
        {"stop": " a"},
        {"temperature": 0.8, "stop": ["he", "she"], "min_tokens": 12, "include_stop_str_in_output": True},
        {"temperature": 1.2, "stop_token_ids": [13, 443], "min_tokens": 5, "n": 2},
        {"echo": True, "logprobs": 3},
        {"echo": True, "logprobs": 0, "max_tokens": 0},
        {"temperature": 1.0, "echo": True, "logprobs": 1, "n": 2, "min_tokens": 20},
    ]
    return [{"custom_id": f"sampled-{number}", "prompt": prompts[number], "max_tokens": 24, "return_token_ids": True, **body}
            for number, body in enumerate(bodies)]


def sample_of(settings, runs, seed):
    if runs == "all":
        return (dict(zip(settings, combination)) for combination in itertools.product(*settings.values()))
    most = max(map(len, settings.values()))
    if int(runs) < most:
        sys.exit(f"{runs} runs do not cover every value: at least {most}")
    # Every value of every setting as often as any other: each setting goes through its values in an order of its own.
    generator = random.Random(seed)
    columns = []
    for values in settings.values():
        column = []
        while len(column) < int(runs):
            column += generator.sample(values, len(values))
        columns.append(column[:int(runs)])
    return [dict(zip(settings, combination)) for combination in zip(*columns)]


def without_refused(setting):
    """A gathered gate needs the rows of all ranks; where both keys would meet, the gate stays local."""
    if setting["decode.exchange"] == "ids_then_alltoall":
        return {**setting, "decode.gate": "local"}
    return setting


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro", required=True, help="the binary")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--runs", default="12", help="number of settings, or all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weights", default="stored", help="of the checkpoint: stored or int8")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="metro-identity-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder, arguments.weights)
        lines = requests()
        inputs = {"forward": lines, "backward": lines[::-1], "shuffled": random.Random(7).sample(lines, len(lines))}
        decks = {order: metro.write_requests(f"{order}.jsonl", inputs[order]) for order in inputs}
        deck = metro.write_deck(decks["forward"], "output")
        metro.must(["run", deck, f"output.directory={metro.folder / 'baseline'}"])
        baseline = metro.completions("baseline")
        if len(baseline) != len(lines):
            sys.exit(f"the baseline has {len(baseline)} completions, expected {len(lines)}")

        differing = 0
        for setting in map(without_refused, sample_of(SETTINGS, arguments.runs, arguments.seed)):
            overrides = [f"{key}={value}" for key, value in setting.items() if "." in key]
            overrides += [f"requests.input={decks[setting['input order']]}", "requests.arrival_scale=0.05"]
            metro.must(["run", deck, "--overwrite", *overrides], ranks=setting["ranks"])
            same = metro.completions("output") == baseline
            differing += not same
            print("same     " if same else "DIFFERENT", " ".join(f"{key}={value}" for key, value in setting.items()), flush=True)
    if differing:
        sys.exit(f"{differing} settings changed the completions")


if __name__ == "__main__":
    main()
