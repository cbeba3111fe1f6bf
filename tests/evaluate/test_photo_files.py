"""Folders of photos are embedded without a pipeline; each vector is that of its photo alone."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hgld.artifacts import BOX
from hgld.cli import app, guarded
from hgld.config import EvaluateOptions, ModelOptions
from hgld.errors import InvalidData
from hgld.evaluate.given import read_given
from hgld.evaluate.models import find_given
from hgld.evaluate.photo_files import embed_photos, photos_in
from hgld.evaluate.revisited import Answers
from hgld.images import WHOLE_SIDE, decode_rgb
from tests.listening import heard
from tests.sources.native_sets import write_revisited

NETS = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 4, 5, stride=3), nn.AdaptiveAvgPool2d(2), nn.Flatten())

class Large(nn.Module):
    def forward(self, photos):
        return torch.empty(1 << 60)

class Broken(nn.Module):
    def forward(self, photos):
        return photos.mean((2, 3)) / 0 * 0
"""
CPU = EvaluateOptions(device="cpu")


def hgld(*words: object) -> int:
    return guarded(lambda: app([str(word) for word in words]))


@pytest.fixture
def oxford(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETS)
    return write_revisited(tmp_path / "roxford5k")


def model_of(folder: Path, **look: object) -> ModelOptions:
    return ModelOptions.model_validate({"source": f"python:{folder}/nets.py:build", **look})


def test_queries_are_parts_and_the_gallery_whole_photos(oxford: Path) -> None:
    model = model_of(oxford.parent, max_side=32, scales=[1, 1.5])
    answers = Answers.read(oxford / "gnd_roxford5k.pkl")
    out = oxford / "out"
    paths = embed_photos(model, oxford / "jpg", answers.photos(), out, CPU)
    assert [path.name for path in paths] == ["query.npz", "gallery.npz"]
    query, gallery = map(read_given, paths)
    encoder = find_given({"m": model})[0].load(torch.device("cpu"))

    def vector(name: str, box: tuple[float, ...] | None) -> np.ndarray:
        image = decode_rgb((oxford / "jpg" / f"{name}.jpg").read_bytes())
        if box is not None:
            image.info[WHOLE_SIDE] = max(image.size)
            image = image.crop(box)
        with torch.inference_mode():
            return encoder.network(encoder.transform(image)[None])[0].numpy()

    for name, box in zip(answers.queries, answers.boxes.tolist(), strict=True):
        expected = vector(name, tuple(box))
        np.testing.assert_allclose(query.of(np.array([name]))[0], expected, atol=1e-6)
    for name in answers.images:
        np.testing.assert_allclose(gallery.of(np.array([name]))[0], vector(name, None), atol=1e-6)


def test_photos_of_formats_that_are_not_read_are_reported(tmp_path: Path) -> None:
    for name in ("1.jpg", "2.heic"):
        (tmp_path / name).touch()
    with heard() as notes:
        assert photos_in(tmp_path)["path"].tolist() == ["1.jpg"]
    assert notes == [
        "1 photo in a format that hgld does not read, first 2.heic; convert them to JPEG"
    ]


