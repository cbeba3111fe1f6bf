import json
import re
from pathlib import Path

import pytest

from hgld.cli.options import list_options, options_as_markdown, stage_files
from hgld.config import load_pipeline
from hgld.pipeline.stages import STAGES, stage_names
from tests.in_process import hgld


@pytest.mark.parametrize("name", stage_names())
def test_the_help_of_a_stage_lists_its_files_and_every_option_with_its_default(name: str) -> None:
    text = hgld(name, "--help").out
    words = " ".join(re.sub(r"(?<=\w-)\n +", "", text).split())  # an address breaks at a hyphen
    for verb, files in stage_files(name).items():
        assert not files or f"{verb} {files}" in words
    for row in list_options(name):
        assert re.search(rf"^  {row.name}( |$)", text, re.M), row.full_name
        assert row.default in (None, "", []) or f"[default: {json.dumps(row.default)}" in words


def test_the_files_of_a_stage_are_those_of_all_its_rows() -> None:
    evaluate = stage_files("evaluate")["reads"]
    assert evaluate.startswith("shards/, models/; depending on options source/, images.parquet")
    assert stage_files("fetch")["reads"] == ""


def test_options_are_printed_with_their_full_names_within_80_columns() -> None:
    text = hgld("options").out
    assert max(map(len, text.splitlines())) <= 80
    assert "\ncluster.clusters = 78\n    " in text
    assert "\nlabels (required)\n" in text
    assert "[list of svg | pdf]" in text
    assert "\n[train.batches]  " in text and "\n[[fetch.downloads]]  " in text
    assert re.findall(r"^train\.defaults\.lr = (.*)$", text, re.M) == ["0.0001"]


@pytest.mark.parametrize(
    ("section", "option"),
    [
        ("train.batches", "train.batches.order"),
        ("hint", "hint.ask"),
        ("embed.device", "embed.device"),
    ],
)
def test_options_of_a_section_are_data(section: str, option: str) -> None:
    rows = json.loads(hgld("options", section, "--json").out)
    assert option in [row["option"] for row in rows]
    assert all(row["option"].startswith(section) for row in rows)


def test_an_unknown_section_names_the_nearest() -> None:
    assert "did you mean 'cluster'?" in hgld("options", "clustr", code=2).err


def test_every_option_has_a_meaning_in_a_sentence() -> None:
    assert [
        row.full_name for row in list_options() if not re.fullmatch(r"\S.+\.", row.meaning)
    ] == []


def test_every_option_is_one_that_set_takes() -> None:
    for row in list_options():
        if row.default is not None and "[]" not in row.section:
            value = json.dumps(row.default, ensure_ascii=False)
            load_pipeline(Path("pipelines/quickstart.toml"), [f"{row.full_name}={value}"])


def test_the_reference_page_has_a_row_an_option_and_the_files_of_each_stage() -> None:
    page = options_as_markdown()
    assert len(re.findall(r"^\| `", page, re.M)) == len(list_options())
    for stage in STAGES:
        assert f"`hgld {stage.name}`: " in page
    assert "- reads values.csv, label_vectors.npz, cluster_edits.csv" in page
