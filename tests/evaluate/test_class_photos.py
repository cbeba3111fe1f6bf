"""Values are clustered by their photos, or by texts and photos."""

import json
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hgld.artifacts import ARTIFACTS, Vectors, columns_of
from hgld.cli.review_pages import suggest_clusters, write_page
from hgld.config import ClusterOptions, EmbedOptions, StageContext, load_pipeline
from hgld.errors import (
    HgldError,
    InvalidData,
    MissingWeights,
    UsageError,
    WaitingForReview,
)
from hgld.evaluate import photo_files
from hgld.evaluate.class_photos import mean_photos
from hgld.hierarchy.cluster_choice import measure_range
from hgld.hierarchy.vector_clusters import join_vectors
from hgld.images import decode_rgb
from hgld.pipeline.lock import Workspace
from hgld.pipeline.run import Runner
from hgld.review.suggestions import fit_model
from tests.hierarchy.made_dump import write_dumps
from tests.listening import Notes, heard
from tests.made_clip import save_clip
from tests.mediawiki.world import entity, is_a
from tests.warm import Command, hgld

pytestmark = pytest.mark.slow

# the names say nothing of the colours
REDS, BLUES = ("apple", "sofa"), ("boat", "carrot")
PIPELINE = """
labels = "labels"
[source]
kind = "folder"
folder = "photos"
labels_csv = ""
[label]
source = "decisions"
[scrape]
source = "names"
[hint]
ask = false
[embed]
encoder = "offline:minilm"
images = "python:nets.py:build"
device = "cpu"
[cluster]
levels = ["group"]
clusters = 2
on = "images"
"""
NETS = """
from torch import nn

def build():
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())

class Short(nn.Module):
    def forward(self, photos):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

def short():
    return Short()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate((*REDS, *BLUES)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for j in range(3):
            colour = (200, 20 + 9 * i, 5 * j) if name in REDS else (10 * j, 20 + 9 * i, 200)
            Image.new("RGB", (24, 16), colour).save(tmp_path / "photos" / name / f"{j}.png")
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "mine.toml").write_text(PIPELINE)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    return tmp_path


def runner(folder: Path, *settings: str) -> Runner:
    pipeline = load_pipeline(folder / "mine.toml", settings)
    return Runner(Workspace(folder / "mine.toml", pipeline, folder / "work"), "2026-01-01", Notes())


def run(folder: Path, *settings: str, until: str = "cluster") -> list[str]:
    """Run up to a stage; return what was reported."""
    with heard() as said:
        runner(folder, *settings).run(until)
    return said


def run_one(folder: Path, stage: str) -> list[str]:
    with heard() as said:
        runner(folder).run_one(stage)
    return said


def clusters(folder: Path) -> set[tuple[str, ...]]:
    table = pd.read_csv(folder / "work" / "clusters.csv")
    return {tuple(rows["instance_of"]) for _, rows in table.groupby("cluster")}


def vectors(folder: Path) -> Vectors:
    found = ARTIFACTS["image_vectors"].read(folder / "work" / "image_vectors.npz")
    assert isinstance(found, Vectors)
    return found


def test_values_are_clustered_by_their_photos(folder: Path) -> None:
    run(folder)
    assert clusters(folder) == {REDS, BLUES}


def test_an_image_vector_is_the_mean_of_the_photos(folder: Path) -> None:
    run(folder)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    photos = [Image.open(folder / "photos" / "apple" / f"{j}.png") for j in range(3)]
    rows = [(np.array(photo)[0, 0] / 255 - mean) / std for photo in photos]
    total = sum(row / np.linalg.norm(row) for row in rows)
    expected = total / np.linalg.norm(total)
    found = vectors(folder)
    np.testing.assert_allclose(found.vectors[found.ids.index("apple")], expected, atol=1e-5)


def test_a_few_photos_of_each_class_are_spread_over_its_ids(folder: Path) -> None:
    run(folder, "embed.photos=2")
    assert len(vectors(folder).ids) == 4
    shutil.copy(folder / "photos" / "boat" / "0.png", folder / "photos" / "apple" / "1.png")
    before = vectors(folder).vectors
    run(folder, "embed.photos=2")  # of three photos, the first and the third
    np.testing.assert_array_equal(vectors(folder).vectors, before)


def test_a_value_without_a_readable_photo_is_reported_and_has_those_of_the_nearest_text(
    folder: Path,
) -> None:
    for photo in (folder / "photos" / "sofa").iterdir():
        photo.write_bytes(b"not a photo".ljust(photo.stat().st_size))
    said = run(folder)
    assert "3 photos left out of the class vectors: undecodable" in said
    (line,) = (line for line in said if "without photos" in line)
    assert line.startswith("1 value without photos ('sofa'): the photos of the value with the")
    assert len(vectors(folder).ids) == 3 and len(pd.read_csv(folder / "work/clusters.csv")) == 4


def test_only_the_photos_beside_an_undecodable_one_are_decoded_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*REDS, *BLUES):
        for j in range(3, 50):
            shutil.copy(folder / "photos" / name / "0.png", folder / "photos" / name / f"{j}.png")
    run(folder, until="clean")
    for name in ("boat", "sofa"):
        photo = folder / "photos" / name / "7.png"
        photo.write_bytes(b"not a photo".ljust(photo.stat().st_size))
    checked = []
    monkeypatch.setattr(
        photo_files, "decode_rgb", lambda data: checked.append(data) or decode_rgb(data)
    )
    assert "2 photos left out of the class vectors: undecodable" in run(folder, "embed.photos=50")
    assert len(checked) == 64 + 7  # of 200, the parts of these two


def test_memory_that_is_short_names_options_of_this_stage(folder: Path) -> None:
    file = folder / "mine.toml"
    file.write_text(file.read_text().replace(":build", ":short"))
    with pytest.raises(HgldError, match=r'^embed: out of memory .*; set embed\.device = "cpu", or'):
        run(folder)


def test_an_image_encoder_that_belongs_to_the_text_encoder_is_named_by_that(folder: Path) -> None:
    run(folder, "cluster.on=text", until="clean")
    given = runner(folder)
    images, landmarks = (given.read(name, "clean") for name in ("images", "landmarks"))
    options = EmbedOptions(encoder="ViT-B-32/nothing")
    context = StageContext("", folder / "state", given.workspace.pipeline.source, folder)
    with pytest.raises(MissingWeights, match=r"embed\.encoder") as error:
        mean_photos(images, landmarks, folder / "photos", options=options, context=context)
    assert "evaluate" not in str(error.value) and "embed.images" not in str(error.value)


def test_options_of_photos_leave_links_and_vectors_of_texts_fresh(families: Path) -> None:
    run(families)
    files = [families / "work" / name for name in ("linked.csv", "label_vectors.npz")]
    before = [path.stat().st_mtime_ns for path in files]
    run(families, "embed.photos=3", "embed.images=timm:resnet18")
    assert [path.stat().st_mtime_ns for path in files] == before


def test_photos_that_are_gone_since_they_were_listed_are_reported(folder: Path) -> None:
    run(folder, until="clean")
    shutil.rmtree(folder / "photos" / "sofa")
    said = run_one(folder, "embed")
    assert "3 photos left out of the class vectors: missing" in said


def test_each_tar_of_photos_is_kept_as_soon_as_it_is_embedded(folder: Path) -> None:
    rows = []
    for split, name in (("train", "apple"), ("index", "boat")):
        with tarfile.open(folder / f"{split}.tar", "w") as tar:
            for photo in sorted((folder / "photos" / name).iterdir()):
                tar.add(photo, photo.name)
        with tarfile.open(folder / f"{split}.tar") as tar:
            rows += [(split, 1, f"{split}.tar", m.offset_data, m.size) for m in tar.getmembers()]
    columns = ["split", "landmark_id", "path", "offset", "size_bytes"]
    images = pd.DataFrame(rows, columns=columns).reset_index(names="image_id")
    pipeline = load_pipeline(folder / "mine.toml", [])
    context = StageContext("", folder / "state", pipeline.source, folder)
    wanted = images[["split", "landmark_id"]]
    found = mean_photos(images, wanted, folder, options=pipeline.embed, context=context)
    assert found.ids == ["index:1", "train:1"]
    assert len(list((folder / "state" / "embeddings").glob("*/*.npy"))) == 2


def test_no_readable_photo_at_all_is_one_line(folder: Path) -> None:
    run(folder, until="clean")
    for photo in (folder / "photos").rglob("*.png"):
        photo.unlink()
    with pytest.raises(InvalidData, match=r"no value has a readable photo.*set cluster\.on"):
        run_one(folder, "embed")


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ("open_clip:ViT-B-32/nothing", MissingWeights, "embed.images"),
        ("timm:nothing", UsageError, "embed.images"),
        ("none.pt", InvalidData, "^embed.images: .*none.pt is neither a model's folder"),
        ("run:model", UsageError, "embed.images: run:model does not embed photos"),
    ],
)
def test_an_encoder_that_is_not_there_is_named_by_its_option(
    folder: Path, images: str, error: type[HgldError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(folder, f"embed.images={images}")


@pytest.mark.parametrize(
    ("part", "what", "option"),
    [("vision_cfg", "photos", "embed.images=open_clip:"), ("text_cfg", "texts", "embed.encoder=")],
)
def test_half_a_clip_is_named_with_what_it_lacks(
    folder: Path, part: str, what: str, option: str
) -> None:
    save_clip(folder)
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text())
    del config["model_cfg"][part]
    path.write_text(json.dumps(config))
    with pytest.raises(MissingWeights, match=f"no {part}, so it embeds no {what}; expected a CLIP"):
        run(folder, f"{option}local-dir:{folder}")


def test_both_vectors_weigh_as_stated() -> None:
    texts, photos = np.eye(2), np.array([[1.0, 0, 0], [0.6, 0.8, 0]])
    both = join_vectors(
        Vectors(["a", "b"], texts, {}),
        Vectors(["a", "b"], photos, {}),
        ClusterOptions(on="text+images", image_weight=0.25),
    ).vectors
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1)
    squared = ((both[0] - both[1]) ** 2).sum()
    assert squared == pytest.approx(0.75 * 2 + 0.25 * (0.4**2 + 0.8**2))


def test_a_value_without_photos_has_those_of_the_nearest_text() -> None:
    texts = Vectors(["a", "b", "c"], np.array([[1.0, 0], [0, 1], [0.6, 0.8]]), {})
    photos = Vectors(["b", "a"], np.array([[0.0, 1, 0], [0, 0, 1]]), {})
    found = join_vectors(texts, photos, ClusterOptions(on="images"))
    assert found.vectors.tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 0]]


def test_a_change_of_the_weight_embeds_nothing_again(folder: Path) -> None:
    run(folder, "cluster.on=text+images")
    before = {path: path.stat().st_mtime_ns for path in (folder / "work").glob("*_vectors.npz")}
    run(folder, "cluster.on=text+images", "cluster.image_weight=0.9")
    assert clusters(folder) == {REDS, BLUES}
    assert before == {path: path.stat().st_mtime_ns for path in before} and len(before) == 3


def test_a_killed_embedding_resumes_to_the_same_bytes(folder: Path) -> None:
    for name in (*REDS, *BLUES):
        for j in range(3, 50):
            shutil.copy(folder / "photos" / name / "0.png", folder / "photos" / name / f"{j}.png")
    options = ["--set", "embed.photos=50"]
    words = ["run", "mine.toml", "--work", "killed", *options]
    parts, start = folder / "killed" / ".state" / "embed" / "embeddings", monotonic()
    with Command(words, cwd=folder, stderr=subprocess.DEVNULL) as process:
        while not list(parts.rglob("*.npy")) and process.poll() is None:
            assert monotonic() - start < 300
            sleep(0.002)
        process.send_signal(signal.SIGKILL)
    kept = {path: path.stat().st_mtime_ns for path in parts.rglob("*.npy")}
    assert len(kept) < 4  # of 196 photos, 64 in each
    hgld(folder, *words, code=20)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    run(folder, "embed.photos=50")  # in this process, which hashes strings otherwise
    for name in ("image_vectors.npz", "clusters.csv"):
        assert (folder / "killed" / name).read_bytes() == (folder / "work" / name).read_bytes()


FAMILIES = {"Fox": "Canid", "Tulip": "Lily plant", "Wolf": "Canid", "Snowdrop": "Lily plant"}


@pytest.fixture
def families(tmp_path: Path) -> Path:
    """Two animals and two plants, whose genera are below their families in a dump."""
    entities = {
        "Q100": entity("Q100", is_a("Q102", prop="P171"), en="Canid"),
        "Q101": entity("Q101", is_a("Q102", prop="P171"), en="Lily plant"),
        "Q102": entity("Q102", en="living thing"),
    }
    for i, (name, family) in enumerate(FAMILIES.items()):
        above = {"Canid": "Q100", "Lily plant": "Q101"}[family]
        genus, species = f"Q{200 + i}", f"Q{300 + i}"
        entities[genus] = entity(genus, is_a(above, prop="P171"), en=f"{name} genus")
        entities[species] = entity(species, is_a(genus, prop="P171"), en=name)
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / name / "0.png")
    dump = write_dumps({"pages": {"x": {}}, "redirects": {}, "entities": entities}, tmp_path)
    scrape = f"""
