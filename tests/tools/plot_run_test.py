#!/usr/bin/env python3
"""Tests tools/plot_run.py: pictures of real runs, and one clear line for whatever is wrong.

Exit code 77, with the reason, where h5py or matplotlib is missing; `--without-packages` needs neither.
"""
import sys

from plot_checks import Tool, expect, png_size

TOOL = Tool("plot_run", packages=["h5py", "matplotlib"])


def draws_runs(metro):
    lines = [{"prompt": "A cat " * (i % 3 + 1), "max_tokens": 3 + i} for i in range(9)]
    one = [{"prompt": "A cat", "max_tokens": 1}]  # nothing is decoded
    right = True
    for name, requests, ranks in (("several", lines, 2), ("one", one, None)):
        deck = metro.write_deck(metro.write_requests(f"{name}.jsonl", requests), name)
        metro.must(["run", deck, "routing.decode=even", "experts.replication=1.5"], ranks=ranks)
        metrics = metro.folder / name / "metrics.h5"
        picture = metro.folder / f"{name}.png"
        right &= expect(f"picture of a run with {name}", TOOL.plot(metrics, "-o", picture), 0)
        right &= min(png_size(picture)) > 500
    right &= expect("picture beside the file", TOOL.plot(metrics), 0) and metrics.with_suffix(".png").exists()
    right &= expect("picture that cannot be written", TOOL.plot(metrics, "-o", "nowhere/a.png"), 2, "nowhere/a.png")
    right &= expect("a file that is not there", TOOL.plot("nowhere.h5"), 3, "nowhere.h5")
    right &= expect("a checkpoint", TOOL.plot(metro.convert_tiny()), 3, "tiny.h5", "is not a metrics.h5")
    return right


if __name__ == "__main__":
    sys.exit(TOOL.main(__doc__, draws_runs))
