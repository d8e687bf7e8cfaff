"""Several hosts on one machine: network namespaces with an Ethernet link each to a switch (a bridge in a namespace of
its own), and a host name each. Names have this process's number in them, so that runs do not meet; what a run that was
killed left behind is removed by the next."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

PREFIX = "metro-test-"
LINK = "link0"  # of every host

# What a process of a host starts in: its network, its name, and names for the addresses of the others.
ENTER = """#!/bin/sh
host=$1; shift
exec ip netns exec "$host" unshare --uts --mount sh -c 'hostname "$0" && mount --bind "{names}" /etc/hosts && exec "$@"' "$host" "$@"
"""
# For mpirun in place of ssh: host, then words for a shell.
AGENT = """#!/bin/sh
host=$1; shift
exec "{enter}" "$host" sh -c "$*"
"""

# Waits until a host answers. A link that was down is up at once, but addresses that could not be resolved meanwhile are
# given up for a while longer.
PROBE = """
import errno, socket, sys, time
for _ in range(300):
    try:
        socket.create_connection((sys.argv[1], 9), timeout=1).close()
        sys.exit(0)
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:  # nobody listens there, but it was the host who said so
            sys.exit(0)
    time.sleep(0.1)
sys.exit(f"{sys.argv[1]} does not answer")
"""


def missing():
    """Why there can be no hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    for tool, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("mount", "mount")):
        if shutil.which(tool) is None:
            return f"{tool} is missing: apt-get install {package}"
    probe = f"{PREFIX}{os.getpid()}-probe"
    process = ip("netns", "add", probe, check=False)
    if process.returncode != 0:
        return f"no network namespaces: {process.stderr.strip()}"
    # Links and bridges are modules of the kernel that may be absent.
    bridge = ip("-n", probe, "link", "add", "switch", "type", "bridge", check=False)
    pair = ip("-n", probe, "link", "add", "one", "type", "veth", "peer", "name", "two", check=False)
    entered = subprocess.run(["ip", "netns", "exec", probe, "unshare", "--uts", "--mount", "true"], text=True,
                             capture_output=True, check=False)
    ip("netns", "del", probe)
    return "; ".join(process.stderr.strip() for process in (bridge, pair, entered) if process.returncode != 0)


def ip(*arguments, check=True):
    process = subprocess.run(["ip", *map(str, arguments)], text=True, capture_output=True, check=False)
    if check and process.returncode != 0:
        raise SystemExit(f"ip {' '.join(map(str, arguments))}: {process.stderr.strip()}")
    return process


