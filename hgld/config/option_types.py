"""The base of all option models, and the types of options that are checked: paths, URLs, models.

A relative path becomes an absolute one when the options are read: it is relative to the folder of
the pipeline file that sets it, or, in ``--set``, to the current folder.
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    field_validator,
)

from hgld.words import PASSWORD

LEVEL_NAMES = ("kind", "supercategory", "landmark")  # coarse to fine, as H-GLDv2 publishes them
KIND_SEPARATOR = " > "  # between the classes above a supercategory, coarse to fine
SEED = "{seed}"  # in the source of a model, in place of a number of its ``seeds``


def _fill_in(variable: re.Match[str]) -> str:
    name, default = variable.groups()
    if default is None and not os.environ.get(name):  # an empty one would lead to the root
        raise ValueError(f"the variable {name} is not set; set it or write ${{{name}:-default}}")
    return os.environ.get(name) or default or ""


class _TextFrom(str):
    """Text from elsewhere than the pipeline file: a path in it is relative to ``folder``."""

    folder: Path


def _resolve(path: Any, info: ValidationInfo) -> Any:
    """Return an absolute path; other types are left for pydantic to refuse."""
    if not isinstance(path, str | Path):
        return path
    expanded = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", _fill_in, str(path))
    folder = path.folder if isinstance(path, _TextFrom) else (info.context or {}).get("folder")
    if expanded.startswith("~/"):
        try:
            return Path(os.path.normpath(Path(expanded).expanduser()))
        except RuntimeError:
            raise ValueError("this user has no home folder; write the whole path") from None
    return Path(os.path.normpath((folder or Path.cwd()) / expanded))


def mark_folder(value: Any, folder: Path) -> Any:
    """Return the value with the folder that paths in its texts are relative to."""
    if isinstance(value, dict):
        return {name: mark_folder(inner, folder) for name, inner in value.items()}
    if isinstance(value, list):
        return [mark_folder(inner, folder) for inner in value]
    if not isinstance(value, str) or isinstance(value, _TextFrom):
        return value
    marked = _TextFrom(value)
    marked.folder = folder
    return marked


def _resolve_part(path: str, name: str, info: ValidationInfo) -> Any:
    """Return a path that is part of a model's name as an absolute one."""
    return _resolve(mark_folder(path, name.folder) if isinstance(name, _TextFrom) else path, info)


def is_run_name(name: object) -> bool:
    """Whether this can be the name of a run, which is also that of its folder."""
    return isinstance(name, str) and bool(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name))


def _refuse_odd_name(name: str) -> str:
    if not is_run_name(name):
        raise ValueError("a run's name is a folder's; use letters, digits, '_', '-' and inner '.'")
    return name


def _resolve_model(name: Any, info: ValidationInfo) -> Any:
    """Return a model's name unchanged, and a path in it as an absolute one."""
    if not isinstance(name, str):
        return name
    kind, _, rest = name.partition(":")
    if kind == "python":
        place, _, function = rest.rpartition(":")
        if not place or not function.replace(SEED, "0").isidentifier():
            raise ValueError("expected python:FILE.py:FUNCTION or python:MODULE:FUNCTION")
        if not place.endswith(".py"):
            return name
        return f"python:{_resolve_part(place, name, info)}:{function}"
    if kind in ("timm", "open_clip"):
        return _resolve_weights(name, info, tags=kind == "open_clip")
    return name if kind in ("run", "offline") else str(_resolve(name, info))


def _split_weights(source: str) -> tuple[str, str]:
    """Split MODEL/FILE or local-dir:FOLDER before its path, which is empty in any other source."""
    found = re.fullmatch(r"((?:timm:|open_clip:)?(?:local-dir:|[^/:]+/))(.*)", source, re.DOTALL)
    return (found[1], found[2]) if found else (source, "")


def _resolve_weights(source: Any, info: ValidationInfo, *, tags: bool) -> Any:
    """Return MODEL/FILE or local-dir:FOLDER with an absolute path; other sources unchanged.

    With ``tags``, MODEL/PRETRAINED has no file: a FILE has a dot or a slash.
    """
    if not isinstance(source, str):
        return source
    start, path = _split_weights(source)
    if not path or (tags and start.endswith("/") and not {*path} & {*"./"}):
        return source
    return f"{start}{_resolve_part(path, source, info)}"


def without_folders(source: str) -> str:
    """Return MODEL/FILE or local-dir:FOLDER without its path, which other machines do not have.

    Example:
        >>> without_folders("open_clip:ViT-B-32//data/w.pt"), without_folders("timm:resnet50")
        ('open_clip:ViT-B-32/w.pt', 'timm:resnet50')
    """
    start, path = _split_weights(source)
    return start + Path(path).name if path.startswith("/") else source


def _resolve_start(name: Any, info: ValidationInfo) -> Any:
    """Return the name of a run unchanged, and any other text as an absolute path."""
    is_path = isinstance(name, str) and name and not is_run_name(name)
    return str(_resolve(name, info)) if is_path else name


def _resolve_shards(folder: Any, info: ValidationInfo) -> Any:
    """Return a URL without credentials, and a path as an absolute one."""
    if folder is None:
        return folder
    if isinstance(folder, str) and "://" in folder:
        return _require_shard_url(folder)
    return str(_resolve(folder, info))


