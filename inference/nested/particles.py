r"""Annealed particles from an approximation of the posterior to the posterior itself.

A particle is a component j of the mixture `Nodes` and noise e ~ N(0, I), which the approximation
turns into values of all variables. With the exact log ratio r of the declaration to the
approximation, the sequence of laws is N(e; 0, I) exp(b r(e)), b from 0 to 1: importance sampling in
steps small enough for its weights, with moves

.. math:: e' = \sqrt{1 - s^2} e + s \xi, \qquad \xi \sim N(0, I),

between them, which are accepted with probability min(1, exp(b (r' - r))). They leave N(0, I)
invariant in any dimension, so that their acceptance depends on the quality of the approximation
alone (Cotter, Roberts, Stuart & White 2013, MCMC methods for functions, Statistical Science 28).

Other moves draw component and weights from the mixture and keep the noise of the rest, whose values
then follow the weights. At b = 1 the components and the precisions are redrawn from their exact
conditionals, too. Given j, r counts the density of j given the weights, which turns the density of
its component into that of the whole mixture: the law of the variables at b = 1 is the posterior,
whatever j.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from ..engine.pareto_k import is_unreliable, k_hat_of_ratios
from .conditional import Conditional, Point
from .coordinates import WeightCoordinates
from .nodes import Nodes

__all__ = ["FIRST_SWEEPS", "Particle", "Population", "Space", "anneal"]

type Array = npt.NDArray[np.float64]

# Effective part of the particles that a step of b leaves.
LEAST_ESS = 0.5
# Steps whose Pareto k-hat is above .7 are shortened by this factor.
SHORTER = 0.5
SMALLEST_STEP = 0.05
# Acceptance probability to which the length s of the moves is tuned.
TARGET_ACCEPTANCE = 0.35
SHORTEST = 0.02
# Sweeps at b = 1 before the first draws, in multiples of those between draws.
FIRST_SWEEPS = 4


@dataclass(frozen=True)
class Particle:
    """A component, noise, the values they give, and the log ratio."""

    node: int
    noise: Array
    v: Array
    point: Point
    log_ratio: float
    ancestor: int = 0


@dataclass(frozen=True)
class Space:
    """What turns noise into particles."""

    stack: Array
    weights: WeightCoordinates
    conditional: Conditional
    nodes: Nodes

    @property
    def size(self) -> int:
        """Length of a particle's noise."""
        conditional = self.conditional
        return self.nodes.v.shape[1] + conditional.size + conditional.n_regressors

    @property
    def blocks(self) -> list[slice]:
        """Blocks of the noise that move together: weights; the rest, with the regressors or not.

        Where the approximation of the regressors is exact, they have no part in the ratio.
        """
        first = self.nodes.v.shape[1]
        if self.conditional.likelihood.is_normal:
            return [slice(0, first), slice(first, None)]
        second = first + self.conditional.size
        return [slice(0, first), slice(first, second), slice(second, None)]

    def particle(self, node: int, noise: Array) -> Particle:
        """Give the particle of some noise; its log ratio is -inf beyond double precision."""
        n_kernels = self.nodes.v.shape[1]
        v = self.nodes.at(node, noise[:n_kernels])
        of_z, rest = np.split(noise[n_kernels:], [self.conditional.size])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                point, log_ratio = self.conditional.evaluate(
                    self._composite(v), self.nodes.mode(node, v), of_z, rest
                )
            except np.linalg.LinAlgError:
                none = np.empty(0)
                return Particle(node, noise, v, Point(none, none, none), -np.inf)
        return Particle(node, noise, v, point, self._against_mixture(v, log_ratio))

    def located(self, node: int, v: Array, point: Point) -> Particle:
        """Give the particle of some values in a component."""
        of_v = self.nodes.noise(node, v)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                noise, point, log_ratio = self.conditional.locate(
                    self._composite(v), self.nodes.mode(node, v), point
                )
            except np.linalg.LinAlgError:
                return Particle(node, of_v, v, point, -np.inf)
        noise = np.concatenate([of_v, noise])
        return Particle(node, noise, v, point, self._against_mixture(v, log_ratio))

    def _composite(self, v: Array) -> Array:
        k, n, m = self.stack.shape
        return (self.weights.weights(v) @ self.stack.reshape(k, n * m)).reshape(n, m)

    def _against_mixture(self, v: Array, log_ratio: float) -> float:
        """Add the ratio of the weights' prior to the mixture."""
        total = log_ratio - 0.5 * v @ v - self.nodes.log_density(v)
        return float(total) if np.isfinite(total) else -np.inf


