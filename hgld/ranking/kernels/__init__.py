"""Kernels of ranks and rank losses: numba on a CPU, Triton on a GPU.

``loss_cpu`` and ``loss_gpu`` compute losses with their gradients, ``rank_cpu`` and ``rank_gpu`` the
ranks of a gallery; ``*_triton`` hold the GPU's code, imported only when there is a GPU. Each kernel
has an equivalent in plain torch, and is tested against it. Of the rest of ``hgld.ranking`` this
folder knows types alone.
"""
