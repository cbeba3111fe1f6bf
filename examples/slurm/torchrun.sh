#!/bin/bash
# One training on several nodes: sbatch --nodes=4 --gpus-per-node=8 examples/slurm/torchrun.sh PIPELINE WORK
# The work folder must be on a disk that all nodes see. After a stop, submit it again: it resumes.
#SBATCH --job-name=hgld-train
#SBATCH --ntasks-per-node=1
#SBATCH --output=%x-%j.log
set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# One torchrun for each task; the one on the first node keeps the rendezvous.
srun torchrun \
  --nnodes="$SLURM_NTASKS" --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" \
  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$first:$((20000 + SLURM_JOB_ID % 10000))" \
  -m hgld train "$1" --work "$2"
