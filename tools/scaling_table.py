#!/usr/bin/env python3
"""One table of several runs: throughput, step times and activated experts by ranks and routing policy.

usage: scaling_table.py FOLDER [--out TABLE.txt] [--picture PICTURE.png]

FOLDER holds a folder per run with summary.txt, what `metro inspect metrics.h5` printed (slurm/scaling_sweep.sbatch makes
them). The table needs nothing but Python; without matplotlib there is no picture, and a line says so.
Exit codes: 0 done, 2 an argument is wrong or a file cannot be written, 3 a summary cannot be used.
"""
import argparse
import pathlib
import re
import sys

# What is read of a summary: column, pattern, type.
NUMBER = r"([0-9.]+)"
FIELDS = [("ranks", r"^  job +(\d+) ranks? on ", int),
          ("nodes", r"^  job +\d+ ranks? on (\d+) ", int),
          ("policy", r"^  routing +decode ([a-z-]+),", str),
          ("tokens/s", rf"^  tokens +.* {NUMBER} generated tokens/s$", float),
          ("decode s", rf"^  time +.*decode {NUMBER} s in ", float),
          ("decode steps", r"^  time +.*decode [0-9.]+ s in (\d+) step", int),
          ("lambda", rf"^  activated +.*busiest rank {NUMBER},", float),
          ("optimum", rf"^  activated +.*optimum {NUMBER} ", float),
          *((f"{phase} %", rf"^  {phase} .* {NUMBER}%  ", float) for phase in ("compute", "experts", "exchange", "waiting"))]
COLUMNS = [("ranks", "d"), ("nodes", "d"), ("policy", "s"), ("tokens/s", ".0f"), ("ms/step", ".3f"), ("lambda", ".2f"),
           ("optimum", ".2f"), ("compute %", ".1f"), ("experts %", ".1f"), ("exchange %", ".1f"), ("waiting %", ".1f")]


def read_summary(path):
    text = path.read_text(encoding="utf-8")
    run = {}
    for name, pattern, kind in FIELDS:
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            raise ValueError(f"{path}: no '{name}'; is it what `metro inspect` printed of a run that has decoded?")
        run[name] = kind(found.group(1))
    run["ms/step"] = 1e3 * run["decode s"] / max(1, run["decode steps"])
    return run


def table_of(runs):
    rows = [[name for name, _ in COLUMNS]] + [[format(run[name], form) for name, form in COLUMNS] for run in runs]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) + "\n" for row in rows)


def draw(runs, picture):
    """Returns whether it could."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    for panel, name in zip(axes, ("tokens/s", "ms/step", "lambda")):
        for policy in sorted({run["policy"] for run in runs}):
            chosen = [run for run in runs if run["policy"] == policy]
            panel.plot([run["ranks"] for run in chosen], [run[name] for run in chosen], marker="o", label=policy)
        panel.set_xlabel("ranks")
        panel.set_title(name)
        panel.set_xticks(sorted({run["ranks"] for run in runs}))
        panel.set_ylim(bottom=0)
        panel.grid(color="#dddddd")
    axes[0].legend(frameon=False)
    figure.savefig(picture, dpi=150)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder of run folders")
    parser.add_argument("--out", type=pathlib.Path, help="file for the table, which is printed as well")
    parser.add_argument("--picture", type=pathlib.Path, help="file for a picture")
    arguments = parser.parse_args()
    try:
        summaries = sorted(arguments.folder.glob("*/summary.txt"))
        if not summaries:
            raise ValueError(f"{arguments.folder}: holds no */summary.txt")
        runs = sorted(map(read_summary, summaries), key=lambda run: (run["ranks"], run["policy"]))
    except (OSError, ValueError) as failure:
        print(f"scaling_table: {failure}", file=sys.stderr)
        return 3
    table = table_of(runs)
    print(table, end="")
    try:
        if arguments.out:
            arguments.out.write_text(table, encoding="utf-8")
        if arguments.picture and not draw(runs, arguments.picture):
            print("scaling_table: no picture: Python package matplotlib is missing (Debian: apt-get install "
                  "python3-matplotlib)", file=sys.stderr)
    except (OSError, ValueError) as failure:
        print(f"scaling_table: cannot write: {failure}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
