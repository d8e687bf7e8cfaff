#!/usr/bin/env python3
"""What a user can get wrong: each has its exit code and one clear message, also on several ranks."""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile

from metro_runs import ENVIRONMENT, SOURCE, Metro


def write_wrong_models(metro):
    """Copies of the embedded model, each with something wrong."""
    for name, file, old, new in [
            ("other_family", "config.json", b'"qwen3_moe"', b'"qwen9_moe"'),
            ("no_norm", "model.safetensors", b"model.norm.weight", b"model.nurm.weight"),
            ("other_tokenizer", "tokenizer.json", b'"BPE"', b'"Unigram"')]:
        shutil.copytree(SOURCE / "inputs/models/tiny", metro.folder / name)
        content = (metro.folder / name / file).read_bytes()
        if content.count(old) != 1:
            sys.exit(f"{old} is {content.count(old)} times in the embedded model's {file}, expected once")
        (metro.folder / name / file).write_bytes(content.replace(old, new))
    tokenizer = SOURCE / "inputs/models/tiny/tokenizer.json"
    shutil.copytree(SOURCE / "inputs/models/tiny", metro.folder / "half_tokenizer")
    (metro.folder / "half_tokenizer/tokenizer.json").write_bytes(tokenizer.read_bytes()[:50_000])


