"""Choice of an engine for a model, with the reason and the expected time."""

import math
import time
from dataclasses import dataclass
from typing import Any, get_args

import pandas as pd
import pymc as pm

from ...models.kernels.stack import DIMS
from ...validation import Positive, check_arguments
from .applicability import small_only
from .engine import Engine, Kind
from .estimate import Estimate, checked_run, estimate, span
from .fit import checked_model
from .paper import PaperEngine
from .progress import track
from .table import PrintedTable

__all__ = ["Candidate", "Recommendation", "recommend"]

REASONS: dict[Kind, str] = {
    "exact": "It draws independently from the posterior, so there is nothing to diagnose.",
    "mcmc": "It samples the posterior; read its intervals if the result's 'converged' is \"yes\".",
    "vb": "It approximates quickly; read intervals only if the result's 'pareto_k' is below 0.7.",
    "point": "It finds one point and says nothing about uncertainty.",
}

# Columns of a kernel that are advised, and the number of objects from which they are.
COLUMNS = 500
MANY_OBJECTS = 2_000


@dataclass(frozen=True)
class Candidate:
    """One engine that applies to the model.

    Attributes
    ----------
    engine : Engine
    estimate : Estimate or None
        Expected time and memory of a fit; None if they were not measured.
    advice : str or None
        Why the engine does not suit a model of this size, or could not be measured; None otherwise.
    """

    engine: Engine
    estimate: Estimate | None
    advice: str | None

    @property
    def seconds(self) -> float:
        """Usual seconds of a fit; NaN if they were not measured."""
        return self.estimate.seconds[0] if self.estimate else math.nan


@dataclass(frozen=True, repr=False)
class Recommendation(PrintedTable):
    """The recommended engine and the others that apply; prints as a table.

    Attributes
    ----------
    model : str
        Type of the model.
    engine : Engine
        Recommended engine, for `fit`.
    reason : str
        Why it is recommended.
    candidates : tuple of Candidate
        Engines that apply, in order of preference.
    advice : str or None
        What would make fits of a model of this size much shorter; None for a small one.
    """

    model: str
    engine: Engine
    reason: str
    candidates: tuple[Candidate, ...]
    advice: str | None = None

    @property
    def title(self) -> str:
        """Heading of the printed table."""
        chosen = f"{self.engine.name} is recommended for {self.model}. {self.reason}"
        return f"{chosen} {self.advice}" if self.advice else chosen

    def to_frame(self) -> pd.DataFrame:
        """Table with one row an engine, in order of preference."""
        rows = [
            (
                candidate.engine.name,
                span(candidate.seconds) if candidate.estimate else "not measured",
                f"{candidate.estimate.megabytes:,.0f} MB" if candidate.estimate else "",
                candidate.engine.limits,
                candidate.advice or "",
            )
            for candidate in self.candidates
        ]
        return pd.DataFrame(rows, columns=["engine", "time", "memory", "limits", "advice"])


def recommend(
    model: pm.Model,
    *,
    max_seconds: Positive | None = None,
    progressbar: bool = True,
    **settings: Any,
) -> Recommendation:
    """Recommend an engine for a model, by what it can tell and by the time it takes here.

    Engines are preferred in this order: independent draws from the posterior, chains, variational
    approximations, points; among engines of one kind, the one written for the model. An engine
    that does not serve models of this size comes after all that do.

    Parameters
    ----------
    model : pm.Model
    max_seconds : float, optional
        Recommend the first engine in this order that is expected to end in time, compilation
        excluded, or the quickest engine if none is. By default time does not count.
    progressbar : bool, default=True
        Show which engine is measured.
    **settings
        Arguments of `fit` that change the time: ``draws``, ``tune``, ``chains``, ``cores``, ...

    Returns
    -------
    Recommendation
        Prints as a table of all engines that apply, with expected time and memory and the limits
        of each; ``.engine`` is for `fit`, and ``.advice`` on kernels between many objects is in the
        heading. Times are those of `estimate`, from a second or two of the engine's own steps.
        Points, and engines for any PyMC model, whose gradients are compiled first, are measured
        only if `max_seconds` rules out all engines before them, and only until measuring itself has
        taken `max_seconds`.

    Raises
    ------
    ValueError
        If `max_seconds` is not positive, and for arguments that `fit` refuses.

    Examples
    --------
    >>> choice = kz.recommend(model, max_seconds=60)
    >>> result = kz.fit(model, choice.engine)
    """
    check_arguments(recommend, locals())
    checked_model(model, "recommend")
    engines, begun = _in_order(model), time.perf_counter()
    candidates: list[Candidate] = []
    chosen: Candidate | None = None
    with track(len(engines), "recommend", visible=progressbar) as bar:
        for engine in engines:
            bar.advance(engine=engine.name)
            written = isinstance(engine, PaperEngine) and engine.kind != "point"
            spent = time.perf_counter() - begun
            wanted = written or (chosen is None and spent < (max_seconds or 0))
            measured, failure = _measured(model, engine, settings) if wanted else (None, None)
            advice = failure or small_only(model, engine.serves(model))
            candidate = Candidate(engine, measured, advice)
            candidates.append(candidate)
            in_time = max_seconds is None or candidate.seconds <= max_seconds
            if chosen is None and in_time and failure is None:
                chosen = candidate
    late = ""
    if chosen is None:
        known = [candidate for candidate in candidates if candidate.estimate]
        chosen = min(known or candidates, key=lambda candidate: candidate.seconds)
        late = f" No engine is expected to end within {span(max_seconds or 0)}, of those measured."
    return Recommendation(
        model=type(model).__name__,
        engine=chosen.engine,
        reason=REASONS[chosen.engine.kind] + late,
        candidates=tuple(candidates),
        advice=_fewer_columns(model),
    )


def _fewer_columns(model: pm.Model) -> str | None:
    """Advise fewer columns of kernels between many objects.

    Engines factorise a matrix of the number of columns, and form products over the objects.
    """
    stacks = [name for name, dims in model.named_vars_to_dims.items() if dims == DIMS]
    obs, basis = (tuple(model.coords.get(dim) or ()) for dim in DIMS[1:])
    completed = getattr(model, "completed_rows", None) is not None
    if not stacks or completed or obs != basis or len(obs) < MANY_OBJECTS:
        return None
    return (
        f"Each kernel has {len(basis):,} columns: kernels.landmarks({COLUMNS}) keeps {COLUMNS} of "
        f"them, which makes iterations about {(len(basis) / COLUMNS) ** 2:.0f} times as fast. The "
        "more columns, the nearer to this model."
    )


def _in_order(model: pm.Model) -> list[Engine]:
    """Engines that apply to the model, in order of preference."""
    kinds = get_args(Kind)
    engines = [cls() for cls in Engine.registry.values()]
    return sorted(
        (engine for engine in engines if engine.why_not(model) is None),
        key=lambda engine: (
            small_only(model, engine.serves(model)) is not None,
            kinds.index(engine.kind),
            not isinstance(engine, PaperEngine),
            engine.name,
        ),
    )


def _measured(
    model: pm.Model, engine: Engine, settings: dict[str, Any]
) -> tuple[Estimate | None, str | None]:
    """Estimate of a fit, None for an engine that has no estimate; why measuring failed, or None."""
    if type(engine).calibrate is Engine.calibrate:
        return None, None
    checked_run(model, engine, settings, "recommend")
    try:
        return estimate(model, engine, **settings), None
    except Exception as error:
        return None, f"it could not be measured: {type(error).__name__}: {error}"
