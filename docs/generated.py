"""Adds the generated pages to the site: commands, options, API reference, changes.

mkdocs runs it as a hook.
"""

import importlib
import os
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import griffe
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import hgld
from hgld.cli import app
from hgld.cli.options import options_as_markdown
from hgld.pipeline.cost import MACHINES, QUERIES, SIZES, coefficients, estimate_cost
from hgld.words import size_text

os.environ["COLUMNS"] = "80"  # of the help texts
LIBRARY = ("ranking", "shards", "model")
LEFT_OUT = ("cli",)


class Examples(griffe.Extension):
    """Reads sections named Example as examples, which griffe expects to be named Examples."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section in the docstring of any module, class or function."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")


def modules() -> list[str]:
    """Names of the modules that have a page: root modules, packages, their public modules."""
    names = (found.name for found in pkgutil.iter_modules(hgld.__path__, "hgld."))
    kept = sorted(name for name in names if name.split(".")[1] not in ("__main__", *LEFT_OUT))
    return [name for root in kept for name in (root, *public_modules(root))]


def public_modules(name: str) -> list[str]:
    """Modules of a package that its ``__all__`` names, or all if it names nothing."""
    package = importlib.import_module(name)
    inside = [found.name for found in pkgutil.iter_modules(getattr(package, "__path__", ()))]
    public = getattr(package, "__all__", inside)
    members = {word: getattr(package, word, None) for word in public}
    modules = [word for word in inside if isinstance(members.get(word), ModuleType | None)]
    return [f"{name}.{word}" for word in modules if word in public]


def commands_as_markdown() -> str:
    """The help of every command, as it is printed."""
    lines = ["# Commands", "", "`hgld COMMAND --help` prints the same text.", ""]
    for words, command in walk(typer.main.get_command(app), "hgld"):
        with click.Context(command, info_name=words) as context:
            heading = [f"## {words}", ""] if words != "hgld" else []
            lines += [*heading, "```", command.get_help(context), "```", ""]
    return "\n".join(lines)


def walk(command: Any, words: str) -> list[tuple[str, Any]]:
    """A command and those below it, each with its words."""
    below = getattr(command, "commands", {})
    return [(words, command)] + [
        found for name, inner in below.items() for found in walk(inner, f"{words} {name}")
    ]


def costs_as_markdown() -> str:
    """The page of costs: a row a size, then the coefficients and where they come from."""
    lines = [
        "# What a run costs", "",
        "Estimates from measured coefficients; `hgld run PIPELINE --dry-run` prints that of the "
        "pipeline at hand. Download, scrape and training are not included. A machine has 2 cores "
        "and no GPU; collect, label and the plans run on one of them. Ranking is of "
        f"{QUERIES:,} queries.", "",
        "The memory is the largest peak of one process over `collect`, the plan of `export` and "
        "`evaluate`, which read tables of images in parts. `collect` joins within "
        "`collect.memory_gb`, measured at 1 (default: a quarter of the machine's), and sorts the "
        "rest on disk. `evaluate` ranks in parts. The plan holds numbers of each image (landmark, "
        "place, order): a line through two measured sizes, the larger with 20 images a landmark. "
        "`label` holds landmarks, not images, and the batches of an epoch are those of training; "
        "neither is in the column.", "",
        "| images | disk | memory | moved | "
        + " | ".join(f"hours on {n}" for n in MACHINES) + " |",
        "|---|---|---|---|" + "---|" * len(MACHINES),
    ]  # fmt: skip
    for cost in map(estimate_cost, SIZES):
        sizes = map(size_text, (cost.disk_bytes, cost.memory_bytes, cost.moved_bytes))
        cells = [f"{cost.images:,}", *sizes, *map(_digits, cost.hours.values())]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "", "## Coefficients", "",
        "`python -m pipelines.record pages` takes them from recorded figures.", "",
        "| coefficient | of a | value | measured as |", "|---|---|---|---|",
    ]  # fmt: skip
    for name, entry in coefficients().items():
        value = entry["value"]
        text = size_text(value) if entry["unit"] == "B" else f"{_digits(1e6 * value)} µs"
        lines.append(f"| {name} | {entry['of']} | {text} | {entry['from']} |")
    return "\n".join(lines) + "\n"


def _digits(number: float) -> str:
    """Three digits without an exponent.

    Example:
        >>> _digits(1484.2), _digits(0.03051)
        ('1,480', '0.0305')
    """
    return f"{float(f'{number:.3g}'):,.15g}"


def pages() -> dict[str, str]:
    """Path of each generated page -> its Markdown."""
    api = {f"reference/{name}.md": f"# {name}\n\n::: {name}\n" for name in modules()}
    changes = Path("CHANGELOG.md").read_text(encoding="utf-8")
    written = {"commands.md": commands_as_markdown(), "options.md": options_as_markdown()}
    written["cost.md"] = costs_as_markdown()
    return {**written, **api, "changes.md": changes}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the API reference to the navigation."""
    of = {name: f"reference/{name}.md" for name in modules()}
    library = [{name: path} for name, path in of.items() if name.split(".")[1] in LIBRARY]
    rest = [{name: path} for name, path in of.items() if name.split(".")[1] not in LIBRARY]
    assert config.nav is not None
    config.nav += [{"Library": library}, {"Modules of the stages": rest}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the files of the site."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
