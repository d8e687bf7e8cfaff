#!/usr/bin/env bash
# Installs what is missing, builds and runs all tests. Ends with ctest's summary.
#   bash mpi_launch/test.sh [cpu-release|cpu-debug|cpu-asan]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-cpu-release}
bash mpi_launch/install.sh tests
cmake --preset "$preset"
cmake --build --preset "$preset"
exec ctest --preset "$preset" -j2
