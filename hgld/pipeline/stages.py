"""Table of the stages: function, input and output artifacts, and options of each.

A stage function does no file access for tables; it gets the values of ``reads`` in that order and
its options, and returns the values of ``writes`` in that order. Functions are named as
"module:function", so that this table imports nothing heavy.
"""

import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

from hgld.stopping import held_back

Wanted = Mapping[str, str | bool | tuple[str, ...]]  # option -> values


@dataclass(frozen=True)
class Balance:
    """Equation of a stage: rows in = rows out + rows dropped, compared by key."""

    came_in: str
    went_on: str
    dropped: str | None
    key: tuple[str, ...] = ("split", "landmark_id")
    unit: str = ""  # noun for a row; empty: the source's word for a class


@dataclass(frozen=True)
class Stage:
    """One stage of the data flow.

    Attributes:
        name: command of the command line and section of the pipeline file.
        function: "module:function".
        help: one line for the command line.
        when: option -> value or values for which this row is part of a pipeline.
        also: inputs that the function takes by keyword -> options as in ``when``; the rows of
            ``active_stages`` have those that apply among ``reads``, as their last ones.
        uses: other sections of the pipeline file, single options of them, or its title, that affect
            the output.
        ignores: options of these sections that do not.
        gate: "module:function", called with the stage's arguments; raises until a person acts.
        checks: "module:function" -> names of tables. The function takes these tables and the
            stage's options, and refuses options that do not fit the data. It is called as soon as
            earlier stages have written the tables, so that a run does not stop for a typo after
            hours of training. One that takes no tables is called before the stage itself, too, if
            it runs alone: what it refuses leaves the stage as it was.
        aside: "module:function" that returns work for a separate process, or None; asked when an
            earlier stage of the same run begins, and waited for by this one.
        workers: module of the tasks that its worker processes do on several cores, which another
            process imports while this one imports the stage and reads its tables.
        served_by: "module:function", a context manager that stands in for the network.
        in_parts: tables that the function reads in parts, as ``LargeTable``.
        needs: an option that must be set, or the pipeline leaves the stage out.
        unit: noun for a row of its largest table, if the stage has no balance.
        revision: increase when the code gives another result for the same input and options.
    """

    name: str
    function: str
    help: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    when: Wanted = field(default_factory=dict)
    also: Mapping[str, Wanted] = field(default_factory=dict)
    uses: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    gate: str | None = None
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aside: str | None = None
    workers: str | None = None
    served_by: str | None = None
    in_parts: tuple[str, ...] = ()
    needs: str | None = None
    balance: Balance | None = None
    unit: str = ""
    revision: int = 1


_FROM_WORDS: Wanted = {"label.source": "decisions"}  # the stages that build the hierarchy
_FROM_ITEMS: Wanted = {**_FROM_WORDS, "scrape.source": "items"}
_OF_PHOTOS = ("embed.images", "embed.photos")
_LANDMARKS = ("gldv2", "toy")  # with two id spaces, and pages of Wikimedia Commons
_CLASSES = ("folder", "native")
_KINDS = (*_LANDMARKS, *_CLASSES)
_CHECK_DEVICE = "hgld.model.devices:check_device"
LINKING = ("linked", "links", "ancestry")  # how classes got their items, in a release

_collect = partial(
    Stage,
    "collect",
    reads=("source",),
    writes=("landmarks", "images", "queries", "images_dropped"),
    unit="image",
    revision=2,
)
_link = partial(
    Stage,
    "link",
    writes=("linked", "unlinked", "link_review"),
    uses=("embed", "scrape.dump_entities", "scrape.wikidata_api"),
    balance=Balance("landmarks", "linked", "unlinked"),
    revision=4,
)
_scrape = partial(
    Stage,
    "scrape",
    reads=("landmarks",),
    writes=("instance_of", "misses"),
    balance=Balance("landmarks", "instance_of", "misses"),
)
_hint = partial(
    Stage,
    "hint",
    help="Ask Wikidata which known classes the values are kinds of.",
    reads=("values", "taxonomy", "class_roots"),
    writes=("class_hints", "superclasses", "class_labels"),
    uses=("cluster.levels",),
    unit="class met",
)
_label = partial(
    Stage,
    "label",
    reads=("source", "landmarks"),
    writes=("hierarchy", "label_dropped"),
    balance=Balance("landmarks", "hierarchy", "label_dropped"),
)
_label_decided = partial(
    _label,
    "hgld.hierarchy.label:build_labels",
    "Build the hierarchical labels from the reviewed decisions.",
    reads=(
        "landmarks",
        "instance_of",
        "misses",
        "landmark_values",
        "clean_dropped",
        "taxonomy",
        "decisions",
        "overrides",
        "agreement",
    ),
    writes=("train_labels", "index_labels", "hierarchy", "lineage", "label_dropped"),
)
_evaluate = partial(
    Stage,
    "evaluate",
    writes=("evaluation", "per_query", "ranked_levels"),
    checks={_CHECK_DEVICE: (), "hgld.evaluate:check_evaluation": ("images", "hierarchy")},
    aside="hgld.ranking.first_call:plan_compiling",
    unit="measurement",
    revision=5,
)


