"""The table of faults, first part: ranks that end, fall silent, or would disagree, and signals."""

import contextlib
import os
import pathlib
import signal
import subprocess

from fault_runs import Row
from jobs import PATIENCE_S
from metro_runs import ENVIRONMENT, SOURCE

SEND = "call=MPI_Isend bytes=9"  # every message of rows begins with 16 bytes: a digest and a number of rows
COMPLETION = "call=write file=completions.jsonl at=12"
ONE = (1, 1)
AT_MOST_ONE = (0, 1)  # of a rank that waits for another, if the launcher leaves it the time
SOME = (1, 3)  # each rank that sees it may speak before the first one ends the job

GONE = "the launcher ends the others, or one of them says who is gone"
CRASHED = "the rank says so, and the launcher ends the others"


def killed(name, where, fault, codes="- 137,5 137,5", **more):
    return Row(f"a rank is killed {name}", f"SIGKILL to rank 1 in {where}", GONE, codes,
               f"{fault} do=signal:KILL", num_errors=AT_MOST_ONE, **more)


ENDS = [
    killed("at the start", "`MPI_Init_thread`", "call=MPI_Init_thread rank=1"),
    killed("in loading", "a read of the checkpoint", "call=read file=tiny.h5 bytes=4096 at=3 rank=1"),
    killed("in prefill", "the first prefill step", f"{SEND} at=3 rank=1"),
    killed("in decode", "the first decode step", f"{SEND} at={{ids_send}} rank=1"),
    killed("between steps", "a step record", "call=MPI_Iallgatherv at={record} rank=1"),
    killed("at the end", "`MPI_Finalize`", "call=MPI_Finalize rank=1", ends_well=True),
    Row("rank 0 is killed while it writes", "SIGKILL to rank 0 before its 12th completion", GONE, "137 137,5 137,5",
        f"{COMPLETION} do=signal:KILL", num_errors=AT_MOST_ONE),
    Row("a rank crashes", "SIGSEGV in a decode step of rank 1", CRASHED, "- 139,5 139,5",
        f"{SEND} at={{ids_send}} rank=1 do=signal:SEGV", crash="error on rank 1"),
    Row("rank 0 crashes while it writes", "SIGSEGV before the 12th completion", CRASHED, "139 139,5 139,5",
        f"{COMPLETION} do=signal:SEGV", crash="error on rank 0"),
    Row("a rank aborts", "`abort()` in a decode step of rank 1", CRASHED, "- 134,5 134,5",
        f"{SEND} at={{ids_send}} rank=1 do=abort", crash="error on rank 1"),
    Row("a rank ends as if all were well", "`_exit(0)` in a decode step of rank 1", GONE, "- 1,5 5,137",
        f"{SEND} at={{ids_send}} rank=1 do=exit:0", num_errors=AT_MOST_ONE),
    Row("a rank ends with another code", "`_exit(3)` in a decode step of rank 1", GONE, "- 3,5 3,5",
        f"{SEND} at={{ids_send}} rank=1 do=exit:3", num_errors=AT_MOST_ONE),
    Row("an exception nobody expects", "thrown in a decode step of rank 1", "the rank says what, and ends the job",
        "- 70 70", f"{SEND} at={{ids_send}} rank=1 do=throw", num_errors=ONE,
        texts=("error on rank 1", "internal error: thrown by the test")),
    Row("no memory left in a step", "`std::bad_alloc` in a decode step of rank 1",
        "the rank says so, and ends the job", "- 5 5", f"{SEND} at={{ids_send}} rank=1 do=bad_alloc", num_errors=ONE,
        texts=("error on rank 1", "out of memory")),
    Row("no memory left for a completion", "`std::bad_alloc` before the 12th completion",
        "rank 0 says so, and ends the job", "5 5 5", f"{COMPLETION} do=bad_alloc", num_errors=ONE,
        texts=("out of memory",)),
]


