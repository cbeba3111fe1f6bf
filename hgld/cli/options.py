"""Every option of a pipeline file with its default and meaning: for help, a list, a page.

The rows come from the option models, so that the help of a stage, ``hgld options`` and the
reference page show exactly what a pipeline file takes.
"""

import json
from ast import AnnAssign, ClassDef, Constant, Expr, Name, parse
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from inspect import getsource
from itertools import groupby, pairwise
from typing import Any

from hgld.artifacts import ARTIFACTS, Folder
from hgld.config import Options, sections
from hgld.errors import UsageError
from hgld.pipeline.stages import STAGES
from hgld.words import nearest, wrapped

WIDTH = 79
# a limit beyond this keeps numbers within what a machine holds; nobody needs to read it
LARGE = 1e6
SIGNS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
TOML_TYPES = {"number": "float", "object": "table"}


@dataclass(frozen=True)
class OptionRow:
    """One option of a pipeline file.

    Attributes:
        section: table of the pipeline file, "train.defaults"; "" is the top of the file, and
            "fetch.downloads[]" any table of a list.
        name: within the section.
        type: TOML type, or the choices as "random | decided".
        limits: of a number, as "x>=1"; "" if there are none.
        default: JSON value; None if the option is required, or unset by default.
        required: the pipeline file must set it.
        operational: it changes how a stage works, but not its results.
        meaning: what it decides, with unit and source.
    """

    section: str
    name: str
    type: str
    limits: str
    default: Any
    required: bool
    operational: bool
    meaning: str

    @property
    def full_name(self) -> str:
        """The name as ``--set`` takes it."""
        return f"{self.section}.{self.name}".lstrip(".")

    def as_json(self) -> dict[str, Any]:
        """The row with its full name."""
        return {"option": self.full_name, **asdict(self)}

    @property
    def table(self) -> str:
        """The head of the section in a pipeline file; "" at its top."""
        name = self.section.removesuffix("[]")
        return name and (f"[{name}]" if name == self.section else f"[[{name}]]")

    @property
    def facts(self) -> str:
        """Type and limits in brackets."""
        return f"[{'; '.join(filter(None, (self.type, self.limits)))}]"

    @property
    def help(self) -> str:
        """Meaning, then default, choices and limits in brackets, as click prints them."""
        shown = "" if self.default in (None, "", []) else f"default: {_toml(self.default)}"
        kind = self.type if "|" in self.type or self.default is None else ""
        known = "; ".join(filter(None, ("required" * self.required, shown, kind, self.limits)))
        return f"{self.meaning}  [{known}]" if known else self.meaning


def list_options(section: str = "") -> list[OptionRow]:
    """List the options of a section and of the sections in it, or one option; by default all.

    Raises:
        UsageError: there is no such section or option; the nearest is named.

    Example:
        >>> row = list_options("cluster.clusters")[0]
        >>> row.full_name, row.default, row.limits
        ('cluster.clusters', 78, 'x>=1')
    """
    rows = [*_rows()]
    within = (f"{section}.", f"{section}[]")
    found = [row for row in rows if not section or f"{row.full_name}.".startswith(within)]
    if not found:
        known = dict.fromkeys(name for row in rows for name in (row.section, row.full_name))
        raise UsageError(f"{section}: no section or option is called so{nearest(section, known)}")
    return found


def _rows() -> Iterator[OptionRow]:
    for section, model in sections():
        if section == "train.runs.NAME":  # a run has the options of train.defaults
            continue
        properties, meanings = model.model_json_schema()["properties"], _meanings(model)
        for name, field in model.model_fields.items():
            kind, facts = field.annotation, properties[name]
            if not (isinstance(kind, type) and issubclass(kind, Options)):  # a section itself
                yield OptionRow(
                    section=section,
                    name=name,
                    type=_type(facts),
                    limits=_limits(facts),
                    default=facts.get("default"),
                    required=field.is_required(),
                    operational=name in model.operational,
                    meaning=meanings.get(name, ""),
                )


