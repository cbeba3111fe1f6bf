"""A pipeline file (TOML) as frozen options, one model a stage.

Defaults are set here only, each with its meaning and source in the docstring below it. A pipeline
file overrides them, and ``--set stage.option=value`` overrides the file. Paths in a pipeline file
are relative to that file, paths on the command line (also in ``--set``) to the current folder. Both
may begin with ``~/`` and hold ``${NAME:-default}``.
"""

from hgld.config.data_options import (
    CollectOptions,
    Download,
    ExportOptions,
    FetchOptions,
    INaturalistOptions,
    NativeKind,
    SourceOptions,
    ToyOptions,
)
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
from hgld.config.option_types import KIND_SEPARATOR, LEVEL_NAMES, Options, without_folders
from hgld.config.pipeline_file import (
    Pipeline,
    StageContext,
    checked_options,
    default_work,
    load_pipeline,
    sections,
)
from hgld.config.result_options import EvaluateOptions, ModelOptions, PublishOptions, ReportOptions
from hgld.config.training_options import (
    AugmentationOptions,
    LossName,
    RunOptions,
    SamplingOptions,
    Size,
    TrainOptions,
    require_crop_inside,
)

__all__ = [
    "KIND_SEPARATOR",
    "LEVEL_NAMES",
    "AugmentationOptions",
    "CleanOptions",
    "ClusterOptions",
    "CollectOptions",
    "Download",
    "EmbedOptions",
    "EvaluateOptions",
    "ExportOptions",
    "FetchOptions",
    "HintOptions",
    "INaturalistOptions",
    "LabelOptions",
    "LinkOptions",
    "LossName",
    "ModelOptions",
    "NativeKind",
    "Options",
    "Pipeline",
    "PublishOptions",
    "ReportOptions",
    "ReviewOptions",
    "RunOptions",
    "SamplingOptions",
    "ScrapeOptions",
    "Size",
    "SourceOptions",
    "StageContext",
    "ToyOptions",
    "TrainOptions",
    "checked_options",
    "default_work",
    "load_pipeline",
    "require_crop_inside",
    "sections",
    "without_folders",
]
