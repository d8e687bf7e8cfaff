#!/usr/bin/env python3
"""A run that is stopped by a signal or killed goes on where it was, and ends with the bytes of one that was not.

First what is stopped, refused and begun anew in known ways; then `--kills` runs, each cut at random moments in random
ways (signals to mpirun and to ranks, kill -9 of a rank and of mpirun) and each time continued with other settings:

    python3 tests/regression/resume.py --metro build/cpu-release/bin/metro --kills 100
    python3 tests/regression/resume.py --metro build/cpu-release/bin/metro --kills 100 --only-kill-9 --ranks 2 3 4
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from identity import SETTINGS, requests, without_refused
from jobs import PATIENCE_S, environment_of, is_gone, ranks_of, remove_shared_memory, wait_for
from metro_runs import ENVIRONMENT, SOURCE, Metro

FREE_SETTINGS = {key: values for key, values in SETTINGS.items()
                 if key not in ("ranks", "requests.arrivals", "input order")}
# Those that are too slow for so many requests.
FREE_SETTINGS |= {"batch.max_sequences_per_rank": [8, 32], "experts.rebalance_steps": [0, 0, 300],
                  "run.simd": [level for level in SETTINGS["run.simd"] if level != "scalar"]}
STOPPED = 75
POLITE_WAYS = ["USR1 mpirun", "USR1 rank", "TERM rank"]
KILL_WAYS = ["KILL rank", "KILL mpirun"]


def many_requests(copies):
    """Requests of every kind, some that are refused and blank lines between, `copies` times."""
    lines = []
    for copy in range(copies):
        for number, line in enumerate(requests()):
            if number % 16 == 5:
                lines.append({"prompt": 7})
            lines.append({**line, "custom_id": f"{line['custom_id']}-{copy}"})
    return lines


class Part:
    """A run of metro under way."""

    def __init__(self, metro, deck, name, ranks, overrides=(), stdin="/dev/null"):
        self.folder = metro.folder / name
        self.num_ranks = ranks
        command = metro.command(["run", deck, f"output.directory={self.folder}", *overrides], ranks=ranks)
        self.log = open(metro.folder / f"{name}.log", "w+")
        with open(stdin, "rb") as content:
            self.process = subprocess.Popen(command, cwd=metro.folder, env=ENVIRONMENT, stdin=content, stdout=self.log,
                                            stderr=self.log)

    def output(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def ranks(self):
        """Process of each rank; fewer while they start or when they have gone."""
        return ranks_of(self.process.pid) if self.num_ranks else {0: self.process.pid}

    def wait_for_steps(self):
        completions = self.folder / "completions.jsonl"
        wait_for(lambda: self.process.poll() is not None or (completions.exists() and completions.stat().st_size > 0),
                 "the first completion")
        return wait_for(lambda: self.process.poll() is not None or (len(found := self.ranks()) == (self.num_ranks or 1) and found),
                        "all ranks")

    def end(self, patience_s=PATIENCE_S):
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            sys.exit(f"the run does not end:\n{self.output()}")


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass  # it was faster


class Test:
    def __init__(self, metro, deck, lines, arguments):
        self.metro = metro
        self.deck = deck
        self.random = random.Random(arguments.seed)
        self.ways = KILL_WAYS if arguments.only_kill_9 else POLITE_WAYS + KILL_WAYS
        self.ranks = arguments.ranks
        begin = time.monotonic()
        metro.must(["run", deck, f"output.directory={metro.folder / 'baseline'}"], ranks=1)
        self.baseline_s = time.monotonic() - begin
        self.expected = self.results("baseline")
        if len(self.expected[0]) + len(self.expected[1]) != lines:
            sys.exit(f"the baseline has {list(map(len, self.expected))} lines of {lines}")
        self.num_cut = 0
        self.faults = 0

    def results(self, name):
        return [sorted((self.metro.folder / name / file).read_bytes().splitlines())
                for file in ("completions.jsonl", "errors.jsonl")]

    def check(self, what, *conditions):
        wrong = [text for holds, text in conditions if not holds]
        self.faults += bool(wrong)
        print("WRONG" if wrong else "ok   ", what, *wrong, sep="\n  " if wrong else " ", flush=True)

    def has_state(self, name):
        return (self.metro.folder / name / "resume.state").exists()

    def is_over(self, name):
        """Ranks go on for a second when mpirun is killed, and may finish the job in it; then there is no state any more."""
        return (self.metro.folder / name / "completions.jsonl").exists() and not self.has_state(name)

    def finished_well(self, name):
        left = sorted(path.name for path in (self.metro.folder / name).glob("resume.*"))
        return [(self.results(name) == self.expected, f"the results of {name} differ"), (not left, f"left behind: {left}")]

    def setting(self):
        setting = without_refused({key: self.random.choice(values) for key, values in FREE_SETTINGS.items()})
        return [f"{key}={value}" for key, value in setting.items()]

    def cut(self, name, way, ranks):
        """Runs a part that is cut in this way at a random moment; what is wrong with its end."""
        overrides = [*self.setting(), f"run.checkpoint_s={self.random.choice([0, 0.05, 0.3])}"]
        part = Part(self.metro, self.deck, name, ranks, overrides)
        if way.startswith("KILL"):
            wait_for(lambda: part.process.poll() is not None or len(part.ranks()) == (ranks or 1), "all ranks")
        else:
            part.wait_for_steps()
        time.sleep(self.random.uniform(0.0, 0.7 * self.baseline_s))
        processes = part.ranks()
        environments = [environment_of(process) for process in processes.values()] if way == "KILL mpirun" else []
        victim = part.process.pid if way.endswith("mpirun") else self.random.choice([*processes.values()] or [part.process.pid])
        send(victim, getattr(signal, f"SIG{way.split()[0]}"))
        code = part.end()
        if way == "KILL mpirun":
            wait_for(lambda: all(map(is_gone, processes.values())), "the end of all ranks")
            remove_shared_memory(environments)
        self.num_cut += code != 0 and self.has_state(name)
        if code == 0 or way.startswith("KILL") or code == STOPPED:
            return code, []
        return code, [f"{way}: exit code {code}\n{part.output()}"]

    def random_run(self, number):
        name = f"run-{number}"
        story, wrong = [], []
        for way in self.random.choices(self.ways, k=self.random.choice([1, 2, 3])):
            ranks = self.random.choice([*self.ranks, None] if 1 in self.ranks else self.ranks)
            way = "KILL rank" if ranks is None and way == "KILL mpirun" else way
            code, faults = self.cut(name, way, ranks)
            story.append(f"{way} of {ranks or 'no launcher'}: {code}")
            wrong += faults
            if code == 0 or self.is_over(name):
                break
        else:
            last = self.metro.start(["run", self.deck, f"output.directory={self.metro.folder / name}", *self.setting()],
                                    ranks=self.random.choice(self.ranks), timeout=300)
            story.append(f"end: {last.returncode}")
            wrong += [f"the last part fails: {last.stdout}{last.stderr}"] if last.returncode else []
        same = [] if wrong else self.finished_well(name)
        self.check(f"{name} ({'; '.join(story)})", *[(False, text) for text in wrong], *same)
        if not wrong:
            shutil.rmtree(self.metro.folder / name)

    # In known ways.

    def stop(self, name, number=signal.SIGUSR1, to_rank=None, **more):
        """Stops a run on two ranks once something is finished; its exit code and output."""
        part = Part(self.metro, self.deck, name, 2, **more)
        ranks = part.wait_for_steps()
        send(part.process.pid if to_rank is None else ranks[to_rank], number)
        return part.end(), part.output()

    def stop_and_go_on(self):
        code, output = self.stop("stopped")
        self.check("SIGUSR1 to mpirun stops", (code == STOPPED, f"exit code {code}"), (self.has_state("stopped"), "no state"),
                   ("stopped by a signal" in output, output))
        last = self.metro.start(["run", self.deck, f"output.directory={self.metro.folder / 'stopped'}"], ranks=3)
        self.check("the same command goes on", (last.returncode == 0, last.stderr),
                   ("went on from their tokens" in last.stdout, last.stdout), *self.finished_well("stopped"),
                   ((self.metro.folder / "stopped/metrics.2.h5").exists(), "no metrics of part 2"))
        for rank in (0, 1):
            code, output = self.stop(f"terminated-{rank}", signal.SIGTERM, rank)
            self.check(f"SIGTERM to rank {rank} stops", (code == STOPPED, f"exit code {code}\n{output}"))

    def refused(self):
        folder = self.metro.folder
        lines = (folder / "requests.jsonl").read_text().splitlines(keepends=True)
        (folder / "changed.jsonl").write_text("".join(["{\"prompt\": \"other\"}\n", *lines[1:]]))
        changes = {"requests.max_tokens=7": "requests.max_tokens is 7, but was 256",
                   "requests.shard=0/2": "requests.shard is 0/2, but was 0/1",
                   "requests.temperature=0.5": "requests.temperature is 0.5, but was 0",
                   "model.max_context=200": "model.max_context is 200, but was 256",
                   f"requests.input={folder / 'changed.jsonl'}": "file 1 of requests.input is"}
        self.metro.must(["convert", "--weights", "int8" if self.metro.weights == "stored" else "stored",
                         SOURCE / "inputs/models/tiny", folder / "other.h5"])
        changes[f"model.checkpoint={folder / 'other.h5'}"] = "model.checkpoint is one of digest"
        before = {path.name: path.read_bytes() for path in (folder / "terminated-0").iterdir()}
        for change, reason in changes.items():
            run = self.metro.start(["run", self.deck, f"output.directory={folder / 'terminated-0'}", change], ranks=2)
            self.check(f"refused: {change.split('=')[0]}", (run.returncode == 2, f"exit code {run.returncode}"),
                       (reason in run.stderr and "but was" in run.stderr, run.stderr))
        shutil.copy(folder / "requests.jsonl", folder / "kept.jsonl")
        shutil.copy(folder / "changed.jsonl", folder / "requests.jsonl")
        run = self.metro.start(["run", self.deck, f"output.directory={folder / 'terminated-0'}"], ranks=2)
        shutil.copy(folder / "kept.jsonl", folder / "requests.jsonl")
        self.check("refused: a line of the input", (run.returncode == 2, f"exit code {run.returncode}"),
                   ("line 1 of" in run.stderr and "is not what it was" in run.stderr, run.stderr))
        after = {path.name: path.read_bytes() for path in (folder / "terminated-0").iterdir()}
        self.check("a refused run changes nothing", (before == after, f"{before.keys()} {after.keys()}"))

    def overwritten(self):
        self.metro.must(["run", self.deck, f"output.directory={self.metro.folder / 'terminated-1'}", "--overwrite"], ranks=2)
        self.check("--overwrite begins anew", *self.finished_well("terminated-1"))

    def standard_input(self):
        requests_path = self.metro.folder / "requests.jsonl"
        code, output = self.stop("piped", overrides=["requests.input=-"], stdin=requests_path)
        self.check("a run from standard input stops", (code == STOPPED, f"exit code {code}\n{output}"))
        command = ["run", self.deck, f"output.directory={self.metro.folder / 'piped'}", "requests.input=-"]
        other = self.metro.start(command, ranks=2, stdin=self.metro.folder / "changed.jsonl")
        self.check("standard input with another line is refused", (other.returncode == 2, f"exit code {other.returncode}"),
                   ("line 1 of" in other.stderr, other.stderr))
        again = self.metro.start(command, ranks=2, stdin=requests_path)
        completions = self.results("piped")[0]
        self.check("the same standard input goes on", (again.returncode == 0, again.stderr),
                   (completions == self.expected[0], "the completions differ"))

    def waiting(self):
        path = self.metro.write_requests("late.jsonl", [{"prompt": "a", "arrival_s": 1000}])
        begin = time.monotonic()
        part = Part(self.metro, self.deck, "late", 2, [f"requests.input={path}"])
        wait_for(lambda: self.has_state("late"), "a state")
        time.sleep(1.0)
        send(wait_for(part.ranks, "ranks")[1], signal.SIGUSR1)
        code = part.end()
        self.check("a run that waits for a request stops", (code == STOPPED, f"exit code {code}\n{part.output()}"),
                   (time.monotonic() - begin < 100, "it waited"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--kills", type=int, default=4, help="runs that are cut at random moments")
    parser.add_argument("--copies", type=int, default=12, help="of the requests of identity.py")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only-kill-9", action="store_true", help="cut by SIGKILL only, of a rank or of mpirun")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="metro-resume-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        lines = many_requests(arguments.copies)
        path = metro.write_requests("requests.jsonl", lines)
        path.write_text(path.read_text().replace("\n", "\n\n", 3))
        test = Test(metro, metro.write_deck(path, "output"), len(lines), arguments)
        print(f"{len(lines)} lines take {test.baseline_s:.1f} s", flush=True)
        for way in (test.stop_and_go_on, test.refused, test.overwritten, test.standard_input, test.waiting):
            way()
        test.num_cut = 0
        for number in range(arguments.kills):
            test.random_run(number)
        print(f"{test.num_cut} parts were cut in their work")
        if arguments.kills and not test.num_cut:
            sys.exit("no run was cut in its work")
    sys.exit(1 if test.faults else 0)


if __name__ == "__main__":
    main()