def _release(
    function: str,
    source: str,
    *reads: str,
    kinds: tuple[str, ...] = _KINDS,
    uses: tuple[str, ...] = (),
) -> tuple[Stage, Stage]:
    """Return the two release stages of a source: labels alone, and labels with shards."""
    row = partial(
        Stage,
        "publish",
        function,
        "Write the release folder; nothing is uploaded.",
        uses=(*uses, "link.languages"),
        needs="publish.name",
        revision=6,
    )
    linking = dict.fromkeys(LINKING, _FROM_ITEMS) if source == "decisions" else {}
    # an export has left its images out already
    removals: dict[str, Wanted] = {"removals": {}} if "images" in reads else {}
    with_shards = (*reads, "shards", "evaluation", "export_dropped", "removals")
    of_source: Wanted = {"label.source": source, "source.family": kinds}
    return (
        row(
            reads=reads,
            also={**linking, **removals},
            writes=("release",),
            when={**of_source, "publish.parts": "labels"},
        ),
        row(
            reads=with_shards,
            also=linking,
            writes=("release",),
            when={**of_source, "publish.parts": "labels+shards"},
        ),
    )


STAGES: tuple[Stage, ...] = (
    Stage(
        "fetch",
        "hgld.sources.fetch:fetch_files",
        "Download the data set's own files, verified and resumable.",
        writes=("source",),
        when={"source.family": ("gldv2", *_CLASSES)},
        uses=("source",),
    ),
    Stage(
        "fetch",
        "hgld.sources.toy:draw_world",
        "Draw the toy landmark world in GLDv2's file layout.",
        writes=("source",),
        when={"source.family": "toy"},
        uses=("source",),
        revision=2,
    ),
    _collect(
        "hgld.sources.gldv2:collect",
        "List the landmarks and images that the files hold.",
        when={"source.family": _LANDMARKS},
    ),
    _collect(
        "hgld.sources.folder:collect",
        "List the classes and images of a folder.",
        when={"source.family": "folder"},
        uses=("source",),
        revision=4,
    ),
    _collect(
        "hgld.sources.native:collect",
        "List the classes and images of a data set in its own layout.",
        when={"source.family": "native"},
        uses=("source",),
    ),
    _link(
        "hgld.hierarchy.link:link_classes",
        "Look up the Wikidata items of the classes by name.",
        reads=("landmarks", "images", "links"),
        when={**_FROM_ITEMS, "embed.compares_photos": False},
        ignores=(*_OF_PHOTOS, "embed.prompt"),
    ),
    _link(
        "hgld.evaluate.class_photos:link_with_photos",
        "Look up the Wikidata items of the classes by name and photos.",
        reads=("landmarks", "images", "links", "source"),
        when={**_FROM_ITEMS, "embed.compares_photos": True},
        ignores=("embed.photos",),  # link.photos counts
    ),
    _scrape(
        "hgld.hierarchy.scrape.wikimedia:scrape",
        'Ask Wikimedia for the "instance of" values of each landmark.',
        when={**_FROM_WORDS, "scrape.source": "wikimedia"},
        served_by="hgld.hierarchy.scrape.stand_in:stand_in",
        revision=2,
    ),
    _scrape(
        "hgld.hierarchy.scrape.saved:read_given",
        'Read "instance of" values from a CSV.',
        when={**_FROM_WORDS, "scrape.source": "table"},
    ),
    _scrape(
        "hgld.hierarchy.scrape.saved:read_saved",
        'Read "instance of" values from saved Commons pages.',
        when={**_FROM_WORDS, "scrape.source": "html"},
    ),
    _scrape(
        "hgld.hierarchy.scrape.dump:read_dump",
        'Read "instance of" statements from Wikimedia\'s dumps.',
        when={**_FROM_WORDS, "scrape.source": "dump"},
    ),
    _scrape(
        "hgld.hierarchy.scrape.saved:read_names",
        "Take the names of the classes as their values.",
        when={**_FROM_WORDS, "scrape.source": "names"},
    ),
    _scrape(
        "hgld.hierarchy.scrape.items:scrape_items",
        "Ask Wikidata what the items of the classes are, and what is above that.",
        reads=("landmarks", "linked"),
        writes=("instance_of", "misses", "ancestry"),
        when=_FROM_ITEMS,
        uses=("link.languages",),
        revision=2,
    ),
    Stage(
        "clean",
        "hgld.hierarchy.clean:clean_values",
        "Choose the values that count; drop irrelevant ones.",
        reads=("landmarks", "images", "instance_of"),
        writes=("values", "landmark_values", "clean_dropped"),
        when=_FROM_WORDS,
        balance=Balance("instance_of", "landmark_values", "clean_dropped"),
    ),
    _hint(
        "hgld.hierarchy.hints:hint_classes",
        when={**_FROM_WORDS, "scrape.gives_hints": True},
        served_by="hgld.hierarchy.scrape.stand_in:stand_in",
    ),
    _hint(
        "hgld.hierarchy.hints:hint_nothing",
        when={**_FROM_WORDS, "scrape.gives_hints": False},
    ),
    Stage(
        "embed",
        "hgld.hierarchy.embed:embed_texts",
        "Embed the values and the taxonomy with a text encoder.",
        reads=("values", "taxonomy"),
        writes=("label_vectors", "taxonomy_vectors"),
        when={**_FROM_WORDS, "cluster.on": "text"},
        ignores=_OF_PHOTOS,
        checks={_CHECK_DEVICE: ()},
    ),
    Stage(
        "embed",
        "hgld.evaluate.class_photos:embed_with_photos",
        "Embed the values, their photos and the taxonomy.",
        reads=("values", "taxonomy", "landmark_values", "images", "source"),
        writes=("label_vectors", "taxonomy_vectors", "image_vectors"),
        when={**_FROM_WORDS, "cluster.on": ("images", "text+images")},
        checks={_CHECK_DEVICE: ()},
    ),
    Stage(
        "cluster",
        "hgld.hierarchy.cluster:propose_clusters",
        "Propose supercategories: clusters of the values.",
        reads=("values", "label_vectors", "cluster_edits"),
        also={
            "decisions": {"cluster.seeds": "decided"},
            "image_vectors": {"cluster.on": ("images", "text+images")},
            "ancestry": {"cluster.holds_together": True},
        },
        writes=("clusters", "cluster_summary"),
        when=_FROM_WORDS,
        balance=Balance("values", "clusters", None, ("class_id", "instance_of"), "value"),
        revision=2,
    ),
    Stage(
        "review",
        "hgld.review.sheets:write_sheets",
        "Write the sheets on which a person decides each value.",
        reads=(
            "clusters",
            "cluster_summary",
            "landmark_values",
            "landmarks",
            "taxonomy",
            "decisions",
            "class_hints",
            "class_labels",
            "label_vectors",
            "taxonomy_vectors",
            "taxonomy_edits",
        ),
        also={
            "image_vectors": {"cluster.on": ("images", "text+images")},
            "ancestry": {"scrape.source": "items"},
        },
        writes=("review", "review_clusters", "review_taxonomy"),
        when=_FROM_WORDS,
        uses=("cluster.levels",),
        gate="hgld.review.sheets:require_decisions",
        unit="value",
        revision=5,
    ),
    _label_decided(
        when={**_FROM_WORDS, "source.family": _LANDMARKS},
        uses=("cluster.levels",),
    ),
    _label_decided(
        when={**_FROM_WORDS, "source.family": _CLASSES},
        uses=("cluster.levels", "source"),  # the finest is the name of the class
    ),
    _label(
        "hgld.hierarchy.label:read_published",
        "Read the hierarchical labels from the published files.",
        writes=("train_labels", "index_labels", "hierarchy", "label_dropped"),
        when={"label.source": "published"},
    ),
    _label(
        "hgld.sources.folder:read_hierarchy",
        "Read the hierarchy from the folder's own CSV.",
        when={"label.source": "folder"},
        uses=("source",),
        balance=Balance(  # by landmark_id alone: a folder's class has one number in both id spaces
            "landmarks", "hierarchy", "label_dropped", ("landmark_id",)
        ),
    ),
    _label(
        "hgld.sources.native:read_hierarchy",
        "Read the hierarchy from the data set's own files.",
        when={"label.source": "native"},
        uses=("source",),
    ),
    Stage(
        "export",
        "hgld.shards.write:export_shards",
        "Write class-grouped, indexed WebDataset shards.",
        reads=("source", "images", "hierarchy", "removals"),
        writes=("shards", "export_dropped"),
        in_parts=("images",),
        checks={"hgld.shards.shard_url:check_url": ()},
        balance=Balance("images", "shards", "export_dropped", ("split", "image_id"), "image"),
        revision=3,
    ),
    Stage(
        "train",
        "hgld.train:train_models",
        "Train the models that the pipeline compares.",
        reads=("shards",),
        writes=("models",),
        when={"trains": True},
        checks={
            _CHECK_DEVICE: (),
            "hgld.train:check_split": ("images",),
            "hgld.train:check_training": ("images", "hierarchy"),
        },
        revision=4,
    ),
    _evaluate(
        "hgld.evaluate:evaluate_models",
        "Measure hierarchical retrieval exactly.",
        reads=("shards", "models"),
        when={
            "evaluate.protocol": ("auto", "all-vs-all", "query-gallery", "gldv2-paper"),
            "evaluate.queries": "images",
        },
    ),
    _evaluate(
        "hgld.evaluate:evaluate_officially",
        "Measure hierarchical retrieval, and GLDv2's official mAP@100.",
        reads=("shards", "models", "source", "images", "export_dropped", "queries"),
        when={"evaluate.protocol": "gldv2-official"},
    ),
    _evaluate(
        "hgld.evaluate:evaluate_names",
        "Measure how well the names of classes find their photos.",
        reads=("shards", "models", "hierarchy", "landmarks"),
        when={"evaluate.queries": "names"},
        revision=2,
    ),
    Stage(
        "report",
        "hgld.report:write_report",
        "Draw one self-contained report page.",
        reads=(
            "hierarchy",
            "shards",
            "models",
            "evaluation",
            "per_query",
            "ranked_levels",
            "landmarks",
        ),
        writes=("report",),
        uses=("title",),
        workers="hgld.report.charts",
        revision=7,
    ),
    *_release(
        "hgld.publish:write_release",
        "decisions",
        "train_labels",
        "index_labels",
        "hierarchy",
        "label_dropped",
        "lineage",
        "taxonomy",
        "decisions",
        "agreement",
        kinds=_LANDMARKS,
        uses=("cluster.levels",),
    ),
    *_release(
        "hgld.publish:release_reviewed",
        "decisions",
        "hierarchy",
        "label_dropped",
        "images",
        "lineage",
        "taxonomy",
        "decisions",
        "agreement",
        kinds=_CLASSES,
    ),
    *_release(
        "hgld.publish:release_published",
        "published",
        "train_labels",
        "index_labels",
        "hierarchy",
        "label_dropped",
    ),
    *_release(
        "hgld.publish:release_folder",
        "folder",
        "hierarchy",
        "label_dropped",
        "images",
        uses=("source",),  # the card says what the hierarchy was read from
    ),
)


