#!/usr/bin/env bash
# Fuzzes the parsers: builds the targets with clang, libFuzzer and the address and undefined-behaviour sanitizers, and
# runs each for a while, one after the other. What is found lies in build/fuzz/findings/; new inputs that reach new code
# in build/fuzz/corpus/ (tests/fuzz/corpus/ is only read). tests/fuzz/dictionaries/ has words that a target knows.
# FUZZ_MAX_LEN (16384) is the longest input in bytes.
# Usage: bash tests/fuzz/fuzz.sh SECONDS [TARGET...]        for example: bash tests/fuzz/fuzz.sh 60 deck placement
set -euo pipefail
if [ $# -lt 1 ]; then
  sed -n 2,6p "$0" >&2
  exit 2
fi
seconds=$1
shift
cd "$(dirname "$0")/../.."
if ! command -v clang++ >/dev/null; then
  echo "fuzz.sh: clang++ is not there. On Debian 12: apt-get install clang" >&2
  exit 2
fi
build=build/fuzz
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for folder in tests/fuzz/corpus/*/; do
    targets+=("$(basename "$folder")")
  done
fi
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1" \
  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DMETRO_FUZZ=ON >/dev/null
cmake --build "$build" -j "${FUZZ_JOBS:-2}" --target "${targets[@]/#/fuzz_}"
mkdir -p "$build/findings"
export UBSAN_OPTIONS=print_stacktrace=1
if [ -w /dev/shm ]; then
  TMPDIR=$(mktemp -d /dev/shm/metro-fuzz-XXXXXX)  # targets write each input into a file
  export TMPDIR
  trap 'rm -rf "$TMPDIR"' EXIT
fi
failed=0
for target in "${targets[@]}"; do
  mkdir -p "$build/corpus/$target"
  options=(-timeout=5 -rss_limit_mb=1024 "-max_len=${FUZZ_MAX_LEN:-16384}")
  if [ -f "tests/fuzz/dictionaries/$target.dict" ]; then
    options+=("-dict=tests/fuzz/dictionaries/$target.dict")
  fi
  case $target in
    # HDF5 asks for what a damaged header says, and gives up cleanly if it does not get it. And it crashes on some (see
    # docs/security.md): go on after that, and look at the stacks of what is found for crashes of our own.
    checkpoint | trace)
      export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096
      options+=(-malloc_limit_mb=1000000 -fork=1 -ignore_crashes=1 -ignore_ooms=1)
      ;;
    *)
      export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0
      options+=(-malloc_limit_mb=512)
      ;;
  esac
  echo "== $target"
  "$build/tests/fuzz/fuzz_$target" "$build/corpus/$target" "tests/fuzz/corpus/$target" "${options[@]}" \
    -max_total_time="$seconds" -artifact_prefix="$build/findings/$target-" -print_final_stats=1 \
    >"$build/findings/$target.log" 2>&1 || failed=1
  grep -E '^(SUMMARY|stat::number_of_executed_units|stat::peak_rss_mb|.*what\(\))|Test unit written' \
    "$build/findings/$target.log" || true
done
exit $failed
