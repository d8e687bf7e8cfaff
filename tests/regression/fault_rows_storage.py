"""The table of faults, second part: disks, files, and folders of runs that were stopped."""

import os
import shutil
import signal

from fault_runs import Row, repaired, resumed

STATE = "resume.state"
JOURNAL = "resume.journal"
ONE = (1, 1)
PAUSE = "call=write file=completions.jsonl at=12 do=late:1500"
MOVES = ("experts.rebalance_steps=3", "experts.rebalance_source=checkpoint")


def full(name, fault, text, overrides=(), codes="5 5 5", injected="ENOSPC, for good", **more):
    return Row(name, injected, "rank 0 names the file and the reason, and ends the job", codes, fault, num_errors=ONE,
               texts=(text,), overrides=overrides, **more)


DISKS = [
    full("the disk is full for completions", "call=write file=completions.jsonl at=12 do=errno:ENOSPC",
        "completions.jsonl: No space left"),
    full("the disk is full for errors", "call=write file=errors.jsonl do=errno:ENOSPC",
        "errors.jsonl: No space left"),
    full("the disk is full for the journal", "call=write file=resume.journal at=12 do=errno:ENOSPC",
        "resume.journal: No space left"),
    full("the disk is full for the first state", "call=write file=resume.state do=errno:ENOSPC", "No space left"),
    full("the disk is full for a later state", "call=write file=resume.state at=2 do=errno:ENOSPC", "No space left",
        overrides=("run.checkpoint_s=0.001",)),
    full("the disk is full for the deck", "call=write file=deck.toml do=errno:ENOSPC", "No space left"),
    full("the disk is full for metrics", "call=write file=metrics.h5 do=errno:ENOSPC", "metrics.h5"),
    full("the disk fills up for metrics", "call=write file=metrics.h5 at=30 do=errno:ENOSPC", "metrics.h5"),
    full("the disk is full for a trace", "call=write file=routing.h5 do=errno:ENOSPC", "routing.h5",
        overrides=("trace.record={output}/routing.h5",)),
    full("the disk fails for completions", "call=write file=completions.jsonl at=12 do=errno:EIO",
        "completions.jsonl: Input/output error", injected="EIO from `write`"),
    full("completions do not reach the disk", "call=fsync file=completions.jsonl do=errno:EIO",
        "completions.jsonl: Input/output error", injected="EIO from `fsync`"),
    full("the journal does not reach the disk", "call=fsync file=resume.journal do=errno:EIO",
        "resume.journal: Input/output error", injected="EIO from `fsync`"),
    full("the state does not reach the disk", "call=fsync file=resume.state do=errno:EIO", "Input/output error",
        injected="EIO from `fsync`"),
]

TORN = [
    Row("a completion is half written", "half of the 12th, then SIGKILL", "going on, the torn line is cut off",
        "137 137,5 137,5", "call=write file=completions.jsonl at=12 do=torn", has_torn_line=True, num_errors=(0, 1)),
    Row("a journal entry is half written", "half of the 12th, then SIGKILL", "going on, the torn entry is cut off",
        "137 137,5 137,5", "call=write file=resume.journal at=12 do=torn", num_errors=(0, 1)),
    Row("a state is half written", "half of the second, then SIGKILL", "the one before it counts", "137 137,5 137,5",
        "call=write file=resume.state at=2 do=torn", overrides=("run.checkpoint_s=0.001",), num_errors=(0, 1)),
]


def remove_output(job):
    shutil.rmtree(job.output)


def replace_completions(job):
    (job.output / "completions.jsonl").rename(job.output / "completions.old")
    (job.output / "completions.jsonl").touch()


def put_back(job):
    (job.output / "completions.old").replace(job.output / "completions.jsonl")


FOLDERS = [
    Row("the output folder is removed meanwhile", "`rm -r` while the run writes into it",
        "refused at the end of the run: rank 0 names the file", "5 5 5", PAUSE, meanwhile=remove_output,
        num_errors=ONE, texts=("completions.jsonl",), lost="what was removed; given again, the run begins anew"),
    Row("a file of the output is replaced meanwhile", "completions.jsonl renamed, an empty one in its place",
        "refused at the end of the run: rank 0 names the file", "5 5 5", PAUSE, meanwhile=replace_completions,
        repair=put_back, num_errors=ONE, texts=("completions.jsonl",)),
]


def without_checkpoint(job):
    (job.test.folder / "own.h5").unlink()


def own_checkpoint(change):
    """A checkpoint of the row's own, changed; and its repair."""

    def prepare(job):
        content = bytearray((job.test.folder / "tiny.h5").read_bytes())
        (job.test.folder / "own.h5").write_bytes(change(content))

    return prepare


def sound_checkpoint(job):
    shutil.copy(job.test.folder / "tiny.h5", job.test.folder / "own.h5")