def active_stages(pipeline: object) -> tuple[Stage, ...]:
    """Return the stages that a pipeline's options select, in order."""
    chosen = (stage for stage in STAGES if _holds(stage.when, pipeline))
    found = []
    for stage in chosen:
        if not stage.needs or _option(pipeline, stage.needs):
            also = (name for name, wanted in stage.also.items() if _holds(wanted, pipeline))
            found.append(replace(stage, reads=(*stage.reads, *also)))
    return tuple(found)


def left_out(pipeline: object) -> dict[str, str]:
    """Return stages that are left out because an option is not set -> that option."""
    chosen = {stage.name: stage.needs for stage in STAGES if _holds(stage.when, pipeline)}
    return {name: needs for name, needs in chosen.items() if needs and not _option(pipeline, needs)}


def stage_names() -> list[str]:
    """Return the stage names in order.

    Example:
        >>> stage_names()[:4]
        ['fetch', 'collect', 'link', 'scrape']
    """
    return list(dict.fromkeys(stage.name for stage in STAGES))


def load_function(name: str) -> Any:
    """Import the function that "module:function" names.

    What is imported stays and is never searched for garbage: torch and open_clip have 800,000
    objects, and searching them took a fifth of the quickstart's time up to its export.
    """
    module, _, function = name.partition(":")
    collects = gc.isenabled() and module not in sys.modules
    if collects:
        gc.collect()  # garbage that is frozen would stay, too
        gc.disable()
    try:
        with held_back():  # a signal during the import of torch gets lost or aborts the process
            return getattr(import_module(module), function)
    finally:
        if collects:
            gc.freeze()
            gc.enable()


def _holds(options: Wanted, pipeline: object) -> bool:
    """Whether the options have these values."""
    return all(
        _option(pipeline, option) in (wanted if isinstance(wanted, tuple) else (wanted,))
        for option, wanted in options.items()
    )


def _option(pipeline: object, name: str) -> Any:
    """Return the value of "section.option"."""
    value: Any = pipeline
    for part in name.split("."):
        value = getattr(value, part)
    return value
