"""AP by open-metric-learning, which needs numpy below 2 and so an environment of its own.

    build/oml/bin/python tests/benchmarks/open_metric_learning.py SIDES.npz

``make oml`` makes the environment. SIDES.npz holds (Q, D) query, (G, D) gallery and their (Q,) and
(G,) classes; the mean AP, the least processor seconds of several rounds and the versions are
printed as JSON.
"""

import json
import sys
import time
from importlib.metadata import version

import numpy as np
import torch

ROUNDS = 4  # the first one warms up


def main() -> None:
    """Rank the whole gallery of each query that has a relevant image, and print what it took."""
    from oml.functional.knn import batched_knn_qg
    from oml.functional.metrics import calc_retrieval_metrics

    torch.set_num_threads(1)
    sides = {name: torch.from_numpy(array) for name, array in np.load(sys.argv[1]).items()}
    some = torch.isin(sides["query_classes"], sides["gallery_classes"])
    query, query_classes = sides["query"][some], sides["query_classes"][some]
    images, seconds, found = len(sides["gallery"]), [], float("nan")
    for _ in range(ROUNDS):
        start = time.thread_time()
        _, ranked, relevant = batched_knn_qg(
            query, sides["gallery"], images, query_classes, sides["gallery_classes"]
        )
        metrics = calc_retrieval_metrics(
            ranked, relevant, cmc_top_k=(), precision_top_k=(), map_top_k=(images,), verbose=False
        )
        found = float(metrics["map"][images])
        seconds.append(time.thread_time() - start)
    versions = {name: version(name) for name in ("open-metric-learning", "numpy")}
    print(json.dumps({"AP": found, "seconds": min(seconds[1:]), "versions": versions}))


if __name__ == "__main__":
    main()
