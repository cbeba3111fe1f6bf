"""Takes the pictures of the pages: ``python docs/images/take.py``.

The review of the quickstart's world with half of its values decided, opened in Chromium: wide and
light with some decisions just made, narrow and dark with the panel of a value. The query of the
quickstart on which HAPPIER gained most. The review of the classes of docs/from-class-names.md and
the report after its commands.
"""

import csv
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
QUICKSTART = str(ROOT / "pipelines" / "quickstart.toml")
NONE = Image.Dither.NONE
LEFT_OPEN = ("Q8502", "Q54050", "Q16970", "Q108325", "Q131681", "Q34038", "Q158438", "Q570116")


def main() -> None:
    """Write the PNGs beside this file."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = make_page(Path(folder)).as_uri()
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        take_wide(browser, page)
        take_narrow(browser, page)
        run_in(Path(folder) / "person", "run", QUICKSTART, "--work", "work/quickstart")
        take_comparison(Path(folder) / "person" / "work" / "quickstart" / "report")
        take_classes(browser, Path(folder) / "person")
        browser.close()


def make_page(folder: Path) -> Path:
    """The review page of the quickstart, on labels from which some decisions are left out."""
    labels, pipeline = folder / "labels", folder / "quickstart.toml"
    shutil.copytree(ROOT / "labels" / "toy", labels)
    with (labels / "decisions.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    with (labels / "decisions.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *(row for row in rows if row[0] not in LEFT_OPEN)])
    text = Path(QUICKSTART).read_text(encoding="utf-8")
    pipeline.write_text(text.replace("../labels/toy", "labels"), encoding="utf-8")
    at = [str(pipeline), "--work", str(folder / "work"), "--now", "2026-01-01"]
    command = [sys.executable, "-m", "hgld"]
    subprocess.run([*command, "run", *at, "--until", "cluster"], cwd=ROOT, check=True)
    subprocess.run([*command, "review", *at, "--html"], cwd=ROOT, check=False)  # 20: waits
    return folder / "work" / "review.html"


def take_wide(browser: Browser, address: str) -> None:
    """The whole page: one value kept, one unsure, the next one to be decided."""
    view = browser.new_page(viewport={"width": 1280, "height": 820}, reduced_motion="reduce")
    view.goto(address)
    for key in ("K", "u", "K"):
        view.keyboard.press(key)
    view.wait_for_timeout(3000)  # until the last message is gone
    save(view, "review.png")


def take_narrow(browser: Browser, address: str) -> None:
    """A value's panel on a phone at night."""
    view = browser.new_page(
        viewport={"width": 420, "height": 780}, color_scheme="dark", reduced_motion="reduce"
    )
    view.goto(address)
    view.locator(".row").nth(3).click()
    save(view, "review-phone.png", full=False)


def take_comparison(report: Path) -> None:
    """What two models retrieve for one query, at three quarters of its size."""
    path = HERE / "comparison.webp"
    with Image.open(report / "comparison-gain.png") as image:
        size = image.width * 3 // 4, image.height * 3 // 4
        image.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(path, quality=85)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


def take_classes(browser: Browser, folder: Path) -> None:
    """The review of classes with the sure suggestions accepted, and the report after it."""
    text = (ROOT / "docs" / "from-class-names.md").read_text(encoding="utf-8")
    text = text.partition("\n## 5.")[0]  # another pipeline follows
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    subprocess.run([sys.executable, "-c", example], cwd=folder, check=True)
    view = browser.new_page(viewport={"width": 1280, "height": 820}, reduced_motion="reduce")
    for words in map(shlex.split, re.findall(r"^hgld (.*)$", text, re.M)):
        if "--apply" in words:
            view.goto((folder / "work" / "mine" / "review.html").as_uri())
            accept_and_save(view, folder / "work" / "mine" / "review.csv")
        run_in(folder, *words)
    view.goto((folder / "work" / "mine" / "report" / "report.html").as_uri())
    save(view, "classes-report.png", full=False)


def run_in(folder: Path, *words: str) -> None:
    """A command of hgld in the folder of a person, who is asked for nothing."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "hgld", *words]
    subprocess.run(command, cwd=folder, check=False)  # 20: values are open


def accept_and_save(view: Page, sheet: Path) -> None:
    """Accept the sure suggestions, take the picture, keep the others, write the sheet."""
    view.keyboard.press("S")
    view.keyboard.press("Enter")
    view.wait_for_timeout(3000)
    save(view, "classes-review.png", full=False)
    left = re.search(r"(\d+) values open", view.inner_text("body"))
    assert left is not None
    for _ in range(int(left[1])):
        view.keyboard.press("K")
    with view.expect_download() as download:
        view.get_by_text("Download review.csv").click()
    download.value.save_as(sheet)


def save(view: Page, name: str, full: bool = True) -> None:
    """The page, or what is in sight of it, as a PNG of 256 colours: a fourth of the bytes."""
    path = HERE / name
    view.evaluate("scrollTo(0, 0)")
    view.screenshot(path=path, full_page=full)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, 3, dither=NONE)
    small.save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
