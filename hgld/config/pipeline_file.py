"""A pipeline file (TOML): all options together, their checks across stages, and how it is read."""

import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, get_origin

from pydantic import ValidationError, model_validator

from hgld.config.data_options import CollectOptions, ExportOptions, FetchOptions, SourceOptions
from hgld.config.hierarchy_options import (
    CleanOptions,
    ClusterOptions,
    EmbedOptions,
    HintOptions,
    LabelOptions,
    LinkOptions,
    ReviewOptions,
    ScrapeOptions,
)
from hgld.config.option_types import LEVEL_NAMES, LocalPath, Options, mark_folder
from hgld.config.result_options import EvaluateOptions, PublishOptions, ReportOptions
from hgld.config.training_options import TrainOptions
from hgld.errors import UsageError
from hgld.words import nearest

Checked = TypeVar("Checked", bound=Options)

# pydantic's kinds of faults whose own words name Python types
EXPECTED = {
    "path_type": "a path",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
# user, password and signature of a URL
CREDENTIALS = re.compile(r"(?<=://)[^\s'\"]*(?=@)|(?<=\?)[\w.-]+=[^\s'\"]*")


@dataclass(frozen=True)
class StageContext:
    """Facts of a run that its stages may use.

    Attributes:
        now: date of the run, ISO 8601; the only date that may reach an output.
        state: folder for the stage's unfinished work; it survives a kill.
        source: folder and layout of the data set's own files.
        labels: folder of decisions by people (taxonomy, decisions, overrides, removals).
        scrape: options for all stages that ask Wikimedia.
        force: a person asked to run everything again; ignore notes of finished work.
        title: of the pipeline, for pages.
        levels: names of the levels above the landmarks, coarse to fine.
        embed: the text encoder, for all stages that compare texts.
        languages: of the names of classes, the best first.
        words: arguments that name the pipeline and its work folder in a command.
    """

    now: str
    state: Path
    source: SourceOptions
    labels: Path
    scrape: ScrapeOptions = field(default_factory=ScrapeOptions)
    force: bool = False
    title: str = ""
    levels: tuple[str, ...] = LEVEL_NAMES[:-1]
    embed: EmbedOptions = field(default_factory=EmbedOptions)
    languages: tuple[str, ...] = ("en",)
    words: str = "PIPELINE"


class Pipeline(Options):
    """Everything in a pipeline file."""

    title: str = ""
    """Title of the pages; empty: the name of the work folder."""
    labels: LocalPath
    """Folder of the decisions, taxonomy and removals, kept in git."""
    source: SourceOptions = SourceOptions()
    fetch: FetchOptions = FetchOptions()
    collect: CollectOptions = CollectOptions()
    link: LinkOptions = LinkOptions()
    scrape: ScrapeOptions = ScrapeOptions()
    clean: CleanOptions = CleanOptions()
    hint: HintOptions = HintOptions()
    embed: EmbedOptions = EmbedOptions()
    cluster: ClusterOptions = ClusterOptions()
    review: ReviewOptions = ReviewOptions()
    label: LabelOptions = LabelOptions()
    export: ExportOptions = ExportOptions()
    train: TrainOptions = TrainOptions()
    evaluate: EvaluateOptions = EvaluateOptions()
    report: ReportOptions = ReportOptions()
    publish: PublishOptions = PublishOptions()

    @property
    def trains(self) -> bool:
        """Whether train is a stage: not if all models are given and there is no [train]."""
        models = self.evaluate.sources.values()
        given = bool(models) and not any(model.startswith("run:") for model in models)
        return not given or "train" in self.model_fields_set

    @model_validator(mode="after")
    def _has_levels(self) -> Self:
        of_files = self.source.kind == "cub" and self.label.source == "native"
        if of_files and self.source.class_table is None:
            raise ValueError(
                "source.class_table is not set, so the species have no orders and families; set it "
                "to labels/cub/classes.csv, or to a CSV of class_id and one column a level; or "
                'build them: label.source = "decisions"'
            )
        return self

    @model_validator(mode="after")
    def _releases_own_labels(self) -> Self:
        if self.label.source == "native" and self.publish.name:
            raise ValueError(
                'publish.name is set, but label.source = "native" makes no release, as the labels '
                "are those of the data set; remove publish.name"
            )
        return self

    @model_validator(mode="after")
    def _has_items(self) -> Self:
        if self.link.table is not None and self.scrape.source != "items":
            raise ValueError(
                'link.table needs scrape.source = "items", which asks what the classes are'
            )
        if self.cluster.holds_together and self.scrape.source != "items":
            raise ValueError(
                'cluster.ancestry needs scrape.source = "items", which records what is above the '
                "items of the classes"
            )
        if self.cluster.ancestry > self.scrape.most_hops:
            raise ValueError(
                f"cluster.ancestry is {self.cluster.ancestry} steps, but ancestry.csv goes up "
                f"scrape.most_hops = {self.scrape.most_hops}; set that to as many"
            )
        return self

    @model_validator(mode="after")
    def _names_its_runs(self) -> Self:
        of_seeds = (name for models in self.train.models().values() for name in models)
        known = list(dict.fromkeys([*self.train.runs, *of_seeds]))
        for name, model in self.evaluate.sources.items():
            kind, _, run = model.partition(":")
            if kind == "run" and run not in known:
                raise ValueError(
                    f"evaluate.models.{name}: train has no run '{run}' (it has {', '.join(known)})"
                    + nearest(run, known)
                )
        return self


def default_work(pipeline_file: Path) -> Path:
    """The work folder of a pipeline file if none is named: work/NAME beside the file.

    If the file is in a folder ``pipelines``, it is beside that folder. So it depends on the file
    alone, and every command finds it from everywhere.
    """
    file = pipeline_file.resolve()
    folder = file.parent.parent if file.parent.name == "pipelines" else file.parent
    work = folder / "work" / file.stem
    return work if pipeline_file.is_absolute() else Path(os.path.relpath(work))


def checked_options(model: type[Checked], given_by: str, **values: Any) -> Checked:
    """Return options that do not come from a pipeline file, checked.

    Args:
        model: of the options.
        given_by: argument of a command, for the error.
        values: by the names of the options.

    Raises:
        UsageError: a value is wrong, or they do not fit together.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"{given_by}: {_describe(error)}") from None


def load_pipeline(path: Path, settings: Sequence[str] = ()) -> Pipeline:
    """Read a pipeline file and apply ``stage.option=value`` settings.

    Raises:
        UsageError: no such file, no TOML, an unknown key (the nearest is named), a wrong value.
    """
    values = _read_pipeline(path)
    for setting in settings:
        _apply(values, setting)
    try:
        return Pipeline.model_validate(
            _merge_runs(values), context={"folder": path.resolve().parent}
        )
    except ValidationError as error:
        base = f" on its base {found!r}" if (found := _read_toml(path).get("base")) else ""
        where = f"{path}{base}" + (" with the options given" if settings else "")
        raise UsageError(f"{where}: {_describe(error)}") from None


def _read_pipeline(path: Path, above: Sequence[Path] = ()) -> dict[str, Any]:
    """Values of a pipeline file over those of the file that its ``base`` names.

    Tables are merged; any other value of the file replaces that of its base.
    """
    values = _read_toml(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str) or not base:
        raise UsageError(f"{path}: base is {base!r}; expected the path of another pipeline file")
    found = Path(os.path.normpath(path.resolve().parent / base))
    if Path(os.path.realpath(found)) in (*above, path.resolve()):
        raise UsageError(f"{path}: base = {base!r} leads back to this file")
    if not found.is_file():
        reason = "is not a file" if found.exists() else "does not exist"
        raise UsageError(f"{path}: base = {base!r}: {found} {reason}")
    return _merge(
        mark_folder(_read_pipeline(found, (*above, path.resolve())), found.parent), values
    )


def _merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    both = base.keys() & own.keys()
    tables = {name for name in both if isinstance(base[name], dict) and isinstance(own[name], dict)}
    return base | own | {name: _merge(base[name], own[name]) for name in tables}


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"{path}: no such pipeline file; pipelines/ holds those that ship")
    try:
        return _parse_toml(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None


def _parse_toml(text: str) -> dict[str, Any]:
    """Values of a TOML text.

    Raises:
        ValueError: not TOML, or more than Python reads of it.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        long = re.search(rf"[0-9_]{{{sys.get_int_max_str_digits()},}}", text)
        if long is None:
            raise
        line = text.count("\n", 0, long.start()) + 1
        raise ValueError(f"line {line}: a number of {len(long[0]):,} digits") from None


def _apply(values: dict[str, Any], setting: str) -> None:
    """Write one ``a.b=value`` into the nested values; the value is TOML, else plain text."""
    name, found, text = setting.partition("=")
    *parents, last = name.strip().split(".")
    if not found or not all((*parents, last)):
        raise UsageError(f"--set {setting}: expected stage.option=value")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise UsageError(f"--set {setting}: '{parent}' holds a value, not options")
    try:
        read = _parse_toml(f"v = {text}")
    except ValueError:
        read = {}
    values[last] = mark_folder(read["v"] if len(read) == 1 else text, Path.cwd())


def _merge_runs(values: dict[str, Any]) -> dict[str, Any]:
    """Fill each training run with what train.defaults says and the run does not."""
    train = values.get("train")
    if not isinstance(train, dict):
        return values
    defaults, runs = train.get("defaults", {}), train.get("runs", {"model": {}})
    if not isinstance(defaults, dict) or not isinstance(runs, dict):
        return values
    merged = {name: {**defaults, **r} if isinstance(r, dict) else r for name, r in runs.items()}
    return {**values, "train": {**train, "runs": merged}}


def _describe(error: ValidationError) -> str:
    """Describe all faults; one of train.defaults once, although each run inherits it."""
    found = error.errors()
    shared = {item["loc"][2:] for item in found if item["loc"][:2] == ("train", "defaults")}
    inherited = [i["loc"][:2] == ("train", "runs") and i["loc"][3:] in shared for i in found]
    own = (item for item, again in zip(found, inherited, strict=True) if not again)
    text = "; ".join(_describe_one(item) for item in own)
    return CREDENTIALS.sub("***", text)  # the message repeats the value that it refuses


def _describe_one(item: Mapping[str, Any]) -> str:
    loc = [part for part in item["loc"] if not str(part).startswith("<")]  # a tag of option_types
    where = ".".join(map(str, loc))
    if item["type"] == "missing" and isinstance(loc[-1], int):  # a list with too few values
        *_, number = loc
        where = where.removesuffix(f".{number}")
        return f"{where}: value {number + 1} is missing (found {item['input']!r})"
    if item["type"] == "missing":
        return f"{where} is missing; add it to the file, or give it by --set {where}=VALUE"
    if item["type"] in EXPECTED:
        return f"{where}: expected {EXPECTED[item['type']]} (found {item['input']!r})"
    if item["type"] != "extra_forbidden":
        says = re.sub(r"^Value error, | or instance of \w+$", "", item["msg"])
        found = "" if isinstance(item["input"], dict) else f" (found {item['input']!r})"
        return f"{where}: {says[0].lower()}{says[1:]}{found}".removeprefix(": ")
    *parents, key = map(str, loc)
    models, within = dict(sections()), ".".join([*parents[:1], ""])
    places = [
        f"{section}.{key}"
        for section, model in models.items()
        if f"{section}.".startswith(within) and key in model.model_fields
        if not re.search(r"\.NAME|\[\]", section)
    ]
    if len(places) == 1:  # such as train.steps
        return f"unknown key {where!r}; did you mean {places[0]!r}?"
    named = (
        "NAME" if above in ("runs", "models") else part for above, part in pairwise(["", *parents])
    )
    model = models.get(".".join(named))
    return f"unknown key {where!r}{nearest(key, model.model_fields if model else ())}"


def sections(
    model: type[Options] = Pipeline, section: str = ""
) -> Iterator[tuple[str, type[Options]]]:
    """Yield the name and the model of each section of a pipeline file, before those in it.

    NAME is any name in a table, [] any table of a list.

    Example:
        >>> [name for name, _ in sections() if name.startswith("fetch")]
        ['fetch', 'fetch.downloads[]']
    """
    yield section, model
    for name, option in model.model_fields.items():
        inner, path = _model_in(option.annotation), f"{section}.{name}".lstrip(".")
        if inner is not None and inner is not option.annotation:
            path += ".NAME" if get_origin(option.annotation) is dict else "[]"
        if inner is not None:
            yield from sections(inner, path)


def _model_in(annotation: object) -> type[Options] | None:
    """The model of a section, or of the tables in a table or list of them."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
