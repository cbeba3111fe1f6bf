"""Runs a pipeline, records what it measured, and writes the recorded figures into the pages.

    python -m pipelines.record run pipelines/quickstart.toml    results/quickstart.json
    python -m pipelines.record pages                            README.md, docs/, labels/README.md,
                                                                docs/images/paper-*.svg

Figures are never typed: a page holds what stands in ``results/*.json``, each with the commit, the
machine and the date it was measured on.
"""

import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hgld.config import load_pipeline
from hgld.figures import LIGHT, Drawing, add_axes, add_legend, open_figure
from hgld.pipeline.cost import QUERIES
from hgld.report.metrics_table import inverted_queries
from hgld.words import share_text

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "pipelines" / "results"
AGREEMENT = ROOT / "labels" / "gldv2" / "agreement.json"
CLAIMS = ("head", "made", "finetune")
BLOCK = "<!-- {name}: written by pipelines/record.py -->\n{text}<!-- end of {name} -->"


def record(pipeline: Path) -> Path:
    """Run a pipeline and write ``results/NAME.json``."""
    work = ROOT / "work" / pipeline.stem
    command = ["hgld", "run", str(pipeline), "--now", "2026-01-01"]
    command += ["--work", str(work.relative_to(ROOT))]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    lock = json.loads((work / "lock.json").read_text(encoding="utf-8"))
    result = {
        "pipeline": str(pipeline),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "seconds": {name: stage["seconds"] for name, stage in lock["stages"].items()},
        "evaluation": json.loads((work / "report.json").read_text(encoding="utf-8")),
        "output": done.stdout.splitlines(),
    }
    path = RESULTS / f"{pipeline.stem}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def pages() -> dict[Path, str]:
    """Each page with its recorded figures filled in."""
    files = {path.stem: json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.json")}
    found = [files[name] for name in sorted(files)]
    results = [result for result in found if "pipeline" in result]
    blocks = {f"result {Path(r['pipeline']).stem}": result_text(r) for r in results}
    blocks |= {f"output {Path(r['pipeline']).stem}": output_text(r) for r in results}
    blocks["agreement gldv2"] = agreement_text(AGREEMENT)
    blocks["recipes"] = recipes_text()
    tables = tomllib.loads((ROOT / "pipelines" / "papers" / "tables.toml").read_text("utf-8"))
    blocks["tables"] = tables_text(tables["table"], files)
    blocks["epochs"] = epochs_text(tables["epochs"])
    blocks["small figures"] = figures_text(files["paper-figures"])
    blocks |= papers_texts()
    blocks |= {
        f"claims {n}": f"Not recorded yet: `python -m pipelines.claims {n}`.\n" for n in CLAIMS
    }
    blocks |= {f"claims {r['claims']}": claims_text(r) for r in found if "claims" in r}
    blocks |= {n.replace("-", " ", 1): bench_text(r) for n, r in files.items() if "parts" in r}
    machines = [files[name] for name in sorted(files) if name.startswith("bench-libraries")]
    blocks["bench libraries"] = libraries_text(machines)
    blocks["gpu"] = gpu_text(files["bench-gpu"])
    heads = [folder / "README.md" for folder in (ROOT, ROOT / "labels", ROOT / "pipelines")]
    pages = [*heads, *sorted(ROOT.glob("docs/*.md"))]
    texts = {path: path.read_text("utf-8") for path in pages}
    reliability = reliability_picture(files["bench-keys"]["rows"])
    pictures = {ROOT / "docs" / "images" / "reliability.svg": reliability}
    pictures[ROOT / "hgld" / "templates" / "costs.json"] = costs_text()
    return {path: _fill(text, blocks) for path, text in texts.items()} | pictures


def costs_text() -> str:
    """Coefficients of the cost model, of an image, a landmark or a process, from the figures."""
    full, large, gallery, growth = (
        f"bench-{name}" for name in ("full-size", "large-plan", "gallery", "growth")
    )
    real = json.loads((RESULTS / "washington.json").read_text("utf-8"))
    fetch = load_pipeline(ROOT / "pipelines" / "gldv2.toml").fetch
    tars = next(d for d in fetch.downloads if d.url.startswith("train/"))
    train, listed, clean, index = 4_132_914, 2_343_356, 1_580_470, 761_757
    rows, landmarks, planned = train + index + 117_577, 203_094 + 101_297, 50_000_000
    found: dict[str, dict[str, Any]] = {}

    def figure(file: str, what: str) -> float:
        rows = json.loads((RESULTS / f"{file}.json").read_text("utf-8"))["rows"]
        start = next(i for i, r in enumerate(rows) if r["what"].startswith(what.split("; ")[0]))
        inside = what.split("; ")[-1]
        return float(next(r["value"] for r in rows[start:] if r["what"].strip().startswith(inside)))

    def add(name: str, value: float, unit: str, source: str, of: str = "image") -> None:
        found[name] = {"value": float(f"{value:.6g}"), "unit": unit, "of": of, "from": source}

    for stage, images in (("collect", rows), ("label", rows), ("plan", listed)):
        time = f"{stage} of 100% of GLDv2"
        source = f"{full}.json: {time}, of {images:,} images"
        add(f"{stage} time", figure(full, time) / images, "s", source)
    peak = {
        work: figure(file, f"{work} of 100%: peak memory") * 1e6
        for file, work in ((full, "collect"), (full, "label"), (full, "plan"), (full, "batches"),
                           (large, "large plan"))
    }  # fmt: skip
    add("collect memory", peak["collect"], "B",
        f"{full}.json: collect of 100%: peak memory, memory_gb = 1, of {rows:,} images",
        "process")  # fmt: skip
    add("label memory", peak["label"] / landmarks, "B",
        f"{full}.json: label of 100%: peak memory, of {landmarks:,} landmarks",
        "landmark")  # fmt: skip
    # The imports and the parts in memory are in both peaks, so they are not an image's.
    each = (peak["large plan"] - peak["plan"]) / (planned - listed)
    source = (
        f"{full}.json: plan of 100%: peak memory, of {listed:,} images, and "
        f"{large}.json: large plan of 100%: peak memory, of {planned:,} images"
    )
    add("plan memory", each, "B", source)
    add("plan base", peak["plan"] - each * listed, "B", "the same, of 0 images", "process")
    add("batches memory", peak["batches"] / 10**8, "B",
        f"{full}.json: batches of 100%: peak memory, of {10**8:,} images")  # fmt: skip
    memory = "largest memory, stage"
    add("evaluate memory", figure(growth, memory) * 2**20, "B",
        f"{growth}.json: {memory}, on kept embeddings", "process")  # fmt: skip
    note = next(line for line in real["output"] if "batches of an epoch" in line)
    trained = int(re.search(r"images: [\d,]+ of ([\d,]+)", note)[1].replace(",", ""))
    measured = real["evaluation"]["protocol"]["gallery_images"]
    models, took = len(real["evaluation"]["models"]), real["seconds"]
    images = trained + measured
    add("export time", took["export"] / images, "s", f"washington.json: {images:,} photos")
    source = f"washington.json: evaluate (with ranking) of {models} models, {measured:,} photos"
    add("embed time", took["evaluate"] / models / measured, "s", source)
    add("rank time", figure(gallery, "GLDv2 size evaluation, wall") / QUERIES / index, "s",
        f"{gallery}.json: GLDv2 size evaluation, a query and {index:,} images")  # fmt: skip
    add("tars", tars.megabytes * 1e6 * tars.count / train, "B",
        f"gldv2.toml: megabytes of the train tars, {train:,} photos")  # fmt: skip
    add("shards", tars.kept_megabytes * 1e6 * tars.count / clean, "B",
        f"gldv2.toml: kept_megabytes of the train tars, {clean:,} photos")  # fmt: skip
    add("embeddings", 512 * 4, "B", "512 dimensions of 4 bytes")
    return json.dumps(found, indent=1) + "\n"


def result_text(result: dict[str, Any]) -> str:
    """Metrics of a run as a table, one row a model, in percent."""
    evaluation = result["evaluation"]
    metrics, models = evaluation["metrics"], evaluation["models"]
    rows = {
        name: {metric: f"{100 * model['mean'][metric]:.1f}" for metric in metrics}
        for name, model in models.items()
    }
    about = f"{_protocol(evaluation['protocol'])}{_inverted(evaluation)} {_provenance(result)}"
    return f"{_table('%', rows.items())}\n\n{about}\n"


def recipes_text() -> str:
    """What the pipelines of the papers' data sets train, as a table."""
    lines = [
        "| pipeline | makes | backbone | px | dim | photos a batch | steps | runs |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for path in sorted(RESULTS.parent.glob("*.toml")):
        pipeline = load_pipeline(path)
        options = pipeline.train
        if pipeline.source.kind == "toy":
            continue
        batch = options.classes_per_batch * options.images_per_class
        trained = [run for run in options.runs.values() if run.steps]
        lines.append(
            f"| `{path.name}` | {pipeline.title} | {options.backbone} | {options.image_size} | "
            f"{options.dim} | {batch} | {trained[0].steps:,} | {len(trained)} |"
        )
    return "\n".join(lines) + "\n"


def tables_text(tables: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> str:
    """The rows of the papers' tables: figures of the paper, the runs that train them, and ours.

    Args:
        tables: those of ``papers/tables.toml``.
        results: recorded results by the name of their file.
    """
    lines = []
    for table in tables:
        columns = table["columns"].split(", ")
        lines += [f"### {table['paper']}, {table['name']}: {table['about']}", ""]
        lines += [f"| row | {' | '.join(columns)} | runs | ours |"]
        lines += ["|---|" + "---:|" * len(columns) + "---|---|"]
        for row in table["rows"]:
            commands = [row["command"]] if "command" in row else []
            runs = ", ".join(f"`{name}`" for name in (*row["runs"], *commands))
            runs += f" with `{row['set']}`" if "set" in row else ""
            figures = " | ".join(row["figures"].split())
            ours = "".join(f" {_ours(name, results)}" for name in row.get("ours", []))
            lines.append(f"| {row['row']} | {figures} | {runs} |{ours} |")
        lines.append("")
    return "\n".join(lines)


def _ours(name: str, results: dict[str, dict[str, Any]]) -> str:
    """Metrics in percent of a recorded model, "NAME:MODEL", and their commit."""
    file, _, model = name.partition(":")
    models = results.get(file, {}).get("evaluation", {}).get("models", {})
    if model not in models:
        sys.exit(
            f"pipelines/papers/tables.toml: ours = {name!r}, but pipelines/results/{file}.json "
            f"{'has no such model' if models else 'has no models'}; record it with "
            f"`python -m pipelines.record run pipelines/{file}.toml`"
        )
    means = models[model]["mean"].items()
    figures = ", ".join(f"{metric} {100 * value:.1f}" for metric, value in means)
    return f"`{name}`: {figures} ({results[file]['commit']})."


def epochs_text(recipes: list[dict[str, Any]]) -> str:
    """How long the recipes of the rows train, as a table."""
    lines = ["| pipelines | epochs | photos an epoch | said by |", "|---|---:|---:|---|"]
    for recipe in recipes:
        names = ", ".join(f"`{name}`" for name in recipe["pipelines"])
        lines.append(f"| {names} | {recipe['epochs']} | {recipe['photos']:,} | {recipe['by']} |")
    return "\n".join(lines) + "\n"


def papers_texts() -> dict[str, str]:
    """A block for each paper, its items with their code and tests; and one of what is not here."""
    found = tomllib.loads((ROOT / "pipelines" / "papers" / "equations.toml").read_text("utf-8"))
    blocks = {}
    for paper in found["paper"]:
        lines = ["| item | | code | held by |", "|---|---|---|---|"]
        for entry in paper["entries"]:
            code = ", ".join(f"`{name}`" for name in entry["code"])
            held = [f"`{test.partition('::')[2]}`" for test in entry["tests"]]
            rows = [f"rows: `{entry['rows']}`"] if "rows" in entry else []
            held_by = ", ".join([*held, *rows])
            lines.append(f"| {entry['item']} | {entry['about']} | {code} | {held_by} |")
        blocks[f"paper {paper['name']}"] = "\n".join(lines) + "\n"
    lines = ["| paper | item | names | |", "|---|---|---|---|"]
    for entry in found["not_here"]:
        names = ", ".join(entry.get("data_sets", []) + entry.get("losses", []))
        items = ", ".join(entry["items"])
        lines.append(f"| {entry['paper']} | {items} | {names} | {entry['about']} |")
    blocks["not here"] = "\n".join(lines) + "\n"
    return blocks


def figures_text(result: dict[str, Any]) -> str:
    """The provenance of the figures that are measured on made scores."""
    about = f"{result['machine']}, commit {result['commit']}, {result['date']}"
    return f"The first five: `python -m pipelines.paper_figures`, {about}.\n"


def output_text(result: dict[str, Any]) -> str:
    """What the command printed."""
    return "```\n" + "\n".join(result["output"]) + "\n```\n"


def agreement_text(path: Path) -> str:
    """How far the two annotators agree, as a table."""
    found = json.loads(path.read_text("utf-8"))
    rows = [
        f"| {m['of']}, by {m['by']} | {share_text(m['agreement'], 1)} | {m['kappa']:.3f} | "
        f"{m['low']:.3f} to {m['high']:.3f} |"
        for m in found["measures"]
    ]
    head = ["| of | agreement | Cohen's kappa | 95 % interval |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *rows, "", f"{found['values']:,} values decided by both."]) + "\n"


def bench_text(result: dict[str, Any]) -> str:
    """What a benchmark measured, with the bounds that it is to keep.

    Rows named ``TABLE: ROW: COLUMN``, and losses by batch size, are cells of tables.
    """
    tables: dict[str, dict[str, dict[str, str]]] = {}
    aims: dict[str, dict[str, float | None]] = {}
    # Files of before have no aims.
    no_aim = {"aim": ""} if any(row.get("aim") for row in result["rows"]) else {}
    others = []
    for row in result["rows"]:
        loss = re.fullmatch(r"(.+) B=(\d+) (layout \w+|untrained) over the products", row["what"])
        if loss:
            rows = tables.setdefault("over the products", {})
            name, size = f"{loss[1]}, {loss[3]}", f"{int(loss[2]):,}"
            cells = rows.setdefault(name, {"at most": f"{row['most']:g}"} | no_aim)
            cells[size] = _marked(f"{row['value']:.2f}", row["holds"])
            aims.setdefault(name, {})[size] = row.get("aim")
        elif row["what"].count(": ") == 2:
            table, name, column = row["what"].split(": ")
            table += ", %" * (row["unit"] == "%")
            value = f"{row['value']:.1f}" if row["unit"] == "%" else f"{row['value']:,.0f}"
            tables.setdefault(table, {}).setdefault(name, {})[column] = value
        else:
            value = f"{_number(row['value'])} {row['unit']}".rstrip()
            bound = {"bound": _bound(row)} if _bound(row) else {}
            name = row["what"].replace("  ", "- ", 1)  # a part of the row above
            others.append((name, {"value": _marked(value, row["holds"])} | bound | _aim(row)))
    for name, of_sizes in aims.items():
        if any(of_sizes.values()):
            tables["over the products"][name]["aim"] = _aims(of_sizes)
    bounded = [row for row in result["rows"] if _bound(row)]
    missed = sum(not row["holds"] for row in bounded)
    bounds = f"{missed or 'None'} of {len(bounded)} miss their bound. " * bool(bounded)
    reached = [row["reached"] for row in result["rows"] if row.get("aim") is not None]
    bounds += f"{reached.count(False) or 'None'} of {len(reached)} miss their aim. " * bool(reached)
    lines = [_table("measured", others)] if others else []
    lines += [_table(name, rows.items()) for name, rows in tables.items()]
    return "\n\n".join([*lines, f"{bounds}{_measured(result)}\n"])


def libraries_text(results: list[dict[str, Any]]) -> str:
    """Times of hgld and of other libraries; three columns for each machine."""
    rows: dict[str, dict[str, str]] = {}
    for number, result in enumerate(results, 1):
        machine = f", machine {number}" * (len(results) > 1)
        for row in result["rows"]:
            ours, theirs = 1e3 * row["seconds"], 1e3 * row["seconds"] * row["value"]
            rows.setdefault(row["what"].replace(", of ", ", "), {}).update({
                f"hgld{machine}": f"{_number(ours)} ms",
                f"other{machine}": f"{_number(theirs)} ms",
                f"times{machine}": f"{row['value']:.1f}",
            })  # fmt: skip
    return "\n\n".join([_table("result, other", rows.items()), *map(_measured, results)]) + "\n"


def _table(head: str, named: Iterable[tuple[str, dict[str, str]]]) -> str:
    rows = list(named)
    columns = list(dict.fromkeys(column for _, cells in rows for column in cells))
    lines = [f"| {' | '.join((head, *columns))} |", "|---|" + "---:|" * len(columns)]
    for name, cells in rows:
        lines.append(f"| {' | '.join((name, *(cells.get(column, '') for column in columns)))} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _marked(text: str, holds: bool) -> str:
    return text if holds else f"**{text}**"


def _bound(row: dict[str, Any]) -> str:
    if row["most"] is not None:
        return f"at most {row['most']:,g}"
    return f"at least {row['least']:,g}" if row["least"] is not None else ""


def _aim(row: dict[str, Any]) -> dict[str, str]:
    """The cell of a row's aim; files of before have none."""
    if row.get("aim") is None:
        return {}
    side = "at most" if row["least"] is None else "at least"
    return {"aim": f"{side} {row['aim']:,g}{'' if row['reached'] else ', missed'}"}


def _aims(of_sizes: dict[str, float | None]) -> str:
    """The aims of a loss at batch sizes, in one cell."""
    if len(set(of_sizes.values())) == 1:
        return f"{next(iter(of_sizes.values())):g}"
    return "; ".join(f"{size}: {aim:g}" for size, aim in of_sizes.items() if aim is not None)


def _measured(result: dict[str, Any]) -> str:
    """The command of a benchmark, and where, with what and when it ran."""
    parts = "".join(f" --part {name}" for name in result["parts"])
    # Files of before have no instruction set.
    about = [result["machine"], *([result["instructions"]] if "instructions" in result else [])]
    about += [f"Python {result['python']}", *(" ".join(v) for v in result["versions"].items())]
    about += [f"commit {result['commit']}", result["date"]]
    return f"`python -m tests.benchmarks{parts}`, {', '.join(about)}."


def reliability_picture(rows: list[dict[str, Any]]) -> str:
    """How often suggestions of each probability were right, as an SVG file; area: their number."""
    pattern = re.compile(r"review, (.+): right of (\d+) with (\d+)% to (\d+)%")
    found: dict[str, list[tuple[float, float, int]]] = {}
    for row in rows:
        if match := pattern.fullmatch(row["what"]):
            middle = (int(match[3]) + int(match[4])) / 2
            found.setdefault(match[1], []).append((middle, row["value"], int(match[2])))
    with open_figure(LIGHT, 5.2, 3.6) as figure:
        axes = add_axes(figure, LIGHT, grid_axis="both")
        axes.plot([0, 100], [0, 100], color=LIGHT.muted, linewidth=1, linestyle=":")
        styles = zip(LIGHT.series, ("-", "--", "-."), strict=False)
        for (name, points), (colour, dashes) in zip(found.items(), styles, strict=True):
            chance, right, number = zip(*points, strict=True)
            axes.plot(chance, right, color=colour, linestyle=dashes, linewidth=1.6, label=name)
            axes.scatter(chance, right, s=number, color=colour, clip_on=False)
        axes.set(xlim=(0, 100), ylim=(0, 104), xlabel="probability of the suggestion, %")
        axes.set_ylabel("right, %")
        add_legend(axes, LIGHT, columns=2)
    return Drawing(figure, LIGHT).vector("svg").decode("utf-8")


def gpu_text(result: dict[str, Any]) -> str:
    """Sup-H-AP on a GPU over three products of its similarities; the file has the other losses."""
    rows: dict[str, dict[str, str]] = {}
    for row in result["rows"]:
        name, _, shape = row["what"].partition(" B=")
        if "sup_h_ap" not in name:
            continue
        size, _, layout = shape.partition(" ")
        size = f"{int(size):,}"
        text = f"{row['ms']:.3g} ({row['ratio']:.3g} x)"
        holds = row["most"] is None or row["ratio"] <= row["most"]
        rows.setdefault(f"{name}, {layout}", {})[size] = _marked(text, holds)
    machine = result["machine"]
    versions = f"torch {machine['torch']}, triton {machine['triton']}"
    about = f"{machine['gpu']}, {versions}, commit {result['commit']}, {result['date']}"
    return f"{_table('ms', rows.items())}\n\n`python -m tests.gpu.bench`, {about}.\n"


def claims_text(result: dict[str, Any]) -> str:
    """What was found of the papers' claims: the budget, the verdicts, each experiment's table."""
    claims = [(e["name"], claim) for e in result["experiments"] for claim in e["claims"]]
    verdicts = [claim["verdict"] for _, claim in claims]
    holds, unsure, fails = (verdicts.count(word) for word in ("holds", "open", "fails"))
    alone = sum(claim["low"] > 0 or claim["high"] < 0 for _, claim in claims)
    lines = [
        _claims_budget(result),
        "",
        f"{len(claims)} comparisons: holds {holds}, open {unsure}, fails {fails}. By itself the "
        f"interval of {alone} excludes 0; of {len(claims)} differences that are none, "
        f"{0.05 * len(claims):.1f} would by chance.",
        "",
        "| of | the paper has it that | by | the paper | here, 95 % interval | | of its table |",
        "|---|---|---|---|---:|---|---|",
        *(f"| {name} | {_claim_cells(claim)} |" for name, claim in _judged_by_table(result)),
    ]
    for experiment in result["experiments"]:
        lines += ["", f"**{experiment['name']}**: {experiment['about']}.", ""]
        rows = {
            name: {
                metric: f"{mean:.1f} ± {deviation:.1f}" for metric, (mean, deviation) in row.items()
            }
            for name, row in experiment["rows"].items()
        }
        lines.append(_table("%", rows.items()))
    return "\n".join(lines) + "\n"


def _judged_by_table(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each claim with its verdict among those of its table alone, at 5 %."""
    from pipelines.claims.verdicts import judge_all

    for experiment in result["experiments"]:
        alone = [dict(claim) for claim in experiment["claims"]]
        judge_all(alone, 0.05)
        for claim, again in zip(experiment["claims"], alone, strict=True):
            yield experiment["name"], {**claim, "of_table": again["verdict"]}


def _claim_cells(claim: dict[str, Any]) -> str:
    found = f"{claim['difference']:+.2f} ({claim['low']:+.2f} to {claim['high']:+.2f})"
    names = f"{claim['claim']} | {claim['metric']} | {claim['paper']}"
    return f"{names} | {found} | {claim['verdict']} | {claim['of_table']}"


def _claims_budget(result: dict[str, Any]) -> str:
    """Data, steps, rates and cost of a budget, in words."""
    budget, folds = result["budget"], result["folds"]
    parts = f"{len(folds)} made trees" if result["made"] else f"{len(folds)} folds of the landmarks"
    (fit, test), (known, others) = folds[0]["samples"], folds[0]["classes"]
    rates = ", ".join(f"{rate:g}" for rate in budget["rates"])
    proxies = ", ".join(f"{rate:g}" for rate in budget["proxy_rates"])
    network = result["backbone"] + f" at {result['image_size']} px" * bool(result["image_size"])
    steps = f"{budget['steps']:,} steps"
    if budget["batch"]:
        steps += f" (of {budget['batch']} samples; other batches see as many samples)"
    return (
        f"{parts}, {budget['seeds']} seeds each; in the first {fit:,} samples of {known} "
        f"classes to learn from, {test:,} of {others} others to measure on. {network}, "
        f"{steps}. Rates ({rates}; with proxies each with {proxies} for them) are the best of the "
        f"grid, widened where the best is at an end, on a third of the fold's training classes, "
        f"{budget['draws']} draw{'s' * (budget['draws'] > 1)}. "
        f"`python -m pipelines.claims {result['claims']}`: {result['runs']:,} runs, "
        f"{result['cpu_s'] / 60:.0f} minutes of one core of {result['machine']}, "
        f"commit {result['commit']}, {result['date']}."
    )


def _protocol(protocol: dict[str, Any]) -> str:
    return (
        f"{protocol['queries']:,} queries ({protocol['query']}), gallery of "
        f"{protocol['gallery_images']:,} images ({protocol['gallery']})."
    )


def _inverted(evaluation: dict[str, Any]) -> str:
    """For how many queries the order by level has not the highest H-AP; older files do not say."""
    if not all("inverted" in model for model in evaluation["models"].values()):
        return ""
    inverted, queries = inverted_queries(evaluation), evaluation["protocol"]["queries"]
    return f" H-AP: {inverted:,} of {queries:,} queries are inverted (Eq. 20)." if inverted else ""


def _provenance(result: dict[str, Any]) -> str:
    minutes = sum(result["seconds"].values()) / 60
    return (
        f"`hgld run {result['pipeline']}`, {minutes:.1f} minutes on {result['machine']}, "
        f"commit {result['commit']}, {result['date']}."
    )


def _fill(text: str, blocks: dict[str, str]) -> str:
    for name, block in blocks.items():
        pattern = re.compile(BLOCK.format(name=re.escape(name), text=".*?"), re.S)
        text = pattern.sub(lambda _, n=name, b=block: BLOCK.format(name=n, text=b), text)
    return text


def machine() -> str:
    """Cores and processor, in words."""
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {cpu[1] if cpu else platform.machine()}"


def commit() -> str:
    """The commit that is checked out; with a plus where code has been changed since."""
    changed = _git("status", "--porcelain", "--", "*.py", "*.toml", "hgld")
    return _git("rev-parse", "--short", "HEAD") + "+" * bool(changed)


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).strip()


def main(arguments: list[str]) -> None:
    """Run and record the named pipelines, or write the pages."""
    match arguments:
        case ["run", *pipelines]:
            for pipeline in pipelines:
                print(record(Path(pipeline)))
        case ["pages"]:
            # imported here: paper_figures imports this module
            from pipelines.paper_figures import draw_paper_figures

            for path, text in (pages() | draw_paper_figures()).items():
                path.write_text(text, encoding="utf-8")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
