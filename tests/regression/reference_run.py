#!/usr/bin/env python3
"""The whole program on the embedded model gives the tokens, finish reasons and texts of transformers."""

import argparse
import json
import sys
import tempfile

from metro_runs import Metro, reference_cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--ranks", type=int, default=4)
    arguments = parser.parse_args()

    cases = reference_cases()
    with tempfile.TemporaryDirectory(prefix="metro-reference-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        lines = [{"prompt": case["prompt"], "max_tokens": 64, "return_token_ids": True} for case in cases]
        deck = metro.write_deck(metro.write_requests("prompts.jsonl", lines), "output")
        metro.must(["run", deck, "experts.replication=1.5", "experts.placement=eplb"], ranks=arguments.ranks)
        answers = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, metro.completions("output"))}

    failures = 0
    for number, case in enumerate(cases, start=1):
        body = answers[f"line-{number}"]
        choice = body["choices"][0]
        found = (choice["prompt_token_ids"], choice["token_ids"], choice["finish_reason"], choice["text"])
        expected = (case["prompt_ids"], case["tokens"], case["finish_reason"], case["text"])
        if found != expected:
            failures += 1
            print(f"line-{number}: {found}\nexpected {expected}")
    print(f"{len(cases) - failures} of {len(cases)} prompts as transformers answers them")
    sys.exit(1 if failures or len(answers) != len(cases) else 0)


if __name__ == "__main__":
    main()
