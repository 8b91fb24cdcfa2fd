"""Engines that sample with PyMC: NUTS and Gibbs."""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any, ClassVar, Literal, override

import pymc as pm
from pymc.sampling.mcmc import STEP_METHODS
from pymc.step_methods.hmc.base_hmc import BaseHMC
from xarray import DataTree

from ...numerics.compiled import numba_compiles
from ...validation import Count, CountOrZero, Fraction, Positive
from .chains import has_workers, run_chains, sample_on_workers
from .engine import Engine, Kind, Run, why_no_gradients
from .paper import Algorithm, Paper, PaperEngine

# Arguments of `fit` itself, and arguments with which `fit` could not make a result.
_TAKEN = frozenset(
    {
        *("draws", "tune", "chains", "cores", "random_seed", "progressbar", "model", "self"),
        *("return_inferencedata", "nuts_sampler_kwargs", "backend"),
    }
)


def keywords_of(*functions: Callable[..., Any]) -> frozenset[str]:
    """Names of the arguments of functions, without those that `fit` sets itself."""
    named = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
    return frozenset(
        parameter.name
        for function in functions
        for parameter in signature(function).parameters.values()
        if parameter.kind in named and parameter.name not in _TAKEN
    )


# Processor seconds by which a first run exceeds a second one on each model's smallest example
# (`benchmarks cold`): from 8 for the composite kernels to 24 for WishartKernelMixture.
COMPILING = "Compiling the gradient: 10 to 30 s for a new structure of model, about 1 s otherwise"

# Arguments that `pm.sample` passes on to NUTS if it is the only step; it sets the excluded ones.
_OF_NUTS = keywords_of(pm.NUTS.__init__, BaseHMC.__init__) - {
    *("vars", "blocked", "potential", "rng", "initial_point")
}


@dataclass(frozen=True)
class NUTS(Engine):
    """No-U-turn sampler on the declaration.

    Parameters
    ----------
    backend : {"pymc", "nutpie", "numpyro"}, default="pymc"
        Implementation. numpyro runs on the device that JAX finds, a GPU before the processor.
    target_accept : float, default=0.9
        Target of the step-size adaptation, between 0 and 1.
    max_treedepth : int, default=10
        Largest number of doublings of a trajectory.

    Examples
    --------
    >>> nuts = kz.fit(model, kz.NUTS(target_accept=0.95), chains=2, random_seed=1)
    """

    name: ClassVar[str] = "NUTS"
    kind: ClassVar[Kind] = "mcmc"
    limits: ClassVar[str] = "compiles the gradient for 10 to 30 s first; chains may miss modes"
    stores: ClassVar[bool] = True

    backend: Literal["pymc", "nutpie", "numpyro"] = "pymc"
    target_accept: Fraction = 0.9
    max_treedepth: Count = 10

    @override
    def sampler_arguments(self) -> frozenset[str]:
        known = keywords_of(pm.sample) | {"nuts"}
        return known | _OF_NUTS if self.backend == "pymc" else known

    @override
    def why_no_time_limit(self) -> str | None:
        if self.backend == "pymc":
            return None
        return f"{self.backend} calls nothing between draws: use backend='pymc'"

    @override
    def serves(self, model: pm.Model) -> int | None:
        return 2_000

    @override
    def why_not(self, model: pm.Model) -> str | None:
        if find_spec(self.backend) is None:
            extra = "jax" if self.backend == "numpyro" else self.backend
            return f"the package {self.backend} is not installed (pip install kernelzoo[{extra}])"
        return why_no_gradients(model)

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        if self.backend == "pymc" and has_workers(run):
            return sample_on_workers(self, model, run)
        depth = "max_tree_depth" if self.backend == "numpyro" else "max_treedepth"
        options: dict[str, Any] = {"target_accept": self.target_accept, depth: self.max_treedepth}
        own = self.backend == "pymc"
        # The user's mode, and those of the other implementations, are theirs to explain.
        theirs = not own or "compile_kwargs" in run.sampler_options
        if run.progressbar and not theirs and numba_compiles():
            logging.getLogger("pymc").info(COMPILING)
        with warnings.catch_warnings():
            # PyTensor then keeps two loops, because one would take too many arguments.
            warnings.filterwarnings("ignore", "Loop fusion failed")
            tree = run_chains(model, run, callbacks=own, nuts_sampler=self.backend, nuts=options)
        return tree


