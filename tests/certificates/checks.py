"""The checks of each kind of engine: one table, dispatched by the type of the engine."""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any, Protocol

from kernelzoo import ADVI, EM, MAP, NUTS, SMC, VB, Exact, Gibbs, Laplace, Pathfinder
from kernelzoo.inference import Engine
from kernelzoo.inference.diagnostics.calibrate import RANKED_DRAWS

from .agreement import Agreement
from .bounds import BelowEvidence, Bound, BoundRises
from .case import Case
from .curvature import Curvature
from .densities import Density, Gradient
from .findings import Finding
from .modes import Highest, Stationary
from .ranks import Calibration, Miscalibration

__all__ = ["OF_DECLARATIONS", "Check", "checks_of"]


class Check(Protocol):
    """A check of a cell.

    Attributes
    ----------
    name : str
    measures : str
        What its statistic is.
    """

    name: str
    measures: str

    def __call__(self, case: Case) -> Finding:
        """Return the finding; raise `NotRunError` if the check cannot be run."""


#: Independent draws of an approximation: more than `calibrate` keeps.
_FEW = {"draws": 100}

OF_DECLARATIONS: Sequence[Check] = (Density(), Gradient())


@singledispatch
def checks_of(engine: Any) -> Sequence[Check]:
    """Give the checks that prove an engine; none for engines that are not registered.

    A cell without a check that passed is never green.
    """
    return ()


@checks_of.register
def _(engine: Exact) -> Sequence[Check]:
    return (Calibration(300, {"draws": RANKED_DRAWS}),)


@checks_of.register
def _(engine: Gibbs) -> Sequence[Check]:
    long = {"draws": 2_000, "tune": 500, "chains": 2}
    return (Agreement(long), Calibration(160, {"draws": 1_500, "tune": 200}))


@checks_of.register
def _(engine: NUTS) -> Sequence[Check]:
    long = {"draws": 1_000, "tune": 1_000, "chains": 2}
    return (Agreement(long), Calibration(80, {"draws": 600, "tune": 400}))


@checks_of.register
def _(engine: SMC) -> Sequence[Check]:
    return (Agreement({"draws": 1_000, "chains": 8}), Calibration(80, {"draws": 500}))


@checks_of.register
def _(engine: VB) -> Sequence[Check]:
    biased = Agreement({"draws": 4_000}, approximate=True)
    return (Bound(), BoundRises(), BelowEvidence(), biased, Miscalibration(160, _FEW))


@checks_of.register
def _(engine: ADVI) -> Sequence[Check]:
    # The bound is estimated from a draw an iteration, while q still moves a little.
    bound = Bound(last=3_000, drift=0.05)
    biased = Agreement({"draws": 4_000}, approximate=True)
    return (bound, biased, Miscalibration(160, _FEW))


@checks_of.register
def _(engine: Laplace) -> Sequence[Check]:
    biased = Agreement({"draws": 4_000}, approximate=True)
    return (Stationary(), Highest(), Curvature(), biased, Miscalibration(160, _FEW))


@checks_of.register
def _(engine: Pathfinder) -> Sequence[Check]:
    biased = Agreement({"draws": 1_000}, populations=4, approximate=True)
    return (biased, Miscalibration(160, _FEW))


@checks_of.register(EM | MAP)
def _(engine: Engine) -> Sequence[Check]:
    return (Stationary(), Highest())
