#!/usr/bin/env python3
"""Strong or weak scaling over ranks and routing policies: throughput, efficiency, where the time went, lambda.

usage: scaling_table.py FOLDER [--mode strong|weak] [--out TABLE.txt] [--csv TABLE.csv] [--picture PICTURE.png]

FOLDER holds a folder per run with summary.json, what `metro inspect metrics.h5 --json` printed
(slurm/scaling_sweep.sbatch makes them). Runs that cannot be compared are refused: docs/scaling.md says when. The table
needs nothing but Python; without matplotlib there is no picture, and a line says so.
Exit codes: 0 done, 2 an argument is wrong or a file cannot be written, 3 a summary cannot be used or compared.
"""
import argparse
import csv
import json
import pathlib
import sys

# How the mean step of decode splits up: column, phases of metrics.h5. "other" is sampling, requests and scheduling.
PARTS = {"compute": ["compute"], "experts": ["experts"], "exchange": ["exchange"], "waiting": ["waiting"],
         "routing": ["routing"], "other": ["sampling", "requests", "scheduling"]}
PART_COLOURS = {"compute": "#0072B2", "experts": "#009E73", "exchange": "#E69F00", "waiting": "#D55E00",
                "routing": "#CC79A7", "other": "#999999"}
COLUMNS = [("ranks", "d"), ("nodes", "d"), ("policy", "s"), ("runs", "d"), ("tokens/s", ".0f"), ("slowest", ".0%"),
           ("speed-up", ".2f"),
           ("efficiency", ".0%"), ("ms/step", ".3f"), ("rows", ".1f"), *((part, ".0%") for part in PARTS),
           ("lambda", ".2f"), ("optimum", ".2f"), ("threads", "d"), ("cores", "d")]
CROWDED = "! more threads than cores: the times of this run mean nothing, and it has no speed-up and no efficiency"
UNKNOWN = "? it is not known how many cores the run had: compare its times only if you know"
# Keys of the deck that the runs of a sweep do not share.
FREE_KEYS = {"strong": {"output.directory", "routing.decode", "batch.max_sequences_per_rank"},
             "weak": {"output.directory", "routing.decode", "requests.shard"}}


class Unusable(Exception):
    """A summary that cannot be read, or compared with another."""


def deck_keys(text):
    """The resolved deck as {"table.key": value}; it has one key to a line."""
    keys, table = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[] ") + "."
        elif " = " in line:
            key, value = line.split(" = ", 1)
            if value.startswith('"'):
                value = value[:value.find('"', 1) + 1]
            else:
                value = value.split("#")[0].strip()
            keys[table + key] = value
    return keys


def read_run(path):
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        if not summary["has_ended"]:
            raise Unusable(f"{path}: the run has not ended")
        if summary["decode_steps"] == 0 or summary["run_s"] <= 0:
            raise Unusable(f"{path}: the run has not decoded")
        steps, cores = summary["decode_steps"], summary["cores"] or {}
        phases = summary["decode_phase_mean_s"]
        total_s = sum(phases.values())
        run = {"name": path.parent.name, "ranks": summary["ranks"], "nodes": summary["nodes"],
               "policy": summary["decode_policy"], "tokens/s": summary["generated_tokens"] / summary["run_s"],
               "ms/step": 1e3 * summary["decode_s"] / steps,
               "rows": (summary["generated_tokens"] - summary["completed"]) / steps, "lambda": summary["lambda"],
               "optimum": summary["optimum"], "threads": cores.get("threads"), "cores": cores.get("cores"),
               "crowded": cores.get("is_crowded"), "keys": deck_keys(summary["deck"])}
        run |= {part: sum(phases[phase] for phase in names) / total_s for part, names in PARTS.items()}
        run["same"] = {name: summary[name] for name in ("build", "software", "checkpoint_digest", "placement")}
        run["work"] = {name: summary[name] for name in ("completed", "prompt_tokens", "generated_tokens")}
        return run
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as failure:
        raise Unusable(f"{path}: is not what `metro inspect metrics.h5 --json` prints of a run ({failure!r})") from None


def differences(a, b):
    """Yields (what, value in a, value in b)."""
    for name in {**a, **b}:
        if a.get(name) != b.get(name):
            yield name, a.get(name, "nothing"), b.get(name, "nothing")


def check_comparable(runs, mode):
    def refuse(a, b, what, of_a, of_b):
        raise Unusable(f"runs {a['name']} and {b['name']} cannot be compared for {mode} scaling: {what} is {of_a} and {of_b}")

    def number(run, key):
        return int(run["keys"].get(key, "").strip('"').split("/")[-1] or 0)

    first = runs[0]
    for run in runs[1:]:
        for what, of_a, of_b in differences(first["same"], run["same"]):
            refuse(first, run, what, of_a, of_b)
        for key, of_a, of_b in differences(first["keys"], run["keys"]):
            if key not in FREE_KEYS[mode]:
                refuse(first, run, f"the deck's {key}", of_a, of_b)
        if mode == "strong":
            for what, of_a, of_b in differences(first["work"], run["work"]):
                refuse(first, run, f"the work, {what},", of_a, of_b)
            shared, key = "sequences of all ranks", "batch.max_sequences_per_rank"
        else:
            shared, key = "ranks for the whole input", "requests.shard"
        of_a, of_b = first["ranks"] * number(first, key), run["ranks"] * number(run, key)
        if of_a != of_b:
            refuse(first, run, f"the number of {shared} ({key} x ranks)", of_a, of_b)


