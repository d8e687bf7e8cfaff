#!/usr/bin/env python3
"""Draws the metrics.h5 of a run: activated experts, where the time went, rows per step, latencies.

usage: plot_run.py METRICS.h5 [-o PICTURE.png]      (the picture lies beside the file unless -o says otherwise)

Needs h5py and matplotlib (Debian: apt-get install python3-h5py python3-matplotlib).
Exit codes: 0 done, 2 a package or an argument is missing or the picture cannot be written, 3 the file cannot be used.
"""
import argparse
import pathlib
import sys

try:
    import h5py
    import matplotlib
    import numpy
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogFormatter
except ImportError as missing:
    sys.exit(print(f"plot_run: Python package {missing.name} is missing; plots need h5py and matplotlib "
                   "(Debian: apt-get install python3-h5py python3-matplotlib)", file=sys.stderr) or 2)

PREFILL, DECODE = 0, 1
MAX_BINS = 240  # points of a curve; a longer run is averaged
# Colours that stay apart for colour-blind readers (Okabe and Ito), light for what is lost.
PHASE_COLOURS = {"compute": "#0072B2", "routing": "#CC79A7", "experts": "#009E73", "exchange": "#E69F00",
                 "waiting": "#D55E00", "sampling": "#56B4E9", "requests": "#999999", "scheduling": "#000000"}
INK, GRID = "#333333", "#dddddd"


class Run:
    """What the picture needs of a metrics.h5."""

    def __init__(self, path):
        with h5py.File(path, "r") as file:
            found = text(file.attrs.get("format", b""))
            if found != "metro-metrics" or file.attrs["version"] != 1:
                raise ValueError("is not a metrics.h5 of version 1")
            self.build = text(file.attrs["build"])
            self.policy = text(file.attrs["decode_policy"])
            self.placement = text(file.attrs["placement"])
            self.family = text(file.attrs["family"])
            self.num_experts = int(file.attrs["num_experts"])
            self.num_layers, self.num_ranks, self.slots_per_rank = file["/slot_to_expert"].shape
            self.phases = [text(name) for name in file["/phases"]]
            self.steps = {name: column[()] for name, column in file["/steps"].items()}
            self.decode = {name: column[()] for name, column in file["/decode"].items()}
            self.requests = {name: column[()] for name, column in file["/requests"].items() if name != "custom_id"}
        if self.steps["kind"].size == 0:
            raise ValueError("holds no steps")
        self.end_s = float((self.steps["begin_s"] + self.steps["seconds"]).max())

    def title(self):
        ranks = f"{self.num_ranks} rank" + ("s" if self.num_ranks > 1 else "")
        return (f"{self.family} on {ranks}, {self.num_experts} experts, {self.slots_per_rank} slots per rank "
                f"({self.placement}), decode routing {self.policy}")


def text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def binned(x, *columns):
    """Means over runs of neighbouring rows, so that at most MAX_BINS points remain."""
    bounds = numpy.linspace(0, len(x), min(len(x), MAX_BINS) + 1).astype(int)[:-1]
    sizes = numpy.diff(numpy.append(bounds, len(x)))
    means = []
    for column in (x, *columns):
        sums = numpy.add.reduceat(numpy.asarray(column, dtype=float), bounds, axis=0)
        means.append(sums / sizes.reshape(-1, *[1] * (sums.ndim - 1)))
    return means