@dataclass
class Population:
    """Particles, and how they came about.

    Attributes
    ----------
    draws : list of Particle
        Draws at b = 1, by sweep and particle.
    temperatures : list of float
        The values of b, one a stage.
    acceptance : list of array
        Mean acceptance, by block, of each stage's last moves.
    k_hat : list of float
        Pareto k-hat of the weights of each stage.
    complete : bool
        Whether b reached 1 by the planned stages, and as many draws were made as were asked for.
    """

    draws: list[Particle] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    acceptance: list[Array] = field(default_factory=list)
    k_hat: list[float] = field(default_factory=list)
    first_k_hat: float = np.nan
    log_evidence: float = 0.0
    complete: bool = False

    @property
    def last_acceptance(self) -> float:
        """Least mean acceptance, over the kinds of moves, of the last ones; NaN without moves."""
        return float(np.nanmin(self.acceptance[-1])) if self.acceptance else np.nan

    @property
    def ancestors(self) -> float:
        """Effective number of the first particles from which the draws descend."""
        _, counts = np.unique([particle.ancestor for particle in self.draws], return_counts=True)
        return float(counts.sum() ** 2 / np.square(counts).sum())


def anneal(
    space: Space,
    particles: int,
    moves: int,
    draws: int,
    rng: np.random.Generator,
    advance: Callable[[int, float], None],
) -> Population:
    """Anneal particles to the posterior, and draw there.

    Parameters
    ----------
    space : Space
    particles : int
        Number of particles.
    moves : int
        Moves of every particle in a stage, and between draws.
    draws : int
        Number of draws.
    rng : Generator
    advance : callable (particles, b)
        Called after so many evaluations; may raise KeyboardInterrupt, which ends the stages by one
        last step to b = 1, without moves.
    """
    population = Population()
    current: list[Particle] = []
    interrupted = space.nodes.interrupted
    try:
        for ancestor in range(particles):
            node = space.nodes.draw_component(rng)
            particle = space.particle(node, rng.standard_normal(space.size))
            current.append(replace(particle, ancestor=ancestor))
            advance(1, 0.0)
    except KeyboardInterrupt:
        interrupted = True
    ratios = np.array([particle.log_ratio for particle in current])
    population.first_k_hat = k_hat_of_ratios(ratios[np.isfinite(ratios)])
    if interrupted:
        population.draws, _ = _reweighted(current, 0.0, population, rng, last=True)
        return population
    b, mover = 0.0, Mover(space, rng, advance)
    try:
        while b < 1:
            current, b = _reweighted(current, b, population, rng)
            for _ in range(moves):
                current = mover.sweep(current, b)
            population.acceptance.append(mover.acceptance.copy())
        for _ in range(FIRST_SWEEPS * moves):
            current = mover.sweep(current, 1.0)
        population.draws += current
        while len(population.draws) < draws:
            for _ in range(moves):
                current = mover.sweep(current, 1.0)
            population.draws += current
        population.acceptance.append(mover.acceptance.copy())
        population.complete = True
    except KeyboardInterrupt:
        if b < 1:
            current, _ = _reweighted(current, b, population, rng, last=True)
        population.draws += current
    return population


