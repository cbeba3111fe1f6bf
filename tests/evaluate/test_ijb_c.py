"""IJB-C's protocols, against loops over templates from the rules of the paper."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import BOX
from hgld.cli import app, guarded
from hgld.errors import InvalidData
from hgld.evaluate.given import Given
from hgld.evaluate.ijb_c import GALLERIES, PROBES, FaceProtocol, score_faces, true_accepts
from tests.evaluate.test_photo_files import NETS
from tests.sources.native_sets import write_ijb_c

FIRST, MATCHES = "ijbc_1N_gallery_G1.csv", "ijbc_11_G1_G2_matches.csv"


@pytest.fixture
def ijb_c(tmp_path: Path) -> Path:
    return write_ijb_c(tmp_path / "IJB-C")


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def embed(protocol: FaceProtocol, noise: float = 1.5) -> Given:
    """Vectors near the direction of each person."""
    random = np.random.default_rng(2)
    faces = protocol.faces.drop_duplicates("image_id")
    near = np.eye(6)[faces["subject"]] + noise * random.normal(size=(len(faces), 6))
    return Given(Path("faces.npz"), near.astype(np.float32), faces["image_id"].to_numpy(str))


def media_of(protocol: FaceProtocol, given: Given) -> dict[int, dict[int, np.ndarray]]:
    """Template -> sighting -> mean of its faces."""
    vectors = dict(zip(given.ids, given.vectors.astype(float), strict=True))
    found: dict[int, dict[int, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for row in protocol.faces.to_dict("records"):
        found[row["template"]][row["sighting"]].append(unit(vectors[row["image_id"]]))
    return {t: {s: np.mean(v, 0) for s, v in own.items()} for t, own in found.items()}


def test_a_template_is_the_mean_of_its_media_and_pairs_are_verified(ijb_c: Path) -> None:
    protocol = FaceProtocol.read(ijb_c / "protocols")
    given = embed(protocol)
    media = media_of(protocol, given)
    templates = {t: unit(np.mean([*own.values()], 0)) for t, own in media.items()}
    cosines = {(a, b): templates[a] @ templates[b] for a, b in protocol.pairs.tolist()}
    genuine = [c for (a, b), c in cosines.items() if b == a + 10]
    others = sorted((c for (a, b), c in cosines.items() if b != a + 10), reverse=True)
    found, counts = score_faces(given, protocol)
    assert counts == {"pairs": 16, "probes": 4, "instances": 20}
    assert found["TAR@FAR=0.1"] == sum(c > others[1] for c in genuine) / 4
    assert np.isnan(found["TAR@FAR=0.01"])  # 12 pairs of others are too few


def test_probes_search_both_galleries_and_strangers_raise_alarms(ijb_c: Path) -> None:
    protocol = FaceProtocol.read(ijb_c / "protocols")
    given = embed(protocol)
    templates = {
        t: unit(np.mean([*own.values()], 0)) for t, own in media_of(protocol, given).items()
    }
    places = []
    for gallery in ((1, 2), (3, 4)):
        for person in gallery:
            scores = {one: templates[10 + person] @ templates[one] for one in gallery}
            places.append(1 + sum(s >= scores[person] for o, s in scores.items() if o != person))
    found, _ = score_faces(given, protocol)
    for k in (1, 5, 10):
        assert found[f"rank-{k}"] == np.mean([place <= k for place in places])
    rates = [found[f"TPIR@FPIR={fpir}"] for fpir in (0.01, 0.1)]
    assert all(map(np.isnan, rates))  # 2 strangers are too few


def test_a_probe_is_identified_above_the_score_that_few_strangers_exceed() -> None:
    lists = [*GALLERIES, PROBES]
    people = {lists[0]: range(20), lists[1]: range(20, 50), lists[2]: range(50)}
    rows = [(name, p + 100 * (name == PROBES), p) for name in lists for p in people[name]]
    faces = pd.DataFrame(rows, columns=["list", "template", "subject"])
    faces = faces.assign(sighting=faces["template"], image_id=faces["template"].astype("str"))
    chance = np.random.default_rng(0)
    vectors = np.eye(50)[faces["subject"]] + 0.18 * chance.normal(size=(len(faces), 50))
    given = Given(Path("faces"), vectors.astype(np.float32), faces["image_id"].to_numpy(str))
    found, _ = score_faces(given, FaceProtocol(faces, np.array([[0, 100], [0, 101]])))

    unit_of = dict(zip(faces["template"], map(unit, vectors), strict=True))
    rates = []
    for gallery in (people[lists[0]], people[lists[1]]):
        scores = {p: {g: unit_of[100 + p] @ unit_of[g] for g in gallery} for p in range(50)}
        alarms = sorted(max(s.values()) for p, s in scores.items() if p not in gallery)[::-1]
        threshold = alarms[len(alarms) // 10]  # a tenth of them is above
        first = {p: max(scores[p], key=scores[p].__getitem__) for p in gallery}
        rates.append(np.mean([first[p] == p and scores[p][p] > threshold for p in gallery]))
    assert min(rates) > 0.2 and max(rates) < 0.9
    assert found["TPIR@FPIR=0.1"] == pytest.approx(np.mean(rates))
    assert np.isnan(found["TPIR@FPIR=0.01"])


def test_a_model_that_gives_all_faces_one_vector_finds_nobody() -> None:
    lists = [*GALLERIES, PROBES]
    people = {lists[0]: range(17), lists[1]: range(17, 50), lists[2]: [*range(17, 50), *range(17)]}
    rows = [(name, p + 100 * (name == PROBES), p) for name in lists for p in people[name]]
    faces = pd.DataFrame(rows, columns=["list", "template", "subject"])
    faces = faces.assign(sighting=faces["template"], image_id=faces["template"].astype("str"))
    vectors = np.random.default_rng(1).normal(size=(1, 100)).repeat(len(faces), axis=0)
    given = Given(Path("faces"), vectors.astype(np.float32), faces["image_id"].to_numpy(str))
    found, _ = score_faces(given, FaceProtocol(faces, np.array([[0, 100], [0, 101]])))
    assert [found[f"rank-{k}"] for k in (1, 5, 10)] == [0.0, 0.0, 0.0]


def test_photos_and_videos_search_each_other(ijb_c: Path) -> None:
    protocol = FaceProtocol.read(ijb_c / "protocols")
    given = embed(protocol)
    media = [
        (template % 10, unit(vector))
        for template, own in media_of(protocol, given).items()
        for vector in own.values()
    ]
    found = []
    for number, (person, vector) in enumerate(media):
        others = [(p == person, v @ vector) for i, (p, v) in enumerate(media) if i != number]
        right = np.array([same for same, _ in sorted(others, key=lambda other: -other[1])])
        found.append((np.cumsum(right) / np.arange(1, len(right) + 1))[right].mean())
    values, _ = score_faces(given, protocol)
    assert values["AP"] == pytest.approx(np.mean(found), abs=1e-5)


def test_a_perfect_model_accepts_and_finds_everyone(ijb_c: Path) -> None:
    protocol = FaceProtocol.read(ijb_c / "protocols")
    found, _ = score_faces(embed(protocol, noise=0.0), protocol)
    assert (found["TAR@FAR=0.1"], found["rank-1"]) == (1.0, 1.0)
    assert found["AP"] == pytest.approx(1.0)


@pytest.mark.parametrize(("rate", "expected"), [(0.2, 0.5), (0.4, 0.75), (1.0, 1.0), (0.1, None)])
def test_the_threshold_lets_a_share_of_the_impostors_pass(
    rate: float, expected: float | None
) -> None:
    impostor = np.array([0.8, 0.6, 0.4, 0.2, 0.0])
    found = true_accepts(np.array([0.9, 0.7, 0.5, -0.5]), impostor, rate)
    assert found == expected if expected is not None else np.isnan(found)


def test_a_box_grows_by_the_share_of_vggface2(ijb_c: Path) -> None:
    photos = FaceProtocol.read(ijb_c / "protocols").photos()["faces"]
    assert photos[list(BOX)].iloc[0].tolist() == pytest.approx([5.0, 1.4, 31.0, 32.6])
    assert not photos["image_id"].duplicated().any()


def change(name: str, old: str, new: str) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        file = folder / "protocols" / name
        text = file.read_text("utf-8")
        assert old in text
        file.write_text(text.replace(old, new, 1), "utf-8")

    return edit


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda f: (f / "protocols" / FIRST).unlink(), rf"{FIRST}: .*(missing|no such file)"),
        (lambda f: (f / "protocols" / MATCHES).unlink(), rf"{MATCHES}: .*No such file"),
        (change(FIRST, "SUBJECT_ID", "PERSON"), rf"{FIRST}.*SUBJECT_ID"),
        (change(FIRST, ",8,5,20,24", ",8,5,0,24"), rf"{FIRST} row 2: a face of 0 x 24 pixels"),
        (change(FIRST, "\n2,2,", "\n2,3,"),
         r"G1\.csv row \d: template 2 is also in .*G1\.csv row \d; expected one person in a"),
        (change("ijbc_1N_gallery_G2.csv", "\n3,3,", "\n33,1,"),
         r"G2\.csv row 2: subject 1 is also in .*G1\.csv row 2; expected different persons"),
        (change(MATCHES, "1,12", "1,99"), rf"{MATCHES} line 2: \[1, 99\]; expected two templates"),
        (change(MATCHES, "1,12", "1,b"), rf"{MATCHES}: .*expected two templates a line"),
    ],
)  # fmt: skip
def test_damaged_lists_are_refused_in_one_line(edit, says: str, ijb_c: Path) -> None:
    edit(ijb_c)
    with pytest.raises(InvalidData, match=says) as told:
        FaceProtocol.read(ijb_c / "protocols")
    assert "\n" not in str(told.value)


def test_faces_are_embedded_and_measured_by_two_commands(ijb_c: Path, capsys) -> None:
    (ijb_c / "nets.py").write_text(NETS)
    lists, out = ijb_c / "protocols", ijb_c / "out"
    words = ["embed", f"python:{ijb_c}/nets.py:build", "--images", ijb_c, "--ijb-c", lists]
    words += ["--out", out, "--device", "cpu"]
    assert guarded(lambda: app(["evaluations", *map(str, words)])) == 0
    words = ["ijb-c", out / "faces.npz", "--protocols", lists]
    assert guarded(lambda: app(["evaluations", *map(str, words)])) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines[0].split() == ["TAR@FAR=1e-06", "-"] and lines[-2].split()[0] == "AP"
    assert lines[-1] == "16 pairs; 4 probes; 20 instances"
    assert guarded(lambda: app(["evaluations", *map(str, words), "--json"])) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["TAR@FAR=1e-06"] is None and 0 < found["AP"] <= 1
