#!/bin/bash
# A Ray cluster inside an allocation: sbatch --nodes=8 examples/slurm/ray.sh PIPELINE WORK
# Task 0 starts the head and runs hgld; the other nodes need neither the pipeline file nor WORK.
#SBATCH --job-name=hgld-ray
#SBATCH --ntasks-per-node=1
#SBATCH --output=%x-%j.log
set -euo pipefail
export head port=$((20000 + SLURM_JOB_ID % 10000)) RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
RAY_AUTH_TOKEN=$(openssl rand -hex 32) && export RAY_AUTH_TOKEN
cores=${SLURM_CPUS_ON_NODE:-1}
srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
  ray start --head --port="$port" --num-cpus="$cores" --include-dashboard=false --block &
sleep 20
if ((SLURM_NNODES > 1)); then
  srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" --overlap \
    ray start --address="$head:$port" --num-cpus="$cores" --block &
fi
hgld run "$1" --work "$2" --set "export.ray=$head:$port" --set "evaluate.ray=$head:$port"
