#!/usr/bin/env bash
# Compiles kernels/portable/math.hpp as device code with the options of the build, for every architecture that is
# documented, and looks at the instructions: products and sums that the source keeps apart stay apart, what it fuses is
# fused, division and root are the IEEE ones, subnormal numbers stay.
#
# usage: device_arithmetic.sh NVCC SOURCE_FOLDER OPTIONS    (OPTIONS: one argument, separated by semicolons)
set -euo pipefail

fail() {
  echo "$1" >&2
  exit 1
}

[[ $# == 3 ]] || fail "usage: device_arithmetic.sh NVCC SOURCE_FOLDER OPTIONS"
nvcc=$1 source=$2
IFS=';' read -r -a options <<<"$3"
if [[ -z $nvcc ]]; then
  echo "skipped: there is no nvcc here"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat >"$scratch/arithmetic.cu" <<'CODE'
#include "kernels/portable/math.hpp"
using namespace metro::portable;
extern "C" {
__global__ void product_and_sum(float* x) { x[0] = x[1] * x[2] + x[3]; }
__global__ void fused_multiply_add(float* x) { x[0] = fused(x[1], x[2], x[3]); }
__global__ void fused_in_double(double* x) { x[0] = fused(x[1], x[2], x[3]); }
__global__ void quotient(float* x) { x[0] = x[1] / x[2]; }
__global__ void root(float* x) { x[0] = square_root(x[1]); }
__global__ void all_of_math(float* x, std::uint16_t* w) { x[0] = exp_of(x[1]) + log_of(x[2]) + silu(x[3]) + widened(w[0]); }
}
CODE

# expect ARCHITECTURE KERNEL PATTERN yes|no: whether an instruction of the kernel has the pattern.
expect() {
  local body found=no
  body=$(awk -v kernel="$2" '$0 ~ "entry " kernel "\\(" { on = 1 } on { print } on && /^}/ { exit }' "$scratch/$1.ptx")
  [[ -n $body ]] || fail "sm_$1: no kernel $2 in the output"
  if grep -Eq "$3" <<<"$body"; then found=yes; fi
  [[ $found == "$4" ]] || fail "sm_$1: $2: '$3' expected: $4, found: $found
$body"
}

for architecture in 80 90 100; do
  "$nvcc" "${options[@]}" -I"$source" -I"$source/src" -O3 -ptx -arch="compute_$architecture" \
    -o "$scratch/$architecture.ptx" "$scratch/arithmetic.cu" || fail "sm_$architecture: does not compile"
  "$nvcc" "${options[@]}" -I"$source" -I"$source/src" -O3 -cubin -arch="sm_$architecture" \
    -o "$scratch/$architecture.cubin" "$scratch/arithmetic.cu" || fail "sm_$architecture: does not assemble"
  expect "$architecture" product_and_sum 'fma\.' no
  expect "$architecture" product_and_sum 'mul\.(rn\.)?f32' yes
  expect "$architecture" fused_multiply_add 'fma\.rn\.f32' yes
  expect "$architecture" fused_in_double 'fma\.rn\.f64' yes
  expect "$architecture" quotient 'div\.rn\.f32' yes
  expect "$architecture" root 'sqrt\.rn\.f32' yes
  expect "$architecture" all_of_math '(\.ftz|\.approx)' no
  expect "$architecture" all_of_math 'fma\.rn\.f32' yes
  echo "sm_$architecture: as written"
done
