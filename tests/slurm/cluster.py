#!/usr/bin/env python3
"""A real Slurm on this machine for tests: munged, slurmctld and a slurmd per emulated node, as root, on free ports.

  cluster.py up FOLDER       starts it; FOLDER/cluster.json says where it is
  cluster.py down FOLDER     stops it; its logs are in FOLDER/log then
  cluster.py with COMMAND    starts one, runs COMMAND (sinfo, sbatch, bash, ...) in its environment, stops it

A supervisor owns all daemons and stops them when told so, when the process that called `up` has ended, and after a
time limit. Each node has its own UTS namespace, hence its own host name: Open MPI names shared memory by it, and all
that runs on a node can be found by it. Names and ports differ between clusters, so that several can be up.

Exit codes: 0 done, 1 failed, 77 Slurm or the rights for it are missing.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "scontrol", "squeue", "srun", "scancel", "sinfo")
SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
TIME_LIMIT_S = 1500
CPUS, GPUS, MEMORY_MIB = 8, 4, 4000  # of each node, whatever this machine has
NUM_NODES = 4

CONF = """\
ClusterName={prefix}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# cred_expire: a requeued job waits this long before it starts, two minutes by default
AuthInfo=socket={scratch}/run/munge.socket,cred_expire=5
StateSaveLocation={scratch}/state
SlurmdSpoolDir={scratch}/spool/%n
# per node, else the PMIx servers of two nodes meet in one folder
TmpFS={scratch}/tmp/%n
SlurmctldPidFile={scratch}/run/slurmctld.pid
SlurmdPidFile={scratch}/run/slurmd.%n.pid
SlurmctldLogFile={scratch}/log/slurmctld.log
SlurmdLogFile={scratch}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=1200
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
# nodes may have more CPUs than this machine
SlurmdParameters=config_overrides
"""


def find(program):
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SBIN}")


def why_not():
    """Why no cluster can be started here; None if one can."""
    missing = [program for program in DAEMONS + CLIENTS if find(program) is None]
    if missing:
        return (f"Slurm is not installed ({', '.join(missing)} missing; Debian: apt-get install "
                "slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins)")
    if os.geteuid() != 0:
        return "an emulated cluster needs root"
    if not os.path.ismount("/sys/fs/cgroup"):
        return "slurmd needs /sys/fs/cgroup"
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode != 0:
        return "nodes need host names of their own, and `unshare --uts` is not allowed here"
    return None


def free_ports(count):
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in bound:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in bound]


def in_same_uts(pid):
    """All processes that share the UTS namespace of this one: what runs on its node."""
    def namespace(process):
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{process}/ns/uts")
        return None

    wanted = namespace(pid)
    if wanted is None or wanted == namespace("self"):
        return []
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and namespace(entry) == wanted]


def kill_all(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until(condition, what, patience_s):
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"no {what} after {patience_s} s")
        time.sleep(0.1)


class Cluster:
    """The daemons, owned by the supervisor."""

    def __init__(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="metro-slurm-"))
        self.scratch.chmod(0o755)  # munged wants its socket to be in reach of everybody
        self.prefix = f"m{os.urandom(2).hex()}n"
        self.nodes = [f"{self.prefix}{number}" for number in range(1, NUM_NODES + 1)]
        self.conf = self.scratch / "slurm.conf"
        self.processes = {}

    def write_files(self):
        for folder in ("state", "log", "run", "munge", "dev", "down", *(f"{kind}/{node}" for kind in ("spool", "tmp")
                                                                        for node in self.nodes)):
            (self.scratch / folder).mkdir(parents=True)
        (self.scratch / "munge").chmod(0o700)
        key = self.scratch / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for number in range(GPUS):  # nobody opens them; what is no device is not counted
            os.mknod(self.scratch / f"dev/gpu{number}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        (self.scratch / "gres.conf").write_text(f"Name=gpu File={self.scratch}/dev/gpu[0-{GPUS - 1}]\n")
        ports = free_ports(1 + NUM_NODES)
        nodes = "".join(
            f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} Sockets=1 "
            f"CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={MEMORY_MIB} Gres=gpu:{GPUS} State=UNKNOWN\n"
            for node, port in zip(self.nodes, ports[1:]))
        # Those of the second partition are for tests that break them.
        partitions = (f"PartitionName=main Nodes={','.join(self.nodes[:2])} Default=YES MaxTime=60 State=UP\n"
                      f"PartitionName=fragile Nodes={','.join(self.nodes[2:])} MaxTime=60 State=UP\n")
        self.conf.write_text(CONF.format(prefix=self.prefix, host=socket.gethostname().split(".")[0], ports=ports,
                                         scratch=self.scratch) + nodes + partitions)

    def launch(self, name, command):
        # They end with the supervisor, however that ends.
        guarded = ["setpriv", "--pdeathsig", "KILL", *command] if shutil.which("setpriv") else command
        with open(self.scratch / f"log/{name}.out", "ab") as log:
            self.processes[name] = subprocess.Popen(guarded, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                    start_new_session=True, env=self.environment())
        (self.scratch / f"run/{name}.pid").write_text(str(self.processes[name].pid))

    def launch_node(self, node):
        self.launch(node, ["unshare", "--uts", "sh", "-c", 'hostname "$1"; exec "$2" -D -N "$1" -f "$3"', "sh", node,
                           find("slurmd"), str(self.conf)])

    def environment(self):
        return os.environ | {"SLURM_CONF": str(self.conf)}

    def is_up(self):
        states = subprocess.run([find("sinfo"), "-h", "-N", "-o", "%t"], env=self.environment(), text=True,
                                capture_output=True, timeout=30)
        return states.stdout.split() == ["idle"] * NUM_NODES

    def start(self):
        self.write_files()
        munge = self.scratch / "munge"
        run = self.scratch / "run"
        self.launch("munged", [find("munged"), "--foreground", f"--key-file={munge}/key", f"--socket={run}/munge.socket",
                               f"--pid-file={run}/munged-own.pid", f"--log-file={self.scratch}/log/munged.log",
                               f"--seed-file={munge}/seed", "--num-threads=2"])
        wait_until((run / "munge.socket").exists, "munge", 20)
        self.launch("slurmctld", [find("slurmctld"), "-D", "-c", "-f", str(self.conf)])
        for node in self.nodes:
            self.launch_node(node)
        wait_until(self.is_up, "idle nodes", 60)

    def revive_nodes(self):
        """Starts the nodes again that were killed and shall not stay down."""
        for node in self.nodes:
            if self.processes[node].poll() is not None and not (self.scratch / "down" / node).exists():
                self.launch_node(node)

    def stop(self):
        # Jobs end with their nodes; nothing has to be saved.
        for node in self.nodes:
            if node in self.processes:
                kill_all(in_same_uts(self.processes[node].pid))
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        for leftover in [*pathlib.Path("/dev/shm").glob(f"vader_segment.{self.prefix}*"),
                         *pathlib.Path(tempfile.gettempdir()).glob(f"ompi.{self.prefix}*")]:
            shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink(missing_ok=True)


def supervise(folder, starter):
    """Runs a cluster until FOLDER/cluster.json is gone, the process `starter` has ended, or time is up."""
    cluster = Cluster()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        cluster.start()
        where = {"conf": str(cluster.conf), "scratch": str(cluster.scratch), "nodes": cluster.nodes,
                 "supervisor": os.getpid()}
        partial = folder / "cluster.json.partial"
        partial.write_text(json.dumps(where))
        partial.rename(folder / "cluster.json")
        end = time.monotonic() + TIME_LIMIT_S
        while (folder / "cluster.json").exists() and time.monotonic() < end and os.path.exists(f"/proc/{starter}"):
            cluster.revive_nodes()
            time.sleep(0.2)
    finally:
        cluster.stop()
        shutil.rmtree(folder / "log", ignore_errors=True)
        shutil.copytree(cluster.scratch / "log", folder / "log")
        shutil.rmtree(cluster.scratch, ignore_errors=True)
        (folder / "cluster.json").unlink(missing_ok=True)


def up(folder, starter):
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "cluster.json").exists():
        down(folder)
    process = subprocess.Popen([sys.executable, __file__, "supervise", folder, str(starter)], stdin=subprocess.DEVNULL,
                               stdout=open(folder / "supervisor.log", "w"), stderr=subprocess.STDOUT,
                               start_new_session=True)
    wait_until(lambda: (folder / "cluster.json").exists() or process.poll() is not None, "cluster", 90)
    if process.poll() is not None:
        sys.exit(f"the cluster does not start; logs are in {folder / 'log'}\n{(folder / 'supervisor.log').read_text()}")


def down(folder):
    try:
        supervisor = json.loads((folder / "cluster.json").read_text())["supervisor"]
    except FileNotFoundError:
        return  # it has stopped itself
    (folder / "cluster.json").unlink(missing_ok=True)
    wait_until(lambda: not is_running(supervisor), "end of the cluster", 60)


def is_running(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def with_cluster(command):
    with tempfile.TemporaryDirectory(prefix="metro-slurm-state-") as name:
        folder = pathlib.Path(name)
        up(folder, os.getpid())
        try:
            conf = json.loads((folder / "cluster.json").read_text())["conf"]
            return subprocess.run(command, env=os.environ | {"SLURM_CONF": conf}).returncode
        finally:
            down(folder)


def main():
    action, *arguments = sys.argv[1:] or ["help"]
    if action not in ("up", "down", "with", "supervise") or not arguments:
        sys.exit(__doc__)
    reason = why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        return SKIPPED
    if action == "with":
        return with_cluster(arguments)
    folder = pathlib.Path(arguments[0]).resolve()
    if action == "supervise":
        supervise(folder, int(arguments[1]))
    elif action == "up":
        up(folder, os.getppid())
    else:
        down(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