def _meanings(model: type[Options]) -> dict[str, str]:
    """The docstring below each option of a model, on one line.

    Read here, not by pydantic: that takes a tenth of a second of every command.
    """
    found = {}
    for statement, below in pairwise(_classes(model.__module__)[model.__name__].body):
        match statement, below:
            case AnnAssign(target=Name(id=name)), Expr(value=Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


@cache
def _classes(module: str) -> dict[str, ClassDef]:
    tree = parse(getsource(import_module(module)))
    return {node.name: node for node in tree.body if isinstance(node, ClassDef)}


def _type(facts: Mapping[str, Any]) -> str:
    """The TOML type that a JSON schema describes."""
    if "anyOf" in facts:
        return " or ".join(_type(one) for one in facts["anyOf"] if one.get("type") != "null")
    if "enum" in facts:
        return " | ".join(choice or '""' for choice in facts["enum"])
    if facts.get("type") == "array":
        if pair := facts.get("prefixItems"):
            return f"{len(pair)} {_type(pair[0])}s"
        return f"list of {_type(facts['items'])}" + ("" if "enum" in facts["items"] else "s")
    name: str = facts.get("format") or facts.get("type", "object")
    return TOML_TYPES.get(name, name)


def _limits(facts: Mapping[str, Any]) -> str:
    """The range of a number, the way click prints it.

    Example:
        >>> _limits({"minimum": 0, "exclusiveMaximum": 1}), _limits({"anyOf": [{"minimum": 2}]})
        ('x>=0, x<1', 'x>=2')
    """
    numbers = next((one for one in facts.get("anyOf", ()) if SIGNS.keys() & one.keys()), facts)
    found = {sign: numbers[name] for name, sign in SIGNS.items() if name in numbers}
    return ", ".join(f"x{sign}{limit:g}" for sign, limit in found.items() if limit < LARGE)


def _toml(value: object) -> str:
    """A value the way a pipeline file holds it."""
    return json.dumps(value, ensure_ascii=False)


def section_meaning(section: str) -> str:
    """Return the first line of a section's description."""
    text = dict(sections())[section].__doc__ or ""
    return text.partition("\n")[0].replace("``", "`")


def stage_files(name: str) -> dict[str, str]:
    """Return the files that a stage reads and writes, each list in words.

    Files that only some options of a pipeline need are listed last.

    Example:
        >>> stage_files("cluster")["reads"].partition("; ")[2]
        'depending on options decisions.csv, image_vectors.npz, ancestry.csv'
    """
    rows = [stage for stage in STAGES if stage.name == name]
    return {
        "reads": _files([reads for one in rows for reads in (one.reads, (*one.reads, *one.also))]),
        "writes": _files([stage.writes for stage in rows]),
    }


def _files(rows: list[tuple[str, ...]]) -> str:
    names = dict.fromkeys(sum(rows, ()))
    files = {n: ARTIFACTS[n].file + "/" * isinstance(ARTIFACTS[n], Folder) for n in names}
    always = [files[name] for name in names if all(name in row for row in rows)]
    sometimes = [file for file in files.values() if file not in always]
    return "; depending on options ".join(", ".join(part) for part in (always, sometimes) if part)


def options_as_text(rows: list[OptionRow]) -> str:
    """Write options for a terminal of 80 columns, with their full names, so that grep finds them.

    Example:
        >>> print(options_as_text(list_options("cluster.clusters")))
        [cluster]  Clusters of the vectors of the values (Sec. VI of the paper).
        <BLANKLINE>
        cluster.clusters = 78
            Number of clusters k of the finest level; H-GLDv2 has 78. [integer; x>=1]
    """
    lines = []
    for (section, table), group in groupby(rows, key=lambda row: (row.section, row.table)):
        head = f"{table or 'Top of the file'}  {section_meaning(section)}"
        lines += ["", *wrapped(head, WIDTH, 2), ""]
        for row in group:
            value = "" if row.default is None else f" = {_toml(row.default)}"
            lines += wrapped(row.full_name + " (required)" * row.required + value, WIDTH, 2)
            lines += wrapped(f"    {row.meaning} {row.facts}", WIDTH, 4)
    return "\n".join(lines[1:])


def options_as_markdown() -> str:
    """Write the reference page of all options: a table a section, below the stage it belongs to."""
    lines = ["# Options", "", *INTRODUCTION.splitlines()]
    for (section, table), rows in groupby(list_options(), key=lambda row: (row.section, row.table)):
        level = "##" + "#" * section.count(".")
        lines += ["", f"{level} `{table}`" if section else f"{level} Top of the file", ""]
        stage = next((stage for stage in STAGES if stage.name == section), None)
        if stage is not None:
            files = stage_files(section)
            lines += [f"`hgld {section}`: {stage.help}", ""]
            lines += [f"- {verb} {files[verb] or 'nothing'}" for verb in files]
            lines += [""]
        lines += [section_meaning(section), "", "| option | default | meaning |", "|---|---|---|"]
        for row in rows:
            shown = "" if row.default is None else f"`{_toml(row.default)}`"
            facts = f"*{row.facts}*" + r" \*" * row.operational
            cells = f"`{row.name}`", "required" if row.required else shown, f"{row.meaning} {facts}"
            lines += [f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"]
    return "\n".join(lines) + "\n"


BAR = r"\|"  # "|" in a cell of a table
INTRODUCTION = """\
Every option of a pipeline file. The default holds unless the pipeline file sets the option, and
`--set section.option=value` on the command line overrides both. `hgld options SECTION` prints the
same list; `hgld STAGE --help` shows the options of one stage.

`base = "other.toml"` at the head of a pipeline file takes the options of another file first; those
of the file itself replace them, and tables are merged.

Options marked * change how a stage works but not its results: a change makes nothing stale.
"""
