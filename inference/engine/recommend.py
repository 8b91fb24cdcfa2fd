"""Tables of engines: which apply to a model, and which is recommended, with the expected time."""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape as escape_html
from math import isnan, nan
from typing import Any, TypeGuard, get_args, override

import pandas as pd
import pymc as pm
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from threadpoolctl import threadpool_limits

from ...user_warnings import numpy_warnings
from ...validation import Count, CountOrZero, Positive, check_arguments
from .chains import chains_in_turn
from .clock import Clock, stopped_by_ctrl_c, track
from .compilation import compiling_with, python_mode
from .completed_kernels import number_of_fits
from .engine import Engine, Kind, Run, checked_model, coordinates, engines_for, every_engine
from .mcmc import Gibbs
from .outputs import ExactOutput, VariationalOutput
from .paper import PaperEngine
from .paper_engines import BY_GRADIENTS
from .result import check_model

__all__ = ["Candidate", "EngineTable", "Recommendation", "engines", "recommend"]

REASONS: dict[Kind, str] = {
    "exact": "It draws independently from the posterior, so there is nothing to diagnose.",
    "mcmc": "It samples the posterior; read its intervals if the result's 'converged' is \"yes\".",
    "vb": "It approximates quickly; read intervals only if the result's 'pareto_k' is below 0.7.",
    "point": "It finds one point and says nothing about uncertainty.",
}

# Seconds for which an algorithm runs, and calls that are enough.
MOMENT = 1.5
MOST_CALLS = 1000
# Draws that are timed, and length of the tuning in which sweeps are.
FEW = 10
TUNING_TIMED = 100


