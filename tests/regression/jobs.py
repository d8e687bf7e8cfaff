"""Jobs of metro under way, for the tests that interfere with them: their processes, waiting, what they leave."""

import os
import pathlib
import sys
import time

PATIENCE_S = 60  # for what takes a second or two on a machine that does nothing else


def wait_for(condition, what):
    begin = time.monotonic()
    while not (value := condition()):
        if time.monotonic() - begin > PATIENCE_S:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.01)
    return value


def environment_of(process):
    """The environment that a process was started with, as `KEY=value` bytes; empty when it is gone."""
    try:
        return pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def rank_of(environment):
    """The rank that a launcher told a process with this environment; None without one."""
    for name in (b"OMPI_COMM_WORLD_RANK=", b"PMIX_RANK=", b"PMI_RANK="):
        for entry in environment:
            if entry.startswith(name):
                return int(entry[len(name):])
    return None


def ranks_of(launcher):
    """The processes of a job, by rank, as mpirun told them; empty until it has started some."""
    found = {}
    try:
        for child in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            rank = rank_of(environment_of(child))
            if rank is not None:
                found[rank] = int(child)
    except OSError:
        pass
    return found


def is_gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def processes_with(entry):
    """All processes that were started with this entry in their environment and have not ended (a zombie has none)."""
    return [int(folder.name) for folder in pathlib.Path("/proc").iterdir()
            if folder.name.isdigit() and entry.encode() in environment_of(folder.name)]


def remove_shared_memory(environments):
    """What ranks with these environments leave behind when their launcher was killed; Open MPI names it by job."""
    for job in {entry.split(b"=")[1] for entries in environments for entry in entries
                if entry.startswith(b"OMPI_MCA_ess_base_jobid=")}:
        for path in pathlib.Path("/dev/shm").glob(f"vader_segment.*.{int(job):x}.*"):
            path.unlink(missing_ok=True)
