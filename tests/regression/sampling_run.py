#!/usr/bin/env python3
"""Sampling with the whole program: what a caller can check about seeds, n, stop strings, min_tokens and echo."""

import argparse
import json
import sys
import tempfile

from metro_runs import Metro, reference_cases


class Answers:
    """Completions of request lines by custom_id."""

    def __init__(self, metro, ranks):
        self.metro = metro
        self.ranks = ranks
        self.runs = 0

    def __call__(self, lines, *overrides):
        self.runs += 1
        output = self.metro.folder / f"output-{self.runs}"
        deck = self.metro.write_deck(self.metro.write_requests("lines.jsonl", lines), output.name)
        self.metro.must(["run", deck, *overrides], ranks=self.ranks)
        if self.metro.errors(output.name):
            sys.exit(f"rejected: {self.metro.errors(output.name)}")
        return {line["custom_id"]: line["response"]["body"] for line in map(json.loads, self.metro.completions(output.name))}


def check(failures, name, holds, *details):
    print("ok   " if holds else "WRONG", name, *([] if holds else details))
    if not holds:
        failures.append(name)


def check_seeds(failures, answers, prompt):
    line = {"prompt": prompt, "max_tokens": 30, "ignore_eos": True, "temperature": 1.0, "return_token_ids": True}
    bodies = answers([
        {"custom_id": "n", "n": 4, "seed": 5, **line},
        {"custom_id": "one", "seed": 5, **line},
        {"custom_id": "other seed", "seed": 6, **line},
        {"custom_id": "a", **line}, {"custom_id": "b", **line},
        {"custom_id": "cold", **line, "temperature": 0},
        {"custom_id": "nearly cold", **line, "temperature": 1e-9},
        {"custom_id": "top_k 1", **line, "top_k": 1},
        {"custom_id": "top_p 0", **line, "top_p": 1e-9},
    ])
    tokens = {name: [choice["token_ids"] for choice in body["choices"]] for name, body in bodies.items()}
    distinct = {tuple(ids) for ids in tokens["n"]}
    check(failures, "n completions differ", len(tokens["n"]) == 4 and len(distinct) == 4, tokens["n"])
    check(failures, "choices come in the order of their index", [c["index"] for c in bodies["n"]["choices"]] == [0, 1, 2, 3])
    check(failures, "completion 0 of n is that of n = 1", tokens["n"][0] == tokens["one"][0], tokens)
    check(failures, "another seed, another completion", tokens["other seed"] != tokens["one"])
    check(failures, "another custom_id, another completion", tokens["a"] != tokens["b"])
    for name in ("nearly cold", "top_k 1", "top_p 0"):
        check(failures, f"{name} is greedy", tokens[name] == tokens["cold"], tokens[name], tokens["cold"])
    usage = bodies["n"]["usage"]
    check(failures, "usage counts the prompt once", usage["completion_tokens"] == 120
          and usage["prompt_tokens"] == bodies["one"]["usage"]["prompt_tokens"], usage)
    again = answers([{"custom_id": "x", "seed": 5, **line}], "requests.temperature=0.5")
    check(failures, "a seed gives the same completion again", again["x"]["choices"][0]["token_ids"] == tokens["one"][0])
    default = answers([{"custom_id": "x", "seed": 5, **{**line, "temperature": None}}], "requests.temperature=1")
    check(failures, "requests.temperature is the default", default["x"]["choices"][0]["token_ids"] == tokens["one"][0])


def check_stops(failures, answers, prompt):
    line = {"prompt": prompt, "max_tokens": 60, "return_token_ids": True, "logprobs": 0}
    plain = answers([{"custom_id": "x", **line}])["x"]["choices"][0]
    text, tokens = plain["text"], plain["token_ids"]
    stop = text[len(text) // 2:len(text) // 2 + 3]
    place = text.find(stop)
    token = tokens[len(tokens) // 2]
    before = tokens.index(token)
    bodies = answers([
        {"custom_id": "string", **line, "stop": [stop + "never", stop]},
        {"custom_id": "included", **line, "stop": stop, "include_stop_str_in_output": True},
        {"custom_id": "token", **line, "stop_token_ids": [token]},
        {"custom_id": "late", **line, "stop_token_ids": [token], "min_tokens": before + 1},
        {"custom_id": "long", **line, "min_tokens": 60},
    ])
    choice = {name: body["choices"][0] for name, body in bodies.items()}
    check(failures, "no stop, no reason", plain["stop_reason"] is None and plain["finish_reason"] == "stop", plain)
    for name, end in (("string", place), ("included", place + len(stop))):
        found = choice[name]
        check(failures, f"stop string: {name}", found["text"] == text[:end] and found["stop_reason"] == stop
              and found["finish_reason"] == "stop" and found["token_ids"] == tokens[:len(found["token_ids"])], found, text, stop)
    found = choice["token"]
    check(failures, "stop token", found["token_ids"] == tokens[:before + 1] and found["stop_reason"] == token
          and text.startswith(found["text"]), found)
    found = choice["late"]
    check(failures, "min_tokens excludes the stop token", token not in found["token_ids"][:before + 1]
          and found["token_ids"][:before] == tokens[:before], found, token, before)
    found = choice["long"]
    check(failures, "min_tokens excludes end tokens", len(found["token_ids"]) == 60 and found["finish_reason"] == "length"
          and found["token_ids"][:len(tokens) - 1] == tokens[:-1], found)


def check_echo(failures, answers, prompts):
    """What prefill says of a completion must be what decoding said when it was made."""
    made = answers([{"custom_id": str(number), "prompt": prompt, "max_tokens": 40, "logprobs": 3, "return_token_ids": True,
                     "ignore_eos": True} for number, prompt in enumerate(prompts)])
    lines = []
    for name, body in made.items():
        choice = body["choices"][0]
        lines.append({"custom_id": name, "prompt": choice["prompt_token_ids"] + choice["token_ids"], "max_tokens": 0,
                      "echo": True, "logprobs": 3})
    echoed = answers(lines, "batch.prefill_chunk=16", "batch.max_sequences_per_rank=3")
    for name, body in made.items():
        choice, again = body["choices"][0], echoed[name]["choices"][0]
        number = len(choice["prompt_token_ids"])
        same = all(again["logprobs"][key][number:] == choice["logprobs"][key]
                   for key in ("tokens", "token_logprobs", "top_logprobs"))
        check(failures, f"prompt logprobs of {name} are those of decoding", same, choice["logprobs"], again["logprobs"])
        check(failures, f"echo of {name} has the text", again["text"].startswith(prompts[int(name)] + choice["text"][:5]),
              again["text"])
        check(failures, f"the first token of {name} has no probability", again["logprobs"]["token_logprobs"][0] is None
              and None not in again["logprobs"]["token_logprobs"][1:])
        check(failures, f"the prompt alone of {name} is counted", echoed[name]["usage"]["completion_tokens"] == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()

    prompts = [case["prompt"] for case in reference_cases()][:4]
    failures = []
    with tempfile.TemporaryDirectory(prefix="metro-sampling-") as folder:
        answers = Answers(Metro(arguments.metro, arguments.mpiexec, folder), arguments.ranks)
        check_seeds(failures, answers, prompts[0])
        check_stops(failures, answers, prompts[1])
        check_echo(failures, answers, prompts)
    sys.exit(f"{len(failures)} checks failed" if failures else 0)


if __name__ == "__main__":
    main()
