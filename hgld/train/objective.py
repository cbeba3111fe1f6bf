"""Build the training loss of a run from its name, its options and the classes of the data."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from hgld.config import RunOptions
from hgld.errors import ShapeError, UsageError
from hgld.ranking import baselines, losses
from hgld.ranking.presets import preset
from hgld.ranking.rank_loss import takes_references
from hgld.ranking.steps import UpperStep
from hgld.words import nearest

FACTS = ("num_levels", "num_classes", "dim", "class_labels")  # arguments that the data determine
STEP = [field.name for field in fields(UpperStep)]
SIGMA = "Sigma"
OF_CALIBRATION = {  # options that have an effect with some calibrations only
    "eta": ("proxy",),
    "pair_alpha": ("pair", "pair-pooled"),
    "pair_beta": ("pair", "pair-pooled"),
}


class AtLevel(nn.Module):
    """A loss of the finest classes, applied at a coarser level: its labels are cut there."""

    def __init__(self, loss: nn.Module, level: int) -> None:
        super().__init__()
        self.loss, self.level = loss, level

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        found: Tensor = self.loss(embeddings, labels[:, : self.level])
        return found


def build_loss(run: RunOptions, class_labels: np.ndarray, dim: int, seed: int) -> nn.Module:
    """Build the loss of a run, with its proxies drawn from the seed.

    Args:
        run: loss, loss_options and memory.
        class_labels: (C, L) labels of each finest class, coarse to fine; those of a level are
            numbered 0, 1, 2 ...
        dim: length of an embedding.
        seed: of the proxies.

    Raises:
        UsageError: the loss has no such option, the labels have no such level, or the number of
            margins or weights is not that of the levels, or a value is impossible.
    """
    # Proxies draw from the seed without changing the caller's random numbers.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            loss = _build(run, class_labels, dim)
            # Most values are checked where they are used: by the loss of two images of each of two
            # classes. It is another one, since a step would change the state of some losses.
            few = class_labels[:2]
            labels = torch.from_numpy(np.repeat(few, 2, axis=0))
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of so few images
                _build(run, few, dim)(torch.randn(len(labels), dim), labels)
        except ShapeError as error:
            raise UsageError(f"train.runs: {run.loss}: {error}") from None
    if run.memory and not takes_references(loss):
        raise UsageError(
            f"train.runs: {run.loss} learns from the batch alone and has no use for a memory; "
            "set memory = 0"
        )
    return loss


def csl_margins(levels: int) -> tuple[float, ...]:
    """Margins of CSL, coarse to fine.

    0.25, 0.45 for two levels, 0.25 to 0.45 for three and 0.15 to 0.75 for seven, finest first, are
    the values of its only public code. Other numbers of levels start at 0.25 in steps of 0.1; more
    than seven go from 0.15 to 0.75 in equal steps.

    Example:
        >>> csl_margins(3)
        (0.45, 0.35, 0.25)
    """
    ends = {2: (0.25, 0.45), 7: (0.15, 0.75)}
    low, high = ends.get(levels, (0.25, 0.15 + 0.1 * levels) if levels < 7 else (0.15, 0.75))
    return tuple(np.linspace(high, low, levels).round(4).tolist())


@dataclass(frozen=True)
class _Recipe:
    """A loss by name: its factory and the options that it accepts."""

    name: str
    maker: Callable[..., nn.Module]
    parameters: Mapping[str, inspect.Parameter]
    at_one_level: bool  # of the finest classes only, so that the option ``level`` applies

    @classmethod
    def of(cls, name: str, at_one_level: bool = True) -> "_Recipe":
        maker = getattr(losses, name, None) or getattr(baselines, name)
        parameters = inspect.signature(maker).parameters
        over_all = {"num_levels", "class_labels"} & parameters.keys()
        return cls(name, maker, parameters, at_one_level and not over_all)

    @property
    def own(self) -> list[str]:
        """Options that a user may set."""
        free = self.parameters.keys() - {*FACTS, "step", "level"}
        return sorted(free | {"preset"} | ({"level"} if self.at_one_level else set()))

    @property
    def of_step(self) -> list[str]:
        return STEP if "step" in self.parameters else []


def _build(run: RunOptions, class_labels: np.ndarray, dim: int) -> nn.Module:
    options: dict[str, Any] = dict(run.loss_options)
    levels = class_labels.shape[1]
    if run.loss.startswith(SIGMA):
        recipe = _Recipe.of(run.loss.removeprefix(SIGMA), at_one_level=False)
        parts = [
            _make(recipe, options, class_labels[:, : level + 1], dim) for level in range(levels)
        ]
        return baselines.LevelSum(parts)
    recipe = _Recipe.of(run.loss)
    level = _level(options, recipe, levels)
    loss = _make(recipe, options, class_labels[:, :level], dim)
    return loss if level is None or "level" in recipe.parameters else AtLevel(loss, level)


def _level(options: dict[str, Any], recipe: _Recipe, levels: int) -> int | None:
    """The level that the options ask for, 1 the coarsest; removed if the loss does not take it."""
    if "level" not in options or "level" not in recipe.own:
        return None
    level = options["level"]
    if level not in range(1, levels + 1):
        raise UsageError(
            f"train.runs: {recipe.name}: level is {level}; the labels have levels 1 (coarsest) to "
            f"{levels}"
        )
    if "level" not in recipe.parameters:
        del options["level"]
    return int(level)


def _make(
    recipe: _Recipe, options: Mapping[str, Any], class_labels: np.ndarray, dim: int
) -> nn.Module:
    facts = {
        "num_levels": class_labels.shape[1],
        "num_classes": int(class_labels[:, -1].max()) + 1,
        "dim": dim,
        "class_labels": torch.from_numpy(class_labels),
    }
    given = {name: value for name, value in facts.items() if name in recipe.parameters}
    if recipe.name == "CSL":
        # The default margins of the loss are those of three levels.
        given["margins"] = csl_margins(class_labels.shape[1])
    # The run's own margins override these.
    made = {**given, **_free_options(recipe, options)}
    levels = class_labels.shape[1]
    for name in ("margins", "weights"):
        if made.get(name) is not None and len(made[name]) != levels:
            raise UsageError(
                f"train.runs: {recipe.name} has {len(made[name])} {name}, but the labels have "
                f"{levels} levels; give one for each, coarse to fine"
            )
    return recipe.maker(**made)


def _free_options(recipe: _Recipe, options: Mapping[str, Any]) -> dict[str, Any]:
    """The run's options of the loss; those of its step (tau, rho ...) become one UpperStep."""
    for name in options:
        if name not in recipe.own + recipe.of_step:
            raise UsageError(
                f"train.runs: the loss {recipe.name} has no option '{name}'"
                f"{nearest(name, recipe.own + recipe.of_step)}; it has "
                + ", ".join(recipe.own + recipe.of_step)
            )
    filled = {**_of_preset(recipe, options.get("preset")), **options}
    _require_effect(recipe, options, filled)
    wanted = {n: recipe.parameters[n].annotation for n in filled if n in recipe.parameters}
    free = {name: _fit(recipe, name, filled[name], kind) for name, kind in wanted.items()}
    step = {n: _fit(recipe, n, filled[n], float) for n in filled if n in recipe.of_step}
    return {**free, "step": UpperStep(**step)} if step else free