def silent(name, where, fault):
    return Row(f"a rank stops without a word {name}", f"SIGSTOP to rank 1 in {where}",
               "the others wait for `run.timeout_s`, then one names it", "- 5 5", f"{fault} do=signal:STOP",
               passes_timeout=True, num_errors=ONE, texts=("rank 1 (", "does not answer", "its process is stopped"))


START_OF_MPI = [
    Row("a rank stops without a word at the start", "SIGSTOP to rank 1 in `MPI_Init_thread`",
        "the others wait for 120 s", "- 5 5,137", "call=MPI_Init_thread rank=1 do=signal:STOP", num_errors=SOME,
        texts=("waited 120 s in the start of MPI",), patience_s=120),
]

SILENT = [
    silent("in loading", "a read of the checkpoint", "call=read file=tiny.h5 bytes=4096 at=3 rank=1"),
    silent("in a step", "a decode step", f"{SEND} at={{ids_send}} rank=1"),
    silent("between steps", "a step record", "call=MPI_Iallgatherv at={record} rank=1"),
    Row("a rank stops without a word at the end", "SIGSTOP to rank 1 in `MPI_Finalize`",
        "the others wait for `run.timeout_s`; all results are there", "- 5 5",
        "call=MPI_Finalize rank=1 do=signal:STOP", passes_timeout=True, ends_well=True, num_errors=SOME,
        texts=("waited 2 s in MPI_Finalize",)),
    Row("a rank hangs", "a call of MPI on rank 1 that never returns",
        "the others wait for `run.timeout_s`, then one names it", "- 5 5", f"{SEND} at={{ids_send}} rank=1 do=hang",
        passes_timeout=True, num_errors=ONE, texts=("rank 1 (", "does not answer", "its process is there: it hangs")),
    Row("a rank is late", "3 s of sleep in a decode step of rank 1", "the others wait; the run finishes", "- 0 0",
        f"{SEND} at={{ids_send}} rank=1 do=late:3000"),
]

CALLS = [
    Row("MPI does not start", "`MPI_Init_thread` returns an error", "the rank says so, and ends the job", "5 5 5,137",
        "call=MPI_Init_thread do=fail", num_errors=ONE, texts=("MPI_Init_thread failed",)),
    Row("a call of MPI fails at the start", "`MPI_Iallreduce` returns an error on rank 1",
        "the rank names the call, and ends the job", "- 5 5", "call=MPI_Iallreduce rank=1 do=fail", num_errors=ONE,
        texts=("error on rank 1", "MPI_Iallreduce failed")),
    Row("a call of MPI fails in a step", "`MPI_Isend` returns an error on rank 1",
        "the rank names the call, and ends the job", "- 5 5", f"{SEND} at={{ids_send}} rank=1 do=fail",
        num_errors=ONE, texts=("error on rank 1", "MPI_Isend failed")),
    Row("MPI does not end", "`MPI_Finalize` returns an error on rank 1", "the rank says so; all results are there",
        "- 5 5", "call=MPI_Finalize rank=1 do=fail", ends_well=True, num_errors=ONE,
        texts=("error on rank 1", "MPI_Finalize failed")),
    Row("a message is too short", "rank 1 sends 16 bytes less",
        "the rank that gets it names the sender and both lengths", "- 70 70",
        f"{SEND} at={{ids_send}} rank=1 do=resize:-16", num_errors=ONE, texts=("bytes came from rank 1 instead of",)),
    Row("a message is too long", "rank 1 sends 64 bytes more", "the rank that gets it says so", "- 5,70 5,70",
        f"{SEND} at={{ids_send}} rank=1 do=resize:64", num_errors=ONE),
]


def disagree(name, injected, fault, layer="MoE layer 0", num_errors=ONE, overrides=(), happens=""):
    return Row(name, injected, happens or "the layer and the ranks are named before a result is used", "- 70 70", fault,
               num_errors=num_errors, overrides=overrides, texts=("disagree about the", layer))


