"""Runs metro with a fault and judges what came of it: the engine behind the table of faults.py.

A run that a row of the table describes is started by every launcher that the row has an exit code for, goes wrong as the
row says, and is then given again without the fault: in the end its output must be that of a run that was never disturbed.
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import time
import typing
import uuid

from jobs import PATIENCE_S, environment_of, processes_with, rank_of, remove_shared_memory, wait_for
from metro_runs import ENVIRONMENT, Metro, reference_cases

RANKS = 3
TIMEOUT_S = 2  # run.timeout_s, where it is to pass
LAUNCHERS = ("alone", "mpirun", "srun")


@dataclasses.dataclass
class Row:
    """A fault. The first fields are the cells of the page, the others how it is brought about and what must hold."""

    name: str
    injected: str
    happens: str
    codes: str  # "alone mpirun srun": exit code each, "-" where it is not tried, "5,137" for either of two
    fault: str = ""  # METRO_TEST_FAULT
    overrides: tuple = ()
    texts: tuple = ()  # must be printed
    num_errors: tuple = (0, 0)  # least and most lines "metro: error"
    crash: str = ""  # text of the one line of a process that crashes; a sanitizer reports that in its own words
    patience_s: int = 0  # how much longer than others it takes
    passes_timeout: bool = False  # the fault shows after run.timeout_s
    ends_well: bool = False  # all is written in spite of an exit code that is not 0
    has_torn_line: bool = False
    prepare: typing.Callable = None  # (job) before the run
    meanwhile: typing.Callable = None  # (job) after its first completion
    repair: typing.Callable = None  # (job) before it is given again
    parts: typing.Callable = None  # (test) -> [(number of ranks, [program], arguments)]: ranks of different kinds
    again: tuple = ()  # more arguments when it is given again
    shell: str = ""  # around the program
    lost: str = "nothing"

    def expected(self, launcher):
        """Exit codes of the run under this launcher; empty if it is not tried."""
        text = self.codes.split()[LAUNCHERS.index(launcher)]
        return [] if text == "-" else [int(code) for code in text.split(",")]


class Test:
    """The workload, what it gives undisturbed, and how to start it."""

    def __init__(self, binary, mpiexec, library, folder, srun=""):
        self.metro = Metro(binary, mpiexec, folder)
        self.folder = self.metro.folder
        self.library = str(pathlib.Path(library).resolve())
        self.srun = srun.split()
        self.is_sanitized = b"__asan_init" in pathlib.Path(self.metro.binary).read_bytes()
        self.deck = self.metro.write_deck(self.metro.write_requests("requests.jsonl", self.requests()), "output")
        self.deck.write_text(self.deck.read_text() + 'decode.exchange = "ids_then_alltoall"\n')
        self.metro.must(["run", self.deck, f"output.directory={self.folder / 'baseline'}"])
        self.baseline = self.results(self.folder / "baseline")
        self.stopped = self.folder / "stopped"
        self.run_until_stopped()
        self.places = self.find_places()

    @staticmethod
    def requests():
        """Some of each kind, one that is refused; they end in different steps."""
        prompts = [case["prompt"] for case in reference_cases()]
        lines = [{"custom_id": f"{number}", "prompt": prompts[number % len(prompts)], "max_tokens": 4 + number % 13,
                  "ignore_eos": True} for number in range(48)]
        lines[7] |= {"temperature": 1.0, "n": 2}
        lines[9] |= {"logprobs": 3, "echo": True}
        lines[30] = {"custom_id": "bad", "prompt": 7}
        return lines

    @staticmethod
    def results(folder):
        return [sorted((folder / name).read_bytes().splitlines()) for name in ("completions.jsonl", "errors.jsonl")]

    def run_until_stopped(self):
        """A folder of a run that was stopped in the middle, for rows that damage one."""
        run = self.start_alone(self.stopped, "call=write file=completions.jsonl at=15 do=signal:USR1")
        if run.wait(PATIENCE_S) != 75 or not (self.stopped / "resume.state").exists():
            raise SystemExit(f"no stopped run: exit code {run.returncode}")

    def start_alone(self, output, fault):
        """A run without a launcher, into the folder `output`."""
        return subprocess.Popen(self.metro.command(["run", self.deck, f"output.directory={output}"]), cwd=self.folder,
                                env=ENVIRONMENT | {"LD_PRELOAD": self.library, "METRO_TEST_FAULT": fault},
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def calls(self, exchange):
        """The calls of MPI that rank 1 makes: [(name, bytes)]."""
        path = self.folder / f"calls-{exchange}."
        command = [*self.launch("mpirun"), "env", f"LD_PRELOAD={self.library}", f"METRO_TEST_CALLS={path}",
                   self.metro.binary, "run", str(self.deck), f"output.directory={self.folder / exchange}",
                   f"decode.exchange={exchange}"]
        subprocess.run(command, env=ENVIRONMENT, cwd=self.folder, capture_output=True, timeout=PATIENCE_S, check=True)
        lines = pathlib.Path(f"{path}1").read_text().splitlines()
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    def find_places(self):
        """Numbers of the calls that do what rows of the table interfere with, for METRO_TEST_FAULT."""
        places = {}
        for exchange, prefix in (("ids_then_alltoall", "ids"), ("allgather", "rows")):
            calls = self.calls(exchange)
            sends = [i for i, call in enumerate(calls) if call[0] == "MPI_Isend"]
            gathers = [i for i, call in enumerate(calls) if call[0] == "MPI_Iallgatherv"]
            decode = next(i for i in gathers if calls[i + 1][0] == "MPI_Irecv")  # a step record is not followed by one
            places[f"{prefix}_gather"] = gathers.index(decode) + 1
            places[f"{prefix}_send"] = 1 + sum(i < decode and calls[i][1] > 8 for i in sends)
            places["record"] = 1 + sum(i < sends[0] for i in gathers)  # of the first step, which is of prefill
        return places

    def launch(self, launcher, ranks=RANKS):
        if launcher == "alone":
            return []
        if launcher == "mpirun":
            return [self.metro.mpiexec, "-n", str(ranks), "--bind-to", "none"]
        return [*self.srun, "-n", str(ranks)]


def shared_memory():
    """Names of memory that ranks share."""
    return {path.name for path in pathlib.Path("/dev/shm").glob("metro.*")}


class Job:
    """A row under a launcher."""

    def __init__(self, test, row, launcher, number):
        self.test = test
        self.row = row
        self.launcher = launcher
        self.name = f"{number}-{launcher}"
        self.output = test.folder / self.name
        self.mark = f"METRO_TEST_RUN={uuid.uuid4()}"
        self.overrides = [override.format(output=self.output) for override in row.overrides]
        self.log = test.folder / f"{self.name}.log"
        self.shared_memory_before = shared_memory()

    def command(self, with_fault):
        test, row = self.test, self.row
        environment = ["env", self.mark]
        if with_fault and row.fault:
            environment += [f"LD_PRELOAD={test.library}", f"METRO_TEST_FAULT={row.fault.format(**test.places)}",
                            "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:handle_segv=0:handle_abort=0"]
        shell = ["bash", "-c", row.shell, "bash"] if with_fault and row.shell else []
        common = [f"output.directory={self.output}", *self.overrides]
        if with_fault and row.passes_timeout:
            common.append(f"run.timeout_s={TIMEOUT_S}")
        if with_fault and row.parts:
            command = [test.metro.mpiexec]
            for ranks, program, arguments in row.parts(test):
                command += [*(":" if len(command) > 1 else ""), "-n", ranks, "--bind-to", "none", *environment, *program,
                            "run", *arguments, *common]
            return list(map(str, command))
        run = [test.metro.binary, "run", str(test.deck), *common, *(() if with_fault else row.again)]
        return [*test.launch(self.launcher), *shell, *environment, *run]

    def start(self, with_fault=True):
        # restore_signals: mpirun that gets SIGPIPE while it ends, as happens on a busy machine, shall not die of it.
        with open(self.log, "w") as log, open("/dev/null", "rb") as content:
            return subprocess.Popen(self.command(with_fault), cwd=self.test.folder, env=ENVIRONMENT, stdin=content,
                                    stdout=log, stderr=log, restore_signals=False)

    def processes(self):
        """Those of the ranks, by rank."""
        if self.launcher == "alone":
            return {0: self.process.pid}  # MPI starts one more, which is none
        ranks = {process: rank_of(environment_of(process)) for process in processes_with(self.mark)}
        return {rank: process for process, rank in ranks.items() if rank is not None}

    def wait_for_completions(self, process):
        completions = self.output / "completions.jsonl"
        wait_for(lambda: process.poll() is not None or (completions.exists() and completions.stat().st_size > 0),
                 "the first completion")

    # What is wrong.

    def text(self):
        return self.log.read_text(errors="replace")

    def run(self):
        """Faults found, and the seconds that the run with the fault took."""
        if self.row.prepare:
            self.row.prepare(self)
        begin = time.monotonic()
        self.process = self.start()
        environments = []
        if self.row.meanwhile:
            self.wait_for_completions(self.process)
            environments = [environment_of(process) for process in self.processes().values()]
            if self.process.poll() is None:
                self.row.meanwhile(self)
        found = self.ended()
        seconds = time.monotonic() - begin
        found += self.nobody_left()
        remove_shared_memory(environments)
        found += self.whole_lines()
        if self.row.repair:
            self.row.repair(self)
        if not found:
            is_over = self.process.returncode == 0 or self.row.ends_well
            found = self.same_results() if is_over else self.given_again()
        return found, seconds

    def ended(self):
        """The exit code and what was printed."""
        try:
            code = self.process.wait(PATIENCE_S + TIMEOUT_S + self.row.patience_s)
        except subprocess.TimeoutExpired:
            for process in processes_with(self.mark):
                os.kill(process, 9)
            self.process.kill()
            return ["it does not end", self.text()]
        code = 128 - code if code < 0 else code
        expected = self.row.expected(self.launcher)
        text = self.text()
        found = [] if code in expected else [f"exit code {code}, expected {expected}"]
        found += [f"missing: {part}" for part in self.row.texts if part not in text]
        num_errors = sum(line.startswith("metro: error") for line in text.splitlines())
        least, most = self.row.num_errors
        if self.row.crash and not self.test.is_sanitized:
            least, most = 1, 1
            found += [] if self.row.crash in text else [f"missing: {self.row.crash}"]
        if not least <= num_errors <= most:
            found.append(f"{num_errors} lines of errors, expected {least} to {most}")
        return [*found, text] if found else []

    def nobody_left(self):
        begin = time.monotonic()
        while processes_with(self.mark):
            if time.monotonic() - begin > PATIENCE_S:
                return ["processes are left"]
            time.sleep(0.02)
        left = shared_memory() - self.shared_memory_before
        return [f"left in /dev/shm: {left}"] if left else []

    def whole_lines(self):
        """What stands in the output is what an undisturbed run writes."""
        found = []
        for name, expected in zip(("completions.jsonl", "errors.jsonl"), self.test.baseline):
            path = self.output / name
            content = path.read_bytes() if path.exists() else b""
            lines = content.split(b"\n")
            last = lines.pop()
            if bool(last) != (self.row.has_torn_line and name == "completions.jsonl"):
                found.append(f"the end of {name} is not as expected: {last}")
            found += [f"a wrong line in {name}: {line}" for line in lines if line not in expected]
        return found

    def given_again(self):
        process = self.start(with_fault=False)
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return ["given again, it does not end", self.text()]
        return self.same_results() if code == 0 else [f"given again: exit code {code}", self.text()]

    def same_results(self):
        left = sorted(path.name for path in self.output.glob("resume.*"))
        return [*([] if self.test.results(self.output) == self.test.baseline else ["the results differ"]),
                *([f"left behind: {left}"] if left else [])]

    def clean_up(self):
        if self.output.exists():
            shutil.rmtree(self.output)


def resumed(change=None, name=""):
    """For Row.prepare: the folder of a stopped run, in which `change` is made to the content of the file `name`."""

    def prepare(job):
        shutil.copytree(job.test.stopped, job.output)
        if name:
            path = job.output / name
            content = change(path.read_bytes())
            path.unlink() if content is None else path.write_bytes(content)

    return prepare


def repaired(name):
    """For Row.repair: the file as it was in the stopped run."""
    return lambda job: shutil.copy(job.test.stopped / name, job.output / name)


