"""The figures of a release: supercategories, the hierarchy as rings, shares of the kinds."""

from collections.abc import Sequence
from pathlib import Path

from hgld.figures import LIGHT, Bar, draw_groups, draw_shares, draw_sunburst
from hgld.publish.content import Group, Release

__all__ = ["draw_pictures"]


def draw_pictures(release: Release, folder: Path) -> list[tuple[str, str]]:
    """Draw what the hierarchy has: file and caption of each figure; none without groups."""
    groups = [group for group in release.groups if group.all_landmarks]
    if not groups:
        return []
    of_folder = release.road == "folder"
    coarsest, above, finest = release.levels[0], release.levels[-2], release.levels[-1]
    bars = [Bar(g.name, g.kind, g.all_landmarks, g.images) for g in groups]
    file = "groups.png" if of_folder else "supercategories.png"
    caption = f"classes of {above} by size" if of_folder else "supercategories by size"
    drawn = [(file, caption, draw_groups(bars, finest, LIGHT))]
    if groups[0].kind:
        paths: dict[tuple[str, ...], int] = {(g.kind, g.name): g.all_landmarks for g in groups}
        names = (coarsest, above if of_folder else "supercategories", finest)
        drawn.append(("sunburst.png", "the hierarchy", draw_sunburst(paths, names, LIGHT)))
        counted = f"{finest} classes" if of_folder else "landmarks"
        shares = draw_shares(_shares(groups, counted), LIGHT)
        drawn.append(("shares.png", "shares of the coarsest level", shares))
    (folder / "figures").mkdir()
    for name, _, drawing in drawn:
        (folder / "figures" / name).write_bytes(drawing.png())
    return [(f"figures/{name}", caption) for name, caption, _ in drawn]


def _shares(groups: Sequence[Group], finest: str) -> dict[str, dict[str, int]]:
    """Landmarks, and images where there are any, of each kind."""
    kinds = sorted({group.kind for group in groups})
    shares = {
        finest: {k: sum(g.all_landmarks for g in groups if g.kind == k) for k in kinds},
        "images": {k: sum(g.images for g in groups if g.kind == k) for k in kinds},
    }
    return {what: counts for what, counts in shares.items() if any(counts.values())}
