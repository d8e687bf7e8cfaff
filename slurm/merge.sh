#!/usr/bin/env bash
# Joins what the tasks of slurm/array.sbatch wrote, OUTPUT/shard-*, to OUTPUT/completions.jsonl and OUTPUT/errors.jsonl:
# the lines of one run over the whole input. First it makes sure that all shards are there, of the same input and
# finished, and have answered every line; else it says which one is not and leaves everything as it is.
#   bash slurm/merge.sh [--overwrite] OUTPUT      or as a job: sbatch --dependency=afterok:JOB slurm/merge.sh OUTPUT
#
#SBATCH --job-name=metro-merge
#SBATCH --ntasks=1
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.log
set -euo pipefail

fail() {
  echo "merge: $*" >&2
  exit 3
}

overwrite=no
if [[ ${1:-} == --overwrite ]]; then
  overwrite=yes
  shift
fi
(( $# == 1 )) || { echo "usage: merge.sh [--overwrite] OUTPUT" >&2; exit 2; }
output=$1

# By hand it lies beside site.env; Slurm starts a copy of it, and knows where the original is.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ -e $here/site.env ]]; then
  METRO_ROOT=${METRO_ROOT:-$(dirname "$here")}
fi
: "${METRO_ROOT:=$(scontrol show job "$SLURM_JOB_ID" | sed -nE 's#^ *Command=(.*)/slurm/[a-z_]+[.]s[a-z]+( .*)?$#\1#p; T; q')}"
# shellcheck source=slurm/site.env
source "$METRO_ROOT/slurm/site.env"

for name in completions.jsonl errors.jsonl; do
  [[ $overwrite == yes || ! -e $output/$name ]] || { echo "merge: $output/$name is there; --overwrite replaces it" >&2; exit 2; }
done

# What a shard may not differ in: the model and the requests, but for the shard itself.
questions() {
  sed -n '/^\[model\]/,/^$/p; /^\[requests\]/,/^$/p' "$1/deck.toml" | grep -v '^shard = '
}

first_shard=
declare -A folder_of
answered=0
for folder in "$output"/shard-*/; do
  folder=${folder%/}
  [[ -d $folder ]] || fail "$output holds no shard-*; sbatch slurm/array.sbatch writes them"
  [[ ! -e $folder/resume.state ]] || fail "$folder is not finished (resume.state is there); run this task of the array again"
  metrics=$folder/metrics.h5  # of the last part of a run that went on
  for (( part = 2; ; ++part )); do
    [[ -e $folder/metrics.$part.h5 ]] || break
    metrics=$folder/metrics.$part.h5
  done
  [[ -e $metrics ]] || fail "$metrics is missing; run this task of the array again"
  summary=$("$METRO" inspect "$metrics") || fail "$metrics cannot be read; run this task of the array again"
  for name in deck.toml completions.jsonl errors.jsonl; do
    [[ -e $folder/$name ]] || fail "$folder/$name is missing; run this task of the array again"
  done
  shard_line=$(sed -nE 's#^  shard +([0-9]+)/([0-9]+): ([0-9]+) of ([0-9]+) lines? .*#\1 \2 \3 \4#p' <<<"$summary")
  [[ -n $shard_line ]] || fail "$metrics is not of a finished run with requests.shard"
  read -r index shards own all <<<"$shard_line"
  model=$("$METRO" inspect "$metrics" --json | sed -nE 's#.*"checkpoint_digest":"([0-9a-f]+)".*#\1#p')

  if [[ -z $first_shard ]]; then
    first_shard=$folder
    num_shards=$shards
    num_lines=$all
    first_model=$model
  fi
  [[ $shards == "$num_shards" ]] || fail "$folder is one of $shards shards, but $first_shard one of $num_shards"
  [[ $all == "$num_lines" ]] || fail "$folder saw $all lines of input, but $first_shard $num_lines"
  [[ $model == "$first_model" ]] ||
    fail "$folder is of the checkpoint of digest $model, but $first_shard of $first_model"
  [[ $(questions "$folder") == "$(questions "$first_shard")" ]] ||
    fail "[model] or [requests] in $folder/deck.toml are not those of $first_shard/deck.toml"
  [[ -z ${folder_of[$index]:-} ]] || fail "$folder and ${folder_of[$index]} are both shard $index"
  folder_of[$index]=$folder
  lines=$(cat "$folder/completions.jsonl" "$folder/errors.jsonl" | wc -l)
  (( lines == own )) || fail "$folder has $lines lines of output for its $own lines of input"
  answered=$((answered + lines))
done
for (( index = 0; index < num_shards; ++index )); do
  [[ -n ${folder_of[$index]:-} ]] || fail "shard $index of $num_shards is missing in $output"
done
(( answered == num_lines )) || fail "$answered lines of output for $num_lines lines of input"

for name in completions.jsonl errors.jsonl; do
  for (( index = 0; index < num_shards; ++index )); do
    cat "${folder_of[$index]}/$name"
  done >"$output/$name.partial"
  mv "$output/$name.partial" "$output/$name"
done
echo "merged $num_shards shards: $(wc -l <"$output/completions.jsonl") completions and" \
  "$(wc -l <"$output/errors.jsonl") errors of $num_lines lines in $output"
