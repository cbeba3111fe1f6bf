"""Takes the pictures of the review page: ``python docs/images/take.py``.

The quickstart's world with half of its values decided, opened in Chromium: wide and light with
some decisions just made, narrow and dark with the panel of a value.
"""

import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NONE = Image.Dither.NONE
LEFT_OPEN = ("Q8502", "Q54050", "Q16970", "Q108325", "Q131681", "Q34038", "Q158438", "Q570116")


def main() -> None:
    """Write ``review.png`` and ``review-phone.png`` beside this file."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = make_page(Path(folder)).as_uri()
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        take_wide(browser, page)
        take_narrow(browser, page)
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
    text = (ROOT / "pipelines" / "quickstart.toml").read_text(encoding="utf-8")
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