def test_hidden_files_are_no_photos(tmp_path: Path) -> None:
    for name in ("a.jpg", "._a.jpg", ".thumbnails/a.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert photos_in(tmp_path)["path"].tolist() == ["a.jpg"]


def test_a_box_beyond_its_photo_embeds_what_the_photo_has(oxford: Path) -> None:
    photos, model = oxford / "jpg", model_of(oxford.parent)
    whole = photos_in(photos)[:2]
    boxed = whole.assign(**dict(zip(BOX, (-40.0, -9.0, 900.0, 900.0), strict=True)))
    paths = embed_photos(model, photos, {"whole": whole, "boxed": boxed}, oxford / "out", CPU)
    one, other = (read_given(path).vectors for path in paths)
    np.testing.assert_array_equal(one, other)
    boxed = whole.assign(**dict(zip(BOX, (900.0, 900.0, 990.0, 990.0), strict=True)))
    with pytest.raises(InvalidData, match=r"0\.jpg: key 0\.jpg: the box \(900, 900, 990, 990\)"):
        embed_photos(model, photos, {"boxed": boxed}, oxford / "other", CPU)


def test_the_same_command_embeds_only_what_changed(oxford: Path) -> None:
    photos, out = oxford / "jpg", oxford / "out"
    embed_photos(model_of(oxford.parent), photos, {"photos": photos_in(photos)}, out, CPU)
    before = {path: path.stat().st_mtime_ns for path in (out / ".state").rglob("*.npy")}
    first = (out / "photos.npz").read_bytes()
    embed_photos(model_of(oxford.parent), photos, {"photos": photos_in(photos)}, out, CPU)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert (out / "photos.npz").read_bytes() == first
    Image.new("RGB", (50, 20)).save(photos / "0.jpg")
    embed_photos(model_of(oxford.parent), photos, {"photos": photos_in(photos)}, out, CPU)
    assert len([*(out / ".state").rglob("*.npy")]) == len(before) + 1
    assert (out / "photos.npz").read_bytes() != first


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("photos-model", "MODEL: .*/photos-model is neither a model's folder"),
        ("timm:resnet5", "MODEL: timm has no model 'resnet5'"),
        ("offline:lite", "MODEL 'offline:lite' is unknown"),
    ],
)
def test_a_model_that_cannot_be_is_named_by_the_argument(oxford: Path, capsys, model, says) -> None:
    words = ("--images", oxford / "jpg", "--out", oxford / "out", "--device", "cpu")
    assert hgld("evaluations", "embed", model, *words) in (2, 3)
    assert re.match(f"hgld: {says}", capsys.readouterr().err.splitlines()[-1])


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("Large", "MODEL: out of memory while embedding with .*; give --device cpu, or a smaller"),
        ("Broken", "MODEL: model nets.py:Broken, split photos: 8 of 8 embeddings hold nan"),
    ],
)
def test_what_a_model_cannot_do_names_no_option_of_a_pipeline(
    oxford: Path, capsys, function, says
) -> None:
    model = f"python:{oxford.parent}/nets.py:{function}"
    words = ("--images", oxford / "jpg", "--out", oxford / "out", "--device", "cpu")
    assert hgld("evaluations", "embed", model, *words) in (1, 3)
    assert re.match(f"hgld: {says}", capsys.readouterr().err.splitlines()[-1])


