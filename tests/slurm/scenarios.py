#!/usr/bin/env python3
"""Runs a scenario: the batch scripts of slurm/ as jobs of a real Slurm (cluster.py), compared with a run without it.

  scenarios.py NAME --cluster FOLDER --metro build/cpu-release/bin/metro

Exit codes: 0 right, 1 wrong, 77 there is no Slurm.
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

from cluster import SKIPPED, why_not
from jobs import SOURCE, Checks, Slurm
from metro_runs import Metro, reference_cases

LAUNCHERS = ("srun", "mpirun")
LATER_S = 400  # a time at which no test waits any more


def requests():
    """The prompts of the embedded model with lines of other kinds between; some without a name, which get their number."""
    lines = [{"prompt": case["prompt"], "max_tokens": 24} for case in reference_cases()]
    lines[3]["custom_id"] = "named"
    lines[4] |= {"temperature": 0.8, "n": 2}
    lines.insert(5, {"prompt": 7})
    lines.insert(9, {"prompt": "A", "temperature": 1.0})
    lines.insert(17, {"prompt": "A", "no_such_field": 1})
    return lines


def rank_rows(log):
    """The rows of the start-up table: host and what follows, of each rank."""
    return [line.split()[1:] for line in log.splitlines() if line.startswith("    ") and line.count(" MiB") > 3]


class Scenario:
    def __init__(self, arguments, folder):
        self.metro = Metro(arguments.metro, "mpiexec", folder)
        self.folder = pathlib.Path(folder)
        self.slurm = Slurm(arguments.cluster, self.metro.binary, folder)
        self.check = Checks()
        self.deck = self.metro.write_deck(self.metro.write_requests("requests.jsonl", requests()), "unused")

    def results(self, name):
        return [sorted((self.folder / name / file).read_bytes().splitlines())
                for file in ("completions.jsonl", "errors.jsonl")]

    def expect_baseline(self, name, what):
        if not (self.folder / "baseline").exists():
            self.metro.must(["run", self.deck, f"output.directory={self.folder / 'baseline'}"])
        self.check(f"{what}: same output as without Slurm", self.results(name) == self.results("baseline"),
                   f"{self.results(name)}\n{self.results('baseline')}")
        left = sorted(path.name for path in (self.folder / name).glob("resume.*"))
        self.check(f"{what}: nothing is left", not left, left)

    def expect_end(self, job, expected, what, patience_s=200):
        ends = self.slurm.end(job, patience_s)
        self.check(f"{what}: {expected}", set(ends) == {expected}, f"{ends}\n{self.slurm.log(job)}")
        return self.slurm.log(job)

    # Jobs that succeed.

    def one_node(self):
        for launcher in LAUNCHERS:
            job = self.slurm.submit(["--ntasks=2"], "one_node.sbatch", self.deck, f"output.directory={launcher}",
                                    METRO_LAUNCHER=launcher)
            log = self.expect_end(job, "COMPLETED 0:0", f"one node by {launcher}")
            self.check(f"{launcher}: two ranks on one node", "2 ranks on 1 node" in log, log)
            self.check(f"{launcher}: the table has the CPUs of ranks, and no GPUs",
                       "may take  CPUs\n" in log and "CUDA_VISIBLE_DEVICES" not in log, log)
            self.expect_baseline(launcher, launcher)

    def multi_node(self):
        jobs = {launcher: self.slurm.submit([], "multi_node.sbatch", self.deck, f"output.directory={launcher}",
                                            METRO_LAUNCHER=launcher, METRO_ROOT=SOURCE) for launcher in LAUNCHERS}
        for launcher, job in jobs.items():
            log = self.expect_end(job, "COMPLETED 0:0", f"two nodes by {launcher}")
            self.check(f"{launcher}: four ranks on two nodes", "4 ranks on 2 nodes" in log, log)
            hosts = [row[0] for row in rank_rows(log)]
            nodes = self.slurm.nodes
            self.check(f"{launcher}: two ranks on each", hosts == [nodes[0], nodes[0], nodes[1], nodes[1]], log)
            self.expect_baseline(launcher, launcher)

    def gpus(self):
        job = self.slurm.submit(["--ntasks=3", "--gpus-per-task=1"], "one_node.sbatch", self.deck, "output.directory=gpus")
        log = self.expect_end(job, "COMPLETED 0:0", "a GPU for each task")
        devices = [row[-1] for row in rank_rows(log)]
        self.check("the table has CUDA_VISIBLE_DEVICES of ranks", "CPUs          CUDA_VISIBLE_DEVICES\n" in log, log)
        self.check("every rank has a GPU of its own", devices == ["0", "1", "2"], log)

    def sweep(self):
        job = self.slurm.submit(["--ntasks=2"], "scaling_sweep.sbatch", self.deck, "sweep", METRO_SWEEP_RANKS="1 2",
                                METRO_SWEEP_POLICIES="exact even", METRO_SWEEP_RUNS="1")
        log = self.expect_end(job, "COMPLETED 0:0", "sweep")
        table = [line.split() for line in (self.folder / "sweep/table.txt").read_text().splitlines()[1:6]]
        self.check("a row for each number of ranks and policy",
                   [row[:3] for row in table[1:]] == [["1", "1", "even"], ["1", "1", "exact"], ["2", "1", "even"],
                                                      ["2", "1", "exact"]], log)
        column = table[0].index("lambda")
        self.check("one rank activates more experts than the busiest of two",
                   float(table[1][column]) > float(table[3][column]) > 1, log)
        too_many = self.slurm.submit(["--ntasks=2"], "scaling_sweep.sbatch", self.deck, "more", METRO_SWEEP_RANKS="1 4")
        log = self.expect_end(too_many, "FAILED 2:0", "more ranks than tasks")
        self.check("more ranks than tasks: a message", "4 ranks need sbatch --ntasks=4" in log, log)

    # Jobs that fail.

    def failures(self):
        cases = [("bad value", ["one_node.sbatch", self.deck, "requests.shard=4/4"], "FAILED 2:0", "requests.shard = 4/4"),
                 ("no checkpoint", ["one_node.sbatch", self.deck, "model.checkpoint=nowhere.h5", "output.directory=a"],
                  "FAILED 4:0", "nowhere.h5"),
                 ("no deck", ["one_node.sbatch"], "FAILED 2:0", "usage: sbatch slurm/one_node.sbatch DECK"),
                 ("--overwrite and requeue", ["requeue.sbatch", self.deck, "--overwrite"], "FAILED 2:0", "begin anew")]
        for launcher in LAUNCHERS:
            for what, command, end, text in cases if launcher == "srun" else cases[:2]:
                job = self.slurm.submit(["--ntasks=2"], *command, METRO_LAUNCHER=launcher)
                log = self.expect_end(job, end, f"{what} by {launcher}")
                self.check(f"{what} by {launcher}: a message", text in log, log)
            self.killed_rank(launcher)
        for what, more, text in (("no program", {"METRO": "/nowhere"}, "no program at METRO=/nowhere"),
                                 ("no such launcher", {"METRO_LAUNCHER": "mpiexec"}, "must be srun or mpirun")):
            job = self.slurm.submit([], "one_node.sbatch", self.deck, **more)
            log = self.expect_end(job, "FAILED 2:0", what)
            self.check(f"{what}: a message", text in log, log)

    def killed_rank(self, launcher):
        name = f"killed-{launcher}"
        job = self.slurm.submit(["--ntasks=2"], "one_node.sbatch", self.slow_deck(name), f"output.directory={name}",
                                METRO_LAUNCHER=launcher)
        self.wait_for_completion(name, job)
        ranks = self.slurm.processes_of(job, self.metro.binary, f"output.directory={name}")
        self.check(f"{launcher}: two ranks run", len(ranks) == 2, ranks)
        os.kill(ranks[1], signal.SIGKILL)
        self.expect_end(job, "FAILED 137:0", f"a killed rank by {launcher}")

    def rejected(self):
        cases = [(["--gpus-per-node=5"], "Requested node configuration is not available"),
                 (["--partition=nowhere"], "invalid partition specified: nowhere"),
                 (["--nodes=1", "--mem=1T"], "Requested node configuration is not available")]
        for options, text in cases:
            process = self.slurm.call(["sbatch", *options, SOURCE / "slurm/one_node.sbatch", self.deck])
            self.check(f"refused: {' '.join(options)}", process.returncode == 1 and text in process.stderr,
                       f"{process.returncode} {process.stderr}")
        scripts = sorted((SOURCE / "slurm").glob("*.sbatch")) + [SOURCE / "slurm/merge.sh"]
        self.check("there are batch scripts", len(scripts) >= 6)
        for script in scripts:
            process = self.slurm.call(["sbatch", "--test-only", script])
            self.check(f"sbatch --test-only {script.name}",
                       process.returncode == 0 and "error" not in process.stderr, process.stderr)

    # Jobs that go on.

    def slow_deck(self, name, scale=1.0):
        """A deck whose last request arrives so late that the job is still there when something happens to it."""
        lines = requests() + [{"prompt": "The end", "arrival_s": LATER_S}]
        path = self.metro.write_requests("slow.jsonl", lines)
        deck = self.folder / f"{name}.toml"
        deck.write_text(f'model.checkpoint = "{self.metro.convert_tiny()}"\nmodel.max_context = 256\n'
                        f'requests.input = "{path}"\nrequests.arrival_scale = {scale}\nrun.checkpoint_s = 0.5\n'
                        f'output.directory = "{self.folder / "unused"}"\n')
        return deck

    def make_fast(self, name):
        """What arrives late does so at once. Arrival times may change between the parts of a run, completions do not."""
        self.deck = self.slow_deck(name, scale=1e-6)

    def wait_for_completion(self, name, job):
        path = self.folder / name / "completions.jsonl"
        self.slurm.wait_for(lambda: path.exists() and path.stat().st_size > 0, "first completion", job=job)

    def restarts(self, job):
        return int(self.slurm.state(job)["Restarts"])

    def requeue(self):
        """The signal before the end of the time: stop, back into the queue, go on."""
        # By the clock of Slurm, which sends it up to a minute early, so that this takes some 20 s of the 60 s.
        job = self.slurm.submit(["--ntasks=2", "--time=1", "--signal=B:USR1@30"], "requeue.sbatch",
                                self.slow_deck("timed"), "output.directory=timed")
        # The same by hand, by mpirun.
        other = self.slurm.submit(["--ntasks=2"], "requeue.sbatch", self.slow_deck("told"), "output.directory=told",
                                  METRO_LAUNCHER="mpirun")
        never = self.slurm.submit(["--ntasks=2"], "requeue.sbatch", self.slow_deck("never"), "output.directory=never",
                                  METRO_MOST_RESTARTS=0)
        for name, told in (("told", other), ("never", never)):
            self.wait_for_completion(name, told)
            self.slurm.call(["scancel", "--batch", "--signal=USR1", told])
        self.expect_end(never, "FAILED 75:0", "a job that may not go back into the queue")
        for name, requeued in (("told", other), ("timed", job)):
            self.slurm.wait_for(lambda job=requeued: self.restarts(job) > 0, "requeue", job=requeued)
            self.make_fast(name)  # before it starts again, which takes Slurm some seconds
        for name, requeued in (("told", other), ("timed", job)):
            log = self.expect_end(requeued, "COMPLETED 0:0", f"requeued, {name}")
            self.check(f"{name}: the log has both parts", "start 1" in log and "stopped by a signal" in log and "start 2" in log
                       and "part 2      of the run" in log, log)
            self.expect_baseline(name, name)

    def node_failure(self):
        first = self.slurm.nodes[2]
        job = self.slurm.submit(["--partition=fragile", "--nodes=2", "--ntasks=2"], "requeue.sbatch",
                                self.slow_deck("failed-node"),
                                "output.directory=failed-node")
        self.wait_for_completion("failed-node", job)
        self.slurm.wait_for((self.folder / "failed-node/resume.state").exists, "state", job=job)
        self.slurm.kill_node(first)  # that of the batch script and of rank 0
        begin = time.monotonic()
        self.slurm.wait_for(lambda: self.restarts(job) > 0, "requeue", job=job)
        print(f"requeued {time.monotonic() - begin:.0f} s after the failure of {first}")
        self.make_fast("failed-node")
        self.slurm.revive_node(first)
        log = self.expect_end(job, "COMPLETED 0:0", "after the failure of a node")
        self.check("the log has both parts", "start 1" in log and "start 2" in log and "part 2      of the run" in log, log)
        self.expect_baseline("failed-node", "failed node")

    # Several jobs.

    def array(self):
        array = self.slurm.submit(["--array=0-2"], "array.sbatch", self.deck, "shards")
        merge = self.slurm.submit([f"--dependency=afterok:{array}", "--kill-on-invalid-dep=yes"], "merge.sh", "shards")
        self.expect_end(array, "COMPLETED 0:0", "array")
        log = self.expect_end(merge, "COMPLETED 0:0", "merge")
        self.check("merge says how much there is", "merged 3 shards: 25 completions and 2 errors of 27 lines" in log, log)
        self.expect_baseline("shards", "shards")

        merge = SOURCE / "slurm/merge.sh"
        def refused(what, code, text, *arguments):
            process = self.slurm.call(["bash", merge, *arguments])
            self.check(f"merge refuses {what}", process.returncode == code and text in process.stderr,
                       f"{process.returncode} {process.stderr}")

        shard = self.folder / "shards/shard-1"
        refused("to replace its output", 2, "--overwrite replaces it", "shards")
        (shard / "resume.state").touch()
        refused("a shard that is not finished", 3, "shards/shard-1 is not finished", "--overwrite", "shards")
        (shard / "resume.state").unlink()
        content = (shard / "completions.jsonl").read_text()
        (shard / "completions.jsonl").write_text(content[content.index("\n") + 1:])
        refused("a shard that lacks a line", 3, "has 8 lines of output for its 9", "--overwrite", "shards")
        (shard / "completions.jsonl").write_text(content)
        shard.rename(self.folder / "elsewhere")
        refused("what lacks a shard", 3, "shard 1 of 3 is missing", "--overwrite", "shards")
        self.metro.must(["run", self.deck, f"output.directory={shard}", "requests.shard=1/3", "requests.max_tokens=9"])
        refused("a shard of other requests", 3, "are not those of", "--overwrite", "shards")
        self.metro.must(["run", self.deck, f"output.directory={shard}", "requests.shard=2/3", "--overwrite"])
        refused("the same shard twice", 3, "are both shard 2", "--overwrite", "shards")
        refused("a folder without shards", 3, "holds no shard-*", SOURCE / "slurm")

        again = self.slurm.submit(["--array=1"], "array.sbatch", self.deck, "shards", "--overwrite", METRO_SHARDS=3)
        self.expect_end(again, "COMPLETED 0:0", "one shard again")
        process = self.slurm.call(["bash", merge, "--overwrite", "shards"])
        self.check("merged again, by hand", process.returncode == 0, process.stderr)
        self.expect_baseline("shards", "shards again")
        gaps = self.slurm.submit(["--array=1"], "array.sbatch", self.deck, "gaps")
        self.expect_end(gaps, "FAILED 2:0", "an array with gaps")

    def pipeline(self):
        def start(source, output):
            process = self.slurm.call(["bash", SOURCE / "slurm/pipeline.sh", source, self.deck, output], METRO_RANKS=2,
                                      METRO_SAMPLE=1)
            self.check(f"pipeline to {output} is submitted", process.returncode == 0, process.stderr)
            stages = dict(line.split() for line in process.stdout.splitlines())
            self.slurm.submitted += stages.values()
            return stages

        deck_text = "".join(line for line in self.deck.read_text().splitlines(keepends=True))
        good = start(SOURCE / "inputs/models/tiny", "good")
        bad = start(self.folder / "nowhere", "bad")
        self.check("the stages", list(good) == ["convert", "plan", "run", "report"], good)
        for stage, job in good.items():
            self.expect_end(job, "COMPLETED 0:0", stage)
        self.expect_baseline("good/run", "pipeline")
        placement = json.loads((self.folder / "good/plan.json").read_text())
        self.check("the plan is for its ranks", placement["num_ranks"] == 2, placement.keys())
        report = (self.folder / "good/report.txt").read_text()
        self.check("the report", "good/plan.json" in report and "activated" in report, report)
        self.expect_end(bad["convert"], "FAILED 4:0", "a stage that fails")
        for stage in ("plan", "run", "report"):
            self.expect_end(bad[stage], "CANCELLED 0:0", f"{stage} behind a stage that fails")
        self.check("the deck is as it was", self.deck.read_text() == deck_text)


SCENARIOS = ("one_node", "multi_node", "gpus", "sweep", "failures", "rejected", "requeue", "node_failure", "array",
             "pipeline")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SCENARIOS)
    parser.add_argument("--cluster", required=True, help="folder of `cluster.py up`")
    parser.add_argument("--metro", required=True)
    parser.add_argument("--keep", help="folder for all files, kept")
    arguments = parser.parse_args()
    reason = why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="metro-slurm-test-") as scratch:
        folder = pathlib.Path(arguments.keep or scratch).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        scenario = Scenario(arguments, folder)
        try:
            getattr(scenario, arguments.name)()
        finally:
            scenario.slurm.cancel_all()
    return 1 if scenario.check.faults else 0


if __name__ == "__main__":
    sys.exit(main())
