#!/usr/bin/env bash
# From a fresh checkout to completions: packages, build, checkpoint, and a run on four ranks. Works from any directory,
# as root or as a user (with sudo if packages are missing).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# stage NAME COMMAND...: runs the command and says how long it took, or which stage failed.
stage() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name: $*"
  "$@" || { local code=$?; echo "quickstart: $name failed (exit code $code): $*" >&2; exit "$code"; }
  echo "== $name: $((SECONDS - start)) s"
}

build=build/cpu-release
stage packages bash mpi_launch/install.sh
stage configure cmake --preset cpu-release
stage build cmake --build $build --target metro
mkdir -p build/quickstart
stage convert $build/bin/metro convert inputs/models/tiny build/quickstart/tiny.h5 --overwrite
stage run env PATH="$PWD/$build/bin:$PATH" bash mpi_launch/metro_mpirun.sh -n 4 metro run inputs/quickstart.toml --overwrite

# A few prompts with what the model made of them, found by the deck's own paths.
stage show python3 - inputs/quickstart.toml <<'PYTHON'
import json
import re
import sys

deck = open(sys.argv[1], encoding="utf-8").read()
path = {key: re.search(rf'^{key} *= *"([^"]*)"', deck, re.MULTILINE).group(1) for key in ("input", "directory")}
prompts = {}
for number, line in enumerate(open(path["input"], encoding="utf-8"), start=1):
    request = json.loads(line)
    prompts[request.get("custom_id", f"line-{number}")] = request.get("body", request)["prompt"]
completions = [json.loads(line) for line in open(path["directory"] + "/completions.jsonl", encoding="utf-8")]
for completion in sorted(completions, key=lambda line: line["custom_id"])[:4]:
    text = completion["response"]["body"]["choices"][0]["text"]
    print(f'{completion["custom_id"]}: {prompts[completion["custom_id"]]} ->{text}')
print(f'... {len(completions)} completions in {path["directory"]}/completions.jsonl')
PYTHON