def fastest(runs):
    """Of the runs of the same ranks and policy the fastest, with how fast the slowest was."""
    groups = {}
    for run in runs:
        groups.setdefault((run["ranks"], run["policy"]), []).append(run)
    for group in groups.values():
        group.sort(key=lambda run: -run["tokens/s"])
        group[0] |= {"runs": len(group), "slowest": group[-1]["tokens/s"] / group[0]["tokens/s"]}
    return [groups[key][0] for key in sorted(groups)]


def add_efficiency(runs):
    """Against the run with the fewest ranks of the same policy. Tokens/s per rank compare what a rank achieves: with the
    same work that is T1 / (n Tn), with work that grows with ranks T1 / Tn."""
    for run in runs:
        base = min((other for other in runs if other["policy"] == run["policy"]), key=lambda other: other["ranks"])
        counts = not run["crowded"] and not base["crowded"]
        run["speed-up"] = run["tokens/s"] / base["tokens/s"] if counts else None
        run["efficiency"] = run["speed-up"] * base["ranks"] / run["ranks"] if counts else None


def mark(run):
    return {True: "!", False: "", None: "?"}[run["crowded"]]


def table_of(runs, mode):
    def cell(run, name, form):
        return "-" if run[name] is None else format(run[name], form)

    rows = [[name for name, _ in COLUMNS] + [""]]
    rows += [[cell(run, name, form) for name, form in COLUMNS] + [mark(run)] for run in runs]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    marks = {mark(run) for run in runs}
    lines += [text for text in (CROWDED, UNKNOWN) if text[0] in marks]
    return f"{mode} scaling\n" + "".join(line + "\n" for line in lines)


def write_csv(runs, mode, path):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        names = [name for name, _ in COLUMNS] + ["crowded"]
        writer.writerow(["scaling", *names])
        writer.writerows([[mode, *("" if run[name] is None else run[name] for name in names)] for run in runs])


def draw(runs, mode, picture):
    """Returns whether it could."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 4, figsize=(16, 4), constrained_layout=True)
    ticks = sorted({run["ranks"] for run in runs})
    for panel, name in zip(axes, ("tokens/s", "efficiency", "lambda")):
        for policy in sorted({run["policy"] for run in runs}):
            chosen = [run for run in runs if run["policy"] == policy and run[name] is not None]
            line, = panel.plot([run["ranks"] for run in chosen], [run[name] for run in chosen], label=policy)
            for run in chosen:  # hollow where times mean nothing
                hollow = run["crowded"] and name != "lambda"
                panel.plot(run["ranks"], run[name], marker="o", color=line.get_color(),
                           markerfacecolor="white" if hollow else line.get_color())
        panel.set_title(name)
        panel.set_xlabel("ranks")
        panel.set_xticks(ticks)
        panel.set_ylim(bottom=0)
        panel.grid(color="#dddddd")
    axes[0].legend(frameon=False)
    bars, bottom = axes[3], [0.0] * len(runs)
    for part in PARTS:
        heights = [run["ms/step"] * run[part] for run in runs]
        bars.bar(range(len(runs)), heights, bottom=bottom, label=part, color=PART_COLOURS[part])
        bottom = [a + b for a, b in zip(bottom, heights)]
    bars.set_xticks(range(len(runs)), [f"{run['ranks']} {run['policy']} {mark(run)}" for run in runs], rotation=60)
    bars.set_title("ms of a decode step, mean of ranks")
    bars.legend(frameon=False, fontsize=8)
    marks = {mark(run) for run in runs}
    notes = [text for text in (CROWDED + " (hollow)", UNKNOWN) if text[0] in marks]
    figure.suptitle("\n".join([f"{mode} scaling, {runs[0]['same']['build']}", *notes]))
    figure.savefig(picture, dpi=150)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path, help="folder of run folders")
    parser.add_argument("--mode", choices=list(FREE_KEYS), default="strong", help="what the sweep kept the same")
    parser.add_argument("--out", type=pathlib.Path, help="file for the table, which is printed as well")
    parser.add_argument("--csv", type=pathlib.Path, help="file for the table with all digits")
    parser.add_argument("--picture", type=pathlib.Path, help="file for a picture")
    arguments = parser.parse_args()
    try:
        summaries = sorted(arguments.folder.glob("*/summary.json"))
        if not summaries:
            raise Unusable(f"{arguments.folder}: holds no */summary.json")
        runs = sorted(map(read_run, summaries), key=lambda run: (run["ranks"], run["policy"]))
        check_comparable(runs, arguments.mode)
        runs = fastest(runs)
    except (OSError, UnicodeError, Unusable) as failure:
        print(f"scaling_table: {failure}", file=sys.stderr)
        return 3
    add_efficiency(runs)
    table = table_of(runs, arguments.mode)
    print(table, end="")
    try:
        if arguments.out:
            arguments.out.write_text(table, encoding="utf-8")
        if arguments.csv:
            write_csv(runs, arguments.mode, arguments.csv)
        if arguments.picture and not draw(runs, arguments.mode, arguments.picture):
            print("scaling_table: no picture: Python package matplotlib is missing (Debian: apt-get install "
                  "python3-matplotlib)", file=sys.stderr)
    except (OSError, ValueError) as failure:
        print(f"scaling_table: cannot write: {failure}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
