#!/usr/bin/env bash
# From a Hugging Face folder to a report, as four jobs of which each begins when the one before has succeeded:
#   convert   HF_DIR -> OUTPUT/model.h5
#   plan      a sample of the requests, whose routing is recorded -> OUTPUT/plan.json, a placement for it
#   run       all requests by that placement -> OUTPUT/run (requeue.sbatch: it may take longer than a job may)
#   report    OUTPUT/report.txt, and pictures where h5py and matplotlib are there
# Prints the job of each stage. When a stage fails, Slurm cancels those behind it.
#   bash slurm/pipeline.sh HF_DIR DECK OUTPUT [table.key=value ...]
# From the environment: METRO_RANKS of plan and run (4), METRO_SAMPLE: the plan is made from every so-manieth request
# (10), METRO_REPLICATION: slots / experts of the plan (1.25). Partition, account and GPUs: slurm/site.env.
set -euo pipefail

(( $# > 2 )) || { echo "usage: bash slurm/pipeline.sh HF_DIR DECK OUTPUT [table.key=value ...]" >&2; exit 2; }
hf_dir=$1
deck=$2
output=$3
shift 3

# shellcheck source=slurm/site.env
source "$(dirname "${BASH_SOURCE[0]}")/site.env"
ranks=${METRO_RANKS:-4}
replication=${METRO_REPLICATION:-1.25}
export METRO_SAMPLE=${METRO_SAMPLE:-10}
mkdir -p "$output"

# submit STAGE OPTION... SCRIPT ARGUMENT...: prints the job's number.
previous=
submit() {
  local stage=$1
  shift
  # kill-on-invalid-dep: else a job whose predecessor failed waits for ever.
  local after=()
  [[ -z $previous ]] || after=("--dependency=afterok:$previous" --kill-on-invalid-dep=yes)
  previous=$(sbatch --parsable --job-name="metro-$stage" "${after[@]}" "$@")
  echo "$stage $previous"
}

stage=$METRO_ROOT/slurm/pipeline_stage.sbatch
submit convert "$stage" convert "$hf_dir" "$output"
submit plan --ntasks="$ranks" "$stage" plan "$deck" "$output" "$replication" "$@"
submit run --ntasks="$ranks" "$METRO_ROOT/slurm/requeue.sbatch" "$deck" "model.checkpoint=$output/model.h5" \
  "experts.placement=$output/plan.json" "experts.replication=$replication" "output.directory=$output/run" "$@"
submit report "$stage" report "$output"
