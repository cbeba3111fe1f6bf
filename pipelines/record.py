"""Runs a pipeline, records what it measured, and writes the recorded figures into the pages.

    python pipelines/record.py run pipelines/quickstart.toml    results/quickstart.json
    python pipelines/record.py pages                            README.md, docs/, labels/README.md

Figures are never typed: a page holds what stands in ``results/*.json``, each with the commit, the
machine and the date it was measured on.
"""

import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hgld.config import load_pipeline
from hgld.figures import LIGHT, Drawing, add_axes, add_legend, open_figure

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "pipelines" / "results"
AGREEMENT = ROOT / "labels" / "gldv2" / "agreement.json"
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
    found = [json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    results = [result for result in found if "pipeline" in result]
    blocks = {f"result {Path(r['pipeline']).stem}": result_text(r) for r in results}
    blocks |= {f"output {Path(r['pipeline']).stem}": output_text(r) for r in results}
    blocks["agreement gldv2"] = agreement_text(AGREEMENT)
    blocks["recipes"] = recipes_text()
    blocks |= {f"claims {r['claims']}": claims_text(r) for r in found if "claims" in r}
    blocks |= {f"bench {' '.join(r['parts'])}": bench_text(r) for r in found if "parts" in r}
    blocks["gpu"] = gpu_text(json.loads((RESULTS / "bench-gpu.json").read_text("utf-8")))
    pages = [ROOT / "README.md", ROOT / "labels" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    texts = {path: path.read_text("utf-8") for path in pages}
    keys = json.loads((RESULTS / "bench-keys.json").read_text("utf-8"))
    pictures = {ROOT / "docs" / "images" / "reliability.svg": reliability_picture(keys["rows"])}
    return {path: _fill(text, blocks) for path, text in texts.items()} | pictures


def result_text(result: dict[str, Any]) -> str:
    """Metrics of a run as a table, one row a model, in percent."""
    evaluation = result["evaluation"]
    metrics, models = evaluation["metrics"], evaluation["models"]
    rows = [
        f"| {name} | " + " | ".join(f"{100 * model['mean'][m]:.1f}" for m in metrics) + " |"
        for name, model in models.items()
    ]
    lines = [
        f"| % | {' | '.join(metrics)} |",
        "|---|" + "---:|" * len(metrics),
        *rows,
        "",
        f"{_protocol(evaluation['protocol'])} {_provenance(result)}",
    ]
    return "\n".join(lines) + "\n"


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


def output_text(result: dict[str, Any]) -> str:
    """What the command printed."""
    return "```\n" + "\n".join(result["output"]) + "\n```\n"


def agreement_text(path: Path) -> str:
    """How far the two annotators agree, as a table."""
    found = json.loads(path.read_text("utf-8"))
    rows = [
        f"| {m['of']}, by {m['by']} | {m['agreement']:.1%} | {m['kappa']:.3f} | "
        f"{m['low']:.3f} to {m['high']:.3f} |"
        for m in found["measures"]
    ]
    head = ["| of | agreement | Cohen's kappa | 95 % interval |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *rows, "", f"{found['values']:,} values decided by both."]) + "\n"


def bench_text(result: dict[str, Any]) -> str:
    """What a benchmark measured, with the bounds that it is to keep."""
    lines = ["| measured | | bound | |", "|---|---:|---|---|"]
    lines += [_bench_row(row) for row in result["rows"]]
    broken = [row["what"] for row in result["rows"] if not row["holds"]]
    lines += ["", f"{len(broken) or 'None'} of {len(result['rows'])} miss their bound. "]
    parts = "".join(f" --part {name}" for name in result["parts"])
    lines[-1] += f"`python -m tests.benchmarks{parts}`, {result['machine']}, "
    lines[-1] += f"commit {result['commit']}, {result['date']}."
    return "\n".join(lines) + "\n"


def _bench_row(row: dict[str, Any]) -> str:
    least, most = row["least"], row["most"]
    bound = f"at least {least:g}" if least is not None else ""
    bound = f"at most {most:g}" if most is not None else bound
    mark = "" if not bound else "holds" if row["holds"] else "**missed**"
    value = f"{row['value']:,.0f}" if abs(row["value"]) >= 1000 else f"{row['value']:.3g}"
    return f"| {row['what']} | {value} {row['unit']} | {bound} | {mark} |"


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
        styles = zip(LIGHT.series, ("-", "--"), strict=False)
        for (name, points), (colour, dashes) in zip(found.items(), styles, strict=True):
            chance, right, number = zip(*points, strict=True)
            axes.plot(chance, right, color=colour, linestyle=dashes, linewidth=1.6, label=name)
            axes.scatter(chance, right, s=number, color=colour, clip_on=False)
        axes.set(xlim=(0, 100), ylim=(0, 104), xlabel="probability of the suggestion, %")
        axes.set_ylabel("right, %")
        add_legend(axes, LIGHT)
    return Drawing(figure, LIGHT).vector("svg").decode("utf-8")


def gpu_text(result: dict[str, Any]) -> str:
    """Sup-H-AP on a GPU over three products of its similarities; the file has the other losses."""
    machine = result["machine"]
    lines = ["| measured | ms | products, ms | ratio | bound | |", "|---|---:|---:|---:|---|---|"]
    for row in (row for row in result["rows"] if "sup_h_ap" in row["what"]):
        bound = f"at most {row['most']:g}" if row["most"] else ""
        mark = "" if not bound else "holds" if row["ratio"] <= row["most"] else "**missed**"
        times = f"{row['ms']:.3g} | {row['product_ms']:.3g} | {row['ratio']:.3g}"
        lines.append(f"| {row['what']} | {times} | {bound} | {mark} |")
    versions = f"torch {machine['torch']}, triton {machine['triton']}"
    lines += ["", f"`python -m tests.gpu.bench`, {machine['gpu']}, {versions}, "]
    lines[-1] += f"commit {result['commit']}, {result['date']}."
    return "\n".join(lines) + "\n"


def claims_text(result: dict[str, Any]) -> str:
    """What was found of the papers' claims: the budget, the verdicts, each experiment's table."""
    claims = [(e["name"], claim) for e in result["experiments"] for claim in e["claims"]]
    verdicts = [claim["verdict"] for _, claim in claims]
    holds, unsure, fails = (verdicts.count(word) for word in ("holds", "open", "fails"))
    lines = [
        _claims_budget(result),
        "",
        f"{len(claims)} comparisons: {holds} hold, {unsure} are open, {fails} fail.",
        "",
        "| of | the paper has it that | by | difference | |",
        "|---|---|---|---:|---|",
        *(f"| {name} | {_claim_cells(claim)} |" for name, claim in claims),
    ]
    for experiment in result["experiments"]:
        lines += ["", f"**{experiment['name']}**: {experiment['about']}.", ""]
        lines += [f"| % | {' | '.join(experiment['metrics'])} |"]
        lines += ["|---|" + "---:|" * len(experiment["metrics"])]
        lines += [_claims_row(name, row) for name, row in experiment["rows"].items()]
    return "\n".join(lines) + "\n"


def _claim_cells(claim: dict[str, Any]) -> str:
    difference = f"{claim['difference']:+.2f} ± {claim['deviation']:.2f}"
    return f"{claim['claim']} | {claim['metric']} | {difference} | {claim['verdict']}"


def _claims_row(name: str, row: dict[str, list[float]]) -> str:
    cells = [f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in row.values()]
    return f"| {name} | {' | '.join(cells)} |"


def _claims_budget(result: dict[str, Any]) -> str:
    budget, photos, landmarks = (result[name] for name in ("budget", "photos", "landmarks"))
    tell = {"head": _head_budget, "finetune": _finetune_budget}[result["claims"]]
    return (
        f"{len(budget['seeds'])} seeds; {photos['train']:,} photos of {landmarks['train']} "
        f"landmarks to learn from, {photos['evaluation']:,} of {landmarks['evaluation']} others "
        f"to measure on. {tell(result)} {result['runs']} runs, {result['cpu_s'] / 60:.0f} minutes "
        f"of one core of {result['machine']}, commit {result['commit']}, {result['date']}."
    )


def _head_budget(result: dict[str, Any]) -> str:
    budget = result["budget"]
    rates = ", ".join(f"{rate:g}" for rate in budget["head_lr"])
    return (
        f"{budget['steps']} steps; each loss has the head's rate (of {rates}) that is best on "
        f"{100 * budget['held_out']:g} % of the training landmarks held out, others for each seed; "
        f"proxies learn at {budget['proxy_lr']:g}. `python -m pipelines.claims head`:"
    )


def _finetune_budget(result: dict[str, Any]) -> str:
    options = result["budget"]["options"]
    run, batch = options["defaults"], options["classes_per_batch"] * options["images_per_class"]
    return (
        f"{run['steps']} steps of {batch} photos at {options['image_size']} px, no layer frozen "
        f"but batch-norm's statistics; the backbone learns at {run['lr']:g}, the head at "
        f"{run['head_lr']:g}, proxies at {run['proxy_lr']:g}, whatever the loss. "
        "`python -m pipelines.claims finetune`:"
    )


def _protocol(protocol: dict[str, Any]) -> str:
    return (
        f"{protocol['queries']:,} queries ({protocol['query']}), gallery of "
        f"{protocol['gallery_images']:,} images ({protocol['gallery']})."
    )


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
            for path, text in pages().items():
                path.write_text(text, encoding="utf-8")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
