"""The command that measures on a GPU, with tiny sizes in Triton's interpreter."""

import json
from pathlib import Path

import pytest

from tests.gpu import bench
from tests.gpu.devices import INTERPRETED, quiet

pytestmark = [
    quiet,
    pytest.mark.skipif(not INTERPRETED, reason="on a GPU it takes minutes"),
]


def test_one_command_prints_one_table_of_losses_evaluation_and_embedding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench.json"
    monkeypatch.setattr("sys.argv", ["bench", "--out", str(out)])
    assert bench.main() == 0
    rows = json.loads(out.read_text())["rows"]
    printed = capsys.readouterr().out.splitlines()
    assert [line[:60].rstrip() for line in printed if " ms " in line] == [
        row["what"][:60] for row in rows
    ]
    for part in (*bench.LOSSES, "SOP: 15 metrics", "in four parts", "embed an image of 40"):
        assert any(part in row["what"] for row in rows), part
    assert all(row["ms"] > 0 and row["ratio"] > 0 for row in rows)
