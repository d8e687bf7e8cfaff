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

# Where the deck puts the completions.
output=$(sed -n '/^\[output\]/,/^\[/s/^directory *= *"\([^"]*\)".*/\1/p' inputs/quickstart.toml)
[[ -n $output ]] || { echo "quickstart: no output.directory in inputs/quickstart.toml" >&2; exit 1; }
stage show python3 - "$output/completions.jsonl" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as lines:
    completions = [json.loads(line) for line in lines]
for completion in completions[:3]:
    choice = completion["response"]["body"]["choices"][0]
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    print(f'{completion["custom_id"]}: {text.strip()[:300]}')
print(f"... {len(completions)} completions in {sys.argv[1]}")
PYTHON
