"""Map of the classes in a model's space: t-SNE of their mean embeddings (Fig. 9a and 9b).

t-SNE shows neighbourhoods, not distances, so the map comes with a number measured in the full
space: the share of classes whose nearest class has the same coarse class.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hgld.figures import WIDE, Drawing, Theme, fit_legend, mark_of, open_figure
from hgld.report.figures import model_colours
from hgld.words import count_text, share_text

FEWEST = 4  # least number of classes for a map
PERPLEXITY = 30.0  # as van der Maaten and Hinton; lower for few classes
EXACT = 400  # up to this number of classes, t-SNE is computed exactly
AREAS = {"*": 2.2, "P": 1.4, "X": 1.4, "^": 1.2, "v": 1.2}  # factors for equal visual size
NAMED = 16  # coarse classes with separate marks


@dataclass(frozen=True)
class ClassMap:
    """The classes of one model.

    Attributes:
        vectors: (C, D) unit vector of each class.
        groups: coarse class of each.
        together: share of classes whose nearest class, by cosine, is of the same coarse class.
    """

    vectors: np.ndarray
    groups: tuple[tuple[str, ...], ...]
    together: float

    @cached_property
    def places(self) -> np.ndarray:
        """(C, 2) of t-SNE, computed when it is drawn, so that only a worker loads scikit-learn."""
        return project(self.vectors)


def place_classes(means: np.ndarray, groups: Sequence[tuple[str, ...]]) -> ClassMap | None:
    """Place the classes on a plane; None if they are too few, or all of one coarse class.

    Args:
        means: (C, D) mean embedding of each class.
        groups: path of the coarse class of each.
    """
    if len(means) < FEWEST or len(set(groups)) < 2:
        return None
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    unit = means / np.maximum(lengths, np.finfo(np.float32).tiny)
    scores = unit @ unit.T
    np.fill_diagonal(scores, -np.inf)  # a class is not its own neighbour
    nearest = scores.argmax(axis=1)
    together = float(np.mean([groups[i] == groups[j] for i, j in enumerate(nearest)]))
    return ClassMap(unit, tuple(groups), together)


def project(vectors: np.ndarray, init: Literal["random", "pca"] = "random") -> np.ndarray:
    """Return (N, 2) places by t-SNE, by one thread and a fixed seed: the same for the same vectors.

    Args:
        vectors: (N, D); of unit vectors, distances rank as the cosine does.
        init: where the points start; equal vectors, as of a model that collapsed, have no
            principal components and start at random.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        places: np.ndarray = TSNE(
            perplexity=min(PERPLEXITY, (len(vectors) - 1) / 3),
            init=init if np.ptp(vectors, axis=0).any() else "random",
            metric="euclidean",
            method="exact" if len(vectors) <= EXACT else "barnes_hut",
            random_state=0,
            n_jobs=1,
        ).fit_transform(vectors.astype(np.float64))
    return places


def draw_class_maps(
    maps: Mapping[str, ClassMap], models: Sequence[str], level: str, theme: Theme
) -> Drawing:
    """A panel a model; colour and mark are the coarse class.

    Args:
        maps: model -> its classes.
        models: all models, so that each keeps its colour.
        level: name of the coarse classes' level.
        theme: of the page.
    """
    counts = Counter(group for group in next(iter(maps.values())).groups)
    named = sorted(sorted(counts, key=lambda group: (-counts[group], group))[:NAMED])
    colours = model_colours(models, theme)
    marks = {group: mark_of(number, theme) for number, group in enumerate(named)}
    columns = min(3, len(maps))
    rows = -(-len(maps) // columns)
    names = [group[-1] for group in marks]
    if len(counts) > NAMED:
        names.append(count_text(len(counts) - NAMED, "other"))
    legend, beside, _ = fit_legend(names, 6, WIDE)
    lines = -(-len(legend) // beside)
    with open_figure(theme, WIDE, rows * (WIDE / columns * 0.86) + 0.26 * lines + 0.2) as figure:
        for number, (model, found) in enumerate(maps.items()):
            axes: Axes = figure.add_subplot(rows, columns, number + 1, facecolor=theme.surface)
            _draw_map(axes, found, marks, theme)
            axes.set_title(model, loc="left", fontsize=11, color=colours[model], weight="bold")
            text = f"nearest class of the same {level}: {share_text(found.together)}"
            axes.set_xlabel(text, fontsize=9, color=theme.ink)
        looks = [*marks.values(), (theme.grid, "o")]
        handles = [
            Line2D([], [], color=colour, marker=mark, linestyle="", markersize=7, label=name)
            for name, (colour, mark) in zip(legend, looks, strict=False)
        ]
        style: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": theme.ink}
        figure.legend(handles=handles, loc="outside lower center", ncols=beside, **style)
        return Drawing(figure, theme)


def _draw_map(
    axes: Axes, found: ClassMap, marks: Mapping[tuple[str, ...], tuple[str, str]], theme: Theme
) -> None:
    size = float(np.clip(9000 / len(found.places), 14, 70))
    order = sorted(set(found.groups), key=lambda group: (group in marks, group))
    for group in order:  # classes under the common mark are drawn below the others
        colour, mark = marks.get(group, (theme.grid, "o"))
        rows = [number for number, other in enumerate(found.groups) if other == group]
        x, y = found.places[rows].T
        edge: dict[str, Any] = {"edgecolors": theme.surface, "linewidths": 0.02 * size**0.5}
        axes.scatter(x, y, size * AREAS.get(mark, 1.0), colour, marker=mark, **edge)
    axes.margins(0.06)
    axes.set_xticks([])
    axes.set_yticks([])
