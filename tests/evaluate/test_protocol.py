from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.config import EvaluateOptions, SourceOptions, StageContext
from hgld.errors import UsageError
from hgld.evaluate import check_evaluation


def test_fp16_on_a_cpu_is_refused_only_if_a_network_embeds(tmp_path: Path) -> None:
    """Files of embeddings need none, whatever computed them."""
    for seed in range(2):
        np.savez(tmp_path / f"given{seed}.npz", vectors=np.eye(2), ids=np.array(["a", "b"]))
    ids = {"split": "train", "landmark_id": [1, 2]}
    images = pd.DataFrame({"split": "evaluation", "landmark_id": [1, 2]})
    hierarchy = pd.DataFrame({**ids, "path": ['{"kind": "lake"}', '{"kind": "mill"}']})

    context = StageContext("2026-01-01", tmp_path, SourceOptions(), tmp_path)

    def check(**models: object) -> None:
        options = EvaluateOptions(precision="fp16", device="cpu", models=models)
        check_evaluation(images, hierarchy, options=options, context=context)

    given = {
        "mine": str(tmp_path / "given0.npz"),
        "seeded": {"source": f"{tmp_path}/given{{seed}}.npz", "seeds": (0, 1)},
    }
    check(**given)
    for others in ({}, {**given, "network": "offline:efficientnet-lite0"}, {**given, "r": "run:r"}):
        with pytest.raises(UsageError, match=r"evaluate\.precision fp16 needs a GPU"):
            check(**others)
