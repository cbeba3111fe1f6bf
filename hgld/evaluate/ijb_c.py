"""IJB-C: verification and identification of faces by templates, and retrieval as in Smooth-AP.

Maze et al., "IARPA Janus Benchmark - C", ICB 2018. A template is a person in some photos and
frames of videos. Its vector is the mean over its media of the mean over the frames of each, where
every face is a unit vector.

Verification (1:1): pairs of templates are accepted if their cosine exceeds a threshold. TAR@FAR is
the share of accepted pairs of one person at the threshold that accepts a share FAR of the others.

Identification (1:N): probes search two galleries with one template a person. A probe's person is
in one gallery, for rank k, and not in the other, for false alarms: TPIR@FPIR is the share of probes
that find their person first and above the threshold that a share FPIR of the strangers exceeds.

Retrieval (Brown et al. 2020): each photo and each video of a person with five of them or more
searches all others; AP of each, mean over all.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import BOX, read_csv, row_in_file
from hgld.errors import InvalidData
from hgld.evaluate.given import Given, inner_products, unit_rows
from hgld.evaluate.measured_files import measure_files
from hgld.images import extended_boxes

GALLERIES, PROBES = ("ijbc_1N_gallery_G1.csv", "ijbc_1N_gallery_G2.csv"), "ijbc_1N_probe_mixed.csv"
MATCHES = "ijbc_11_G1_G2_matches.csv"
FARS, FPIRS, RANKS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1), (0.01, 0.1), (1, 5, 10)
LEAST_MEDIA = 5  # of a person, for retrieval
EXTENDED = 0.3  # share by which a box grows, as in VGGFace2
PAIRS_AT_ONCE = 1 << 20
SIDES = ("FACE_X", "FACE_Y", "FACE_WIDTH", "FACE_HEIGHT")
KEYS = ("TEMPLATE_ID", "SUBJECT_ID", "SIGHTING_ID")


@dataclass(frozen=True)
class FaceProtocol:
    """The published lists.

    Attributes:
        faces: a row for each face of a template: list (file), place in it, template, subject,
            sighting, image_id, path and ``BOX``.
        pairs: (P, 2) templates to verify.
    """

    faces: pd.DataFrame
    pairs: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> "FaceProtocol":
        """Read the lists of a folder ``protocols``.

        Raises:
            InvalidData: a list is missing or damaged, a template has two persons, a person is in
                both galleries, or a pair has an unknown template.
        """
        faces = pd.concat([_read_faces(folder / name) for name in (*GALLERIES, PROBES)])
        faces = faces.reset_index(drop=True)
        _require_one(faces, folder, "template", "subject", "one person in a template")
        galleries = faces[faces["list"] != PROBES]
        _require_one(galleries, folder, "subject", "list", "different persons in the galleries")
        path = folder / MATCHES
        try:
            pairs = pd.read_csv(path, header=None, dtype=np.int64).to_numpy()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidData(
                f"{path}: {reason}; expected two templates a line; get the lists again"
            ) from None
        known = np.isin(pairs, faces["template"]).all(axis=1)
        if pairs.shape[1:] != (2,) or not known.all():
            line = int((~known).argmax()) + 1
            raise InvalidData(
                f"{path} line {line}: {pairs[line - 1].tolist()}; expected two templates of "
                f"{', '.join(GALLERIES)} or {PROBES}; get the lists again"
            )
        return cls(faces, pairs)

    def photos(self) -> dict[str, pd.DataFrame]:
        """Return image_id, path and box of each face, as the side "faces"."""
        return {"faces": self.faces.drop_duplicates("image_id")[["image_id", "path", *BOX]]}


def score_faces(
    embeddings: Given, protocol: FaceProtocol
) -> tuple[dict[str, float], dict[str, int]]:
    """Compute verification, identification and retrieval of the embeddings of all faces.

    Args:
        embeddings: with ids as ``FaceProtocol.photos`` names the faces.
        protocol: the lists.

    Returns:
        TAR@FAR=0.1, rank-1, TPIR@FPIR=0.1 and the like, and AP of retrieval; nan if there are too
        few pairs of different persons or too few strangers for a rate. TPIR is the mean over the
        two galleries. And the number of pairs, probes and instances measured.

    Raises:
        InvalidData: a face has no embedding.
    """
    faces = protocol.faces
    vectors = unit_rows(embeddings.of(faces["image_id"].to_numpy(dtype=str)))
    # first over the frames of a video, so that a long video counts as much as a photo
    means = _media(vectors, faces[["template", "sighting"]]).groupby(level=0).mean()
    templates = pd.DataFrame(unit_rows(means.to_numpy()), index=means.index)  # (T, D)
    subjects = faces.drop_duplicates("template").set_index("template")["subject"]
    people = subjects.reindex(means.index).to_numpy()  # (T,)
    left, right = (templates.index.get_indexer(side) for side in protocol.pairs.T)
    cosines = np.concatenate(
        [
            np.einsum("pd,pd->p", *(templates.to_numpy()[side[at : at + PAIRS_AT_ONCE]]
                                    for side in (left, right)))
            for at in range(0, len(left), PAIRS_AT_ONCE)
        ]
    )  # fmt: skip
    same = people[left] == people[right]
    found = {f"TAR@FAR={far:g}": true_accepts(cosines[same], cosines[~same], far) for far in FARS}
    identified, probes = _identify(faces, templates, people)
    mean_ap, instances = _retrieve(faces, vectors)
    counts = {"pairs": len(cosines), "probes": probes, "instances": instances}
    return {**found, **identified, "AP": mean_ap}, counts


def true_accepts(genuine: np.ndarray, impostor: np.ndarray, rate: float) -> float:
    """Return the share of genuine scores above the threshold that a share of impostors exceeds.

    Example:
        >>> true_accepts(np.array([0.9, 0.5]), np.array([0.1, 0.2, 0.3, 0.6]), 0.25)
        1.0
        >>> true_accepts(np.array([0.9, 0.5]), np.array([0.6]), 0.25)
        nan
    """
    allowed = int(rate * len(impostor) + 1e-9)  # a product such as 0.3 * 10 is just below 3
    if not allowed or not len(genuine):
        return float("nan")
    threshold = -np.partition(-impostor, allowed)[allowed] if allowed < len(impostor) else -np.inf
    return float((genuine > threshold).mean())


def _read_faces(path: Path) -> pd.DataFrame:
    table = read_csv(path, {**dict.fromkeys(KEYS, "int"), "FILENAME": "text",
                            **dict.fromkeys(SIDES, "float")})  # fmt: skip
    width, height = table["FACE_WIDTH"], table["FACE_HEIGHT"]
    wrong = ~((width > 0) & (height > 0))
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise InvalidData(
            f"{path} row {row_in_file(path, row)}: a face of {width[row]:g} x {height[row]:g} "
            "pixels; expected FACE_WIDTH and FACE_HEIGHT above 0; get the lists again"
        )
    sighting = table["SIGHTING_ID"]
    return pd.DataFrame(
        {
            "list": path.name,
            "place": range(len(table)),
            "template": table["TEMPLATE_ID"],
            "subject": table["SUBJECT_ID"],
            "sighting": sighting,
            "image_id": sighting.astype("str") + "_" + table["FILENAME"],
            "path": table["FILENAME"],
            **extended_boxes(table[list(SIDES)], EXTENDED),
        }
    )


def _require_one(faces: pd.DataFrame, folder: Path, key: str, value: str, rule: str) -> None:
    """Require one value for each key; the error names the first two rows that differ."""
    found = faces.drop_duplicates([key, value])
    twice = found[found.duplicated(key)]
    if not twice.empty:
        number = twice.iloc[0][key]
        rows = found[found[key] == number].iloc[:2].to_dict("records")
        first, second = (
            f"{row['list']} row {row_in_file(folder / row['list'], row['place'])}" for row in rows
        )
        raise InvalidData(
            f"{folder / second}: {key} {number} is also in {first}; expected {rule} "
            f"({len(twice)} such); get the lists again"
        )


def _media(vectors: np.ndarray, keys: pd.DataFrame) -> pd.DataFrame:
    """(M, D) means over the frames of each sighting, by both keys."""
    indexed = pd.DataFrame(vectors, index=pd.MultiIndex.from_frame(keys))
    return indexed.groupby(level=[0, 1]).mean()


def _identify(
    faces: pd.DataFrame, templates: pd.DataFrame, people: np.ndarray
) -> tuple[dict[str, float], int]:
    lists = faces.groupby("list")["template"].unique()
    probes = templates.index.get_indexer(lists[PROBES])
    places: list[np.ndarray] = []
    rates: dict[float, list[float]] = {fpir: [] for fpir in FPIRS}
    for name in GALLERIES:
        gallery = templates.index.get_indexer(lists[name])
        scores = inner_products(*(templates.to_numpy()[side] for side in (probes, gallery)))
        mate = people[probes][:, None] == people[gallery][None, :]
        known = mate.any(axis=1)
        own = np.where(mate, scores, -np.inf).max(axis=1)
        best = np.where(mate, -np.inf, scores).max(axis=1, initial=-np.inf)
        before = ((scores >= own[:, None]) & ~mate).sum(axis=1)  # among equals, others first
        places.append(before[known] + 1)
        first = np.where(before == 0, own, -np.inf)[known]
        for fpir in FPIRS:
            rates[fpir].append(true_accepts(first, best[~known], fpir))
    every = np.concatenate(places)
    found = {f"rank-{k}": float((every <= k).mean()) if len(every) else np.nan for k in RANKS}
    found |= {f"TPIR@FPIR={fpir:g}": float(np.mean(own)) for fpir, own in rates.items()}
    return found, len(probes)


def _retrieve(faces: pd.DataFrame, vectors: np.ndarray) -> tuple[float, int]:
    # a face may be in several templates, but it is one instance
    once = (~faces.duplicated("image_id")).to_numpy()
    media = _media(vectors[once], faces.loc[once, ["subject", "sighting"]])
    subjects = media.index.get_level_values(0)
    kept = subjects.value_counts().reindex(subjects).to_numpy() >= LEAST_MEDIA
    if not kept.any():
        return float("nan"), 0
    labels = pd.DataFrame({"identity": subjects[kept].astype("str")})
    given = Given(Path("faces"), media[kept].to_numpy(np.float32), None, labels)
    found = measure_files(given, metrics=["AP:identity"])
    return found.result.mean()["AP:identity"], int(kept.sum())