def plain_numbers(axis):
    """100 instead of powers of ten on a logarithmic axis; between decades only where there is room."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.6)))


def empty(axes, reason):
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color="#888888")


def plot_activation(axes, run):
    axes.set_title("Activated experts per decode step (mean of layers)")
    axes.set_ylabel("experts on a rank")
    if run.decode["step"].size == 0:
        return empty(axes, "no decode steps")
    lambdas, optima = run.decode["lambda"], run.decode["optimum"]
    time, busiest, optimum, mean = binned(run.steps["begin_s"][run.decode["step"]], lambdas.mean(axis=1),
                                          optima.mean(axis=1), run.decode["activated"].mean(axis=1) / run.num_ranks)
    axes.fill_between(time, mean, busiest, color="#D55E00", alpha=0.15, lw=0)
    axes.plot(time, busiest, color="#D55E00", lw=2.2, label=f"busiest rank (lambda), mean {lambdas.mean():.2f}")
    axes.plot(time, optimum, color="#000000", lw=1.0, ls=(0, (4, 2)), label=f"optimum, mean {optima.mean():.2f}")
    axes.plot(time, mean, color="#0072B2", lw=1.5,
              label=f"mean of ranks, {run.decode['activated'].mean() / run.num_ranks:.2f}")
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")


def plot_phases(axes, run):
    axes.set_title("Where the time of a step goes (mean of ranks)")
    axes.set_ylabel("ms per step")
    time, seconds = binned(run.steps["begin_s"], run.steps["phase_mean_s"])
    totals = run.steps["phase_mean_s"].astype(float).sum(axis=0)
    order = [i for i in numpy.argsort(-totals) if totals[i] > 0.002 * totals.sum()]  # thinner ones cannot be seen
    # Each step from its own begin to that of the next: one long step must not lean over its neighbours.
    time, seconds = numpy.append(time, run.end_s), numpy.concatenate([seconds, seconds[-1:]])
    axes.stackplot(time, *[1e3 * seconds[:, i] for i in order], step="post", lw=0,
                   colors=[PHASE_COLOURS.get(run.phases[i], "#888888") for i in order],
                   labels=[f"{run.phases[i]} {100 * totals[i] / totals.sum():.1f}%" for i in order])
    per_step = 1e3 * seconds[:, order].sum(axis=1)
    # A few long prefill steps must not flatten everything else.
    axes.set_ylim(0, 1.15 * min(per_step.max(), 3 * numpy.percentile(per_step, 90)))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))


def plot_rows(axes, run):
    axes.set_title("Token rows per step, all ranks")
    axes.set_ylabel("rows")
    for kind, name, colour in ((DECODE, "decode", "#0072B2"), (PREFILL, "prefill", "#E69F00")):
        chosen = run.steps["kind"] == kind
        if not chosen.any():
            continue
        label = f"{name}, {chosen.sum()} step" + ("s" if chosen.sum() > 1 else "")
        if kind == DECODE:
            axes.plot(*binned(run.steps["begin_s"][chosen], run.steps["rows"][chosen]), color=colour, lw=1.8, label=label)
        else:
            axes.plot(*binned(run.steps["begin_s"][chosen], run.steps["rows"][chosen]), ls="", marker="o", ms=4,
                      color=colour, label=label, clip_on=False, zorder=3)
    axes.set_yscale("log")
    plain_numbers(axes.yaxis)
    axes.set_xlabel("seconds since the first step")
    axes.legend(loc="best")


def plot_latencies(axes, run):
    axes.set_title("Latencies of requests")
    axes.set_ylabel("share of requests")
    axes.set_xlabel("ms")
    requests = run.requests
    if requests["id"].size == 0:
        return empty(axes, "no finished requests")
    tokens = requests["generated_tokens"]
    several = tokens > 1
    per_token = (requests["last_token_s"] - requests["first_token_s"])[several] / (tokens[several] - 1)
    for name, seconds, colour in (("first token", requests["first_token_s"] - requests["first_step_s"], "#D55E00"),
                                  ("per token after it", per_token, "#0072B2")):
        if seconds.size == 0:
            continue
        values = 1e3 * numpy.sort(seconds)
        p50, p95, p99 = (values[max(0, int(numpy.ceil(q * values.size)) - 1)] for q in (0.5, 0.95, 0.99))
        axes.step(numpy.append(values[0], values), numpy.arange(values.size + 1) / values.size, where="post",
                  color=colour, lw=2, label=f"{name}: median {p50:.3g}, p95 {p95:.3g}, p99 {p99:.3g} ms")
        axes.plot([p50, p95, p99], [0.5, 0.95, 0.99], ls="", marker="o", ms=4, color=colour)
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    axes.set_ylim(0, 1.03)
    axes.legend(loc="best")


def draw(run, picture):
    pyplot.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.edgecolor": INK,
                            "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
                            "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
                            "grid.color": GRID, "axes.axisbelow": True, "legend.frameon": False, "legend.fontsize": 8})
    figure, axes = pyplot.subplots(4, 1, figsize=(9, 12), constrained_layout=True,
                                   gridspec_kw={"height_ratios": [3, 3, 2, 3]})
    for plot, panel in zip((plot_activation, plot_phases, plot_rows, plot_latencies), axes):
        plot(panel, run)
    # The first three have the time of the run below them.
    for panel in axes[:3]:
        panel.set_xlim(0, run.end_s)
    figure.suptitle(f"{run.title()}\n{run.build}", fontsize=10)
    figure.savefig(picture, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("metrics", type=pathlib.Path, help="metrics.h5 of a run")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="picture to write (default: METRICS with .png)")
    arguments = parser.parse_args()
    picture = arguments.output or arguments.metrics.with_suffix(".png")
    try:
        run = Run(arguments.metrics)
    except (OSError, KeyError, ValueError) as failure:
        print(f"plot_run: {arguments.metrics}: {failure}", file=sys.stderr)
        return 3
    try:
        draw(run, picture)
    except (OSError, ValueError) as failure:
        print(f"plot_run: cannot write {picture}: {failure}", file=sys.stderr)
        return 2
    print(f"wrote {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
