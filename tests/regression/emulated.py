#!/usr/bin/env python3
"""The program on the emulated device (tests/device_double) writes the same bytes as the program on CPUs.

There kernels run late and in their form for devices, memory of kernels is out of reach of host code, and rows travel by
a test double of NCCL or of a CUDA-aware MPI: what does not wait, reads the wrong memory or frees it too early crashes or changes a completion.

    python3 tests/regression/emulated.py --metro build/cpu-release/bin/metro \\
        --emulated build/cpu-release/tests/device_double/metro_emulated
"""

import argparse
import json
import signal
import sys
import tempfile

from identity import requests
from metro_runs import ENVIRONMENT, SOURCE, Metro
from resume import STOPPED, Part, send

# Ways of exchange, decode steps routed by the device and by the host, policies that send rows elsewhere, several rounds,
# experts that move. Each with the way of rows and the router of decode steps that the start-up table must name.
NCCL = "rows by nccl"
STAGED = "rows by mpi through the host (this MPI is not CUDA-aware)"
AWARE = "rows by mpi from device memory (this MPI is CUDA-aware)"
DEVICE = "routed by the device"
HOST = "routed by the host"
SETTINGS = [
    (1, NCCL, DEVICE, {"batch.max_sequences_per_rank": 16, "batch.prefill_chunk": 64}),
    (2, NCCL, DEVICE, {"decode.exchange": "allgather", "experts.replication": 1.25, "device.messages": "fixed"}),
    (2, NCCL, HOST, {"decode.exchange": "ids_then_alltoall", "routing.decode": "vllm-knuth", "routing.prefill": "exact"}),
    (2, NCCL, HOST, {"decode.exchange": "allgather", "decode.gate": "gathered", "routing.decode": "metro", "run.threads": 2}),
    (3, STAGED, HOST, {"decode.exchange": "ids_then_alltoall", "exchange.transport": "mpi", "exchange.memory": 262144,
                       "routing.decode": "makespan"}),
    (3, AWARE, DEVICE, {"decode.exchange": "allgather", "exchange.transport": "mpi", "routing.decode": "even",
                        "device.graphs": "off", "experts.rebalance_steps": 2, "experts.rebalance_source": "checkpoint",
                        "batch.max_sequences_per_rank": 4}),
    (2, AWARE, HOST, {"exchange.transport": "mpi", "device.decode": "host", "experts.rebalance_steps": 2,
                      "experts.rebalance_source": "peers", "kv.block_tokens": 4, "batch.max_sequences_per_rank": 6}),
]


def short_requests():
    """Every kind of request, with few tokens and few of the plain ones: a step takes long here."""
    lines = []
    for number, line in enumerate(requests()):
        if number in range(6, 24):
            continue  # more of the same
        body = line.get("body", line)
        body["max_tokens"] = min(body["max_tokens"], 3)
        if "min_tokens" in body:
            body["min_tokens"] = 2
        lines.append(line)
    return lines


def overrides_of(setting):
    return [f"{key}={value}" for key, value in setting.items()]


def stops_and_goes_on(metro, deck):
    """Stopped by a signal on two ranks, continued on one."""
    part = Part(metro, deck, "resumed", 2, ["batch.max_sequences_per_rank=2", "experts.rebalance_steps=2",
                                            "experts.rebalance_source=peers"])
    part.wait_for_steps()
    send(part.process.pid, signal.SIGUSR1)
    code = part.end()
    if code != STOPPED:
        sys.exit(f"a stopped run ends with {code}:\n{part.output()}")
    metro.must(["run", deck, f"output.directory={metro.folder / 'resumed'}"], ranks=1)
    return metro.completions("resumed")


def ids_of(lines):
    return sorted(json.loads(line)["id"] for line in lines)


def faults_of_grouped_experts(device, host, deck, baseline):
    """kernels.reproducible = "off": what is answered, said and refused; bytes may differ. Yields what is wrong."""
    off = "kernels.reproducible=off"
    for ranks, setting in [(1, {}), (2, {"exchange.memory": 65536, "routing.prefill": "exact"})]:
        process = device.must(["run", deck, "--overwrite", off, *overrides_of(setting)], ranks=ranks)
        if ids_of(device.completions("output")) != ids_of(baseline):
            yield f"{ranks} ranks with {off} do not answer every request"
        if "\n  prefill     experts by cuBLAS" not in process.stdout:
            yield f"{off} is not in the start table:\n{process.stdout}"
    ENVIRONMENT["METRO_DOUBLE_FAIL"] = "cublasGemmGroupedBatchedEx:801:3"
    process = device.start(["run", deck, "--overwrite", off], ranks=1)
    del ENVIRONMENT["METRO_DOUBLE_FAIL"]
    text = "(CUBLAS_STATUS_NOT_SUPPORTED, 15); kernels.reproducible = \"on\" does without cuBLAS"
    if process.returncode != 5 or text not in process.stderr:
        yield f"a refusal of cuBLAS: exit code {process.returncode}, expected 5 and {text}:\n{process.stderr}"
    int8 = host.folder / "int8.h5"
    host.must(["convert", "--weights", "int8", SOURCE / "inputs/models/tiny", int8])
    process = device.must(["run", deck, "--dry-run", off, f"model.checkpoint={int8}"])
    text = "in spite of kernels.reproducible: the product of cuBLAS takes weights in bf16, these are int8"
    if text not in process.stdout:
        yield f"the start table for int8 lacks '{text}':\n{process.stdout}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro", required=True, help="the binary")
    parser.add_argument("--emulated", required=True, help="the binary on the emulated device")
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="metro-emulated-") as folder:
        lines = short_requests()
        host = Metro(arguments.metro, arguments.mpiexec, folder)
        deck = host.write_deck(host.write_requests("requests.jsonl", lines), "output")
        host.must(["run", deck, f"output.directory={host.folder / 'baseline'}"])
        baseline = host.completions("baseline")
        if len(baseline) != len(lines):
            sys.exit(f"the baseline has {len(baseline)} completions, expected {len(lines)}")

        device = Metro(arguments.emulated, arguments.mpiexec, folder)
        differing = 0
        for ranks, way, router, setting in SETTINGS:
            ENVIRONMENT["METRO_DOUBLE_AWARE_MPI"] = "1" if way == AWARE else "0"
            process = device.must(["run", deck, "--overwrite", *overrides_of(setting)], ranks=ranks)
            for text in (way, router, "slots changed" if "experts.rebalance_steps" in setting else ""):
                if text not in process.stdout:
                    sys.exit(f"{setting} on {ranks} ranks does not say {text!r}:\n{process.stdout}")
            same = device.completions("output") == baseline
            differing += not same
            print("same     " if same else "DIFFERENT", f"ranks={ranks}", *overrides_of(setting), flush=True)
        same = stops_and_goes_on(device, deck) == baseline
        differing += not same
        print("same     " if same else "DIFFERENT", "stopped and continued", flush=True)
        faults = list(faults_of_grouped_experts(device, host, deck, baseline))
        print("as wanted" if not faults else "FAULTS   ", "kernels.reproducible=off", flush=True)
    if faults:
        sys.exit("\n".join(faults))
    if differing:
        sys.exit(f"{differing} settings changed the completions")


if __name__ == "__main__":
    main()