def _require_device(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", name):
        raise ValueError("expected auto, cpu, cuda, or one of several GPUs as cuda:1")
    return name


def _require_cluster(address: str) -> str:
    # Ray takes other texts for addresses, too, and some of its own errors have many lines
    if not re.fullmatch(r"auto|local|(ray://)?([\w.-]+|\[[\w:.]+\]):\d+", address):
        raise ValueError("expected host:port, ray://host:port, or auto for the one on this machine")
    return address


def _require_amount(amount: float) -> float:
    if round(amount, 4) != amount:
        raise ValueError("expected four decimals at most, as Ray reserves no finer shares")
    return amount


def _require_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        sound = parts.scheme in ("http", "https") and host and parts.port != 0
    except ValueError:  # the port is not a number, or the host not a name
        sound = False
    if not sound:
        raise ValueError(f"{url!r} is not an address such as https://example.org/w/api.php")
    return url


def _require_shard_url(url: str) -> str:
    parts = urlsplit(url)
    # First, since the other messages repeat the URL.
    if PASSWORD.search(url) or parts.query:
        raise ValueError(
            f"the URL of {parts.scheme}:// holds credentials or a query; the driver reads "
            "credentials from the environment or a profile"
        )
    if "://" not in url or not (parts.netloc or parts.path.strip("/")):
        raise ValueError(f"{url!r} is not a URL; expected one such as s3://bucket/set")
    if "//" in parts.path.rstrip("/"):  # S3 has such folders, but its drivers do not list them
        raise ValueError(f"{url!r} has a folder without a name; expected one / between names")
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise ValueError(f"{url!r} has a relative path; expected one such as file:///data/set")
    return url.rstrip("/")


def files_of_models(sources: Mapping[str, str]) -> dict[str, Path]:
    """Return option -> folder or file, of the models that are not part of a package."""
    paths = {}
    for name, source in sources.items():
        kind, _, rest = source.partition(":")
        of_code = rest.rpartition(":")[0] if kind == "python" else ""
        paths[name] = Path(of_code or _split_weights(source)[1] or source)
    return {name: path for name, path in paths.items() if path.is_absolute()}


LocalPath = Annotated[Path, BeforeValidator(_resolve)]
DeviceName = Annotated[str, AfterValidator(_require_device)]
RayAmount = Annotated[float, AfterValidator(_require_amount)]
RayAddress = Annotated[str, AfterValidator(_require_cluster)]
WebAddress = Annotated[str, AfterValidator(_require_web_address)]
ModelName = Annotated[str, BeforeValidator(_resolve_model)]
TextEncoderName = Annotated[str, BeforeValidator(partial(_resolve_weights, tags=True))]
BackboneName = Annotated[str, BeforeValidator(partial(_resolve_weights, tags=False))]
StartModel = Annotated[str, BeforeValidator(_resolve_start)]
ShardUrl = Annotated[str, AfterValidator(_require_shard_url)]
ShardFolder = Annotated[str | None, BeforeValidator(_resolve_shards)]
RunName = Annotated[str, AfterValidator(_refuse_odd_name)]


class Options(BaseModel):
    """Frozen options; a key that does not exist is an error.

    ``operational`` names the options that change how a stage works but not its results; changing
    them makes nothing stale. ``brought`` names the options that lead to a person's own files; a
    change of their content makes the stage stale. ``in_source`` names those that lead to files
    relative to the source folder; a file elsewhere counts as brought.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    operational: ClassVar[frozenset[str]] = frozenset()
    brought: ClassVar[frozenset[str]] = frozenset()
    in_source: ClassVar[frozenset[str]] = frozenset()

    @field_validator("*")
    @classmethod
    def _require_held(cls, value: Any, info: ValidationInfo) -> Any:
        # numpy, torch and SQLite end in an overflow, within a step, that names no option
        for one in value if isinstance(value, tuple) else (value,):
            is_count = isinstance(one, int) and info.field_name not in ("seed", "seeds")
            if isinstance(one, int | float) and abs(one) >= 2 ** (31 if is_count else 63):
                raise ValueError(f"expected a number below 2^{31 if is_count else 63}")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_true_as_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false, which pydantic reads as 1 and 0: ``embed.photos = true``."""
        kind = cls.model_fields[info.field_name or ""].annotation
        kinds = {kind, *get_args(kind)}
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError("expected a number")
        return value

    def without_effect(self) -> list[str]:
        """Return the names of options that are set but reserve for tasks on no Ray cluster."""
        if getattr(self, "ray", "no option") is not None:
            return []
        return [name for name in sorted(self.model_fields_set) if name.endswith("_per_task")]

    def brought_paths(self) -> dict[str, Path]:
        """Return option -> path of a person's own files."""
        paths = {name: getattr(self, name) for name in sorted(self.brought)}
        return {name: path for name, path in paths.items() if path is not None}

    def decisive(self) -> dict[str, Any]:
        """The options that decide the stage's output, as JSON values."""
        values = self.model_dump(mode="json", exclude=set(self.operational))
        return {name: _decisive(getattr(self, name), value) for name, value in values.items()}


def _decisive(option: object, value: Any) -> Any:
    """The JSON value of an option, without what is operational in options that it holds."""
    if isinstance(option, Options):
        return option.decisive()
    if isinstance(option, tuple):
        return [_decisive(*pair) for pair in zip(option, value, strict=True)]
    return value