def _require_effect(recipe: _Recipe, options: Mapping[str, Any], filled: Mapping[str, Any]) -> None:
    """Refuse an option that another one leaves without effect."""
    if {"alpha", "weights"} <= options.keys():
        raise UsageError(
            f"train.runs: {recipe.name}: alpha has no effect with weights, which replace Eq. 20; "
            "delete one of the two"
        )
    if "calibration" not in recipe.parameters:
        return
    calibration = filled.get("calibration", recipe.parameters["calibration"].default)
    for name, fitting in OF_CALIBRATION.items():
        if name in options and calibration not in fitting:
            raise UsageError(
                f"train.runs: {recipe.name}: {name} has no effect with calibration = "
                f'"{calibration}"; delete it, or set calibration = "{fitting[0]}"'
            )


def _of_preset(recipe: _Recipe, name: Any) -> dict[str, Any]:
    """The published values of the preset that the loss accepts."""
    if name is None:
        return {}
    found = preset(str(name))
    values: dict[str, Any] = {
        **{n: getattr(found, n) for n in ("alpha", "eta", "ks", "temperature")},
        **{n: getattr(found, n) for n in ("pair_alpha", "pair_beta")},
        "lam": found.recall_lam if recipe.name == "RODRecall" else found.lam,
    }
    if recipe.name in ("PairCalibration", "PooledCalibration"):
        values |= {"alpha": found.pair_alpha, "beta": found.pair_beta}
    values |= found.others.get(recipe.name, {})
    step = {n: v for n, v in asdict(found.step).items() if v is not None and n in recipe.of_step}
    return {**{n: v for n, v in values.items() if n in recipe.parameters}, **step}


def _fit(recipe: _Recipe, name: str, value: Any, wanted: Any) -> Any:
    """Convert an option to the type that the loss expects: 2.0 in a pipeline becomes level 2."""
    try:
        return TypeAdapter(wanted).validate_python(value)
    except ValidationError as error:
        says = error.errors()[0]["msg"]
        raise UsageError(
            f"train.runs: {recipe.name}: {name}: {says[0].lower()}{says[1:]} (found {value!r})"
        ) from None
