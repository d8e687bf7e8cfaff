#!/usr/bin/env python3
"""Everything that can go wrong while metro runs, each as a row of a table: what is injected, what must happen, with which
exit code under which launcher, and that nothing is lost: the same command, given again, ends with the bytes of a run
that was not disturbed.

The table of docs/reliability.md is that of this test (--check-page); `--write-table` prints it with measured times, after
running all rows, also under Slurm with `--srun "srun --mpi=pmix"` inside an allocation:

    python3 tests/regression/faults.py --metro build/cpu-release/bin/metro \\
        --library build/cpu-release/tests/faults/libmetro_faults.so
"""

import argparse
import pathlib
import signal
import sys
import tempfile

import fault_rows_ranks
import fault_rows_storage
from fault_runs import LAUNCHERS, Job, Test
from metro_runs import SOURCE

PAGE = SOURCE / "docs/reliability.md"
HEAD = "| fault | injected | what happens | alone | mpirun | srun | s to end | lost |"
PARTS = fault_rows_ranks.PARTS | fault_rows_storage.PARTS
BOUNDS_S = (2, 5, 10, 20, 130)


def cells(row, seconds):
    codes = [code.replace(",", " or ") for code in row.codes.split()]
    return [row.name, row.injected, row.happens, *codes, seconds, row.lost]


def line(cells_of_row):
    return f"| {' | '.join(cells_of_row)} |"


def class_of(seconds):
    return next((f"< {bound}" for bound in BOUNDS_S if seconds < bound), f"> {BOUNDS_S[-1]}") if seconds else "-"


def check_page(rows):
    """Differences between the table of the page and that of the test, the times apart."""
    lines = PAGE.read_text().splitlines()
    if HEAD not in lines:
        return [f"{PAGE} has no line {HEAD}"]
    begin = lines.index(HEAD) + 2
    end = next(i for i in range(begin, len(lines) + 1) if i == len(lines) or not lines[i].startswith("|"))
    on_page = [[cell.strip() for cell in text.strip("|").split("|")] for text in lines[begin:end]]
    on_page = [line([*row[:6], "", *row[7:]]) for row in on_page]
    here = [line(cells(row, "")) for row in rows]
    return [*(f"not on the page: {text}" for text in here if text not in on_page),
            *(f"on the page only: {text}" for text in on_page if text not in here),
            *(["the order differs"] if sorted(here) == sorted(on_page) and here != on_page else [])]


def run_row(test, row, number, launchers):
    """Whether all is well, and the longest time to the end."""
    fine, longest_s = True, 0.0
    for launcher in launchers:
        if not row.expected(launcher):
            continue
        job = Job(test, row, launcher, number)
        found, seconds = job.run()
        longest_s = max(longest_s, seconds)
        fine = fine and not found
        print("WRONG" if found else "ok   ", f"{seconds:5.1f} s  {launcher:6}  {row.name}", *found,
              sep="\n  " if found else " ", file=sys.stderr, flush=True)
        job.clean_up()
    return fine, longest_s


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro")
    parser.add_argument("--library", help="libmetro_faults.so")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--srun", default="", help="how to start under Slurm, without the number of ranks")
    parser.add_argument("--part", choices=PARTS, help="these rows only")
    parser.add_argument("--only", default="", help="rows whose name contains this only")
    parser.add_argument("--launcher", choices=LAUNCHERS, help="this one only")
    parser.add_argument("--write-table", action="store_true")
    parser.add_argument("--check-page", action="store_true", help="compare the page with the table, run nothing")
    arguments = parser.parse_args()

    rows = [row for part, rows in PARTS.items() if arguments.part in (None, part) for row in rows
            if arguments.only in row.name]
    if len({row.name for row in rows}) != len(rows):
        sys.exit("two rows have the same name")
    if arguments.check_page:
        differences = check_page(rows)
        print(*differences, sep="\n")
        sys.exit(1 if differences else 0)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here, and then is in all that is started
    launchers = [name for name in LAUNCHERS if arguments.launcher in (None, name) and (name != "srun" or arguments.srun)]
    failed, seconds_of = 0, {}
    with tempfile.TemporaryDirectory(prefix="metro-faults-") as folder:
        test = Test(arguments.metro, arguments.mpiexec, arguments.library, pathlib.Path(folder), arguments.srun)
        for number, row in enumerate(rows):
            fine, seconds_of[row.name] = run_row(test, row, number, launchers)
            failed += not fine
    if arguments.write_table:
        print(HEAD, line(["---"] * (HEAD.count(" | ") + 1)), sep="\n")
        print(*(line(cells(row, class_of(seconds_of[row.name]))) for row in rows), sep="\n")
    print(f"{len(rows)} rows, {failed} failed", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
