"""Locate the file of a model's weights: a given path, a package, the hub's cache, or the hub.

open_clip and timm can download weights themselves, but retry for most of a minute without a
network, and do not report which file they used. Here the file is found, or reported missing, within
seconds; the caller knows its path and can record its SHA-256.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError

import requests
from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError

from hgld.errors import MissingWeights
from hgld.http import is_web_page
from hgld.words import single_blanks

CONNECT_S = 3.0
ANSWER_S = 5.0


def split_name(name: str) -> tuple[str, str]:
    """Split ``MODEL/WEIGHTS`` at the first slash; weights is empty without a slash.

    Example:
        >>> split_name("ViT-L-14/laion2b_s32b_b82k")
        ('ViT-L-14', 'laion2b_s32b_b82k')
        >>> split_name("resnet50//data/resnet50.pth")
        ('resnet50', '/data/resnet50.pth')
    """
    model, _, weights = name.partition("/")
    return model, weights


def package_folder(package: str, helps: str) -> Path:
    """Folder of an installed package, located without importing it.

    Args:
        package: name to import it by.
        helps: advice for the user if the package is missing.

    Raises:
        MissingWeights: the package is not installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingWeights(f"the package {package} is not installed; {helps}")
    return Path(spec.submodule_search_locations[0])


def hub_file(repo: str, names: Sequence[str], helps: str) -> Path:
    """Return the first of the files that is in the hub's cache, else download the first there is.

    Args:
        repo: repository on the hub, ORG/NAME.
        names: file names, the best first.
        helps: advice for the user if neither has them.

    Raises:
        MissingWeights: not in the cache, and the hub does not answer or has no such file.
    """
    for name in names:  # no request: a cached file is used without a network
        cached = try_to_load_from_cache(repo, name)
        if isinstance(cached, str):
            return Path(cached)
    where = f"the weights {repo} are not on this machine"
    if constants.HF_HUB_OFFLINE:
        raise MissingWeights(f"{where} and HF_HUB_OFFLINE is set; {helps}")
    # Asked once, with short time limits, before the hub's own client starts to retry.
    url = f"{constants.ENDPOINT}/{repo}/resolve/main/{names[0]}"
    try:
        requests.head(url, timeout=(CONNECT_S, ANSWER_S), allow_redirects=False)
    except requests.RequestException:
        raise MissingWeights(f"{where} and {constants.ENDPOINT} does not answer; {helps}") from None
    for name in names:
        try:
            return Path(hf_hub_download(repo, name))
        except EntryNotFoundError:
            continue
        except Exception as error:  # the client's errors have no common class
            raise MissingWeights(f"{repo}: {name}: {one_line(error)}; {helps}") from None
    raise MissingWeights(f"{repo}: holds none of {', '.join(names)}; {helps}")


def fault_of(weights: Path, error: Exception) -> str:
    """Why a file cannot be loaded as weights: what it is in place of them, else the error.

    A server that asks to sign in, and a clone without Git LFS, leave a small text under the name of
    the weights; the error of the loader says that it blocked unsafe code.
    """
    with weights.open("rb") as file:
        head = file.read(64).lstrip()
    if not head:
        return "the file is empty; download it again"
    if is_web_page(head):
        return "it is a web page; download the file itself"
    if head.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS; fetch the file itself (git lfs pull)"
    cut = ("not fully covered", "invalid header length", "central directory")
    if any(words in str(error) for words in cut):
        return "it is truncated; download it again"
    if isinstance(error, UnpicklingError) or "weights_only" in str(error):
        return "it is no file of tensors alone; save a state_dict() by torch.save or safetensors"
    return one_line(error)


def one_line(error: Exception) -> str:
    r"""The first sentence of an error message, on one line of limited length.

    Example:
        >>> one_line(ValueError("so\n  it is. And more."))
        'so it is'
    """
    return single_blanks(str(error)).split(". ")[0][:300] or type(error).__name__
