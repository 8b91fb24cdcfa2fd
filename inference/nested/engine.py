"""The engine `Nested`: a posterior of the weights of kernels that can be read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, override

import numpy as np
import numpy.typing as npt
import pymc as pm
import xarray as xr
from xarray import DataTree

from ...validation import check_count
from ..engine.density import log_density
from ..engine.engine import Kind, Run
from ..engine.handwritten import Handwritten
from ..engine.independent import lean_tree
from ..engine.result import trajectory, with_group
from ..engine.settings import DEFAULT, Default
from .conditional import Conditional, Likelihood, Mode, Point
from .coordinates import LogGamma, WeightCoordinates
from .nodes import place_nodes
from .particles import FIRST_SWEEPS, Population, Space, anneal

__all__ = ["MOST_KERNELS", "Nested", "NestedOutput", "few_kernels", "fit_nested"]

type Array = npt.NDArray[np.float64]

MOST_KERNELS = 8
# Defaults of the settings.
PARTICLES, NODES, MOVES = 300, 48, 1
# Fewer effective ancestors make moves alone responsible for the posterior.
LEAST_ANCESTORS = 5
STEPS_A_REPORT = 20
# Usual and largest numbers of stages, for `estimate`.
USUAL_STAGES, MOST_STAGES = 4, 20


@dataclass(frozen=True)
class NestedOutput:
    """Draws from the posterior, and how they came about.

    Attributes
    ----------
    draws : mapping of str to array (draw, *shape)
        Every free random variable.
    population : Population
    parameters : Dataset
        The nodes: their weights of kernels and their masses.
    """

    draws: Mapping[str, Array]
    population: Population
    parameters: xr.Dataset


class Nested(Handwritten):
    """Posterior of the kernels' weights by nested approximations and annealed particles.

    For two to eight kernels with learned weights. The rest of the model is approximated given the
    weights, at an adaptive set of weights. Particles drawn from this approximation are then
    annealed to the posterior. Their ratios to the declaration's density are exact: with enough
    particles the draws are those of the posterior, whatever the error of the approximation.

    Parameters
    ----------
    particles : int, optional
        Number of particles. The error of means falls as its root. Default: 300.
    nodes : int, optional
        Number of weights at which the rest of the model is approximated. Default: 48.
    moves : int, optional
        Moves of every particle at each temperature, and between draws. Default: 1.
    **settings
        Further settings of the algorithm for the model, checked at run time:
        ``kz.describe(model, "nested")`` explains all.

    Notes
    -----
    The draws of `fit` are the particles after every `moves` sweeps, in random order, as one chain.
    Particles that descend from one another are alike, which `az.ess` does not see.

    Attributes of the result: ``pareto_k`` is the largest Pareto k-hat of the weights of a stage,
    ``pareto_k_first`` that of the approximation by itself, ``ancestors`` the effective number of
    first particles from which the draws descend, ``stages`` the number of stages, ``acceptance``
    the least mean acceptance of the last moves, and ``log_evidence`` the log marginal likelihood,
    NaN where the engine was ended early, which may give fewer draws than asked for.
    ``converged`` is "no" with fewer than 5 effective ancestors.

    The time grows with the cube of the number of objects: `Gibbs` serves larger problems better,
    see the notes on the model. There is no implementation for `MultinomialProbit`: on 124 wines it
    was slower than `Gibbs` (46 s for 10 s) and its means were off by .4 standard deviations.

    An implementation is a function (model, run, *, settings) -> NestedOutput.

    Examples
    --------
    >>> nested = kz.fit(small_model, kz.Nested(particles=60, nodes=6), draws=60)
    """

    name: ClassVar[str] = "Nested"
    kind: ClassVar[Kind] = "vb"
    limits: ClassVar[str] = "for about a hundred objects; draws descend from a few particles"

    def __init__(
        self,
        *,
        particles: int | Default = DEFAULT,
        nodes: int | Default = DEFAULT,
        moves: int | Default = DEFAULT,
        **settings: Any,
    ) -> None:
        super().__init__(particles=particles, nodes=nodes, moves=moves, **settings)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        output: NestedOutput = self.implement(model, run)
        population = output.population
        tree = lean_tree(model, run, output.draws, {"lp": log_density(model, output.draws)})
        with_group(tree, "variational", output.parameters)
        b = np.array(population.temperatures)
        with_group(tree, "trajectory", trajectory("temperature", [b]))
        tree.attrs["independent"] = 0
        tree.attrs["lp_measure"] = "constrained"
        tree.attrs["pareto_k"] = float(np.max(population.k_hat))
        tree.attrs["pareto_k_first"] = population.first_k_hat
        tree.attrs["log_evidence"] = population.log_evidence if population.complete else np.nan
        tree.attrs["stages"] = len(b)
        tree.attrs["acceptance"] = population.last_acceptance
        tree.attrs["ancestors"] = population.ancestors
        sound = population.complete and population.ancestors >= LEAST_ANCESTORS
        tree.attrs["converged"] = "yes" if sound else "no"
        return tree


def few_kernels(model: Any) -> str | None:
    """Why the engine does not apply to the weights of a model's kernels; None when it does."""
    count = len(model.coords["kernel"])
    if not model.learned:
        return (
            "it is for learned weights of several kernels, and here nothing is learned: take VB "
            "or Gibbs"
        )
    if count > MOST_KERNELS:
        return f"it takes {MOST_KERNELS} kernels at most, not {count}: take Gibbs"
    return None