def _reweighted(
    current: list[Particle],
    b: float,
    population: Population,
    rng: np.random.Generator,
    *,
    last: bool = False,
) -> tuple[list[Particle], float]:
    """Raise b as far as the weights allow, or to 1 if it is the `last` time, and resample."""
    ratios = np.array([particle.log_ratio for particle in current])
    if not np.isfinite(ratios).any():
        raise FloatingPointError("No particle has a finite density.")
    reach = 1 - b
    if not last and _effective(reach * ratios) < LEAST_ESS * len(ratios):
        low, high = 0.0, reach
        for _ in range(40):
            reach = 0.5 * (low + high)
            if _effective(reach * ratios) < LEAST_ESS * len(ratios):
                high = reach
            else:
                low = reach
        # Particles of zero density leave even where the step is tiny.
        reach = max(low, SMALLEST_STEP)
    finite = ratios[np.isfinite(ratios)]
    k_hat = k_hat_of_ratios(reach * finite)
    if not last and is_unreliable(k_hat):
        # The index of a tail is in proportion to the step.
        reach = max(SHORTER * reach, SMALLEST_STEP)
        k_hat = k_hat_of_ratios(reach * finite)
    log_weights = reach * ratios
    population.k_hat.append(k_hat)
    population.log_evidence += float(logsumexp(log_weights) - np.log(len(ratios)))
    mass = np.exp(log_weights - logsumexp(log_weights))
    ends = np.cumsum(mass) * len(mass)
    chosen = np.searchsorted(ends / ends[-1] * len(mass), np.arange(len(mass)) + rng.random())
    # Neighbours share an ancestor: the order must carry no meaning.
    chosen = rng.permutation(chosen.clip(0, len(mass) - 1))
    b = 1.0 if last or reach >= 1 - b else b + reach
    population.temperatures.append(b)
    return [current[i] for i in chosen], b


def _effective(log_weights: Array) -> float:
    return float(np.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights)))


@dataclass
class Mover:
    """Moves of the particles, a block of the noise at a time; lengths are tuned as they go."""

    space: Space
    rng: np.random.Generator
    advance: Callable[[int, float], None]
    lengths: Array = field(default_factory=lambda: np.full(4, 0.5))
    acceptance: Array = field(default_factory=lambda: np.full(4, np.nan))

    def sweep(self, current: list[Particle], b: float) -> list[Particle]:
        """Move every particle once in each block; at b = 1 redraw what has a conditional."""
        current = self._each(current, b, 0, self._elsewhere)
        for place, block in enumerate(self.space.blocks, start=1):
            move = partial(self._nearby, block=block, length=self.lengths[place])
            current = self._each(current, b, place, move)
            # A move that any length would take has the greatest length.
            change = np.exp(2 * (self.acceptance[place] - TARGET_ACCEPTANCE))
            self.lengths[place] = np.clip(self.lengths[place] * change, SHORTEST, 1.0)
        if b < 1:
            return current
        redrawn = []
        for particle in current:
            redrawn.append(self._redrawn(particle))
            self.advance(1, b)
        return redrawn

    def _each(
        self, current: list[Particle], b: float, place: int, move: Callable[[Particle], Particle]
    ) -> list[Particle]:
        """Propose a move to every particle and accept or reject it."""
        moved, chances = [], []
        for particle in current:
            proposal = move(particle)
            chance = float(np.exp(min(b * (proposal.log_ratio - particle.log_ratio), 0.0)))
            taken = self.rng.random() < chance
            moved.append(replace(proposal, ancestor=particle.ancestor) if taken else particle)
            chances.append(chance)
            self.advance(1, b)
        self.acceptance[place] = np.mean(chances)
        return moved

    def _elsewhere(self, particle: Particle) -> Particle:
        """Draw weights from the mixture and keep the noise of the rest."""
        nodes = self.space.nodes
        node = nodes.draw_component(self.rng)
        noise = particle.noise.copy()
        noise[: nodes.v.shape[1]] = self.rng.standard_normal(nodes.v.shape[1])
        return self.space.particle(node, noise)

    def _nearby(self, particle: Particle, block: slice, length: float) -> Particle:
        """Change a block of the noise."""
        noise = particle.noise.copy()
        fresh = self.rng.standard_normal(len(noise[block]))
        noise[block] = np.sqrt(1 - length**2) * noise[block] + length * fresh
        return self.space.particle(particle.node, noise)

    def _redrawn(self, particle: Particle) -> Particle:
        """Draw the component given the weights, and the precisions given the regressors.

        Both are exact conditionals of the posterior, and hence of the law at b = 1 alone.
        """
        space = self.space
        node = space.nodes.draw_component(self.rng, particle.v)
        point = space.conditional.redraw_precisions(particle.point, self.rng)
        redrawn = space.located(node, particle.v, point)
        if not np.isfinite(redrawn.log_ratio):
            return particle
        return replace(redrawn, ancestor=particle.ancestor)