ALLGATHER = ("decode.exchange=allgather",)
DISAGREE = [
    disagree("ranks planned different steps", "a bit of rank 1's digest of the schedule in the step record",
        "call=MPI_Iallgatherv at={record} rank=1 do=flip:0", "ranks 0 and 1 disagree about the schedule",
        happens="the ranks are named after the step"),
    disagree("ranks hold different placements", "a bit of rank 1's digest of the placement in the step record",
        "call=MPI_Iallgatherv at={record} rank=1 do=flip:8", "ranks 0 and 1 disagree about the placement",
        happens="the ranks are named after the step"),
    disagree("prefill lists of another routing", "a bit of the digest that rank 1 sends with its list",
        f"{SEND} at=1 rank=1 do=flip:0"),
    disagree("prefill rows of another routing", "a bit of the digest that rank 1 sends with its rows",
        f"{SEND} at=3 rank=1 do=flip:0"),
    disagree("prefill results of another routing", "a bit of the digest that rank 1 sends with its results",
        f"{SEND} at=5 rank=1 do=flip:0"),
    disagree("prefill rows of another routing in a deeper layer", "the same in the second layer",
        f"{SEND} at=9 rank=1 do=flip:0", "MoE layer 1"),
    disagree("decode rows of another routing", "a bit of the digest that rank 1 sends with its rows",
        f"{SEND} at={{ids_send}} rank=1 do=flip:0"),
    disagree("a message with another number of rows", "a bit of the number that rank 1 sends with its rows",
        f"{SEND} at={{ids_send}} rank=1 do=flip:8"),
    disagree("decode results of another routing",
        "a bit of the digest that rank 1 sends with its results, after an all-gather",
        f"{SEND} at={{rows_send}} rank=1 do=flip:0", overrides=ALLGATHER),
    disagree("a rank got other expert ids", "a bit of the ids of rank 0 as rank 1 got them",
        "call=MPI_Iallgatherv at={ids_gather} " "rank=1 do=flip_received:0", num_errors=SOME),
    disagree("a rank got other expert ids with the rows",
        "a bit of the ids of rank 0 as rank 1 got them, in an all-gather of rows",
        "call=MPI_Iallgatherv at={rows_gather} rank=1 do=flip_received:512", num_errors=SOME, overrides=ALLGATHER),
]


def build_of(test, program):
    text = subprocess.run([program, "run", test.deck, "--dry-run"], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=PATIENCE_S).stdout
    return next((line for line in text.splitlines() if line.startswith("metro ")), "")


def other_build(test):
    """Rank 1 is the program with another text of its build in it, of which the compiler leaves pieces in the file."""
    path = test.folder / "metro_of_another_build"
    if not path.exists():
        build = build_of(test, test.metro.binary)
        commit, _, compiler = build[build.index("(") + 1:build.index(")")].split(", ")
        for piece in (commit, compiler, commit[:4], compiler[:8]):
            content = pathlib.Path(test.metro.binary).read_bytes()
            path.write_bytes(content.replace(piece.encode(), b"x" + piece.encode()[1:]))
            path.chmod(0o755)
            if build_of(test, path) not in ("", build):
                break
        else:
            raise SystemExit(f"no piece of '{build}' is in the program")
    return [(1, [test.metro.binary], [test.deck]), (1, [path], [test.deck]), (1, [test.metro.binary], [test.deck])]


def other_checkpoint(test):
    """Rank 1 finds another checkpoint under the same relative path."""
    for name, weights in (("here", "stored"), ("there", "int8")):
        if not (test.folder / name).exists():
            (test.folder / name).mkdir()
            test.metro.must(["convert", "--weights", weights, SOURCE / "inputs/models/tiny",
                             test.folder / name / "model.h5"])
    return [(1, ["env", "-C", test.folder / name, test.metro.binary], [test.deck, "model.checkpoint=model.h5"])
            for name in ("here", "there")]


def other_deck(test):
    return [(1, [test.metro.binary], [test.deck]), (1, [test.metro.binary], [test.deck, "requests.max_tokens=1"]),
            (1, [test.metro.binary], ["nowhere.toml"])]


