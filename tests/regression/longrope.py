#!/usr/bin/env python3
"""Two sets of RoPE angles: a sequence that decoding takes beyond the first goes on as if it had been prefilled whole.

The embedded model with angles that change at SWITCH tokens. Each token of a completion is asked for once more, with all
tokens before it as the prompt: that is never computed with the wrong set, nor with both. And no setting changes a byte.

    python3 tests/regression/longrope.py --metro build/cpu-release/bin/metro
"""

import argparse
import json
import shutil
import sys
import tempfile

from metro_runs import SOURCE, Metro

SWITCH = 40
SETTINGS = [
    (1, ["batch.prefill_chunk=7"]),
    (1, ["kv.share_prefixes=off", "batch.max_sequences_per_rank=1"]),
    (2, ["kv.block_tokens=4"]),
    (2, ["kv.block_tokens=3", "kv.memory=900000", "batch.prefill_min=0"]),
    (3, ["batch.prefill_chunk=16", "kv.block_tokens=4", "batch.prefill_min=1", "experts.rebalance_steps=5"]),
]


def convert(metro, name, long_factor):
    """The embedded model with LongRoPE: short factors of 1, long ones of `long_factor` for every pair."""
    folder = metro.folder / name
    shutil.copytree(SOURCE / "inputs/models/tiny", folder)
    config = json.loads((folder / "config.json").read_text())
    pairs = config["head_dim"] // 2
    config["original_max_position_embeddings"] = SWITCH
    config["rope_scaling"] = {"rope_type": "longrope", "short_factor": [1.0] * pairs, "long_factor": [long_factor] * pairs,
                              "short_mscale": 1.0, "long_mscale": 1.1 if long_factor > 1 else 1.0}
    (folder / "config.json").write_text(json.dumps(config))
    metro.must(["convert", folder, metro.folder / f"{name}.h5"])
    return metro.folder / f"{name}.h5"


def prompts():
    """As token ids, of lengths on both sides of the switch, most of them behind a common beginning."""
    common = [(37 * i + 11) % 1900 + 50 for i in range(60)]
    lengths = [1, 5, 12, 20, 33, 34, 38, 39, 40, 41, 47, 60]
    return [common[:max(0, length - 2)] + [(101 * length) % 1900 + 50, 400 + length][:length] for length in lengths]


def lines_of(all_prompts, max_tokens, **more):
    return [{"custom_id": f"line-{i}", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True,
             "return_token_ids": True, **more} for i, prompt in enumerate(all_prompts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    failures = []
    with tempfile.TemporaryDirectory(prefix="metro-longrope-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        checkpoint = convert(metro, "long", 4.0)
        num_runs = 0

        def run(lines, *overrides, model=checkpoint, ranks=None):
            nonlocal num_runs
            num_runs += 1
            path = metro.write_requests(f"requests-{num_runs}.jsonl", lines)
            metro.must(["run", metro.write_deck(path, f"output-{num_runs}"), f"model.checkpoint={model}", *overrides],
                       ranks=ranks)
            return metro.completions(f"output-{num_runs}")

        def tokens_of(completions):
            bodies = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, completions)}
            return [bodies[f"line-{i}"]["choices"][0]["token_ids"] for i in range(len(bodies))]

        asked = prompts()
        lines = lines_of(asked, 24) + [{**line, "custom_id": f"sampled-{i}", "temperature": 1.2, "n": 2, "logprobs": 1}
                                       for i, line in enumerate(lines_of(asked, 24))]
        baseline = run(lines)
        completed = tokens_of(run(lines_of(asked, 24)))
        longer = [prompt + tokens[:k] for prompt, tokens in zip(asked, completed) for k in range(len(tokens))]
        wanted = [token for tokens in completed for token in tokens]
        found = [tokens[0] for tokens in tokens_of(run(lines_of(longer, 1), "kv.share_prefixes=off"))]
        differing = [f"{len(prompt) + 1} tokens" for prompt, a, b in zip(longer, wanted, found) if a != b]
        if differing:
            failures.append(f"decoding is not as prefill of the same tokens, at {', '.join(differing)}")
        print(f"{len(wanted)} tokens asked for again as the next of a prompt, {len(differing)} differ", flush=True)

        flat = tokens_of(run(lines_of(asked, 24), model=convert(metro, "flat", 1.0)))
        num_changed = sum(a != b for a, b in zip(flat, completed))
        beyond = sum(len(prompt) + 23 > SWITCH for prompt in asked)
        print(f"{num_changed} of {beyond} completions that pass the switch depend on the second set", flush=True)
        if not 0 < num_changed <= beyond:
            failures.append("the second set of angles shows where it must not, or nowhere")

        for ranks, overrides in SETTINGS:
            same = run(lines, *overrides, ranks=ranks) == baseline
            print("same     " if same else "DIFFERENT", ranks, "ranks", *overrides, flush=True)
            if not same:
                failures.append(f"{ranks} ranks {overrides}: other completions")
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
