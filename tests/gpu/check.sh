#!/usr/bin/env bash
# Everything that only a GPU can show, in one table and within 8 minutes: kernels against their references, the tokens of
# whole runs, graphs, NCCL on one rank, how long routing takes, and how much of the memory's bandwidth experts reach.
#
# usage: tests/gpu/check.sh [BUILD [OUTPUT]]
#   BUILD   a finished build with preset gpu-release (default: build/gpu-release)
#   OUTPUT  a new folder for logs and table.txt (default: output/gpu-check)
#   METRO_CHECK_WEIGHTS  MiB of weights that experts read, beyond any cache (default: 8192)
# With a build of cpu-release beside BUILD, completions are compared with those of the CPU as well. Exit code 1 if a
# check failed, 2 if there was nothing to check.
set -euo pipefail

fail() {
  echo "$1" >&2
  exit 2
}

[[ $# -le 2 ]] || fail "usage: tests/gpu/check.sh [BUILD [OUTPUT]]"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(realpath -m "${1:-$root/build/gpu-release}")
out=$(realpath -m "${2:-$root/output/gpu-check}")
metro=$build/bin/metro
kernel_tests=$build/tests/kernels/test_kernels
cpu_metro=$(dirname "$build")/cpu-release/bin/metro
grep -qs '^METRO_DEVICE:.*=cuda$' "$build/CMakeCache.txt" || fail "$build is no build with METRO_DEVICE=cuda"
[[ -x $metro && -x $kernel_tests ]] || fail "$build is not finished: cmake --build --preset gpu-release"
nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader >/dev/null 2>&1 ||
  fail "there is no GPU here: nvidia-smi lists none"
[[ ! -e $out ]] || fail "$out exists: give another folder, or remove it"
mkdir -p "$out"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

rows=$out/rows.tsv
failed=0
# row CHECK RESULT SECONDS DETAIL
row() {
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$rows"
  if [[ $2 == FAILED ]]; then failed=1; fi
}
# check NAME SECONDS COMMAND...: runs it with a limit, its output in NAME.log; the last line of that is the detail.
check() {
  local name=$1 limit=$2 log start=$SECONDS result=passed code=0
  shift 2
  log=$out/${name// /-}.log
  echo "$name ..." >&2
  (cd "$out" && timeout -k 5 "$limit" bash -c 'set -euo pipefail; "$@"' check "$@") >"$log" 2>&1 || code=$?
  if [[ $code != 0 ]]; then result=FAILED; fi
  local detail
  detail=$(grep -v '^[[:space:]=]*$' "$log" | tail -n 1 | cut -c 1-110) || true
  if [[ $code == 124 || $code == 137 ]]; then detail="not done in $limit s"; fi
  row "$name" "$result" $((SECONDS - start)) "$detail"
}

# What check() runs beside programs.

# A filter of Catch2 that matches no test is not a test that passed.
# shellcheck disable=SC2317
tests_named() {
  local found
  found=$("$kernel_tests" --list-test-names-only "$1" | grep -c . || true)
  [[ $found -gt 0 ]] || { echo "no test of the kernels is named $1"; return 1; }
  "$kernel_tests" "$1"
}

# Completions of the quickstart job, in folder $2 of the output, by the program $1, with other keys of a deck.
# shellcheck disable=SC2317
quickstart_run() {
  local program=$1 name=$2
  shift 2
  "$program" convert "$root/inputs/models/tiny" "$name.h5"
  cd "$root"
  "$program" run inputs/quickstart.toml "model.checkpoint=$out/$name.h5" "output.directory=$out/$name" "$@"
}
# Of two such folders.
# shellcheck disable=SC2317
same_completions() {
  sort "$1/completions.jsonl" >"$1.sorted"
  sort "$2/completions.jsonl" >"$2.sorted"
  cmp "$1.sorted" "$2.sorted"
  echo "$(wc -l <"$1.sorted") completions are the same bytes"
}
export -f tests_named quickstart_run same_completions
export root out kernel_tests

# HBM of the vendor's data sheets, GB/s; empty for another GPU.
published_bandwidth() {
  case $1 in
    *A100*80GB*) echo 2039 ;;
    *H100*HBM3*) echo 3350 ;;
    *H200*) echo 4800 ;;
    *B200*) echo 8000 ;;
  esac
}

# A row for each number of rows of an expert.
expert_rows() {
  python3 - "$out/experts.json" "$1" <<'PYTHON'
import json
import sys

path, published = sys.argv[1], sys.argv[2]
for setting in json.load(open(path, encoding="utf-8"))["settings"]:
    for kernel in setting["kernels"]:
        gbs, limit = kernel["gb_per_s_median"], kernel["limit_gb_per_s_median"]
        share = f", {100 * gbs / float(published):.0f}% of the data sheet" if published else ""
        print(f'experts, {kernel["rows"]} rows\tmeasured\t-\t{gbs:.0f} GB/s, {100 * gbs / limit:.0f}% of reading alone '
              f'({limit:.0f} GB/s){share}')
PYTHON
}

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
row device - - "$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader | head -n 1)"
row program - - "$("$metro" --version | head -n 1)"
check "tests on the GPU" 240 ctest --test-dir "$build" -L gpu --output-on-failure --no-tests=error
check "kernels, one process" 60 "$kernel_tests"
check "graph replay" 30 tests_named "*graph*"
check "tokens of transformers" 60 python3 "$root/tests/regression/reference_run.py" --metro "$metro" --ranks 1
check "quickstart" 60 quickstart_run "$metro" run-gpu
if [[ -x $cpu_metro ]]; then
  check "quickstart on the CPU" 60 quickstart_run "$cpu_metro" run-cpu
  check "the CPU's completions" 10 same_completions run-gpu run-cpu
else
  row "the CPU's completions" skipped - "no $cpu_metro"
fi
check "NCCL on one rank" 60 quickstart_run "$metro" run-nccl exchange.transport=nccl
check "NCCL's completions" 10 same_completions run-gpu run-nccl
check "experts by cuBLAS" 60 tests_named "grouped experts*"
check "quickstart by cuBLAS" 60 quickstart_run "$metro" run-cublas kernels.reproducible=off
check "time of routing" 60 "$kernel_tests" "[time]"
while read -r line; do
  row "routing" measured - "$line"
done < <(grep ' experts, .* us' "$out/time-of-routing.log" || true)
check "time of experts" 90 "$metro" bench kernels --experts-only --rows 1 2 4 8 16 --weights "${METRO_CHECK_WEIGHTS:-8192}" \
  --json "$out/experts.json"
if [[ -s $out/experts.json ]]; then expert_rows "$(published_bandwidth "$gpu")" >>"$rows"; fi

column -t -s $'\t' -N check,result,s,detail "$rows" | tee "$out/table.txt"
exit "$failed"
