#!/usr/bin/env python3
"""metro on several hosts, which are network namespaces of this machine: completions are those of a single rank, and a
link, a daemon or a rank that fails costs no more than a restart. One scenario per call:

    python3 tests/hosts/hosts.py two_by_two --metro build/cpu-release/bin/metro

Exit code 77, with the reason, where there can be no network namespaces.
"""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "regression"))
from identity import requests  # noqa: E402  (found by the line before)
from metro_runs import ENVIRONMENT, Metro  # noqa: E402
from network import Network, missing  # noqa: E402

SKIPPED = 77
PATIENCE_S = 60  # for what takes a second or two on a machine that does nothing else
TIMEOUT_S = 4  # run.timeout_s, where it is to pass
END_S = 10  # after it: how long ranks may take to tell each other and to end, on a busy machine


class Job:
    """`metro run` under way on the first hosts, so many ranks on each."""

    def __init__(self, test, name, ranks_of_host, overrides=(), options=None):
        self.test, self.ranks_of_host = test, ranks_of_host
        self.completions = test.metro.folder / name / "completions.jsonl"
        command = [*test.network.launcher(test.mpiexec, ranks_of_host, options or {}), test.metro.binary, "run", test.deck,
                   f"output.directory={test.metro.folder / name}", *overrides]
        self.log = test.metro.folder / f"{name}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(list(map(str, command)), cwd=test.metro.folder, env=ENVIRONMENT,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def output(self):
        return self.log.read_text()

    def wait_for_steps(self):
        begin = time.monotonic()
        while not self.completions.exists() or self.completions.stat().st_size == 0:
            if self.process.poll() is not None or time.monotonic() - begin > PATIENCE_S:
                sys.exit(f"waited in vain for the first completion:\n{self.output()}")
            time.sleep(0.01)

    def end(self):
        """Exit code and the seconds that it took to come."""
        begin = time.monotonic()
        try:
            return self.process.wait(PATIENCE_S), time.monotonic() - begin
        except subprocess.TimeoutExpired:
            sys.exit(f"the job does not end:\n{self.output()}")


class Test:
    def __init__(self, metro, mpiexec, network, copies):
        self.metro, self.mpiexec, self.network = metro, mpiexec, network
        lines = [{**line, "custom_id": f"{line['custom_id']}-{copy}"} for copy in range(copies) for line in requests()]
        self.deck = metro.write_deck(metro.write_requests("requests.jsonl", lines), "output")
        metro.must(["run", self.deck, f"output.directory={metro.folder / 'single'}", "batch.max_sequences_per_rank=32"])
        self.expected = metro.completions("single")
        self.failed = 0

    def check(self, what, *conditions):
        wrong = [text for holds, text in conditions if not holds]
        self.failed += bool(wrong)
        print("WRONG" if wrong else "ok   ", what, *wrong, sep="\n  " if wrong else " ", flush=True)

    def is_expected(self, name):
        return self.metro.completions(name) == self.expected

    def finish(self, name, ranks_of_host, *overrides):
        """A whole run; its output."""
        job = Job(self, name, ranks_of_host, overrides)
        code, _ = job.end()
        if code != 0:
            sys.exit(f"exit code {code}:\n{job.output()}")
        return job.output()

    def check_going_on(self, name, ranks_of_host):
        """The same command again ends what was cut."""
        output = self.finish(name, ranks_of_host)
        self.check("the same command goes on", (self.is_expected(name), "the completions differ from those of one rank"),
                   ("part 2 " in output, output))

    def check_identity(self, ranks_of_host):
        nodes = [host for host, ranks in enumerate(ranks_of_host) for _ in range(ranks)]
        for number, (policy, exchange) in enumerate((policy, exchange) for policy in ("exact", "even")
                                                    for exchange in ("allgather", "ids_then_alltoall")):
            output = self.finish(f"run-{number}", ranks_of_host, f"routing.decode={policy}", f"decode.exchange={exchange}",
                                 "experts.replication=1.5")
            table = re.findall(rf"^ +(\d+)  {re.escape(self.network.hosts[0][:-1])}(\d+) +(\d+) ", output, re.MULTILINE)
            self.check(f"{ranks_of_host} {policy} {exchange}",
                       (self.is_expected(f"run-{number}"), "the completions differ from those of one rank"),
                       (table == [(str(rank), str(node), str(node)) for rank, node in enumerate(nodes)],
                        f"ranks, hosts and nodes are {table}:\n{output}"))


def two_by_two(test):
    test.check_identity([2, 2])


def three_by_one(test):
    test.check_identity([1, 1, 1])


