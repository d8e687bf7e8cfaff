#!/usr/bin/env bash
# mpirun with the settings that metro needs on a workstation. Inside a Slurm job the sbatch files in slurm/ do this.
#   bash mpi_launch/metro_mpirun.sh -n 4 metro run inputs/quickstart.toml    (installed: metro_mpirun -n 4 ...)
# All arguments go to mpirun; the word "metro" stands for the program: the one installed beside this script, else that
# on PATH, else the one built here. Variables that are already set are left as they are.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
(( $# > 0 )) || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }

ranks=1
binding_given=no
program_seen=no
arguments=()
while (( $# > 0 )); do
  if [[ $program_seen == no ]]; then
    case $1 in
      -n | -np | --np | -c) ranks=${2:-} ;;
      --bind-to | -bind-to | --map-by | -map-by | --cpu-set | --cpu-list) binding_given=yes ;;
      metro)
        program_seen=yes
        if [[ -x $here/metro ]]; then
          set -- "$here/metro" "${@:2}"
        elif ! command -v metro >/dev/null; then
          set -- "${here%/*}/build/cpu-release/bin/metro" "${@:2}"
          [[ -x $1 ]] || {
            echo "metro_mpirun: metro is neither on PATH nor at $1; build it: cmake --preset cpu-release &&" \
              "cmake --build build/cpu-release --target metro" >&2
            exit 2
          }
        fi ;;
    esac
  fi
  arguments+=("$1")
  shift
done
[[ $ranks =~ ^[0-9]+$ ]] || { echo "metro_mpirun: -n needs a number of ranks, not '$ranks'" >&2; exit 2; }
cores=$(nproc)

if (( EUID == 0 )); then  # containers; Open MPI refuses root unless told twice
  export OMPI_ALLOW_RUN_AS_ROOT=${OMPI_ALLOW_RUN_AS_ROOT:-1}
  export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:-1}
fi
# Open MPI counts cores without hyper-threads and knows nothing of container limits: do not let it refuse.
export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
# A rank that waits inside MPI must give up its core if another rank needs it; without that eight ranks on two cores are
# hundreds of times slower. With a core per rank it would only add to the latency.
if (( ranks > cores )); then
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
fi
# odls_base_sigkill_timeout stays at its default of 1 s: Open MPI sleeps that time whenever a rank ends with a code other
# than 0, so that 30 s would keep even a job with a misspelt deck from returning for a minute.

# Open MPI ties each of up to two ranks to a single core, together with all of its threads, and more ranks than cores
# cannot be tied at all.
binding=()
if [[ $binding_given == no ]] && (( ranks <= 2 || ranks > cores )); then
  binding=(--bind-to none)
fi
exec mpirun "${binding[@]}" "${arguments[@]}"
