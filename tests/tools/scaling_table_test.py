#!/usr/bin/env python3
"""Tests tools/scaling_table.py on summaries of made-up runs, and what it refuses."""

import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SUMMARY = """\
  job         {ranks} ranks on 2 nodes, transport mpi
  routing     decode {policy}, prefill even
done
  tokens      458 prompt, 688 generated, {rate} generated tokens/s
  time        0.10 s after 0.24 s of loading: prefill 0.02 s in 1 step, decode 0.08 s in 40 steps
  activated   experts per layer and decode step: busiest rank 4.32, optimum 4.31 (reached in 99.0%), mean rank 3.19; 12.8 distinct
  time in     slowest rank    mean rank   share
  compute          0.012 s      0.010 s   11.1%  attention and all that is dense
  experts          0.012 s      0.010 s   22.2%  the experts of a rank
  exchange         0.012 s      0.010 s   33.3%  collectives, without waiting
  waiting          0.012 s      0.010 s   4.4%  for slower ranks
"""


def table(*arguments, path=None):
    return subprocess.run([sys.executable, "-B", SOURCE / "tools/scaling_table.py", *map(str, arguments)], text=True,
                          capture_output=True, env={"PYTHONPATH": str(path)} if path else None)


def expect(what, holds, detail):
    print("ok   " if holds else "WRONG", what, "" if holds else f"\n{detail}")
    return holds


def main():
    right = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for ranks, policy, rate in ((16, "exact", 900), (2, "even", 100), (2, "metro-scarce", 200)):
            (folder / f"{ranks}-{policy}").mkdir()
            (folder / f"{ranks}-{policy}/summary.txt").write_text(SUMMARY.format(ranks=ranks, policy=policy, rate=rate))
        made = table(folder, "--out", folder / "table.txt")
        rows = [line.split() for line in (folder / "table.txt").read_text().splitlines()]
        same = ["2.000", "4.32", "4.31", "11.1", "22.2", "33.3", "4.4"]
        right &= expect("rows by ranks and policy", rows[1:] == [["2", "2", "even", "100", *same],
                                                                ["2", "2", "metro-scarce", "200", *same],
                                                                ["16", "2", "exact", "900", *same]], rows)
        right &= expect("the table is printed", made.returncode == 0 and made.stdout == (folder / "table.txt").read_text(),
                        made)
        (folder / "matplotlib.py").write_text("raise ImportError\n")
        without = table(folder, "--picture", folder / "a.png", path=folder)
        right &= expect("no picture without matplotlib, but a word", without.returncode == 0 and
                        "matplotlib is missing" in without.stderr and not (folder / "a.png").exists(), without)
        unwritable = table(folder, "--out", folder / "nowhere/a.txt")
        right &= expect("a table that cannot be written", unwritable.returncode == 2 and "nowhere" in unwritable.stderr,
                        unwritable)
        (folder / "2-even/summary.txt").write_text("metro: error: no such file\n")
        broken = table(folder)
        right &= expect("a summary without what is needed", broken.returncode == 3 and "2-even" in broken.stderr and
                        "no 'ranks'" in broken.stderr, broken)
        empty = table(folder / "2-even")
        right &= expect("a folder without runs", empty.returncode == 3 and "holds no */summary.txt" in empty.stderr, empty)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