def cases(metro, deck):
    """(name, arguments, ranks, exit code, texts that the message must contain)."""
    h5 = metro.convert_tiny()
    damaged = metro.folder / "damaged.h5"
    content = bytearray(h5.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    placement = metro.folder / "placement.json"
    placement.write_text('{"num_experts": 32, "num_ranks": 2, "slots_per_rank": 16}')
    (metro.folder / "short.h5").write_bytes(h5.read_bytes()[:100000])
    whole = gzip.compress(b'{"prompt": "A cat", "max_tokens": 2}\n' * 50)
    (metro.folder / "cut.jsonl").write_bytes(whole[:-9])
    (metro.folder / "bad.jsonl").write_bytes(whole + b"more")
    (metro.folder / "back.csv").write_text("TIMESTAMP\n2024-01-01 00:00:01\n2024-01-01 00:00:00\n")
    (metro.folder / "no_trace.csv").write_text("time,tokens\n")
    write_wrong_models(metro)
    (metro.folder / "leftover").mkdir()
    (metro.folder / "leftover/metrics.h5").touch()
    return [
        ("unknown key", ["run", deck, "batch.prefil_chunk=3"], 3, 2, ["batch.prefil_chunk", "batch.prefill_chunk"]),
        ("wrong type", ["run", deck, "batch.prefill_chunk=many"], 1, 2, ["batch.prefill_chunk", "many"]),
        ("no deck", ["run", "nowhere.toml"], 2, 2, ["nowhere.toml"]),
        ("unknown SIMD level", ["run", deck, "run.simd=avx1024"], 2, 2, ["run.simd", "avx1024", "avx512", "scalar"]),
        ("no checkpoint", ["run", deck, "model.checkpoint=nowhere.h5"], 3, 4, ["nowhere.h5"]),
        ("bit flipped in a tensor", ["run", deck, f"model.checkpoint={damaged}"], 2, 4, ["damaged.h5", "/layers/", "digest"]),
        ("unsupported family", ["convert", "other_family", "x.h5"], None, 4, ["other_family/config.json", "qwen9_moe", "qwen3_moe"]),
        ("missing tensor", ["convert", "no_norm", "x.h5"], None, 4, ["model.norm.weight is missing"]),
        ("tokenizer of another type", ["convert", "other_tokenizer", "x.h5"], None, 4,
         ["other_tokenizer/tokenizer.json", "Unigram", "BPE"]),
        ("truncated tokenizer", ["convert", "half_tokenizer", "x.h5"], None, 4, ["half_tokenizer/tokenizer.json", "line"]),
        ("unknown weights", ["convert", "--weights", "int4", "no_norm", "x.h5"], None, 2, ["--weights int4", "stored, int8 or bf16"]),
        ("truncated checkpoint", ["run", deck, f"model.checkpoint={metro.folder / 'short.h5'}"], 2, 4, ["short.h5"]),
        ("no input", ["run", deck, "requests.input=nowhere.jsonl"], 3, 3, ["nowhere.jsonl"]),
        ("one of several inputs missing", ["run", deck, f'requests.input=["{deck}", "nowhere.jsonl"]'], 2, 3,
         ["cannot open nowhere.jsonl"]),
        ("pattern without a match", ["run", deck, "requests.input=no*.jsonl"], 2, 3, ["no*.jsonl", "no file matches"]),
        ("standard input twice", ["run", deck, 'requests.input=["-", "-"]'], 2, 2, ["requests.input", "twice"]),
        ("empty list of inputs", ["run", deck, "requests.input="], 1, 2, ["requests.input", "a list of paths"]),
        ("input that ends too early", ["run", deck, "requests.input=cut.jsonl", "output.directory=cut"], 2, 3,
         ["cut.jsonl after line", "the gzip data end too early, after byte"]),
        ("input that is damaged", ["run", deck, "requests.input=bad.jsonl", "output.directory=bad"], 2, 3,
         ["bad.jsonl after line 50", "the gzip data are damaged"]),
        ("no trace of arrivals", ["run", deck, "requests.arrivals=nowhere.csv"], 2, 3, ["nowhere.csv"]),
        ("a file that is no trace", ["run", deck, "requests.arrivals=no_trace.csv"], 2, 3,
         ["requests.arrivals", "no_trace.csv:1", "TIMESTAMP"]),
        ("arrivals that go back", ["run", deck, "requests.arrivals=back.csv", "output.directory=back"], 2, 3,
         ["requests.arrivals", "back.csv:3", "order of time"]),
        ("arrivals from standard input", ["run", deck, "requests.arrivals=-"], 1, 2, ["requests.arrivals", "a file is expected"]),
        ("arrivals at no scale", ["run", deck, "requests.arrival_scale=0"], 1, 2, ["requests.arrival_scale"]),
        ("context beyond the model", ["run", deck, "model.max_context=100000"], 2, 2, ["model.max_context", "2048"]),
        ("KV memory too small", ["run", deck, "kv.memory=1000"], 2, 2, ["kv.memory", "model.max_context"]),
        ("too few slots", ["run", deck, "experts.slots_per_rank=3"], 2, 2, ["3", "16"]),
        ("rejected lines with --strict", ["run", deck, "--strict", f"output.directory={metro.folder / 'strict'}"], 2, 3, []),
        ("output where there is a file", ["run", deck, f"output.directory={h5 / 'output'}"], 2, 2, ["tiny.h5/output"]),
        ("output in the way", ["run", deck, f"output.directory={metro.folder / 'strict'}"], 2, 2, ["--overwrite"]),
        ("experts by cuBLAS on a CPU", ["run", deck, "kernels.reproducible=off"], 2, 2,
         ['kernels.reproducible = "off": kernels of this metro run on the host', 'allowed is "on"']),
        ("plan that does not fit", ["run", deck, "batch.prefill_chunk=1000000", "exchange.memory=1 TiB"], 2, 2, ["needs", "may take"]),
        ("bad placement file", ["run", deck, f"experts.placement={placement}"], 2, 2, ["placement.json", "physical_to_logical_map"]),
        ("metrics in the way", ["run", deck, f"output.directory={metro.folder / 'leftover'}"], 2, 2,
         ["leftover/metrics.h5", "--overwrite"]),
        ("inspect a truncated file", ["inspect", metro.folder / "short.h5"], None, 4, ["short.h5"]),
        ("a checkpoint as JSON", ["inspect", metro.convert_tiny(), "--json"], None, 2,
         ["inspect: --json: is for a metrics.h5, which", "tiny.h5"]),
        ("no subcommand", ["fly"], None, 2, ["fly"]),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()

    failures = 0
    with tempfile.TemporaryDirectory(prefix="metro-exit-codes-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        requests = metro.write_requests("requests.jsonl", [{"prompt": "A cat", "max_tokens": 2}, {"prompt": 7},
                                                           {"prompt": "A dog", "max_tokens": 2}])
        deck = metro.write_deck(requests, "output")

        closed = subprocess.run(["bash", "-c", '"$@" <&-', "bash", *metro.command(["run", deck, "requests.input=-", "output.directory=closed"])],
                                capture_output=True, text=True, timeout=110, cwd=metro.folder, env=ENVIRONMENT)
        if closed.returncode != 3 or "standard input" not in closed.stderr:
            failures += 1
            print(f"closed standard input: exit code {closed.returncode}, expected 3\n{closed.stderr}")

        dry = metro.must(["run", deck, "--dry-run"], ranks=2)
        if "prefill_chunk" not in dry.stdout or (metro.folder / "output").exists():
            failures += 1
            print(f"dry run: expected the resolved deck and no output:\n{dry.stdout}")

        one_cpu = {min(os.sched_getaffinity(0))}
        bound = subprocess.run(metro.command(["run", deck, "--dry-run", "run.threads=2"]), capture_output=True, text=True, timeout=110,
                               cwd=metro.folder, env=ENVIRONMENT, preexec_fn=lambda: os.sched_setaffinity(0, one_cpu))
        if bound.returncode != 0 or "rank 0 has 2 threads, but may run on 1 CPU only" not in bound.stderr:
            failures += 1
            print(f"two threads on one CPU: exit code {bound.returncode}, expected 0 and a warning\n{bound.stderr}")

        for name, command, ranks, exit_code, texts in cases(metro, deck):
            process = metro.start(command, ranks)
            errors = [line for line in process.stderr.splitlines() if line.startswith("metro: error")]
            wrong = process.returncode != exit_code or not all(text in process.stderr for text in texts)
            wrong = wrong or len(errors) != (1 if texts else 0)
            failures += wrong
            print("WRONG" if wrong else "ok   ", name)
            if wrong:
                print(f"  exit code {process.returncode}, expected {exit_code}, one line with {texts}\n{process.stderr}")

        if sorted(path.name for path in (metro.folder / "leftover").iterdir()) != ["metrics.h5"]:
            failures += 1
            print("a refused start must leave nothing behind")

        run = metro.must(["run", deck, f"output.directory={metro.folder / 'inspected'}"], ranks=3)
        inspected = metro.must(["inspect", metro.folder / "inspected/metrics.h5"])
        summary = run.stdout[run.stdout.index("\ndone\n"):]
        if not inspected.stdout.endswith(summary) or "rejected" not in summary:
            failures += 1
            print(f"inspect must print the summary of the run:\n{summary}{inspected.stdout}")

        rejected = metro.errors("strict")
        if len(metro.completions("strict")) != 2 or [error["custom_id"] for error in rejected] != ["line-2"]:
            failures += 1
            print(f"one bad line must cost only itself: {rejected}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