def nodes(test):
    """Nodes as MPI finds them count: fewer bytes cross the link with routing that prefers the node of a row, and with
    an exchange in two levels, by which a row crosses it once for all ranks behind it."""
    def crossing(name, *overrides):
        before = sum(map(test.network.bytes_sent, (0, 1)))
        output = test.finish(name, [2, 2], "experts.replication=2", *overrides)
        test.check(" ".join(overrides), (test.is_expected(name), "the completions differ from those of one rank"))
        return sum(map(test.network.bytes_sent, (0, 1))) - before, output

    by_ids = ("decode.exchange=ids_then_alltoall", "exchange.levels=one")
    first, _ = crossing("first", *by_ids, "routing.ties=first")
    near, _ = crossing("near", *by_ids, "routing.ties=near")
    test.check(f"ties: {near / first:.2f} of the bytes cross the link", (near < 0.95 * first, "too many"))
    gather = ("decode.exchange=allgather",)
    one, _ = crossing("one", *gather, "exchange.levels=one")
    two, output = crossing("two", *gather, "exchange.levels=two")
    test.check(f"two levels: {two / one:.2f} of the bytes cross the link", (two < 0.95 * one, "too many"),
               ("; two levels" in output, output))


def link_down_and_up(test):
    job = Job(test, "cut", [2, 2], ["run.timeout_s=60"])
    job.wait_for_steps()
    test.network.set_link(1, "down")
    time.sleep(1)  # for what is under way
    size = job.completions.stat().st_size
    time.sleep(4)
    stalled = job.completions.stat().st_size == size and job.process.poll() is None
    test.network.set_link(1, "up")
    code, _ = job.end()
    test.check("a link that is down for 5 s", (stalled, "the run did not wait for it"),
               (code == 0, f"exit code {code}:\n{job.output()}"),
               (code != 0 or test.is_expected("cut"), "the completions differ from those of one rank"))


def link_down_for_good(test):
    """Each side of the cut can name the other, and only that one."""
    job = Job(test, "cut", [2, 2], [f"run.timeout_s={TIMEOUT_S}", "exchange.levels=two"])
    job.wait_for_steps()
    test.network.set_link(1, "down")
    gone = test.network.wait_for_end_of_ranks(TIMEOUT_S + END_S)
    test.network.set_link(1, "up")  # mpirun still wants to hear of its daemon: see link_watched_by_launcher
    code, _ = job.end()
    output = job.output()
    hosts = test.network.hosts
    lines = [line for line in output.splitlines() if line.startswith("metro: error")]
    expected = {f"ranks 2 and 3 ({hosts[1]}) do not answer: ranks 0 and 1 have waited {TIMEOUT_S}.",
                f"ranks 0 and 1 ({hosts[0]}) do not answer: ranks 2 and 3 have waited {TIMEOUT_S}."}
    said = {text for text in expected for line in lines if text in line}
    test.check("a link that stays down", (code != 0, "exit code 0"), (gone, "ranks are left"),
               (len(said) == len(lines) and len(lines) >= 1, f"{len(lines)} lines:\n{output}"))
    test.check_going_on("cut", [2, 2])


def link_watched_by_launcher(test):
    """mpirun ends the job when a daemon has not answered for long enough, whatever run.timeout_s is."""
    job = Job(test, "cut", [2, 2], options={"oob_tcp_keepalive_time": 2, "oob_tcp_keepalive_intvl": 1,
                                            "oob_tcp_keepalive_probes": 2})
    job.wait_for_steps()
    test.network.set_link(1, "down")
    code, seconds = job.end()
    gone = test.network.wait_until_empty(END_S)
    test.network.set_link(1, "up")
    test.check("a link that stays down, watched by mpirun", (code != 0, "exit code 0"), (gone, "processes are left"),
               (seconds < 5 + END_S, f"{seconds:.1f} s to end"),
               ("lost communication with a remote daemon" in job.output(), job.output()))
    test.check_going_on("cut", [2, 2])


def killed_daemon(test):
    killed(test, "daemon", lambda: test.network.daemon(1))


def killed_rank(test):
    killed(test, "rank", lambda: test.network.ranks(1)[3])


def killed(test, what, victim):
    job = Job(test, "cut", [2, 2])
    job.wait_for_steps()
    os.kill(victim(), signal.SIGKILL)
    code, seconds = job.end()
    gone = test.network.wait_until_empty(END_S)
    test.check(f"a {what} that is killed on another host", (code != 0, "exit code 0"), (gone, "processes are left"),
               (seconds < END_S, f"{seconds:.1f} s to end"))
    test.check_going_on("cut", [2, 2])


# How often the requests are repeated, so that there is time to fail in; hosts.
SCENARIOS = {two_by_two: (1, 2), three_by_one: (1, 3), nodes: (1, 2), link_down_and_up: (4, 2), link_down_for_good: (4, 2),
             link_watched_by_launcher: (4, 2), killed_daemon: (4, 2), killed_rank: (4, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scenarios = {scenario.__name__: scenario for scenario in SCENARIOS}
    parser.add_argument("scenario", choices=scenarios)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    scenario = scenarios[arguments.scenario]
    copies, num_hosts = SCENARIOS[scenario]
    # A test that ctest ends for its time cleans up as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with tempfile.TemporaryDirectory(prefix="metro-hosts-") as folder, Network(num_hosts, folder) as network:
        test = Test(Metro(arguments.metro, arguments.mpiexec, folder), arguments.mpiexec, network, copies)
        scenario(test)
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()
