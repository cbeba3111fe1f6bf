"""GLDv2's official retrieval metric: mAP@100 on the full index with the official relevant images.

The full index contains images of landmarks without a label. These are not in the shards, so they
are read from the data set's own files. As in the challenge, a listed query without an image
scores 0.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import write_file
from hgld.config import EvaluateOptions
from hgld.errors import InvalidData
from hgld.evaluate.mapped_vectors import MappedVectors
from hgld.evaluate.ranking import RankJob, rank_and_reduce
from hgld.evaluate.sides import Side, side_of_files
from hgld.ranking.interchange import kaggle_lines, kaggle_score
from hgld.tasks import say

OFFICIAL, PAPER = "mAP@100 gldv2-official", "mAP@100 gldv2-paper"
CUT = 100
REST = " (no label)"  # suffix of a split's name: its images that are not in the shards


@dataclass(frozen=True)
class Official:
    """The official protocol: unlabelled images in addition to the shards, and the solution list.

    Attributes:
        sides: queries and gallery images without labels, if there are any.
        queries: image_id, usage, relevant (ids separated by blanks; empty: ignored).
        lost: number of index images that export dropped for other reasons than a missing label.
    """

    sides: tuple[Side, ...]
    queries: pd.DataFrame
    lost: int

    @classmethod
    def of(
        cls,
        source: Path,
        images: pd.DataFrame,
        export_dropped: pd.DataFrame,
        queries: pd.DataFrame,
    ) -> "Official":
        """Build the protocol from the tables of the collect and export stages.

        Raises:
            InvalidData: the solution list is missing.
        """
        if not (queries["relevant"].str.strip() != "").any():
            raise InvalidData(
                "evaluate.protocol gldv2-official needs the official list of answers, and "
                "queries.csv has none; name it in collect.retrieval_solution_csv and run collect"
            )
        unlabelled = export_dropped[export_dropped["reason"] == "unlabelled"]
        # only these: what export dropped for its licence, damage or a removal stays out
        rest = images.merge(unlabelled[["split", "image_id"]], on=["split", "image_id"])
        sides = [
            side_of_files(split + REST, rest[rest["split"] == split], source)
            for split in ("test", "index")
            if (rest["split"] == split).any()
        ]
        other = export_dropped["reason"] != "unlabelled"
        lost = int((other & (export_dropped["split"] == "index")).sum())
        return cls(tuple(sides), queries, lost)

    def facts(self, query: Side, gallery: Side) -> dict[str, Any]:
        """Return the facts for the report; missing images are counted and sent as a notice."""
        queries, images = self._ids(query), self._ids(gallery)
        answered = self.queries[self.queries["relevant"].str.strip() != ""]
        relevant = set(" ".join(answered["relevant"]).split())
        missing = {
            "queries": len(set(answered["image_id"]) - set(queries)),
            "relevant_images": len(relevant - set(images)),
        }
        if any(missing.values()) or self.lost:
            say(
                "evaluate: of the official list are not here: "
                f"queries {missing['queries']:,} (each counts 0), relevant images "
                f"{missing['relevant_images']:,}; index images that export left out: {self.lost:,}"
            )
        return {"queries": len(answered), "gallery_images": len(images), "missing": missing}

    def score(
        self,
        vectors: Mapping[str, MappedVectors],
        query: Side,
        gallery: Side,
        path: Path,
        options: EvaluateOptions,
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Rank the full index, write the submission file, and score it.

        Returns:
            Mean of the metric and of each usage (public, private), and AP@100 of each query.
        """

        def alike(side: Side) -> tuple[MappedVectors, np.ndarray]:
            both = (piece for part in self._both(side) for piece in vectors[part.split].pieces)
            embeddings = MappedVectors(tuple(both))
            return embeddings, np.zeros((len(embeddings), 1), np.int8)  # labels do not matter

        images = self._ids(gallery)
        blocks = rank_and_reduce(RankJob(first=CUT), alike(query), alike(gallery), options=options)
        ranks = (row for block in blocks for row in block.first)
        known = set(self.queries["image_id"])  # the scorer refuses a query that has no answer
        ranked = zip(self._ids(query), ranks, strict=True)
        submission = {str(q): images[row].tolist() for q, row in ranked if q in known}
        write_file(path, "\n".join(kaggle_lines(submission, CUT)) + "\n")
        columns = (self.queries[name] for name in ("image_id", "relevant", "usage"))
        rows = zip(*columns, strict=True)
        lines = (f"{query_id},{found or 'None'},{usage}" for query_id, found, usage in rows)
        score = kaggle_score(submission, ["id,images,Usage", *lines], CUT)
        means = {OFFICIAL: float(np.mean(list(score.per_query.values())))}
        means |= {f"{OFFICIAL} {usage.lower()}": mean for usage, mean in score.mean.items()}
        return means, score.per_query

    def _both(self, side: Side) -> Iterator[Side]:
        """Yield the part of a side in the shards, then the part outside of them."""
        yield side
        yield from (rest for rest in self.sides if rest.split == side.split + REST)

    def _ids(self, side: Side) -> np.ndarray:
        return np.concatenate([part.image_ids for part in self._both(side)])