[scrape]
source = "items"
dump_entities = {json.dumps(str(dump["entities"]))}
properties = ["P171"]
most_hops = 1
"""
    text = PIPELINE.replace('[scrape]\nsource = "names"\n', scrape)
    (tmp_path / "mine.toml").write_text(text.replace('on = "images"', "ancestry = 1"))
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    return tmp_path


def test_items_of_one_stated_ancestor_are_clustered_together(families: Path) -> None:
    assert "4 values in 2 groups by ancestry.csv" in run(families)
    assert clusters(families) == {("Fox genus", "Wolf genus"), ("Tulip genus", "Snowdrop genus")}
    with pytest.raises(UsageError, match=r"--suggest goes up to 2 clusters, but 2 different"):
        suggest_clusters(runner(families), "2:2")
    with pytest.raises(UsageError, match=r"scrape\.most_hops = 1; set that to as many"):
        run(families, "cluster.ancestry=2")
    with pytest.raises(UsageError, match=r'needs scrape\.source = "items"'):
        run(families, "scrape.source=names")


def test_a_suggestion_names_the_ancestor_that_a_decided_value_shares(families: Path) -> None:
    taxonomy = "supercategory,kind,definition\nhunter,,\ngarden,,\n"
    (families / "labels" / "taxonomy.csv").write_text(taxonomy)
    empty = dict.fromkeys(columns_of("decisions"), "")
    kept = {"Q200": "hunter", "Q203": "garden"}
    rows = [
        {**empty, "key": key, "key_type": "qid", "decision": "keep", "supercategory": name}
        for key, name in kept.items()
    ]
    pd.DataFrame(rows).to_csv(families / "labels" / "decisions.csv", index=False)
    with pytest.raises(WaitingForReview):
        run(families, "scrape.most_hops=3", until="review")
    sheet = pd.read_csv(families / "work" / "review.csv").set_index("instance_of")
    assert sheet.loc["Wolf genus", ["suggestion", "reason"]].tolist() == [
        "hunter",
        "like “Fox genus”, below “Canid”",
    ]
    page = write_page(runner(families, "scrape.most_hops=3"), "review")
    assert '"ancestors":["Canid","Lily plant"]' in page.read_text("utf-8")


def test_suggestions_and_the_page_use_the_vectors_of_the_clusters(folder: Path) -> None:
    with pytest.raises(WaitingForReview):
        run(folder, until="review")
    tables, path = suggest_clusters(runner(folder), "2:3")
    measured = tables["group"].set_index("clusters")
    assert path.is_file() and measured["silhouette"].idxmax() == 2
    texts = measured_by_text(folder)
    assert not np.allclose(measured["inertia"], texts["inertia"])
    page = write_page(runner(folder), "review")
    assert page.stat().st_size > 1000


def measured_by_text(folder: Path) -> pd.DataFrame:
    """The same numbers of clusters on texts."""
    values, texts = (runner(folder).read(name, "cluster")
                     for name in ("values", "label_vectors"))  # fmt: skip
    return measure_range(values, texts, [2, 3], ClusterOptions()).set_index("clusters")


def test_like_photos_make_a_suggestion_likelier(folder: Path) -> None:
    taxonomy = "supercategory,kind,definition\nfirst,,\nsecond,,\n"
    (folder / "labels" / "taxonomy.csv").write_text(taxonomy)
    with pytest.raises(WaitingForReview):
        run(folder, until="review")
    names = ("clusters", "taxonomy", "label_vectors", "taxonomy_vectors", "image_vectors")
    values, groups, *found = (runner(folder).read(name, "review") for name in names)
    answer_of = {"apple": "first", "boat": "second"}
    answers = [answer_of.get(name, "") for name in values["instance_of"]]
    by_text, by_both = (fit_model(values, answers, groups, *found[:n]) for n in (2, 3))
    assert by_text is not None and by_both is not None
    gains = dict(zip(values["instance_of"], by_both.probabilities - by_text.probabilities,
                     strict=True))  # fmt: skip
    first, second = (by_both.classes.index(name) for name in ("first", "second"))
    assert gains["sofa"][first] > 0.02 and gains["carrot"][second] > 0.02


@pytest.mark.parametrize("encoder", ["one CLIP", "another"])
def test_photos_are_compared_with_the_taxonomy_in_one_clip_alone(encoder: str) -> None:
    taxonomy = pd.DataFrame({"supercategory": ["lake", "mine"], "definition": ["", ""]})
    values = pd.DataFrame({"class_id": ["a", "b"], "instance_of": ["x", "y"]})
    clip = {"encoder": "one CLIP"}
    texts = Vectors(["lake", "mine"], np.eye(2), clip)
    names = Vectors(["a", "b"], np.array([[1.0, 1], [1, 1]]), clip)  # of the names nothing follows
    photos = Vectors(["a", "b"], np.eye(2)[::-1].copy(), {"encoder": encoder})
    model = fit_model(values, ["", ""], taxonomy, names, texts, photos)
    assert model is not None
    chances = model.probabilities[:, :2]
    if encoder == "another":
        np.testing.assert_allclose(chances[0], chances[1], atol=1e-6)
    else:
        assert chances.argmax(axis=1).tolist() == [1, 0]
