#!/usr/bin/env python3
"""Many prompts behind one system prompt: computed once per rank, and not a byte of the completions changes.

Prints tokens per second of both ways beside that; alone it takes other sizes and machines:

    python3 tests/regression/prefixes.py --metro build/cpu-release/bin/metro --requests 2000 --ranks 2
"""

import argparse
import json
import sys
import tempfile

from metro_runs import Metro

BLOCK = 16  # kv.block_tokens
CONTEXT = 512


def requests(number, system_tokens):
    """Prompts as token ids, alike in the first system_tokens and nowhere behind; some with n, some that score the prompt."""
    system = [(31 * i + i * i) % 1999 for i in range(system_tokens)]
    lines = []
    for i in range(number):
        tail = [i % 2000, i // 2000] + [(17 * i + j) % 1999 for j in range(6 + i % 9)]
        line = {"custom_id": f"user-{i}", "prompt": system + tail, "max_tokens": 4 + i % 5, "return_token_ids": True}
        if i % 20 == 7:
            line |= {"n": 3, "temperature": 0.8}
        if i % 50 == 9:
            line |= {"echo": True, "logprobs": 2}
        lines.append(line)
    return lines


def summary_of(metro, output):
    return json.loads(metro.must(["inspect", metro.folder / output / "metrics.h5", "--json"]).stdout)


def wrong_counts(lines, summary, system_tokens, ranks):
    """What the counters must be: whole blocks of the common beginning once per rank, and once per scored prompt."""
    num_common = system_tokens // BLOCK * BLOCK
    num_samples = [line.get("n", 1) for line in lines]
    in_prompts = sum(n * len(line["prompt"]) for n, line in zip(num_samples, lines))
    num_scored = sum("logprobs" in line for line in lines)
    computed, shared = summary["prompt_tokens_computed"], summary["prompt_tokens_shared"]
    if len(computed) != ranks or sum(computed) + sum(shared) != in_prompts:
        yield f"{computed} computed and {shared} shared are not {in_prompts} on {ranks} ranks"
    # The n samples of a line may share more than the common beginning, where they are on one rank.
    least = num_common * (sum(num_samples) - num_scored - ranks)
    most = least + sum((n - 1) * (len(line["prompt"]) - num_common) for n, line in zip(num_samples, lines))
    if not least <= sum(shared) <= most:
        yield f"{sum(shared)} positions shared, not {least} to {most}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--system-tokens", type=int, default=300)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 3])
    arguments = parser.parse_args()

    failures = []
    expected = None
    with tempfile.TemporaryDirectory(prefix="metro-prefixes-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        lines = requests(arguments.requests, arguments.system_tokens)
        path = metro.write_requests("requests.jsonl", lines)
        for ranks in arguments.ranks:
            for share in ("off", "on"):
                output = f"output-{ranks}-{share}"
                deck = metro.write_deck(path, output)
                metro.must(["run", deck, f"model.max_context={CONTEXT}", f"kv.share_prefixes={share}"], ranks=ranks)
                completions = metro.completions(output)
                expected = expected or completions
                summary = summary_of(metro, output)
                if completions != expected or len(completions) != len(lines):
                    failures.append(f"{ranks} ranks, {share}: other completions")
                if share == "off" and sum(summary["prompt_tokens_shared"]) > 0:
                    failures.append(f"{ranks} ranks: shared though off")
                if share == "on":
                    failures += [f"{ranks} ranks: {what}" for what in
                                 wrong_counts(lines, summary, arguments.system_tokens, ranks)]
                total = summary["prompt_tokens"] + summary["generated_tokens"]
                print(f"{ranks} ranks, sharing {share:3}: {sum(summary['prompt_tokens_computed'])} prompt rows computed, "
                      f"{sum(summary['prompt_tokens_shared'])} shared; {total / summary['run_s']:.0f} tokens/s, prompts "
                      f"included; prefill {summary['prefill_s']:.2f} s, decode {summary['decode_s']:.2f} s", flush=True)
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