def flipped(content):
    content[len(content) // 2] ^= 1
    return content


def overwrite_checkpoint(job):
    path = job.test.folder / "own.h5"
    with open(path, "r+b") as file:  # the same file, as the ranks have it open
        file.write(bytes(path.stat().st_size))


OWN = ("model.checkpoint=own.h5",)
CHECKPOINTS = [
    Row("the checkpoint is damaged", "one bit flipped in a tensor",
        "refused in loading: file, tensor and both digests", "4 4 4", prepare=own_checkpoint(flipped),
        repair=sound_checkpoint, overrides=OWN, num_errors=ONE, texts=("own.h5", "/layers/", "digest")),
    Row("the checkpoint is cut off", "its first 100000 bytes", "refused at the start", "4 4 4",
        prepare=own_checkpoint(lambda content: content[:100000]), repair=sound_checkpoint, overrides=OWN,
        num_errors=ONE, texts=("own.h5",)),
    Row("the checkpoint cannot be read", "EIO from `read` in loading on rank 0", "the file and the reason are named",
        "4,5 4,5 4,5", "call=read file=tiny.h5 bytes=4096 at=3 do=errno:EIO", num_errors=ONE, texts=("tiny.h5",)),
    Row("the checkpoint is damaged meanwhile", "overwritten with zeros before experts are read from it again",
        "the rank that reads it names the file, and ends the job", "- 4 4", PAUSE, prepare=sound_checkpoint,
        meanwhile=overwrite_checkpoint, repair=sound_checkpoint, overrides=(*OWN, *MOVES), num_errors=ONE,
        texts=("own.h5", "does not have the digest")),
    Row("the checkpoint is removed meanwhile", "`rm` before experts are read from it again", "nothing: it is open",
        "0 0 0", PAUSE, prepare=sound_checkpoint, meanwhile=without_checkpoint, overrides=(*OWN, *MOVES)),
]


def own_input(change):
    """The folder of a stopped run, and its input changed."""

    def prepare(job):
        resumed()(job)
        path = job.test.folder / "requests.jsonl"
        shutil.copy(path, job.test.folder / "kept.jsonl")
        content = change(path.read_text())
        path.unlink() if content is None else path.write_text(content)

    return prepare


def sound_input(job):
    (job.test.folder / "kept.jsonl").replace(job.test.folder / "requests.jsonl")


def second_run(job):
    """Another run at work in the folder, while this one is given."""
    fault = "call=write file=completions.jsonl at=12 do=hang"
    job.other = job.test.start_alone(job.output, fault)
    job.wait_for_completions(job.other)


def end_other(job):
    job.other.send_signal(signal.SIGKILL)
    job.other.wait()


INPUTS = [
    Row("the input cannot be read", "EIO from `read`", "the file and the reason are named", "3 3 3",
        "call=read file=requests.jsonl do=errno:EIO", num_errors=ONE, texts=("requests.jsonl", "Input/output error")),
    Row("the input shrinks between the parts", "its first two lines only", "refused at the start", "2 2 2",
        prepare=own_input(lambda text: "".join(text.splitlines(keepends=True)[:2])), repair=sound_input,
        num_errors=ONE, texts=("requests.jsonl",)),
    Row("the input changes between the parts", "another line 1", "refused at the start: the line is named", "2 2 2",
        prepare=own_input(lambda text: '{"prompt": "other"}\n' + text.partition("\n")[2]), repair=sound_input,
        num_errors=ONE, texts=("line 1 of", "is not what it was")),
    Row("the input is gone between the parts", "`rm`", "refused at the start", "3 3 3",
        prepare=own_input(lambda text: None), repair=sound_input, num_errors=ONE, texts=("requests.jsonl",)),
    Row("standard input is closed", "`<&-`", "refused at the start", "3 - -", again=("--overwrite",),
        shell='exec "$@" requests.input=- <&-', num_errors=ONE, texts=("standard input",)),
    Row("two runs in one folder", "the same command while the first is at work",
        "the second waits 10 s, then is refused", "- 2 2", prepare=second_run, repair=end_other, num_errors=ONE,
        texts=("is in use: another run works in this folder",)),
]


def cut(content):
    return content[:len(content) // 2]


def without_a_line(content):
    lines = content.splitlines(keepends=True)
    return b"".join(lines[:3] + lines[4:])


def changed_line(content):
    return content.replace(b'"choices"', b'"choicer"', 1)


REFUSED = "refused; nothing is touched"
STATES = [
    Row("the state is cut off", "half of resume.state", REFUSED, "3 3 3", prepare=resumed(cut, STATE),
        repair=repaired(STATE), num_errors=ONE,
        texts=("cannot go on from", "resume.state", "--overwrite begins anew")),
    Row("the state is damaged", "one bit flipped in resume.state", REFUSED, "3 3 3",
        prepare=resumed(lambda content: bytes(flipped(bytearray(content))), STATE), repair=repaired(STATE),
        num_errors=ONE, texts=("it is damaged: its content has the digest", "--overwrite begins anew")),
    Row("the state is gone for good", "resume.state removed", REFUSED, "2 2 2",
        prepare=resumed(lambda content: None, STATE), again=("--overwrite",), num_errors=ONE,
        texts=("is there already", "--overwrite"), lost="the work before: only --overwrite helps"),
    Row("the journal is gone", "resume.journal removed", REFUSED, "3 3 3",
        prepare=resumed(lambda content: None, JOURNAL), repair=repaired(JOURNAL), num_errors=ONE,
        texts=("resume.journal is missing; --overwrite begins anew",)),
    Row("the journal is cut off", "half of resume.journal", "what it does not tell of is computed again", "0 0 0",
        prepare=resumed(cut, JOURNAL)),
    Row("completions lost their end", "half of completions.jsonl", "what is lost is computed again", "0 0 0",
        prepare=resumed(cut, "completions.jsonl"), texts=("cut off what was incomplete",)),
    Row("completions lost a line", "the 4th line of completions.jsonl removed",
        "from there on they are computed again", "0 0 0", prepare=resumed(without_a_line, "completions.jsonl"),
        texts=("cut off what was incomplete",)),
    Row("a completion was changed", "a letter of the first line of completions.jsonl",
        "from there on they are computed again", "0 0 0", prepare=resumed(changed_line, "completions.jsonl"),
        texts=("cut off what was incomplete",)),
    Row("completions are gone", "completions.jsonl removed", "they are computed again", "0 0 0",
        prepare=resumed(lambda content: None, "completions.jsonl")),
]

PARTS = {"disks": [*DISKS, *TORN, *FOLDERS], "folders": [*CHECKPOINTS, *INPUTS, *STATES]}
