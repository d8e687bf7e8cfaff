#!/usr/bin/env python3
"""Tests tools/plot_replay.py: pictures of real replays, and one clear line for whatever is wrong.

Exit code 77, with the reason, where matplotlib is missing; `--without-packages` does not need it.
"""
import sys

from plot_checks import SOURCE, Tool, expect, png_size

TOOL = Tool("plot_replay", packages=["matplotlib"])


def draws_replays(metro):
    json_file, csv_file = metro.folder / "a.json", metro.folder / "a.csv"
    metro.must(["import-trace", "gpt-oss-20b", SOURCE / "tests/data/traces/gpt-oss-20b", "t.h5"])
    metro.must(["replay", "t.h5", "--placement", "trivial,eplb", "--batch", "2,4,8", "--ranks", "4,8", "--draws", "3",
                "--replication", "1.0,1.5", "--json", json_file, "--csv", csv_file])
    right = expect("picture beside the JSON", TOOL.plot(json_file), 0) and min(png_size(json_file.with_suffix(".png"))) > 500
    right &= expect("picture of the CSV", TOOL.plot(csv_file, "-o", metro.folder / "b.png"), 0)
    right &= png_size(metro.folder / "b.png") == png_size(json_file.with_suffix(".png"))
    right &= expect("another placement and rank count",
                    TOOL.plot(json_file, "--placement", "eplb", "--ranks", "8", "-o", metro.folder / "c.png"), 0)
    right &= (metro.folder / "c.png").read_bytes() != json_file.with_suffix(".png").read_bytes()
    right &= expect("a placement that is not there", TOOL.plot(json_file, "--placement", "best"), 2, "trivial, eplb")
    right &= expect("a picture that cannot be written", TOOL.plot(json_file, "-o", "nowhere/a.png"), 2, "nowhere/a.png")
    right &= expect("a file that is not there", TOOL.plot("nowhere.json"), 3, "nowhere.json")
    for name, text in (("text", "no JSON"), ("other", "{}"), ("list", "[]"), ("empty", '{"format": "metro-replay", "version": 1, "results": []}'),
                       ("short", '{"format": "metro-replay", "version": 1}')):
        (metro.folder / f"{name}.json").write_text(text)
        right &= expect(f"a file that is not what it should be: {name}", TOOL.plot(metro.folder / f"{name}.json"), 3, f"{name}.json")
    return right


if __name__ == "__main__":
    sys.exit(TOOL.main(__doc__, draws_replays))