START = [
    Row("another build on a rank", "rank 1 is a program with another commit in its text",
        "refused at the start: both texts, and the rank", "- 70 -", parts=other_build, num_errors=ONE,
        texts=("the build is not the same on all ranks: rank 1 differs from rank 0",)),
    Row("another checkpoint on a rank", "rank 1 has another file under the same name",
        "refused at the start: both digests, and the rank", "- 70 -", parts=other_checkpoint, num_errors=ONE,
        texts=("the checkpoint is not the same on all ranks: rank 1 differs from rank 0",)),
    Row("another deck on a rank", "other overrides on rank 1, no deck at all on rank 2",
        "nothing: the deck of rank 0 holds for all", "- 0 -", parts=other_deck),
    Row("another instruction set on a rank", "rank 1 says that it has the lowest only", "all ranks use the lowest",
        "- 0 0", "call=MPI_Iallgatherv at=2 rank=1 do=zero", texts=("kernels scalar",)),
]


def to_launcher(number):
    return lambda job: os.kill(job.process.pid, number)


def to_rank(rank, number):
    return lambda job: os.kill(job.processes()[rank], number)


def terminated_beside_a_silent_one(job):
    processes = job.processes()
    os.kill(processes[1], signal.SIGSTOP)
    os.kill(processes[0], signal.SIGTERM)


def to_all(job):
    for process in (job.process.pid, *job.processes().values()):
        with contextlib.suppress(ProcessLookupError):  # it may have ended with those before it
            os.kill(process, signal.SIGKILL)


PAUSE = f"{COMPLETION} do=late:2000"  # so that the signal comes while there is work
LONG_PAUSE = f"{COMPLETION} do=late:5000"  # longer than what a launcher needs to end everything
STOPS = "the run ends after the step, with its state saved"
SIGNALS = [
    Row("SIGUSR1 to the launcher", "in the middle of the run", STOPS, "75 75 75", PAUSE,
        meanwhile=to_launcher(signal.SIGUSR1)),
    Row("SIGUSR1 to a rank", "to rank 1", STOPS, "- 75 75", PAUSE, meanwhile=to_rank(1, signal.SIGUSR1)),
    Row("SIGTERM to a rank", "to rank 1", STOPS, "- 75 75", PAUSE, meanwhile=to_rank(1, signal.SIGTERM)),
    Row("SIGINT to a rank", "to rank 0", STOPS, "75 75 75", PAUSE, meanwhile=to_rank(0, signal.SIGINT)),
    Row("SIGTERM to the launcher", "in the middle of the run", "as above if a step ends in time, or as after a kill",
        "75 1 75,137", PAUSE, meanwhile=to_launcher(signal.SIGTERM), num_errors=AT_MOST_ONE),
    Row("SIGINT to the launcher", "once, in the middle of the run",
        "as for SIGTERM; `srun` only shows where its tasks are", "75 1 0", PAUSE,
        meanwhile=to_launcher(signal.SIGINT), num_errors=AT_MOST_ONE),
    Row("the launcher is killed", "SIGKILL to it", "the ranks end", "137 137 137", LONG_PAUSE,
        meanwhile=to_launcher(signal.SIGKILL), num_errors=AT_MOST_ONE),
    Row("all processes are killed at once", "SIGKILL to the launcher and all ranks, with memory shared by ranks",
        "nothing stays in /dev/shm", "137 137 137", LONG_PAUSE, meanwhile=to_all, overrides=("model.sharing=node",)),
    Row("SIGTERM beside a silent rank", "SIGSTOP to rank 1, SIGTERM to rank 0",
        "rank 0 waits 5 s for it, names it, and ends the job", "- 5 5", PAUSE,
        meanwhile=terminated_beside_a_silent_one, num_errors=ONE, texts=("rank 1 (", "does not answer", "SIGTERM")),
]

PARTS = {"ends": ENDS, "silent": SILENT, "start": START_OF_MPI, "messages": [*CALLS, *DISAGREE, *START], "signals": SIGNALS}
