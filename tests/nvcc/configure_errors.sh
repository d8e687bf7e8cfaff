#!/usr/bin/env bash
# What is missing for a build for GPUs stops the configuration with what to do. A Kokkos with CUDA is pretended.
#
# usage: configure_errors.sh CMAKE SOURCE_FOLDER
set -euo pipefail

[[ $# == 2 ]] || { echo "usage: configure_errors.sh CMAKE SOURCE_FOLDER" >&2; exit 2; }
cmake=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

mkdir "$scratch/kokkos"
cat >"$scratch/kokkos/KokkosConfig.cmake" <<'CONFIG'
set(Kokkos_ENABLE_CUDA ON)
set(Kokkos_CUDA_ARCHITECTURES 90)
add_library(Kokkos::kokkos INTERFACE IMPORTED)
CONFIG
cat >"$scratch/kokkos/KokkosConfigVersion.cmake" <<'VERSION'
set(PACKAGE_VERSION 4.6.1)
set(PACKAGE_VERSION_COMPATIBLE TRUE)
VERSION

failed=0
# expect TEXT ARGUMENT...: configuring with these arguments fails with this text.
expect() {
  local text=$1 output code=0
  shift
  rm -rf "$scratch/build"
  output=$("$cmake" -S "$source" -B "$scratch/build" -D BUILD_TESTING=OFF "$@" 2>&1) || code=$?
  if [[ $code == 0 || $(tr -s ' \n' ' ' <<<"$output") != *"$text"* ]]; then
    echo "exit code $code, and no '$text' with $*:"
    tail -n 20 <<<"$output"
    failed=1
  fi
}

pretended=(-D "Kokkos_DIR=$scratch/kokkos")
expect "METRO_DEVICE=gpu: must be none or cuda" -D METRO_DEVICE=gpu
expect "METRO_DEVICE=cuda needs a Kokkos that was built with Kokkos_ENABLE_CUDA=ON" -D METRO_DEVICE=cuda \
  -D CMAKE_DISABLE_FIND_PACKAGE_Kokkos=ON
expect "has CUDA as its default: build with METRO_DEVICE=cuda" -D METRO_DEVICE=none "${pretended[@]}"
expect "METRO_DEVICE=cuda needs nvcc: put the bin folder of the CUDA toolkit on PATH" -D METRO_DEVICE=cuda \
  "${pretended[@]}" -D CMAKE_CUDA_COMPILER=NOTFOUND
if command -v nvcc >/dev/null; then
  expect "METRO_DEVICE=cuda needs the CUDA toolkit 12.5 or newer; found was" -D METRO_DEVICE=cuda "${pretended[@]}" \
    -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
  expect "METRO_DEVICE=cuda needs NCCL (nccl.h and libnccl)" -D METRO_DEVICE=cuda "${pretended[@]}" \
    -D CMAKE_DISABLE_FIND_PACKAGE_NCCL=ON
fi
exit "$failed"
