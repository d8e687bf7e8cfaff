# shellcheck shell=bash disable=SC2034  # the arrays are for those who source this
# Sourced by the batch scripts, with METRO_ROOT set: reads the site and makes two arrays. Outside of Slurm ranks are
# started by mpirun on this machine.
#   launcher   the command that starts a program on many ranks; to be followed by -n and how many
#   threads    the override that gives a rank as many threads as it has CPUs, unless the arguments say how many

# shellcheck source=slurm/site.env
source "$METRO_ROOT/slurm/site.env"

[[ -x $METRO ]] || { echo "$0: no program at METRO=$METRO; build it or correct slurm/site.env" >&2; exit 2; }

[[ -n ${SLURM_JOB_ID:-} ]] || METRO_LAUNCHER=mpirun
# srun does not take --cpus-per-task over from the job any more (since Slurm 22.05).
case $METRO_LAUNCHER in
  # --kill-on-bad-exit=0: PMIx ends the job when a rank fails, at once. With 1 Slurm asks the other ranks to stop first,
  # which they cannot for lack of the failed one: it takes longer, and the exit code is theirs.
  srun)
    read -ra launcher <<<"srun $METRO_SRUN_OPTIONS --cpus-per-task=${SLURM_CPUS_PER_TASK:-1} --kill-on-bad-exit=0" ;;
  mpirun)
    read -ra launcher <<<"mpirun $METRO_MPIRUN_OPTIONS"
    if [[ -z ${SLURM_JOB_ID:-} ]]; then  # on a workstation, with what mpirun needs there
      wrapper=$METRO_ROOT/mpi_launch/metro_mpirun.sh
      [[ -e $wrapper ]] || wrapper=$(dirname "$METRO")/metro_mpirun
      launcher=(bash "$wrapper" "${launcher[@]:1}")
    fi ;;
  *)
    echo "$0: METRO_LAUNCHER=$METRO_LAUNCHER in slurm/site.env: must be srun or mpirun" >&2
    exit 2 ;;
esac

threads=("run.threads=${SLURM_CPUS_PER_TASK:-1}")
for argument in "$@"; do
  [[ $argument != run.threads=* ]] || threads=()
done

if [[ -z ${SLURM_JOB_ID:-} ]]; then
  echo "== on $(hostname), without Slurm"
  return
fi
echo "== job $SLURM_JOB_ID on $SLURM_JOB_NODELIST: $SLURM_NTASKS rank$( (( SLURM_NTASKS == 1 )) || echo s)" \
  "by $METRO_LAUNCHER, start $((${SLURM_RESTART_COUNT:-0} + 1))"
