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
from hgld.pipeline.cost import costs_as_markdown

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
