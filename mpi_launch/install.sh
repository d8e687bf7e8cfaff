#!/usr/bin/env bash
# Installs the Debian 12 packages that metro needs and that are missing. Run as root or by a user with sudo.
#   bash mpi_launch/install.sh          to build it
#   bash mpi_launch/install.sh tests    and what only some tests use, which are skipped without it
# This is the only list of packages in the project: the quickstart and CI call this script.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config   # toolchain
  openmpi-bin libopenmpi-dev                     # ranks
  libhdf5-openmpi-dev                            # checkpoints
  libtrilinos-kokkos-dev                         # Kokkos 3.4 (Serial); a newer Kokkos found by CMake is preferred
  libcli11-dev libtoml11-dev nlohmann-json3-dev  # command line, decks, JSON
  libfmt-dev libxxhash-dev                       # formatting, digests
  libutf8proc-dev libpcre2-dev                   # tokenizer: Unicode normalisation, regular expressions,
  libsentencepiece-dev                           # SentencePiece models
  zlib1g-dev libzstd-dev                         # compressed requests
  catch2 python3 libboost-dev                    # tests (of Boost: a maximum flow to check routing with)
)
if [[ ${1:-} == tests ]]; then
  packages+=(
    slurmctld slurmd slurm-client munge          # a Slurm to try the batch scripts on: the tests start daemons of their
    slurm-wlm-basic-plugins shellcheck           # own and stop them
    iproute2                                     # hosts, which are network namespaces
  )
  # The modulefile. It would take the place of Lmod, which serves as well.
  [[ -d /usr/share/lmod ]] || packages+=(environment-modules)
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if (( ${#missing[@]} == 0 )); then
  echo "install: every package is already there"
  exit 0
fi

as_root=()
if (( EUID != 0 )); then
  command -v sudo >/dev/null || { echo "install: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "install: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
