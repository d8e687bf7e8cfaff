#!/usr/bin/env bash
# tests/gpu/check.sh with pretended programs in place of a GPU and a build: what its table and exit code say.
#
# usage: check_test.sh CHECK_SH
set -euo pipefail

[[ $# == 1 ]] || { echo "usage: check_test.sh CHECK_SH" >&2; exit 2; }
check=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
real_python=$(command -v python3)
failed=0

# program PATH: an executable from standard input.
program() {
  mkdir -p "$(dirname "$1")"
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}

program "$scratch/path/nvidia-smi" <<'CODE'
[[ -z ${PRETEND_NO_GPU:-} ]] || { echo "no devices were found"; exit 9; }
echo "NVIDIA H200, 143771 MiB, 570.1"
CODE
program "$scratch/path/ctest" <<'CODE'
echo "100% tests passed, 0 tests failed out of 3"
exit "${PRETEND_CTEST:-0}"
CODE
program "$scratch/path/python3" <<CODE
if [[ \$1 == *reference_run.py ]]; then echo "24 of 24 prompts as transformers answers them"; exit; fi
exec "$real_python" "\$@"
CODE
program "$scratch/builds/gpu/tests/kernels/test_kernels" <<'CODE'
case $1 in
  --list-test-names-only) if [[ -z ${PRETEND_NO_GRAPH_TESTS:-} ]]; then echo "a graph gives what its kernels give"; fi ;;
  "[time]") echo "128 experts, 8 ranks, 4 rows a rank: host 5.0 us, step 9.0 us (team of 32), ratio 1.80" ;;
  *) echo "All tests passed (7 assertions in 2 test cases)" ;;
esac
CODE
# A run writes one line into its output folder, another one by the program of the CPU if asked to.
for place in gpu cpu-release; do
  program "$scratch/builds/$place/bin/metro" <<CODE
case \$1 in
  --version) echo "metro pretended" ;;
  convert) touch "\$3" ;;
  run)
    for word; do case \$word in output.directory=*) folder=\${word#*=} ;; esac; done
    mkdir "\$folder"
    echo "{}" >"\$folder/completions.jsonl"
    if [[ $place == cpu-release && -n \${PRETEND_OTHER_TOKENS:-} ]]; then echo "{ }" >"\$folder/completions.jsonl"; fi ;;
  bench)
    while [[ \$1 != --json ]]; do shift; done
    echo '{"settings": [{"kernels": [{"rows": 4, "gb_per_s_median": 2400, "limit_gb_per_s_median": 4000}]}]}' >"\$2" ;;
esac
CODE
done
echo "METRO_DEVICE:STRING=cuda" >"$scratch/builds/gpu/CMakeCache.txt"

# expect CODE TEXT...: the last run ended with this code and printed these texts.
run=0
output=""
expect() {
  local wanted=$1 code=0 text
  shift
  run=$((run + 1))
  output=$(PATH="$scratch/path:$PATH" bash "$check" "$scratch/builds/gpu" "$scratch/out-$run" 2>&1 | tr -s ' ') || code=$?
  [[ $code == "$wanted" ]] || { echo "run $run: exit code $code, expected $wanted"; failed=1; }
  for text; do
    grep -qF -- "$text" <<<"$output" || { echo "run $run: no '$text' in"; echo "$output"; failed=1; }
  done
}

expect 0 "device - - NVIDIA H200, 143771 MiB" "tests on the GPU passed" "graph replay passed" \
  "24 of 24 prompts" "the CPU's completions passed" "1 completions are the same bytes" "NCCL on one rank passed" \
  "routing measured - 128 experts, 8 ranks" \
  "experts, 4 rows measured - 2400 GB/s, 60% of reading alone (4000 GB/s), 50% of the data sheet"
PRETEND_CTEST=8 expect 1 "tests on the GPU FAILED" "quickstart passed"
PRETEND_OTHER_TOKENS=1 expect 1 "the CPU's completions FAILED" "differ"
PRETEND_NO_GRAPH_TESTS=1 expect 1 "graph replay FAILED" "no test of the kernels is named *graph*"
PRETEND_NO_GPU=1 expect 2 "there is no GPU here"
mkdir "$scratch/out-6"
expect 2 "exists: give another folder"
rm -r "$scratch/builds/cpu-release"
expect 0 "the CPU's completions skipped"
rm "$scratch/builds/gpu/CMakeCache.txt"
expect 2 "is no build with METRO_DEVICE=cuda"
exit "$failed"