class PrintedTable(ABC):
    """Base of the answers that print as a table with a heading, in a console and in Jupyter."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Heading of the printed table."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Table with one row per engine."""

    def table(self, *, without: Sequence[str] = ()) -> Table:
        """Table for `rich`, without the columns named."""
        frame = self.to_frame().drop(columns=list(without))
        table = Table(title=self.title)
        for column in frame.columns:
            table.add_column(column, overflow="fold")
        for row in frame.itertuples(index=False):
            # Without `escape`, rich would read an extra in square brackets as markup.
            table.add_row(*map(escape, row))
        return table

    def __rich__(self) -> Table:
        return self.table()

    def __repr__(self) -> str:
        console = Console(width=100, force_terminal=False, force_jupyter=False, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return f"<p>{escape_html(self.title)}</p>{self.to_frame().to_html(index=False)}"


@dataclass(frozen=True)
class EngineRow:
    """One engine on one model. `reason` is None if it applies, `advice` if it suits the size."""

    engine: str
    kind: str
    reason: str | None
    settings: dict[str, Any]
    advice: str | None = None


@dataclass(frozen=True, repr=False)
class EngineTable(PrintedTable):
    """Engines for a model, which apply and why others do not; prints as a table."""

    model: str
    rows: tuple[EngineRow, ...]

    @property
    def title(self) -> str:
        """Heading of the printed table."""
        return f"Engines for {self.model}"

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per engine."""
        return pd.DataFrame(
            [
                (
                    row.engine,
                    row.kind,
                    row.reason or row.advice or "yes",
                    ", ".join(f"{k}={v!r}" for k, v in row.settings.items()),
                )
                for row in self.rows
            ],
            columns=["engine", "kind", "applies", "settings"],
        )


def engines(model: pm.Model) -> EngineTable:
    """List every engine, with "yes" or the reason why it does not apply to the model.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    EngineTable
        Prints as a table; ``.rows`` holds the entries.

    Notes
    -----
    "Small n only" is advice: the engine runs, but the model has more unconstrained coordinates than
    the engine serves in practice. The limits are about 2,000 for NUTS (whose trajectories lengthen
    with the dimension), Pathfinder and Laplace (two gradients per coordinate), 5,000 for ADVI
    (thousands of noisy steps), 10,000 for MAP by gradients, and 50 for SMC (whose particles do not
    cover more).

    Examples
    --------
    >>> kz.engines(model)
    """
    check_model(model, "engines")
    rows = []
    for engine in every_engine():
        reason = engine.why_not(model)
        settings = engine.settings_on(model) if reason is None else engine.settings
        advice = small_only(model, engine) if reason is None else None
        rows.append(EngineRow(engine.name, engine.kind, reason, settings, advice))
    return EngineTable(type(model).__name__, tuple(rows))


def small_only(model: pm.Model, engine: Engine) -> str | None:
    """Advice against an engine that serves fewer coordinates than the model has, or None."""
    most = engine.serves(model)
    if most is None or (size := coordinates(model)) <= most:
        return None
    return f"small n only: the model has {size:,} coordinates; it serves about {most:,}"


@dataclass(frozen=True)
class Candidate:
    """One engine that applies to the model.

    Attributes
    ----------
    engine : Engine
    seconds : float
        Expected time of a fit; NaN if it was not measured.
    advice : str or None
        Why the engine does not suit a model of this size, or could not be measured; None otherwise.
    """

    engine: Engine
    seconds: float
    advice: str | None


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
    """

    model: str
    engine: Engine
    reason: str
    candidates: tuple[Candidate, ...]

    @property
    def title(self) -> str:
        """Heading of the printed table."""
        return f"{self.engine.name} is recommended for {self.model}. {self.reason}"

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per engine, in order of preference."""
        rows = [
            (
                candidate.engine.name,
                "not measured" if isnan(candidate.seconds) else span(candidate.seconds),
                candidate.engine.limits,
                candidate.advice or "",
            )
            for candidate in self.candidates
        ]
        return pd.DataFrame(rows, columns=["engine", "time", "limits", "advice"])


def recommend(
    model: pm.Model,
    *,
    max_seconds: Positive | None = None,
    draws: Count = 1000,
    tune: CountOrZero = 1000,
    chains: Count = 4,
    cores: Count | None = None,
    progressbar: bool = True,
) -> Recommendation:
    """Recommend an engine for a model, by what it can tell and by the time it takes here.

    Engines are preferred in this order: independent draws from the posterior, chains, variational
    approximations, points; among engines of one kind, the one written for the model. An engine
    that does not serve models of this size comes after all that do.

    Parameters
    ----------
    model : pm.Model
    max_seconds : float, optional
        Recommend the first engine in this order that is expected to end in time, or the quickest
        engine if none is. By default time does not count.
    draws, tune, chains, cores : int
        As in `fit`.
    progressbar : bool, default=True
        Show which engine is measured.

    Returns
    -------
    Recommendation
        Prints as a table of all engines that apply, with expected time and the limits of each;
        ``.engine`` is for `fit`.

    Raises
    ------
    ValueError
        If `max_seconds` or a number is out of range.

    Notes
    -----
    Engines written for the model run for a second or two, and their time is extrapolated: for
    variational Bayes and for points to 100 iterations per start, as long as fits usually take. Log
    densities, which follow the fit, are not included. Points are measured only with `max_seconds`,
    and engines for any PyMC model never: their compilation alone can take half a minute.

    Examples
    --------
    >>> choice = kz.recommend(model, max_seconds=60)
    >>> result = kz.fit(model, choice.engine)
    """
    check_arguments(recommend, locals())
    checked_model(model, "recommend")
    engines = _in_order(model)
    run = Run(draws, tune, chains, cores, progressbar=False)
    candidates: list[Candidate] = []
    chosen: Candidate | None = None
    with stopped_by_ctrl_c(), track(len(engines), "recommend", visible=progressbar) as bar:
        for engine in engines:
            bar.advance(engine=engine.name)
            seconds, failure = nan, None
            if _is_written_for(engine, model) and (engine.kind != "point" or max_seconds):
                try:
                    seconds = seconds_of(model, engine, run)
                except Exception as error:  # any error: the other engines may work
                    failure = f"it could not be measured: {type(error).__name__}: {error}"
            advice = failure or small_only(model, engine)
            candidate = Candidate(engine, seconds, advice)
            candidates.append(candidate)
            in_time = max_seconds is None or candidate.seconds <= max_seconds
            if chosen is None and in_time and failure is None:
                chosen = candidate
    late = ""
    if chosen is None:
        known = [candidate for candidate in candidates if not isnan(candidate.seconds)]
        chosen = min(known or candidates, key=lambda candidate: candidate.seconds)
        late = f" No engine is expected to end within {span(max_seconds or 0)}, of those measured."
    return Recommendation(
        model=type(model).__name__,
        engine=chosen.engine,
        reason=REASONS[chosen.engine.kind] + late,
        candidates=tuple(candidates),
    )


def _in_order(model: pm.Model) -> list[Engine]:
    """Engines that apply to the model, in order of preference."""
    kinds = get_args(Kind)
    return sorted(
        engines_for(model),
        key=lambda engine: (
            small_only(model, engine) is not None,
            kinds.index(engine.kind),
            not isinstance(engine, PaperEngine),
            engine.name,
        ),
    )


def _is_written_for(engine: Engine, model: pm.Model) -> TypeGuard[PaperEngine[Any]]:
    """Whether an engine that applies runs an algorithm of the model's paper."""
    return isinstance(engine, PaperEngine) and engine.algorithm(model) is not BY_GRADIENTS


@dataclass
class _Moment(Clock):
    """Clock that ends each loop after a moment, and adds up how long it would have gone on."""

    later: float = 0.0

    @override
    def loop(self, steps: int) -> Callable[[int], None]:
        begun, taken = time.perf_counter(), 0

        def after(done: int) -> None:
            nonlocal taken
            taken += done
            spent = time.perf_counter() - begun
            if spent > MOMENT:
                self.later += spent / taken * max(steps - taken, 0)
                self.end()

        return after


def seconds_of(model: pm.Model, engine: PaperEngine[Any], run: Run) -> float:
    """Run the paper's algorithm for a moment, and extrapolate to all its draws and iterations."""
    clock, begun = _Moment(MOMENT), time.perf_counter()
    output: Any = None
    with (
        threadpool_limits(1, user_api="blas"),
        numpy_warnings(),
        compiling_with(python_mode()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            output = engine.implement(model, replace(run, clock=clock))
        except ValueError:
            # An algorithm that keeps no part of a result says that it had too little time.
            if not clock.ended:
                raise
        seconds = time.perf_counter() - begun + clock.later
        if isinstance(output, VariationalOutput | ExactOutput):
            few = min(FEW, run.draws)
            seconds += _each(lambda: output.sample(few, run.rng())) * run.draws / few
        elif isinstance(engine, Gibbs):
            point = model.initial_point()
            for step in output:
                # Steps may save work in the first of many sweeps of tuning.
                step.setup_chain(run.rng(), min(run.tune, TUNING_TIMED), run.draws)

            def sweep() -> None:
                nonlocal point
                for step in output:
                    point, _ = step.step(point)

            seconds += _each(sweep) * chains_in_turn(run) * (run.tune + run.draws)
    return seconds * max(1, number_of_fits(model, None))


def _each(call: Callable[[], object]) -> float:
    """Mean seconds of a call after the first one, which also prepares."""
    call()
    begun, calls = time.perf_counter(), 0
    while calls == 0 or (time.perf_counter() - begun < MOMENT and calls < MOST_CALLS):
        call()
        calls += 1
    return (time.perf_counter() - begun) / calls


def span(seconds: float) -> str:
    """Seconds in the largest unit of which there are two or more."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
