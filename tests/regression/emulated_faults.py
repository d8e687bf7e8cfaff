#!/usr/bin/env python3
"""What becomes of a run when one call of the CUDA runtime or of NCCL fails on one rank, and what a device refuses.

On the emulated device (tests/device_double), which fails the nth call of a function on one rank when it is told to. The
run must end within the time-out, with the exit code and one line that names the rank and what failed, with no process
left and whole lines only in its output; or go on, where that is the design. Then the same command without the fault
must end with the bytes of a run that was not disturbed.

    python3 tests/regression/emulated_faults.py --metro build/cpu-release/bin/metro \\
        --emulated build/cpu-release/tests/device_double/metro_emulated
    python3 tests/regression/emulated_faults.py ... --sweep                    # every function, on 1 to 3 ranks
    python3 tests/regression/emulated_faults.py ... --sweep --only cudaMalloc
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import typing
import uuid

from jobs import processes_with
from metro_runs import ENVIRONMENT, Metro

PATIENCE_S = 100
TIMEOUT_S = 60  # run.timeout_s: nothing here shall need it
MACHINE = 5
REFUSES = 2

# Functions and the error that they fail with. The double counts what a run calls; these are all that it may.
CUDA = {"cudaDeviceGetPCIBusId": 101, "cudaDeviceSynchronize": 999, "cudaEventCreateWithFlags": 2,
        "cudaEventDestroy": 999,
        "cudaEventElapsedTime": 999, "cudaEventRecord": 999, "cudaFree": 999, "cudaFreeHost": 999,
        "cudaGetDeviceCount": 3, "cudaGetDeviceProperties": 101, "cudaGraphDestroy": 999, "cudaGraphExecDestroy": 999,
        "cudaGraphInstantiate": 2, "cudaGraphLaunch": 719, "launch": 719, "cudaMalloc": 2,
        "cudaMallocHost": 2, "cudaMemGetInfo": 999, "cudaMemcpy": 999, "cudaMemcpyAsync": 999, "cudaMemsetAsync": 999,
        "cudaSetDevice": 46, "cudaStreamBeginCapture": 901, "cudaStreamCreateWithFlags": 2, "cudaStreamDestroy": 999,
        "cudaStreamEndCapture": 901, "cudaStreamQuery": 700, "item": 700}
NCCL = {"ncclAllGather": 1, "ncclBroadcast": 1, "ncclCommAbort": 3, "ncclCommDestroy": 3, "ncclCommFinalize": 3,
        "ncclCommGetAsyncError": 6, "ncclCommInitRankConfig": 2, "ncclGetUniqueId": 2, "ncclGroupEnd": 3,
        "ncclGroupStart": 5, "ncclRecv": 4, "ncclSend": 4, "nccl item": 6}
NOT_OF_THE_RUN = {" state", "cudaGetDevice", "cudaStreamIsCapturing"}  # of the double itself

# What a run survives: what frees, which nobody can mend, and graphs, without which it goes on.
ENDS_WELL = {"cudaEventDestroy", "cudaFree", "cudaFreeHost", "cudaGraphDestroy", "cudaGraphExecDestroy",
             "cudaGraphInstantiate", "cudaStreamBeginCapture", "cudaStreamDestroy", "cudaStreamEndCapture"}
POLLED = {"cudaStreamQuery", "item", "ncclCommGetAsyncError"}  # how often depends on time
NO_GRAPHS = "metro: warning: decode goes on without graphs of kernels: "  # whatever fails while they are recorded


class Fault(typing.NamedTuple):
    function: str
    nth: int
    rank: int
    ranks: int
    overrides: tuple = ()

    def environment(self):
        if self.function in CUDA:
            return [f"METRO_DOUBLE_FAIL={self.function}:{CUDA[self.function]}:{self.nth}"]
        if self.function == "nccl item":
            return [f"METRO_NCCL_DOUBLE_FAIL_LATER={NCCL[self.function]}:{self.nth}"]
        return [f"METRO_NCCL_DOUBLE_FAIL={self.function}:{NCCL[self.function]}:{self.nth}"]

    def __str__(self):
        return " ".join([f"{self.function} {self.nth} on rank {self.rank} of {self.ranks}", *self.overrides])


# A few of each kind, for every build.
SAMPLE = [
    Fault("cudaGetDeviceProperties", 2, 1, 2),
    Fault("cudaMallocHost", 2, 1, 2),
    Fault("cudaMemcpyAsync", 150, 1, 2),
    Fault("cudaGraphLaunch", 20, 1, 2),  # of a graph that was launched before
    Fault("cudaStreamEndCapture", 2, 1, 2),
    Fault("item", 900, 0, 2, ("exchange.transport=mpi", "device.messages=fixed")),
    Fault("ncclCommGetAsyncError", 2, 1, 2),
    Fault("ncclSend", 9, 0, 2, ("experts.rebalance_steps=2", "experts.rebalance_source=peers")),
]

# When a rank fails, NCCL fails on others too: (name, environment of each rank, the rank that the one line names).
REMOTE = "METRO_NCCL_DOUBLE_FAIL_LATER=6:20"  # "remote process exited"
TOGETHER = [
    ("the link between all ranks fails", [REMOTE, REMOTE, REMOTE], 0),
    ("a rank fails and the others hear of it first", [REMOTE, "METRO_DOUBLE_FAIL=item:700:1600", REMOTE], 1),
]

# Before anything is computed: (name, environment of all ranks, overrides, ranks, text of the one line). Exit code 2.
REFUSED = [
    ("too little memory", ["METRO_DOUBLE_MEMORY_MB=4"], [], 2,
     "exchange.memory or model.max_context, or use more ranks"),
    ("too little memory on a shared device", ["METRO_DOUBLE_MEMORY_MB=16", "METRO_DOUBLE_DEVICES=1"],
     ["device.share=on"], 3, "exchange.memory or model.max_context, or use more GPUs"),
    ("a policy that the device does not have", [], ["device.decode=device", "routing.decode=makespan"], 1,
     'device.decode = "device": routing.decode is a policy of the host only'),
    ("rounds that are too small for the device", [], ["device.decode=device", "exchange.memory=4096"], 2,
     'device.decode = "device": exchange.memory does not hold one row per rank'),
    ("a way of exchange that the device does not have", [],
     ["device.decode=device", "decode.exchange=ids_then_alltoall"], 2,
     'device.decode = "device": it needs decode.exchange = "allgather" and decode.gate = "local"'),
    ("an expert twice on a rank", [], ["device.decode=device", "routing.decode=even", "experts.slots_per_rank=40"], 1,
     'device.decode = "device": a rank has an expert in two slots, which routing.decode = "even" would both use'),
    ("a rank without experts", [], ["device.decode=device", "experts.placement=idle.json"], 2,
     'device.decode = "device": a rank has no expert in some layer'),
]


class Test:
    """The workload and what it gives undisturbed."""

    def __init__(self, arguments, folder):
        host = Metro(arguments.metro, arguments.mpiexec, folder)
        self.device = Metro(arguments.emulated, arguments.mpiexec, folder)
        self.folder = self.device.folder
        lines = [{"prompt": prompt, "max_tokens": 3 + number % 3, "ignore_eos": True}
                 for number, prompt in enumerate(["A cat", "Once upon a time there was", "The dog", "One day"])]
        lines[3] |= {"temperature": 1.0, "logprobs": 2}
        self.deck = host.write_deck(host.write_requests("requests.jsonl", lines), "output")
        host.must(["run", self.deck, f"output.directory={self.folder / 'baseline'}"])
        self.baseline = host.completions("baseline")
        experts = {"num_experts": 32, "num_ranks": 2, "slots_per_rank": 32,
                   "physical_to_logical_map": [[*range(32), *[-1] * 32]] * 6}
        (self.folder / "idle.json").write_text(json.dumps(experts))
        self.num_failed = 0
        self.num_tried = 0

    def command(self, output, ranks, overrides, environments):
        """environments: entries by rank."""
        program = [self.device.binary, "run", str(self.deck), f"output.directory={self.folder / output}",
                   f"run.timeout_s={TIMEOUT_S}", *overrides]
        parts = []
        for rank in range(ranks):
            parts += [":"] if parts else [self.device.mpiexec]
            parts += ["-n", "1", "--bind-to", "none", "env", *environments(rank), *program]
        return parts

    def run(self, output, ranks, overrides, environments):
        """Exit code (None: it does not end), text, seconds."""
        begin = time.monotonic()
        mark = f"METRO_TEST_RUN={uuid.uuid4()}"
        process = subprocess.Popen(self.command(output, ranks, overrides, lambda rank: [mark, *environments(rank)]),
                                   cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, env=ENVIRONMENT, restore_signals=False)
        try:
            text = process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            for rank in processes_with(mark):
                os.kill(rank, 9)
            return None, process.communicate()[0], time.monotonic() - begin
        seconds = time.monotonic() - begin
        while processes_with(mark):
            if time.monotonic() - begin > PATIENCE_S:
                return None, text + "\nprocesses are left", seconds
            time.sleep(0.02)
        return process.returncode, text, seconds

    def lines_of(self, output):
        """Lines of completions.jsonl, and what is wrong with them."""
        path = self.folder / output / "completions.jsonl"
        *lines, rest = (path.read_bytes() if path.exists() else b"").split(b"\n")
        wrong = [f"a torn line: {rest}"] if rest else []
        return sorted(lines), wrong + [f"a wrong line: {line}" for line in lines if line not in self.baseline]

    def judge(self, fault, code, text):
        """What is wrong with the end of a run with a fault."""
        errors = [line for line in text.splitlines() if "metro: error" in line]
        bad = (" double: ", "Signal: ", "METRO_REQUIRE")
        wrong = [line for line in text.splitlines() if any(part in line for part in bad)]
        if code is None:
            return [*wrong, "it does not end"]
        if code == 0:
            may_go_on = fault.function in ENDS_WELL or NO_GRAPHS in text
            wrong += [] if may_go_on else ["it ends well"]
            return wrong + [f"an error in the end: {line}" for line in errors]
        wrong += [] if code == MACHINE else [f"exit code {code}"]
        wrong += [] if len(errors) == 1 else [f"{len(errors)} lines of errors"]
        if errors and fault.ranks > 1 and f"rank {fault.rank}" not in errors[0]:
            wrong.append("the rank is not named")
        return wrong

    def must_blame(self, name, environments, culprit):
        """One line of one rank, though several fail."""
        ranks = len(environments)
        overrides = ["decode.exchange=allgather"]
        code, text, seconds = self.run("together", ranks, overrides, lambda rank: [environments[rank]])
        self.report(name, code, seconds, self.judge(Fault(name, 0, culprit, ranks), code, text), text)
        shutil.rmtree(self.folder / "together", ignore_errors=True)

    def must_refuse(self, name, environment, overrides, ranks, expected):
        code, text, seconds = self.run("refused", ranks, overrides, lambda rank: environment)
        wrong = [] if code == REFUSES else [f"exit code {code}"]
        wrong += [] if text.count("metro: error") == 1 and expected in text else [f"not the one line: {expected}"]
        self.report(name, code, seconds, wrong, text)

    def must_withstand(self, fault):
        output = f"fault-{self.num_tried}"
        code, text, seconds = self.run(output, fault.ranks, fault.overrides,
                                       lambda rank: fault.environment() if rank == fault.rank else [])
        wrong = self.judge(fault, code, text)
        lines, wrong_lines = self.lines_of(output)
        wrong += wrong_lines
        again = ""
        if code != 0 and (self.folder / output / "resume.state").exists():  # or there is nothing to go on with
            code_again, again, _ = self.run(output, fault.ranks, fault.overrides, lambda rank: [])
            wrong += [] if code_again == 0 else [f"given again: exit code {code_again}"]
            lines, wrong_lines = self.lines_of(output)
            wrong += wrong_lines
        if code == 0 or again:
            wrong += [] if lines == self.baseline else ["the completions differ in the end"]
        self.report(str(fault), code, seconds, wrong, text, again)
        shutil.rmtree(self.folder / output, ignore_errors=True)

    def report(self, name, code, seconds, wrong, *texts):
        self.num_tried += 1
        self.num_failed += bool(wrong)
        first = next((line for line in texts[0].splitlines() if "metro: " in line), "")
        print("WRONG" if wrong else "ok   ", f"{name}: {code}, {seconds:.1f} s: {first}", flush=True)
        if wrong:
            print(*wrong, *texts, sep="\n", flush=True)

    def counts(self, ranks, overrides, rank):
        """How often a run that is not disturbed calls each function on this rank."""
        path = self.folder / "counts"
        code, text, _ = self.run("counted", ranks, [*overrides, "--overwrite"],
                                 lambda r: [f"METRO_DOUBLE_COUNTS={path}"] if r == rank else [])
        if code != 0 or self.lines_of("counted")[0] != self.baseline:
            sys.exit(f"an undisturbed run ends with {code}, or with other completions:\n{text}")
        counts = {}
        for line in path.read_text().splitlines():
            function, number = line.rsplit(" ", 1)
            counts[function] = int(number)
        unknown = counts.keys() - CUDA.keys() - NCCL.keys() - NOT_OF_THE_RUN
        if unknown:
            sys.exit(f"functions that this test does not know: {sorted(unknown)}")
        return {function: counts[function] for function in (*CUDA, *NCCL) if function in counts}


# Ranks, the one that fails, and overrides. The way of exchange is given: that which is measured makes other calls.
SWEPT = [
    (2, 1, ("decode.exchange=allgather",)),
    (1, 0, ("decode.exchange=allgather",)),
    (3, 0, ("decode.exchange=allgather",)),
    (2, 0, ("device.decode=host", "decode.exchange=ids_then_alltoall")),
    (3, 2, ("decode.exchange=allgather", "exchange.transport=mpi", "experts.rebalance_steps=2",
            "device.messages=fixed")),
    (2, 1, ("decode.exchange=allgather", "experts.rebalance_steps=2", "experts.rebalance_source=peers",
            "device.messages=fixed", "device.graphs=off")),
]


def sweep(test, only):
    for ranks, rank, overrides in SWEPT:
        for function, number in test.counts(ranks, overrides, rank).items():
            number -= function == "cudaDeviceGetPCIBusId"  # the last call is of NCCL
            number //= 2 if function in POLLED else 1
            for nth in sorted({1, 2, (number + 1) // 2, number}):
                if nth <= number and (not only or function == only):
                    test.must_withstand(Fault(function, nth, rank, ranks, overrides))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro", required=True, help="the binary")
    parser.add_argument("--emulated", required=True, help="the binary on the emulated device")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--sweep", action="store_true", help="every function, many minutes")
    parser.add_argument("--only", default="", help="in the sweep, this function only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="metro-emulated-faults-") as folder:
        test = Test(arguments, folder)
        if arguments.sweep:
            sweep(test, arguments.only)
        else:
            for fault in SAMPLE:
                test.must_withstand(fault)
            for case in TOGETHER:
                test.must_blame(*case)
            for case in REFUSED:
                test.must_refuse(*case)
    print(f"{test.num_tried} tried, {test.num_failed} failed")
    sys.exit(1 if test.num_failed else 0)


if __name__ == "__main__":
    main()
