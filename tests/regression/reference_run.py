#!/usr/bin/env python3
"""The whole program gives what transformers gives: tokens, finish reasons and texts on the embedded model, tokens on the
tiny model of every family."""

import argparse
import json
import sys
import tempfile

from metro_runs import SOURCE, Metro, reference_cases, reference_models

POLICIES = ["exact", "even"]


def bodies_of(metro, lines, model, overrides, ranks):
    """What the program answers to each line, in order."""
    deck = metro.write_deck(metro.write_requests("prompts.jsonl", lines), "output", model)
    metro.must(["run", deck, "--overwrite", "experts.replication=1.5", "experts.placement=eplb", *overrides], ranks=ranks)
    answers = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, metro.completions("output"))}
    if len(answers) != len(lines):
        sys.exit(f"{len(answers)} answers to {len(lines)} prompts")
    return [answers[f"line-{number}"] for number in range(1, len(lines) + 1)]


def failures_on_embedded_model(metro, ranks):
    cases = reference_cases()
    lines = [{"prompt": case["prompt"], "max_tokens": 64, "return_token_ids": True} for case in cases]
    failures = 0
    for number, (case, body) in enumerate(zip(cases, bodies_of(metro, lines, SOURCE / "inputs/models/tiny", [], ranks)), start=1):
        choice = body["choices"][0]
        found = (choice["prompt_token_ids"], choice["token_ids"], choice["finish_reason"], choice["text"])
        expected = (case["prompt_ids"], case["tokens"], case["finish_reason"], case["text"])
        if found != expected:
            failures += 1
            print(f"line-{number}: {found}\nexpected {expected}")
    print(f"embedded model: {len(cases) - failures} of {len(cases)} prompts as transformers answers them")
    return failures


def failures_on_families(metro, ranks):
    failures = 0
    for number, model in enumerate(reference_models()):
        prompts = json.loads((model / "reference.json").read_text())["prompts"]
        lines = [{"prompt": prompt["input_ids"], "max_tokens": len(prompt["generated"]), "return_token_ids": True}
                 for prompt in prompts]
        # Prompts in pieces as well, and the policies in turns.
        overrides = [f"routing.decode={POLICIES[number % 2]}", "batch.prefill_chunk=16"]
        found = [body["choices"][0]["token_ids"] for body in bodies_of(metro, lines, model, overrides, ranks)]
        wrong = sum(tokens != prompt["generated"] for tokens, prompt in zip(found, prompts))
        failures += wrong
        print(f"{model.name}: {len(prompts) - wrong} of {len(prompts)} prompts as transformers answers them", flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--ranks", type=int, default=4)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="metro-reference-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        failures = failures_on_embedded_model(metro, arguments.ranks) + failures_on_families(metro, arguments.ranks)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
