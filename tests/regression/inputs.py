#!/usr/bin/env python3
"""The same requests from one file, several, a pattern, standard input, plain or compressed: the same completions."""

import argparse
import gzip
import json
import sys
import tempfile

from metro_runs import Metro, reference_cases


def zstd_frame(content):
    """A zstd frame whose blocks hold the content as it is: any reader of zstd takes it, and no library is needed."""
    blocks = [content[begin:begin + 100_000] for begin in range(0, len(content), 100_000)] or [b""]
    frame = b"\x28\xb5\x2f\xfd\xa0" + len(content).to_bytes(4, "little")
    for number, block in enumerate(blocks, start=1):
        frame += (len(block) << 3 | (number == len(blocks))).to_bytes(3, "little") + block
    return frame


def request_lines():
    """The reference prompts with ids; after the tenth a line that is refused, and one id that is there twice."""
    lines = [json.dumps({"custom_id": f"case-{number}", "prompt": case["prompt"], "max_tokens": 12}) + "\n"
             for number, case in enumerate(reference_cases())]
    lines.insert(10, json.dumps({"custom_id": "bad", "prompt": 7}) + "\n")
    lines.append(json.dumps({"custom_id": "case-3", "prompt": "The dog", "max_tokens": 5}) + "\n")
    return [line.encode() for line in lines]


def write_inputs(metro, lines):
    """The lines in all forms; returns (name, requests.input, standard input, place of the bad line) of each."""
    def write(name, content):
        (metro.folder / name).write_bytes(content)

    everything, first, second, third = b"".join(lines), b"".join(lines[:9]), b"".join(lines[9:17]), b"".join(lines[17:])
    write("plain.jsonl", everything)
    write("gzip", gzip.compress(everything))
    write("zstd.txt", zstd_frame(everything))
    write("pieces.gz", gzip.compress(first) + gzip.compress(second + third))
    write("a.jsonl", first)
    write("b.jsonl", gzip.compress(second))
    write("c.jsonl", zstd_frame(third[:-1]))
    return [
        ("gzip", "gzip", None, ("gzip", 11)),
        ("zstd", "zstd.txt", None, ("zstd.txt", 11)),
        ("gzip in two pieces", "pieces.gz", None, ("pieces.gz", 11)),
        ("several files", '["a.jsonl", "b.jsonl", "c.jsonl"]', None, ("b.jsonl", 2)),
        ("a pattern", "?.jsonl", None, ("b.jsonl", 2)),
        ("a pattern and a file", '["[ab].jsonl", "c.jsonl"]', None, ("b.jsonl", 2)),
        ("standard input", "-", "plain.jsonl", ("-", 11)),
        ("standard input in zstd", "-", "zstd.txt", ("-", 11)),
        ("standard input between files", '["a.jsonl", "-", "c.jsonl"]', "b.jsonl", ("-", 2)),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    failures = 0
    with tempfile.TemporaryDirectory(prefix="metro-inputs-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        lines = request_lines()
        inputs = write_inputs(metro, lines)
        deck = metro.write_deck("plain.jsonl", "output")
        metro.must(["run", deck, "output.directory=baseline"])
        baseline = metro.completions("baseline")
        if len(baseline) != len(lines) - 1:
            sys.exit(f"the baseline has {len(baseline)} completions, expected {len(lines) - 1}")

        for number, (name, value, stdin, place) in enumerate(inputs):
            run = metro.must(["run", deck, "--overwrite", f"requests.input={value}"], ranks=1 + number % 3,
                             stdin=stdin and metro.folder / stdin)
            errors = [(error["custom_id"], error["file"], error["line"]) for error in metro.errors("output")]
            checks = {
                "the same completions": metro.completions("output") == baseline,
                f"one error, from {place}": errors == [("bad", *place)],
                "a warning of the repeated id": 'warning: custom_id "case-3"' in run.stderr,
                "its count in the summary": "1 with the custom_id of an earlier line" in run.stdout,
            }
            wrong = [check for check, holds in checks.items() if not holds]
            failures += bool(wrong)
            print(f"WRONG {name}: not {', not '.join(wrong)}\n{errors}\n{run.stdout}{run.stderr}" if wrong else f"ok    {name}")

        shards = []
        for shard in range(3):
            metro.must(["run", deck, f"requests.shard={shard}/3", f"output.directory=shard-{shard}"], ranks=1 + shard)
            shards += [metro.completions(f"shard-{shard}"), metro.completions(f"shard-{shard}", "errors.jsonl")]
        joined = sorted(sum(shards[0::2], [])), sorted(sum(shards[1::2], []))
        right = joined == (baseline, metro.completions("baseline", "errors.jsonl"))
        failures += not right
        print(f"{'ok   ' if right else 'WRONG'} three shards together answer as one run does")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
