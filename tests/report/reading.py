"""Writes the report of a made run and reads it as a browser would."""

from pathlib import Path
from typing import Any

import lxml.html

from hgld.config import ReportOptions
from hgld.report import write_report
from tests.made_run import MadeRun, context

CHARTS = {"levels", "recall", "alpha", "map", "confusion", "losses"}
CHARTS |= {"icicle", "sizes", "groups", "sunburst", "shares"}


def write(run: MadeRun, out: Path | None = None, **options: Any) -> Path:
    out = out or run.folder / "report"
    options.setdefault("vector_figures", ())  # half of the time
    write_report(
        *run.report_inputs,
        options=ReportOptions(**options),
        context=context(run.folder),
        out=out,
    )
    return out


def page(run: MadeRun, **options: Any) -> Any:
    return parse(write(run, **options))


def parse(folder: Path, name: str = "report") -> Any:
    return lxml.html.fromstring((folder / f"{name}.html").read_text("utf-8"))


def text(element: Any) -> str:
    return " ".join(" ".join(element.itertext()).split())


def open_page(
    browser: Any, page: Path, width: int = 400, scheme: str = "light"
) -> tuple[Any, list[str]]:
    """Open a page; return its view, and the list that messages of the browser are added to."""
    view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    view.on("console", lambda message: said.append(message.text))
    view.on("pageerror", lambda error: said.append(str(error)))
    view.goto(page.resolve().as_uri())
    return view, said


def look(browser: Any, page: Path, width: int = 400, scheme: str = "light") -> dict[str, Any]:
    """Open a page and find what a reader cannot read.

    Returns:
        page: pixels by which it is wider than the window. beyond: elements that leave their card.
        cut: elements that hide a part of their text. scrollers: classes of the boxes that scroll
        sideways. silent: those without a hint. idle: hints without a box that scrolls.
        hints: texts of all that are shown. blank: number of images without pixels. widths:
        of the photos. said: messages of the browser.
    """
    view, said = open_page(browser, page, width, scheme)
    found: dict[str, Any] = view.evaluate(LOOK)
    view.close()
    return found | {"said": said}


LOOK = """() => {
  const found = {beyond: [], cut: [], silent: [], idle: [], hints: [], scrollers: [],
                 blank: [...document.images].filter(image => !image.naturalWidth).length,
                 widths: [...document.querySelectorAll('main figure img')].map(e => e.width),
                 page: document.documentElement.scrollWidth - innerWidth};
  const name = e => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 30)}`;
  const scrolls = e => getComputedStyle(e).overflowX === 'auto';
  const all = [...document.querySelectorAll('main *')];
  for (const e of all) {
    const box = e.getBoundingClientRect();
    if (!box.width) continue;
    if (e.matches('.hint')) {
      const next = e.nextElementSibling;
      found.hints.push(e.textContent);
      if (next.scrollWidth <= next.clientWidth) found.idle.push(name(e));
    }
    if (scrolls(e)) {
      if (e.scrollWidth <= e.clientWidth) continue;
      found.scrollers.push(e.className);
      const hint = e.previousElementSibling;
      if (!hint.matches('.hint') || !hint.offsetHeight) found.silent.push(name(e));
      continue;
    }
    let outside = e.parentElement.closest('.card, figure, main'), inside = e.parentElement;
    while (inside && !scrolls(inside)) inside = inside.parentElement;
    if (inside) continue;
    const edge = outside.getBoundingClientRect();
    if (box.right > edge.right + 1 || box.left < edge.left - 1) found.beyond.push(name(e));
    const style = getComputedStyle(e);
    if (style.overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1) found.cut.push(name(e));
    if (style.overflowY !== 'visible' && e.scrollHeight > e.clientHeight + 1)
      found.cut.push(name(e));
  }
  return found;
}"""