@dataclass(frozen=True, kw_only=True, repr=False)
class Gibbs(PaperEngine[Sequence[Any]]):
    """The paper's Gibbs steps inside `pm.sample`, with NUTS on the remaining variables.

    Parameters
    ----------
    scheme : {"auto", "marginal", "paper"}, optional
        `MultinomialProbit`. "marginal" integrates utilities, variances and hyperparameters out, and
        moves regressors, weights, exponents and kernel parameters by Hamiltonian Monte Carlo, and
        selections by annealing. "paper" is the sampler of Albert and Chib with Metropolis moves
        (appendix A), plus moves along directions that the likelihood ignores; it hardly ever leaves
        a selection. "auto" (the default) is "marginal" if weights or selections move, or if there
        are at least as many basis functions as objects, as in Gram matrices, and "paper" otherwise.
        The marginal scheme takes `length`, `target_accept` and, for `Binary`, `stages`; the paper's
        takes `moves` and, where they apply, `marginal_moves` (`Product`, kernel parameters) and
        `block` (`Binary`).

        Composite kernels: "marginal" (the default) moves beta and varphi with alpha integrated out,
        by elliptical slice sampling, which needs no tuning; "paper" moves them by Metropolis given
        alpha, as the paper sketches, and such a chain may keep its weights for thousands of sweeps.
        Selections need "marginal".
    length : float, optional
        Marginal scheme: expected length of a trajectory, in units of the mass matrix. Cost is
        proportional to it; longer trajectories give less correlated draws. Tuning uses an eighth of
        it until the last 150 sweeps. Default: 4.
    target_accept : float, optional
        Marginal scheme: acceptance probability to which the leapfrog step is tuned. Default: 0.75.
    stages : int, optional
        Marginal scheme: number of parts in which a move of a selection changes the kernels. Cost is
        proportional to it; more parts accept more moves. Default: 20.
    moves : int, optional
        Paper's scheme of `MultinomialProbit`: number of Metropolis moves in a sweep given
        utilities and regressors; they move weights and concentrations (`Mean`), exponents
        (`Product`) and kernel parameters; 0 for none, where marginal moves serve. Composite
        kernels: number of moves of beta, and of varphi, per sweep. Default: 5; 2 for composite
        kernels.
    marginal_moves : int, optional
        Paper's scheme of `MultinomialProbit`: number of Metropolis moves in a sweep of exponents
        and kernel parameters with the regressors integrated out; they are longer and cost C
        Cholesky factorisations each; 0 for none. Default: 1.
    block : int, optional
        Number of kernels of a binary selection that are drawn jointly, from all 2^block states.
        Paper's scheme of `MultinomialProbit`: each state costs C Cholesky factorisations; chains of
        hundreds of objects rarely leave a selection: compare several chains, and VB. Composite
        kernels: each new state costs one factorisation. Default: 6; 2 for composite kernels.
    p_step : {"joint", "inverse-wishart"}, optional
        `WishartCompletion` and `WishartKernelMixture`: how Sigma is drawn, block by block
        (O(n1^3 + n2 n1^2), cheaper), or the whole matrix at once (O(n^3)). Both give the same
        distribution. Default: "joint".
    variant : {"TW1", "TW2"}, optional
        `DiagonalWishartCompletion`: how W22_1 is drawn: as a Wishart matrix, eq (13), or its
        diagonal by independent Gammas, eq (15), and its correlations separately. Both give the same
        distribution. A W22_1 that is declared diagonal needs "TW2". Default: "TW1" unless W22_1 is
        diagonal.

    Examples
    --------
    >>> gibbs = kz.fit(model, kz.Gibbs(scheme="paper"), chains=4, random_seed=1)
    >>> gibbs.attrs["converged"]
    """

    name: ClassVar[str] = "Gibbs"
    kind: ClassVar[Kind] = "mcmc"
    limits: ClassVar[str] = "successive draws are correlated: look at az.ess; chains may miss modes"
    stores: ClassVar[bool] = True

    scheme: Literal["auto", "marginal", "paper"] | None = None
    length: Positive | None = None
    target_accept: Fraction | None = None
    stages: Count | None = None
    moves: CountOrZero | None = None
    marginal_moves: CountOrZero | None = None
    block: Count | None = None
    p_step: Literal["joint", "inverse-wishart"] | None = None
    variant: Literal["TW1", "TW2"] | None = None

    @override
    def sampler_arguments(self) -> frozenset[str]:
        return keywords_of(pm.sample) | {method.name for method in STEP_METHODS}

    @staticmethod
    @override
    def algorithm_of(paper: Paper) -> Algorithm[Sequence[Any]] | None:
        return paper.gibbs

    @override
    def run(self, model: pm.Model, run: Run) -> DataTree:
        if has_workers(run):
            return sample_on_workers(self, model, run)
        steps = self.implement(model, run)
        return run_chains(model, run, step=list(steps))
