import os
import signal
from pathlib import Path

import pytest

import hgld.model  # noqa: F401  first: its import hook has to precede torchvision, timm, open_clip

os.environ.setdefault("HF_HUB_OFFLINE", "1")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup what it is named after

DEFAULT_REAL_DATA = Path(__file__).parent.parent.parent / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real photos and labels; in CI it has to be there."""
    folder = Path(os.environ.get("HGLD_REAL_DATA", DEFAULT_REAL_DATA)).resolve()
    if not folder.is_dir():
        message = f"no real data in {folder}; HGLD_REAL_DATA names the folder"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder
