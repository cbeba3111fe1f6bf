#!/bin/bash
# The same runs with several seeds, one array task each: sbatch --array=0-4 examples/slurm/seeds.sh PIPELINE WORK
# Each seed has a work folder of its own, WORK-seed-N, with a link to the exported shards of WORK.
#SBATCH --job-name=hgld-seed
#SBATCH --output=%x-%A_%a.log
set -euo pipefail
seed=$SLURM_ARRAY_TASK_ID
work=${2%/}-seed-$seed
mkdir -p "$work"
ln -sfn "$(realpath "$2/shards")" "$work/shards"
hgld train "$1" --work "$work" --set "train.seeds=[$seed]"
