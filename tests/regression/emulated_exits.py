#!/usr/bin/env python3
"""How the program ends on devices that are missing, too few or shared, and when NCCL fails: exit codes and messages.

On the emulated device and NCCL's test double (tests/device_double), whose failures the environment sets.

    python3 tests/regression/emulated_exits.py --metro build/cpu-release/bin/metro \\
        --emulated build/cpu-release/tests/device_double/metro_emulated
"""

import argparse
import subprocess
import sys
import tempfile

from metro_runs import ENVIRONMENT, Metro

# (name, environment of all ranks, environment of the last rank, overrides, ranks, exit code, texts in the output,
# texts that are not)
CASES = [
    ("no driver", {"METRO_DOUBLE_DRIVER": "0"}, {}, [], 2, 5,
     ["metro: error: there is no NVIDIA driver on this machine"], ["rank 1"]),
    ("a driver that is too old", {"METRO_DOUBLE_DRIVER": "12040"}, {}, [], 1, 5,
     ["metro: error: the NVIDIA driver of this machine is too old: it knows CUDA 12.4, and this metro uses CUDA 13.0"], []),
    ("one rank without a device", {}, {"CUDA_VISIBLE_DEVICES": ""}, [], 3, 5,
     ["metro: error: rank 2 (", "): this process sees no GPU (CUDA_VISIBLE_DEVICES is \"\")"], []),
    ("more ranks than devices", {"METRO_DOUBLE_DEVICES": "2"}, {}, [], 3, 2,
     ["metro: error: 3 ranks run on ", "rank 2 finds none of the 2 GPUs it sees free", 'device.share = "on"'], []),
    ("one device for two ranks", {"CUDA_VISIBLE_DEVICES": "1"}, {}, [], 2, 2,
     ["metro: error: ranks 0 and 1 on ", "have the same GPU, Emulated Device (0000:1C:00.0)"], []),
    ("NCCL on a shared device", {"METRO_DOUBLE_DEVICES": "1"}, {}, ["device.share=on", "exchange.transport=nccl"], 2, 2,
     ['metro: error: exchange.transport = "nccl": ranks share a GPU (device.share)'], []),
    ("a shared device", {"METRO_DOUBLE_DEVICES": "1"}, {}, ["device.share=on", "--dry-run"], 2, 0,
     ["transport mpi, rows by mpi through the host (auto: ranks share a GPU (device.share), which NCCL refuses; this MPI is not CUDA-aware)",
      "0 Emulated Device 0000:1B:00.0, 0.5 GiB, shared"], ["metro: error"]),
    ("a CUDA-aware MPI", {"METRO_DOUBLE_AWARE_MPI": "1"}, {}, ["exchange.transport=mpi", "--dry-run"], 2, 0,
     ["transport mpi, rows by mpi from device memory (this MPI is CUDA-aware)"], ["metro: error"]),
    ("an MPI that is CUDA-aware on some ranks", {"METRO_DOUBLE_AWARE_MPI": "1"}, {"METRO_DOUBLE_AWARE_MPI": "0"},
     ["exchange.transport=mpi", "--dry-run"], 2, 0,
     ["transport mpi, rows by mpi through the host (this MPI is not CUDA-aware)"], ["metro: error"]),
    ("a device that hangs", {}, {"METRO_DOUBLE_HANG": "1000"}, ["run.timeout_s=1"], 1, 5,
     ["metro: error on rank 0 (", ": waited 1 s for work of the device (run.timeout_s): it hangs, or is too slow"], []),
    ("one device each from the launcher", {"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "1"}, ["--dry-run"], 2, 0,
     ["rows by nccl (auto: each rank has a GPU of its own)", "3                     0 Emulated Device 0000:1E:00.0",
      "1                     0 Emulated Device 0000:1C:00.0"], ["shared", "metro: error"]),
    ("NCCL does not start on a rank", {"NCCL_SOCKET_IFNAME": "eth9"},
     {"METRO_NCCL_DOUBLE_FAIL": "ncclCommInitRankConfig:2:1"}, [], 2, 5,
     ["metro: error: rank 1 (", "NCCL 2.28.9, start: unhandled system error", 'is "eth9"'], []),
    ("NCCL does not connect", {}, {"METRO_NCCL_DOUBLE_SILENT": "0"}, ["run.timeout_s=1"], 2, 5,
     ["metro: error: NCCL 2.28.9 has not connected ranks 0 and 1 after 1 s (run.timeout_s)"], []),
    ("NCCL refuses a call", {}, {"METRO_NCCL_DOUBLE_FAIL": "ncclGroupEnd:3:1"}, [], 2, 5,
     ["metro: error on rank 1 (", " by NCCL: internal error"], ["error on rank 0"]),
    ("NCCL fails in a run", {}, {"METRO_NCCL_DOUBLE_FAIL_LATER": "6:20"}, [], 2, 5,
     ["metro: error on rank 1 (", " by NCCL: remote process exited or there was a network error"], ["error on rank 0"]),
    ("NCCL falls silent in a run", {}, {"METRO_NCCL_DOUBLE_SILENT": "20"}, ["run.timeout_s=2"], 2, 5,
     ["metro: error: ", " by NCCL during "], []),
]


def with_variables(variables):
    return ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []


def command_of(device, case, deck):
    _, of_all, of_last, overrides, ranks, *_ = case
    program = [device.binary, "run", str(deck), "--overwrite", *overrides]
    first = ["-n", str(ranks - 1), "--bind-to", "none", *with_variables(of_all), *program, ":"] if ranks > 1 else []
    last = ["-n", "1", "--bind-to", "none", *with_variables(of_all | of_last), *program]
    return [device.mpiexec, *first, *last]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metro", required=True, help="the binary")
    parser.add_argument("--emulated", required=True, help="the binary on the emulated device")
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()
    environment = {name: value for name, value in ENVIRONMENT.items()
                   if name not in ("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME")}

    failed = 0
    with tempfile.TemporaryDirectory(prefix="metro-emulated-exits-") as folder:
        host = Metro(arguments.metro, arguments.mpiexec, folder)
        requests = host.write_requests("requests.jsonl", [{"prompt": "A cat", "max_tokens": 4}] * 4)
        deck = host.write_deck(requests, "output")
        device = Metro(arguments.emulated, arguments.mpiexec, folder)
        for case in CASES:
            name, *_, code, texts, others = case
            process = subprocess.run(command_of(device, case, deck), cwd=folder, text=True, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=110, env=environment,
                                     check=False)
            faults = [f"exit code {process.returncode} instead of {code}"] if process.returncode != code else []
            faults += [f"missing: {text!r}" for text in texts if text not in process.stdout]
            faults += [f"not expected: {text!r}" for text in others if text in process.stdout]
            if code != 0 and process.stdout.count("metro: error") != 1:
                faults.append(f"{process.stdout.count('metro: error')} messages instead of one")
            if faults:
                failed += 1
                print(f"{name}:", *faults, process.stdout, sep="\n  ")
    print(f"{len(CASES)} cases, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
