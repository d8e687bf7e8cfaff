#!/usr/bin/env python3
"""The whole program on a model with two sets of angles (LongRoPE), which sequences of more than 32 tokens switch to.

The reference's prompts give its tokens. Sequences decoded over the switch give, token by token, what prompts of all their
tokens give; and not a byte of that depends on ranks, chunks, sharing of prefixes or a restart.
"""

import argparse
import json
import signal
import sys
import tempfile

from metro_runs import SOURCE, Metro
from resume import STOPPED, Part, send

MODEL = SOURCE / "tests/data/families/phimoe_longrope"
SWITCH = 32
END = 42  # tokens of the sequences that cross it
NUM_CROSSING = 40
SETTINGS = [(None, ["kv.share_prefixes=off"]), (3, ["kv.share_prefixes=on"]),
            (2, ["batch.prefill_chunk=16", "kv.share_prefixes=off", "batch.max_sequences_per_rank=3"]),
            (3, ["batch.prefill_chunk=16", "kv.block_tokens=4", "batch.prefill_min=1.0", "routing.decode=even"])]


def request(name, prompt, max_tokens):
    return {"custom_id": name, "prompt": prompt, "max_tokens": max_tokens, "logprobs": 2, "ignore_eos": True,
            "return_token_ids": True}


def crossing_prompts(prompt):
    """Of 24 to 31 tokens, some that begin alike."""
    return [prompt[:24 + i % 8 - 1] + [(7 * i) % 277] for i in range(NUM_CROSSING)]


def choices(metro, output):
    lines = map(json.loads, metro.completions(output))
    return {line["custom_id"]: line["response"]["body"]["choices"][0] for line in lines}


def state_of(logprobs, position):
    """What a token was chosen from."""
    return logprobs["token_logprobs"][position], logprobs["top_logprobs"][position]


def differences_from_prompts(metro, deck, crossing):
    """Decoding again every token of the sequences as the first behind a prompt of all tokens before it."""
    lines = {}
    for name, choice in crossing.items():
        tokens = choice["prompt_token_ids"] + choice["token_ids"]
        for length in range(len(choice["prompt_token_ids"]), END):
            lines[name, length] = request(f"{name}-{length}", tokens[:length], 1)
    path = metro.write_requests("prompts.jsonl", list(lines.values()))
    metro.must(["run", deck, f"requests.input={path}", f"output.directory={metro.folder / 'prompts'}"])
    prompts = choices(metro, "prompts")
    for (name, length), line in lines.items():
        decoded, prefilled = crossing[name], prompts[line["custom_id"]]
        place = length - len(decoded["prompt_token_ids"])
        if (decoded["token_ids"][place] != prefilled["token_ids"][0]
                or state_of(decoded["logprobs"], place) != state_of(prefilled["logprobs"], 0)):
            yield f"{name}: the token behind {length} tokens is another one, or has other logprobs, when they are the prompt"


def differences_after_stop(metro, deck, expected):
    part = Part(metro, deck, "stopped", 2, ["batch.max_sequences_per_rank=1"])
    part.wait_for_steps()
    send(part.process.pid, signal.SIGUSR1)
    code = part.end()
    if code != STOPPED:
        yield f"a run that was stopped ended with {code}:\n{part.output()}"
        return
    metro.must(["run", deck, f"output.directory={metro.folder / 'stopped'}"], ranks=3)
    if metro.completions("stopped") != expected:
        yield "a run that was stopped and went on has other completions"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    reference = json.loads((MODEL / "reference.json").read_text())["prompts"]
    failures = []
    with tempfile.TemporaryDirectory(prefix="metro-switch-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        metro.must(["convert", MODEL, metro.folder / "model.h5"])
        lines = [request(f"reference-{i}", case["input_ids"], len(case["generated"])) for i, case in enumerate(reference)]
        lines += [request(f"crossing-{i}", prompt, END - len(prompt))
                  for i, prompt in enumerate(crossing_prompts(reference[-1]["input_ids"]))]
        deck = metro.folder / "deck.toml"
        deck.write_text(f'model.checkpoint = "{metro.folder / "model.h5"}"\nmodel.max_context = 128\n'
                        f'requests.input = "{metro.write_requests("requests.jsonl", lines)}"\n'
                        f'output.directory = "{metro.folder / "baseline"}"\n')
        metro.must(["run", deck])
        expected = metro.completions("baseline")
        found = choices(metro, "baseline")
        if len(found) != len(lines):
            sys.exit(f"{len(found)} completions of {len(lines)} requests")
        failures += [f"reference-{i} has other tokens than transformers" for i, case in enumerate(reference)
                     if found[f"reference-{i}"]["token_ids"] != case["generated"]]
        crossing = {name: choice for name, choice in found.items() if name.startswith("crossing")}
        failures += differences_from_prompts(metro, deck, crossing)
        for number, (ranks, overrides) in enumerate(SETTINGS):
            output = f"output-{number}"
            metro.must(["run", deck, f"output.directory={metro.folder / output}", *overrides], ranks=ranks)
            if metro.completions(output) != expected:
                failures.append(f"other completions on {ranks} ranks with {' '.join(overrides)}")
        failures += differences_after_stop(metro, deck, expected)
    print(f"{len(lines)} sequences, {len(crossing)} of them over the switch at {SWITCH} tokens: {len(failures)} differences")
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
