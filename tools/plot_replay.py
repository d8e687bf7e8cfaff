#!/usr/bin/env python3
"""Draws what `metro replay` wrote: lambda and its gap to the optimum, by policy and batch, one column per replication.

usage: plot_replay.py REPLAY.json|REPLAY.csv [-o PICTURE.png] [--placement NAME] [--ranks N]

Of several placements or rank counts the first is drawn unless an option names another. Needs matplotlib (Debian: apt-get
install python3-matplotlib). Exit codes: 0 done, 2 a package or an argument is missing or the picture cannot be written,
3 the file cannot be used.
"""
import argparse
import csv
import json
import pathlib
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError as missing:
    sys.exit(print(f"plot_replay: Python package {missing.name} is missing; plots need matplotlib "
                   "(Debian: apt-get install python3-matplotlib)", file=sys.stderr) or 2)

NUMBERS = {"ranks": int, "batch": int, "replication": float, "lambda": float, "optimum": float, "bound": float, "gap": float}
# Colours that stay apart for colour-blind readers (Okabe and Ito); policies beyond them repeat with another marker.
COLOURS = ["#0072B2", "#56B4E9", "#009E73", "#D55E00", "#E69F00", "#CC79A7", "#999999"]
MARKERS = "osv^"
INK, GRID = "#333333", "#dddddd"


class Case:
    """One point of the sweep, over all layers."""

    def __init__(self, fields):
        self.placement = fields["placement"]
        self.policy = fields["policy"]
        for name, kind in NUMBERS.items():
            setattr(self, name, kind(fields[name]))


def read_cases(path):
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            cases = [Case(line) for line in csv.DictReader(file) if line["layer"] == "all"]
    else:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("format") != "metro-replay" or document.get("version") != 1:
            raise ValueError("is not the JSON of a metro replay of version 1")
        cases = [Case(result | result["overall"]) for result in document["results"]]
    if not cases:
        raise ValueError("holds no cases")
    return cases


def in_order(values):
    return list(dict.fromkeys(values))


def chosen(cases, name, wanted):
    """The cases whose `name` is `wanted`, or that of the first case."""
    values = in_order(getattr(case, name) for case in cases)
    value = values[0] if wanted is None else wanted
    if value not in values:
        raise LookupError(f"--{name} {wanted}: the file has {', '.join(map(str, values))}")
    return [case for case in cases if getattr(case, name) == value]


def draw_column(lambda_axes, gap_axes, cases, policies):
    """One replication: lambda above, gap below."""
    for i, policy in enumerate(policies):
        mine = sorted((case for case in cases if case.policy == policy), key=lambda case: case.batch)
        batches = [case.batch for case in mine]
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i // len(COLOURS) % len(MARKERS)], "ms": 4, "lw": 1.6}
        lambda_axes.plot(batches, [getattr(case, "lambda") for case in mine], label=policy, **style)
        gap_axes.plot(batches, [100 * case.gap for case in mine], **style)
    any_policy = sorted((case for case in cases if case.policy == policies[0]), key=lambda case: case.batch)
    batches = [case.batch for case in any_policy]
    lambda_axes.plot(batches, [case.optimum for case in any_policy], color="#000000", lw=1, ls="--", label="optimum")
    lambda_axes.plot(batches, [case.bound for case in any_policy], color="#000000", lw=1, ls=":", label="ceil(active / ranks)")
    lambda_axes.set_title(f"replication {cases[0].replication:.4g}")
    gap_axes.set_xlabel("sequences in the batch, all ranks")
    for axes in (lambda_axes, gap_axes):
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.minorticks_off()


def draw(cases, picture):
    pyplot.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.edgecolor": INK,
                            "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
                            "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
                            "grid.color": GRID, "axes.axisbelow": True, "legend.frameon": False, "legend.fontsize": 8})
    policies = in_order(case.policy for case in cases)
    replications = in_order(case.replication for case in cases)
    figure, axes = pyplot.subplots(2, len(replications), figsize=(3.2 * len(replications) + 2, 6.5), squeeze=False,
                                   sharex=True, sharey="row", constrained_layout=True)
    for column, replication in enumerate(replications):
        draw_column(axes[0][column], axes[1][column], [case for case in cases if case.replication == replication], policies)
    axes[0][0].set_ylabel("experts on the busiest rank (lambda), mean")
    axes[0][0].set_ylim(bottom=0)
    axes[1][0].set_ylabel("above the optimum, %")
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(f"placement {cases[0].placement}, {cases[0].ranks} ranks", fontsize=10)
    figure.savefig(picture, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("replay", type=pathlib.Path, help="file that metro replay wrote with --json or --csv")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="picture to write (default: REPLAY with .png)")
    parser.add_argument("--placement", help="the placement to draw (default: the first)")
    parser.add_argument("--ranks", type=int, help="the rank count to draw (default: the first)")
    arguments = parser.parse_args()
    picture = arguments.output or arguments.replay.with_suffix(".png")
    try:
        cases = read_cases(arguments.replay)
    except KeyError as failure:
        print(f"plot_replay: {arguments.replay}: has no {failure}", file=sys.stderr)
        return 3
    except (OSError, ValueError, AttributeError) as failure:
        print(f"plot_replay: {arguments.replay}: {failure}", file=sys.stderr)
        return 3
    try:
        cases = chosen(chosen(cases, "placement", arguments.placement), "ranks", arguments.ranks)
        draw(cases, picture)
    except (OSError, ValueError, LookupError) as failure:
        print(f"plot_replay: cannot draw {picture}: {failure}", file=sys.stderr)
        return 2
    print(f"wrote {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