def test_embed_and_revisited_are_two_commands(oxford: Path, capsys) -> None:
    answers, out = oxford / "gnd_roxford5k.pkl", oxford / "out"
    model = f"python:{oxford.parent}/nets.py:build"
    words = ("--images", oxford / "jpg", "--answers", answers, "--out", out, "--device", "cpu")
    scales = ("--max-side", 64, "--scale", 0.7071, "--scale", 1, "--scale", 1.4142)
    assert hgld("evaluations", "embed", model, *words, *scales) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == [f"{out}/query.npz", f"{out}/gallery.npz"]
    assert "Embedding with nets.py:build: " in printed.err
    sides = (out / "query.npz", out / "gallery.npz")
    assert hgld("evaluations", "revisited", *sides, "--answers", answers, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"easy", "medium", "hard"} and 0 < found["medium"]["mAP"] <= 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run:one",), "run:one: give the folder of the model"),
        (("nowhere",), "nowhere is neither a model's folder"),
        (("NETS", "--scale", 1), "scales needs max_side"),
        (("NETS", "--images", "empty"), "empty: no photos; expected files such as .jpg"),
    ],
)
def test_what_cannot_be_embedded_is_one_line(
    words: tuple[object, ...], says: str, oxford: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(oxford)
    (oxford / "empty").mkdir()
    model = f"python:{oxford.parent}/nets.py:build" if words[0] == "NETS" else words[0]
    images = () if "--images" in words else ("--images", "jpg")
    assert hgld("evaluations", "embed", model, *words[1:], *images, "--out", "out") in (2, 3)
    error = capsys.readouterr().err
    assert says in " ".join(error.split())


def test_missing_and_damaged_photos_are_named(oxford: Path) -> None:
    answers = Answers.read(oxford / "gnd_roxford5k.pkl").photos()
    model, out = model_of(oxford.parent), oxford / "out"
    (oxford / "jpg" / "3.jpg").write_bytes(b"no photo")
    with pytest.raises(Exception, match=r"3\.jpg: .*cannot be decoded.*; replace the photo"):
        embed_photos(model, oxford / "jpg", answers, out, CPU)
    (oxford / "jpg" / "3.jpg").unlink()
    with pytest.raises(Exception, match=r"1 of 6 photos is not in the folder, first 3\.jpg"):
        embed_photos(model, oxford / "jpg", answers, out, CPU)


def test_damaged_photos_are_left_out_on_request_and_listed(oxford: Path, capsys) -> None:
    photos, out, model = oxford / "jpg", oxford / "out", model_of(oxford.parent)
    embed_photos(model, photos, {"photos": photos_in(photos)}, oxford / "all", CPU)
    whole = read_given(oxford / "all" / "photos.npz")
    for name in ("3.jpg", "5.jpg"):
        (photos / name).write_bytes(b"no photo")
    words = (model.source, "--images", photos, "--out", out, "--device", "cpu")
    assert hgld("evaluations", "embed", *words) == 3
    advice = "replace the photo, or delete it; --skip-damaged leaves such photos out"
    assert capsys.readouterr().err.rstrip().endswith(advice)
    assert hgld("evaluations", "embed", *words, "--skip-damaged") == 0
    says = f"2 photos left out, not decodable, first 3.jpg; {out / 'photos_dropped.csv'} lists them"
    assert says in " ".join(capsys.readouterr().err.split())
    rows = ["image_id,reason", "3.jpg,not decodable", "5.jpg,not decodable"]
    assert (out / "photos_dropped.csv").read_text().splitlines() == rows
    rest = read_given(out / "photos.npz")
    assert sorted({*whole.ids.tolist()} - {*rest.ids.tolist()}) == ["3.jpg", "5.jpg"]
    np.testing.assert_allclose(rest.vectors, whole.of(rest.ids), atol=1e-6)
    for name in ("3.jpg", "5.jpg"):
        (photos / name).unlink()
    assert hgld("evaluations", "embed", *words) == 0
    assert not (out / "photos_dropped.csv").exists()


def test_photos_of_a_list_are_not_left_out(oxford: Path, capsys) -> None:
    answers = ("--answers", oxford / "gnd_roxford5k.pkl", "--skip-damaged")
    words = ("m", "--images", oxford / "jpg", "--out", oxford / "out", *answers)
    assert hgld("evaluations", "embed", *words) == 2
    assert "--skip-damaged: --answers needs all its photos" in capsys.readouterr().err


def test_no_photo_that_can_be_decoded_is_one_line(oxford: Path) -> None:
    rows, model = photos_in(oxford / "jpg"), model_of(oxford.parent)
    for path in rows["path"]:
        (oxford / "jpg" / path).write_bytes(b"")
    with pytest.raises(InvalidData, match="8 photos, none of which can be decoded"):
        embed_photos(model, oxford / "jpg", {"photos": rows}, oxford / "out", CPU, True)


@pytest.mark.parametrize("box", [[], [5, 0, 5, 9], [1, 2, 3]])
def test_a_query_without_a_box_is_refused(box: list[int], tmp_path: Path) -> None:
    gnd = [{"bbx": box, "easy": [0], "hard": [], "junk": []}]
    path = tmp_path / "gnd.json"
    path.write_text(json.dumps({"qimlist": ["q"], "imlist": ["i"], "gnd": gnd}))
    with pytest.raises(Exception, match=r"gnd\[0\] of the answers \(q\) has the box"):
        Answers.read(path).photos()


@pytest.mark.parametrize("way", ["hook", "attribute", "nothing"])
def test_threads_do_not_mix_up_what_a_network_keeps_of_a_call(way: str, tmp_path: Path) -> None:
    """A hook that keeps features for the forward that follows is usual, and not for threads."""
    code = f"""
import time
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 8, stride=8)
        if {way == "hook"}:
            kept = {{}}
            self.first.register_forward_hook(lambda module, given, found: kept.update(x=found))
            self.read = lambda: kept["x"]
    def forward(self, photos):
        found = self.first(photos)
        if {way == "attribute"}:
            self.kept = found
        time.sleep(0.02)
        found = self.read() if {way == "hook"} else self.kept if {way == "attribute"} else found
        return found.mean((2, 3))

def build():
    return Net()
"""
    (tmp_path / "nets.py").write_text(code)
    (tmp_path / "jpg").mkdir()
    for number in range(40):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "jpg" / f"{number:02}.png")
    model, photos = model_of(tmp_path, image_size=16), photos_in(tmp_path / "jpg")
    threads, found = torch.get_num_threads(), list[np.ndarray]()
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            out = tmp_path / f"out{count}"
            (path,) = embed_photos(model, tmp_path / "jpg", {"photos": photos}, out, CPU)
            found.append(read_given(path).vectors)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found[0], axis=0)) == 40