def remove(namespaces):
    """Ends what runs in these namespaces and removes them."""
    for namespace in namespaces:
        for process in processes_in(namespace):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        ip("netns", "del", namespace, check=False)
        for path in [*pathlib.Path("/dev/shm").glob(f"vader_segment.{namespace}.*"),
                     *pathlib.Path("/tmp").glob(f"ompi.{namespace}.*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def processes_in(namespace):
    return [int(number) for number in ip("netns", "pids", namespace, check=False).stdout.split()]


def existing():
    return [line.split()[0] for line in ip("netns", "list").stdout.splitlines() if line.startswith(PREFIX)]


class Network:
    """`with Network(2, folder) as network`: hosts 0, 1 ..., their scripts in `folder`."""

    def __init__(self, num_hosts, folder):
        name = f"{PREFIX}{os.getpid()}"
        self.switch = f"{name}-switch"
        self.hosts = [f"{name}-host{number}" for number in range(num_hosts)]
        self.enter = pathlib.Path(folder) / "enter.sh"
        self.agent = pathlib.Path(folder) / "agent.sh"
        names = pathlib.Path(folder) / "hosts"
        names.write_text("127.0.0.1 localhost\n" +
                         "".join(f"{address(number)} {host}\n" for number, host in enumerate(self.hosts)))
        for path, text in ((self.enter, ENTER.format(names=names)), (self.agent, AGENT.format(enter=self.enter))):
            path.write_text(text)
            path.chmod(0o755)

    def __enter__(self):
        remove([name for name in existing() if not is_alive(int(re.match(rf"{PREFIX}(\d+)", name)[1]))])
        try:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
            ip("-n", self.switch, "link", "set", "switch", "up")
            for number, host in enumerate(self.hosts):
                ip("netns", "add", host)
                ip("-n", host, "link", "add", LINK, "type", "veth", "peer", "name", f"port{number}", "netns", self.switch)
                ip("-n", self.switch, "link", "set", f"port{number}", "master", "switch", "up")
                ip("-n", host, "addr", "add", f"{address(number)}/24", "dev", LINK)
                ip("-n", host, "link", "set", LINK, "up")
                ip("-n", host, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        remove([*self.hosts, self.switch])

    def launcher(self, mpiexec, ranks_of_host, more_options):
        """The start of a command line that runs a program on the first hosts, so many ranks on each; options of Open
        MPI: name -> value."""
        hosts = ",".join(f"{host}:{ranks}" for host, ranks in zip(self.hosts, ranks_of_host))
        options = {"plm": "rsh", "plm_rsh_agent": self.agent, "oob_tcp_if_include": LINK, "btl_tcp_if_include": LINK,
                   "pml": "ob1", "btl": "self,vader,tcp"} | more_options
        return [self.enter, self.hosts[0], mpiexec, *(word for name, value in options.items()
                                                      for word in ("--mca", name, value)),
                "--host", hosts, "-n", sum(ranks_of_host), "--bind-to", "none"]

    def set_link(self, host, state):
        """up or down: the cable of a host, at the switch. After "up" hosts find each other again when this returns."""
        ip("-n", self.switch, "link", "set", f"port{host}", state)
        if state == "up":
            other = 1 if host == 0 else 0
            for one, two in ((host, other), (other, host)):
                subprocess.run(["ip", "netns", "exec", self.hosts[one], sys.executable, "-c", PROBE, address(two)], check=True)

    def limit_rate(self, rate):
        """Of what each host sends; for example 100mbit. Needs tc."""
        for host in self.hosts:
            for words in (["qdisc", "add", "dev", LINK, "root", "handle", "1:", "htb", "default", "1"],
                          ["class", "add", "dev", LINK, "parent", "1:", "classid", "1:1", "htb", "rate", rate]):
                subprocess.run(["tc", "-n", host, *words], check=True)

    def bytes_sent(self, host):
        """By a host over its link so far, with all headers."""
        return int(self._statistic(host, "tx_bytes"))

    def _statistic(self, host, name):
        return subprocess.run(["ip", "netns", "exec", self.hosts[host], "cat", f"/sys/class/net/{LINK}/statistics/{name}"],
                              text=True, capture_output=True, check=True).stdout

    def ranks(self, host):
        """rank -> process, of those that run on a host now."""
        found = {}
        for process in processes_in(self.hosts[host]):
            try:
                for entry in pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                    if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                        found[int(entry.split(b"=")[1])] = process
            except OSError:
                pass  # it has ended
        return found

    def daemon(self, host):
        """The process by which mpirun starts ranks on another host."""
        return next(process for process in processes_in(self.hosts[host])
                    if pathlib.Path(f"/proc/{process}/comm").read_text().strip() == "orted")

    def wait_until_empty(self, patience_s):
        """Whether all processes of all hosts end by themselves."""
        return becomes_true(patience_s, lambda: not any(is_running(process) for host in self.hosts
                                                        for process in processes_in(host)))

    def wait_for_end_of_ranks(self, patience_s):
        return becomes_true(patience_s, lambda: not any(is_running(process) for host in range(len(self.hosts))
                                                        for process in self.ranks(host).values()))


def address(host):
    return f"10.77.0.{host + 1}"


def is_alive(process):
    return pathlib.Path(f"/proc/{process}").exists()


def becomes_true(patience_s, condition):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > patience_s:
            return False
        time.sleep(0.05)
    return True


def is_running(process):
    """Not one that is dead and not yet collected."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
