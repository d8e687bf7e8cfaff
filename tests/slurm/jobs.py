"""Submits the project's own batch scripts to the cluster under test and looks at what becomes of the jobs."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "regression"))
from cluster import find, in_same_uts, kill_all  # noqa: E402
from metro_runs import ENVIRONMENT, SOURCE  # noqa: E402

PATIENCE_S = 200
OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}


class Slurm:
    """The cluster whose place `folder`/cluster.json tells; jobs are submitted in `cwd`."""

    def __init__(self, folder, metro, cwd):
        where = json.loads((pathlib.Path(folder) / "cluster.json").read_text())
        self.scratch = pathlib.Path(where["scratch"])
        self.nodes = where["nodes"]
        self.cwd = pathlib.Path(cwd)
        self.submitted = []
        # Of a job in which the tests may run themselves nothing may be left.
        outer = {name: value for name, value in ENVIRONMENT.items() if not re.match("SLURM_|SBATCH_|METRO", name)}
        self.environment = outer | {"SLURM_CONF": where["conf"], "METRO": str(metro), "METRO_INTERFACE": "lo"}

    def call(self, command, **more):
        environment = self.environment | {name: str(value) for name, value in more.items()}
        return subprocess.run([find(command[0]) or command[0], *map(str, command[1:])], cwd=self.cwd, env=environment,
                              text=True, capture_output=True, timeout=PATIENCE_S)

    def submit(self, options, script, *arguments, **more):
        """Number of the job that `sbatch OPTIONS slurm/SCRIPT ARGUMENTS` makes, with more in the environment."""
        process = self.call(["sbatch", "--parsable", *options, SOURCE / "slurm" / script, *arguments], **more)
        if process.returncode != 0:
            sys.exit(f"sbatch {script}: exit code {process.returncode}\n{process.stdout}{process.stderr}")
        self.submitted.append(int(process.stdout))
        return self.submitted[-1]

    def cancel_all(self):
        """What a scenario that went wrong has left in the queue would be in the way of others."""
        if self.submitted:
            self.call(["scancel", *self.submitted])

    def jobs(self, job):
        """What scontrol says of a job; of a job array, of each of its tasks."""
        shown = self.call(["scontrol", "-o", "show", "job", job]).stdout
        return [dict(re.findall(r"(\w+)=(\S*)", line)) for line in shown.splitlines() if line]

    def state(self, job):
        return self.jobs(job)[0]

    def wait_for(self, condition, what, patience_s=PATIENCE_S, job=None):
        end = time.monotonic() + patience_s
        while not (found := condition()):
            if not self.scratch.exists():
                sys.exit(f"no {what}: the cluster has been stopped")
            if time.monotonic() > end:
                sys.exit(f"no {what} after {patience_s} s\n{self.call(['squeue']).stdout}"
                         f"{self.log(job) + str(self.jobs(job)) if job else ''}")
            time.sleep(0.2)
        return found

    def end(self, job, patience_s=PATIENCE_S):
        """Waits until the job is over, or all tasks of an array; "COMPLETED 0:0" of each."""
        def are_over():
            jobs = self.jobs(job)
            return jobs and all(task["JobState"] in OVER for task in jobs) and jobs

        return [f"{task['JobState']} {task['ExitCode']}" for task in self.wait_for(are_over, f"end of job {job}",
                                                                                patience_s, job)]

    def log(self, job):
        """What all files of output of the job hold."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.cwd.glob(f"*-{job}*.log")))

    # Nodes.

    def processes_of(self, job, program, argument):
        """Processes of this program with this argument on the node of the job."""
        found = []
        for pid in in_same_uts(self.slurmd_on(self.state(job)["BatchHost"])):
            with contextlib.suppress(OSError):
                arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                found += [pid] if os.readlink(f"/proc/{pid}/exe") == program and argument in arguments else []
        return found

    def slurmd_on(self, node):
        return int((self.scratch / f"run/{node}.pid").read_text())

    def kill_node(self, node):
        """All that runs on it ends at once, and Slurm hears no more of it."""
        (self.scratch / "down" / node).touch()
        kill_all(in_same_uts(self.slurmd_on(node)))

    def revive_node(self, node):
        """As a machine without disks comes back. Else what Slurm's PMIx left there would be in the way (docs/slurm.md)."""
        for kind in ("tmp", "spool"):
            shutil.rmtree(self.scratch / kind / node)
            (self.scratch / kind / node).mkdir()
        (self.scratch / "down" / node).unlink(missing_ok=True)
        self.wait_for(lambda: self.call(["sinfo", "-h", "-n", node, "-o", "%t"]).stdout.split()[:1] in (["idle"], ["mix"]),
                      f"{node} that is back")


class Checks:
    """Says what holds and what does not; the exit code of a scenario."""

    def __init__(self):
        self.faults = 0

    def __call__(self, what, holds, detail=""):
        self.faults += not holds
        print("ok   " if holds else "WRONG", what, "" if holds else f"\n{detail}", flush=True)