def _every(steps: int, advance: Callable[..., None]) -> Callable[[int, float], None]:
    """Report to a progress bar after so many steps only, because a report takes time."""
    waiting = 0

    def advanced(taken: int, b: float) -> None:
        nonlocal waiting
        waiting += taken
        if waiting >= steps:
            waiting -= steps
            advance(steps, temperature=b)

    return advanced


def fit_nested(
    run: Run,
    owner: str,
    *,
    stack: Array,
    likelihood: Likelihood,
    prior: tuple[float, float],
    weights: Callable[[], WeightCoordinates],
    variables: Callable[[Sequence[Point]], Mapping[str, Array]],
    concentrations: str,
    kernels: Any,
    particles: int,
    nodes: int,
    moves: int,
) -> NestedOutput:
    """Place nodes, anneal particles, and collect draws; the engine on any model of this form.

    Parameters
    ----------
    run : Run
    owner : str
        Engine and model, for messages.
    stack : array (K, N, M)
        Matrices whose weighted sum turns regressors into scores.
    likelihood : Likelihood
    prior : (shape, rate)
        Prior of the regressors' precisions.
    weights : callable
        Makes the coordinates of the weights.
    variables : callable (points) -> dict
        Values (draw, ...) of the free random variables by name, without those of the weights.
    concentrations : str
        Name of the concentrations.
    kernels : sequence
        Labels of the kernels.
    particles, nodes, moves : int
        Settings.
    """
    for name, value, least in (
        ("particles", particles, 50),
        ("nodes", nodes, 6),
        ("moves", moves, 1),
    ):
        check_count(value, name, owner, least=least)
    shape, rate = prior
    coordinates = weights()
    conditional = Conditional(likelihood, rate, LogGamma.of(shape), stack.shape[2])

    def mode_at(v: Array, near: Mode | None) -> Mode:
        return conditional.mode(np.tensordot(coordinates.weights(v), stack, axes=1), near)

    rng = run.rng()
    with run.track(nodes, "Nodes") as bar:
        placed = place_nodes(len(stack), mode_at, nodes, rng, bar.advance)
    space = Space(stack, coordinates, conditional, placed)
    sweeps = -(-run.draws // particles) + FIRST_SWEEPS
    evaluations = [
        particles * (1 + (len(space.blocks) + 1) * moves * (stages + sweeps))
        for stages in (USUAL_STAGES, MOST_STAGES)
    ]
    with run.track(None, "Particles", usual=evaluations[0], most=evaluations[1]) as bar:
        population = anneal(
            space,
            particles,
            moves,
            run.draws,
            rng,
            _every(STEPS_A_REPORT, bar.advance),
        )
    drawn = population.draws
    # The last sweeps are the farthest from the proposals.
    last = drawn[-run.draws :]
    # Particles that were interrupted may be fewer than the draws asked for.
    order = rng.permutation(len(last))
    chosen = [last[i] for i in order]
    v = np.array([particle.v for particle in chosen])
    points = [particle.point for particle in chosen]
    draws = dict(variables(points))
    draws["beta"] = coordinates.weights(v)
    drawn_concentrations = coordinates.concentrations(v, rng)
    if drawn_concentrations is not None:
        draws[concentrations] = drawn_concentrations
    parameters = xr.Dataset(
        {
            "node_beta": (("node", "kernel"), coordinates.weights(placed.v)),
            "node_mass": (("node",), placed.mass[:-1]),
        },
        coords={"kernel": list(kernels), "node": np.arange(len(placed.v))},
    )
    return NestedOutput(draws, population, parameters)
