"""Labels before photos: only photos that will have a label are kept, so the disk may be small."""

import re
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

import pandas as pd
import pytest

from hgld.shards.tar import scan_tar
from tests import in_process
from tests.in_process import Printed
from tests.sources.file_server import Files, serve_files
from tests.sources.made_set import FILES, OPTIONS, TARS
from tests.sources.small_disk import small_disk
from tests.sources.test_shrink import SIDE, pack, photo

WORDS = {
    "words.csv": "landmark_id,supercategory\n5,old church\n7,nameless thing\n9,old church\n",
    "labels/taxonomy.csv": "supercategory,kind,definition\nchurch,human-made,Churches.\n",
    "labels/decisions.csv": "key,key_type,decision,supercategory,kind,who,when,why,supersedes\n"
    "old church,label,keep,church,human-made,ann,2026-11-21,so,\n"
    "nameless thing,label,drop,,,ann,2026-11-21,so,\n",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = {name: content.encode() for name, content in FILES.items()}
    for number, (name, ids) in enumerate(TARS.items()):
        served[name] = pack({image_id: photo(number) for image_id in ids})
        served[f"{name}.md5"] = md5(served[name]).hexdigest().encode()
    with serve_files(Files(served)) as base:
        yield base


def listed(split: str, wanted: str, count: int, more: str = "") -> str:
    name = f"{split}_{{number:03d}}.tar"
    return (
        f'{{ url = "{name}", md5_url = "{name}.md5", count = {count}, megabytes = 0.01, '
        f'wanted_csv = "{wanted}"{more} }}'
    )


def write_pipeline(folder: Path, url: str, *, tars: str = "", labelled: str = "") -> Path:
    for name, text in WORDS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    csvs = [f'{{ url = "{name}", megabytes = 0.001 }}' for name in FILES]
    train = listed("train", "clean.csv", 2, f', labelled_csv = "{labelled}"' * bool(labelled))
    rest = [listed("index", "index.csv", 1), listed("test", "solution.csv", 1)]
    collect = "\n".join(f'{k} = "{v}"' for k, v in OPTIONS.model_dump(include=CSVS).items())
    path = folder / "own.toml"
    path.write_text(
        f'labels = "labels"\n[source]\nkind = "gldv2"\n[fetch]\nbase_url = "{url}"\n'
        f'short_side = {SIDE}\ntars = "{tars}"\ndownloads = [{", ".join([*csvs, train, *rest])}]\n'
        f'[collect]\n{collect}\n[scrape]\nsource = "table"\ntable = "words.csv"\n'
        '[embed]\nencoder = "offline:minilm"\n[cluster]\nclusters = 1\n[hint]\nask = false\n',
        encoding="utf-8",
    )
    return path


CSVS = {name for name in type(OPTIONS).model_fields if name.endswith(("_csv", "_tars"))}


def hgld(verb: str, pipeline: Path, *options: str) -> Printed:
    return in_process.hgld(verb, pipeline, "--work", pipeline.parent / "work", *options)


def test_once_labels_are_made_only_photos_of_labelled_landmarks_are_kept(
    url: str, tmp_path: Path
) -> None:
    hgld("run", write_pipeline(tmp_path, url, tars="0"), "--until", "label")
    source, labels = tmp_path / "work/source", tmp_path / "work/train_label_to_hierarchical.csv"
    first = labels.read_bytes()
    assert pd.read_csv(labels)["landmark_id"].tolist() == [5, 9]  # without most of the photos
    assert {p.name for p in source.glob("train_*.tar")} == {"train_000.kept.tar"}
    labelled = write_pipeline(tmp_path, url, labelled=f"../{labels.name}")
    told = hgld("run", labelled, "--until", "label").said
    assert "fetch.downloads: [{'labelled_csv': ''}] -> [{'labelled_csv': '../train_label" in told
    kept = [Path(m.name).stem for tar in sorted(source.glob("train_*.tar")) for m in scan_tar(tar)]
    assert kept == ["0000000000000001", "00000000000000a2"]  # not a3, which is clean, too
    assert labels.read_bytes() == first
    images = pd.read_parquet(tmp_path / "work/images.parquet")
    assert images["split"].value_counts().to_dict() == {"index": 3, "train": 2, "test": 2}


def downloads(pipeline: Path) -> list[str]:
    """What a dry run says that will be loaded."""
    return re.findall(r"\d+ x (\S+)$", hgld("run", pipeline, "--dry-run").out, re.MULTILINE)


def test_a_dry_run_lists_downloads_that_will_happen_and_no_others(url: str, tmp_path: Path) -> None:
    hgld("fetch", write_pipeline(tmp_path, url, tars="0"))
    assert downloads(write_pipeline(tmp_path, url)) == ["train_*.tar"]  # the second one
    labels = tmp_path / "work/labels.csv"
    labels.write_text("landmark_id,hierarchical_label\n5,church\n7,lake\n")
    own = write_pipeline(tmp_path, url, labelled="../labels.csv")
    hgld("fetch", own)
    assert downloads(own) == []
    labels.write_text("landmark_id,hierarchical_label\n5,church\n")  # a run does not fetch again
    assert downloads(own) == []
    done = hgld("fetch", own, "--estimate", "--bandwidth", "1")
    assert "to load   2 files" in done.out  # but fetch --force would


def test_files_and_shards_on_two_disks_are_compared_with_each_of_them(
    url: str, tmp_path: Path
) -> None:
    own, small = write_pipeline(tmp_path, url), tmp_path / "small"
    own.write_text(own.read_text().replace("[source]", f'[source]\nfolder = "{small}"'))
    with small_disk(small, 20 * 4096) as grow:
        out = " ".join(hgld("run", own, "--dry-run").out.split())
        files = len(FILES) + 4 * 10 + 4 * 10  # kB: the CSVs, all tars on the way, their photos
        assert re.search(rf"at most {files} kB needed \(files\), 81.9 kB free in \S+small NOT", out)
        lack = f"NOT ENOUGH: up to {files - 81.92:.3g} kB more; choose another source.folder or"
        assert lack in out
        assert re.search(r"disk at most 40 kB needed \(shards\), \S+ GB free in \S+work", out)
        out = " ".join(hgld("fetch", own, "--estimate", "--bandwidth", "1").out.split())
        assert out.count("NOT ENOUGH") == 1 and f"NOT ENOUGH: {files - 81.92:.3g} kB more" in out
        assert re.search(r"shards about 40 kB more, once export has run; \S+ GB free in", out)
        grow()
        assert "NOT ENOUGH" not in hgld("run", own, "--dry-run").out


def test_shards_at_a_url_need_no_space_on_the_disk_of_the_work_folder(
    url: str, tmp_path: Path
) -> None:
    own = write_pipeline(tmp_path, url)
    folder = f'[source]\nfolder = "{tmp_path / "files"}"'
    own.write_text(own.read_text().replace("[source]", folder))
    remote = ("--set", "export.out=s3://bucket/set")
    with small_disk(tmp_path / "work", 4 * 4096):  # less than the 40 kB of the shards
        assert "NOT ENOUGH" in hgld("run", own, "--dry-run").out
        assert "NOT ENOUGH" not in hgld("run", own, "--dry-run", *remote).out
        out = " ".join(hgld("fetch", own, "--estimate", "--bandwidth", "1", *remote).out.split())
        assert "NOT ENOUGH" not in out
        assert "about 40 kB more, once export has run; at s3://bucket/set" in out
    own.write_text(own.read_text().replace(str(tmp_path / "files"), str(tmp_path / "work/files")))
    with small_disk(tmp_path / "work", 4 * 4096):  # for the files, too
        done = hgld("fetch", own, "--estimate", "--bandwidth", "1", *remote)
        assert done.out.count("NOT ENOUGH") == 1
