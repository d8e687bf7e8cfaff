#!/usr/bin/env bash
# Builds the kernel tests against another Kokkos, one with a threaded host backend, and runs them with 1, 2, 4 and 8
# threads. Kernels that share work among a team (the routing step) then run with every team size up to the number of
# threads; a race between threads of a team shows only here, since Debian's Kokkos has the Serial backend alone.
#
# usage: tests/threaded_kokkos.sh KOKKOS_PREFIX [BUILD_FOLDER]
#   KOKKOS_PREFIX  where a Kokkos 4.0 or newer with OpenMP or Threads is installed
#   BUILD_FOLDER   default: build/threaded-kokkos
set -euo pipefail

fail() {
  echo "$1" >&2
  exit 2
}

[[ $# == 1 || $# == 2 ]] || fail "usage: tests/threaded_kokkos.sh KOKKOS_PREFIX [BUILD_FOLDER]"
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=$1
build=${2:-$root/build/threaded-kokkos}
config=$(find "$prefix" -name KokkosConfigCommon.cmake -print -quit 2>/dev/null || true)
[[ -n $config ]] || fail "no Kokkos is installed in $prefix"
grep -Eqi 'set\(Kokkos_DEVICES .*(OPENMP|THREADS)' "$config" ||
  fail "the Kokkos in $prefix has no threaded host backend; build it with -D Kokkos_ENABLE_OPENMP=ON"

cmake -G Ninja -S "$root" -B "$build" -D CMAKE_BUILD_TYPE=Release -D METRO_WERROR=ON -D Kokkos_ROOT="$prefix"
tests=(test_kernels test_kernels_emulated)
cmake --build "$build" --parallel "${JOBS:-2}" --target "${tests[@]}"

# More threads than cores must give way to one another.
export OMP_PROC_BIND=false OMP_WAIT_POLICY=passive
for threads in 1 2 4 8; do
  for test in "${tests[@]}"; do
    echo "$test with $threads threads"
    OMP_NUM_THREADS=$threads KOKKOS_NUM_THREADS=$threads "$build/tests/kernels/$test"
  done
done
