r"""Mode of the composite-kernel models by alternation (Girolami & Rogers 2005, section 5).

With uniform weights of the kernels (varphi = 1) or known ones, each of the paper's updates

.. math::

    \alpha = (K_\beta' W K_\beta + \Phi)^{-1} K_\beta' l, \qquad
    \beta = \operatorname*{argmax}_{\text{simplex}} \beta' Z' l
        - \tfrac12 \beta' Z' W Z \beta, \qquad
    \phi_m = \frac{1 + 2\sigma}{\alpha_m^2 + 2\varsigma}

has a closed form or is a quadratic programme; Z_nk = sum_m alpha_m K_k(x_m, x_n). Regression has
W = gamma I, l = gamma t and gamma = (N + 2 rho - 2) / (|t - K_beta alpha|^2 + 2 varrho).
Classification has l = t - 1/2 for t in {0, 1} and W = diag(2 lambda(xi)), xi_n = |f_n|: Jaakkola's
lower bound of the logit is tight at f, so that the updates increase the posterior density itself.

The objective is the density of alpha, beta, **log phi** and gamma, log p + sum_m log phi_m: the
printed update of phi does not maximise the density of phi on its own scale. Equivalently, phi is
integrated out, its update is an E-step, and the result is a mode of the posterior of alpha, beta
and gamma on their own scales, with phi = E[phi | alpha].

The iterations differ from the paper's in two ways. The state is alpha and beta alone, because the
best phi, gamma and xi are functions of them. And the step of the weights lets alpha react: with
alpha fixed, the weights move by tiny steps where the noise is small (5,000 iterations do not
suffice for 250 objects). So :math:`Z' W Z` is replaced by the Gauss-Newton Hessian of the log
density maximised over alpha. Whenever the density does not rise, the paper's own step is made, and
the next trial step is a quarter as long. An iteration costs O(K N M + N M^2 + M^3 + K M^2 + K^3).
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from ...models.combinations.sums import DirichletWeights, FixedWeights
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...models.learned_scale import LearnedScale
from ...numerics.normal_regression import regression_weights, solve_lower, solve_upper
from ...validation import Count, Positive
from ..engine.engine import Run
from ..engine.result import PointOutput
from ..variational.ascent import multistart_ascent
from ..variational.factors import Gamma
from .vb_likelihoods import jaakkola_precision

type Array = npt.NDArray[np.float64]

# Penalties of the ridge regressions that start alpha, in units of the mean diagonal of K_beta' W
# K_beta. Sparse priors would keep alpha at 0, where phi is largest.
RIDGES = (1.0, 0.1, 0.01, 0.001)
# Tolerance of residuals and duality gap of the quadratic programme, relative to the mean diagonal
# entry of the quadratic.
RELATIVE_PRECISION = 1e-12


@dataclass(frozen=True)
class _Normal:
    """Targets with normal noise of precision gamma, which is at its best for given responses."""

    targets: Array
    rho: float
    varrho: float

    def gamma(self, f: Array) -> float:
        """Best precision of the noise."""
        error = np.sum((self.targets - f) ** 2)
        return float((len(f) + 2 * self.rho - 2) / (error + 2 * self.varrho))

    def log_density(self, f: Array) -> float:
        """Log p(t | f), plus the log prior of gamma."""
        gamma = self.gamma(f)
        power = len(f) / 2 + self.rho - 1
        constant = Gamma(self.rho, self.varrho).log_constant - len(f) / 2 * np.log(2 * np.pi)
        # At the best gamma, the terms linear in gamma add up to the power.
        return float(power * np.log(gamma) - power + constant)

    def quadratic(self, f: Array) -> tuple[Array, Array]:
        """W and l, each (N,), of the quadratic lower bound that touches the log density at f."""
        gamma = self.gamma(f)
        return np.full(len(f), gamma), gamma * self.targets


@dataclass(frozen=True)
class _Logit:
    """Labels 0 and 1; like `_Normal`."""

    labels: Array

    def log_density(self, f: Array) -> float:
        """Log p(t | f)."""
        return float(-np.logaddexp(0.0, np.where(self.labels == 1, -f, f)).sum())

    def quadratic(self, f: Array) -> tuple[Array, Array]:
        """W and l of Jaakkola's bound."""
        return jaakkola_precision(np.abs(f)), self.labels - 0.5


@dataclass(frozen=True)
class _State:
    """A point, its responses, and the share of the weights' step that is tried.

    `gain` is the increase, in nats, that the last iteration expected.
    """

    alpha: Array
    beta: Array
    f: Array
    objective: float
    share: float = 1.0
    gain: float = np.inf


@dataclass(frozen=True)
class _Alternation:
    """Updates for one model; they end when the expected increase is at most the tolerance."""

    design: Array
    likelihood: _Normal | _Logit
    sigma: float
    varsigma: float
    tolerance: float

    def phi(self, alpha: Array) -> Array:
        """Best precisions (M,)."""
        return (1 + 2 * self.sigma) / (alpha**2 + 2 * self.varsigma)

    def composite(self, beta: Array) -> Array:
        """K_beta (N, M)."""
        return np.tensordot(beta, self.design, axes=1)

    def start(self, beta: Array, ridge: float) -> _State:
        """Start from a ridge regression."""
        K = self.composite(beta)
        w, linear = self.likelihood.quadratic(np.zeros(len(K)))
        penalty = ridge * np.sum(w @ K**2) / K.shape[1]
        alpha, _ = regression_weights(K, w, linear, np.full(K.shape[1], penalty))
        return self._at(alpha, beta, K @ alpha)

    def _at(self, alpha: Array, beta: Array, f: Array, share: float = 1.0) -> _State:
        half = self.sigma + 0.5
        constant = Gamma(self.sigma, self.varsigma).log_constant - np.log(2 * np.pi) / 2
        # At the best phi, the terms linear in phi add up to sigma + 1/2 a function.
        prior = half * np.log(self.phi(alpha)).sum() + len(alpha) * (constant - half)
        prior += gammaln(len(beta))
        return _State(alpha, beta, f, self.likelihood.log_density(f) + prior, share)

    def update(self, state: _State) -> _State:
        """One iteration; the same state if the expected increase is within the tolerance."""
        w, linear = self.likelihood.quadratic(state.f)
        phi = self.phi(state.alpha)
        K = self.composite(state.beta)
        alpha, factor = regression_weights(K, w, linear, phi)
        f = K @ alpha
        gain = 0.5 * (w @ (f - state.f) ** 2 + phi @ (alpha - state.alpha) ** 2)
        if len(state.beta) == 1:
            moved = self._at(alpha, state.beta, f)
            return replace(moved if gain > self.tolerance else state, gain=gain)

        Z = (self.design @ alpha).T
        # Z minus the reaction of alpha to a growing weight.
        reaction = solve_upper(factor, solve_lower(factor, K.T @ (w[:, None] * Z)))
        left = Z - K @ reaction
        hessian = left.T @ (w[:, None] * left) + reaction.T @ (phi[:, None] * reaction)
        slope = Z.T @ (linear - w * f)
        step = maximize_on_simplex(slope + hessian @ state.beta, hessian, state.beta) - state.beta
        gain += float(step @ (slope - hessian @ step / 2))
        if gain <= self.tolerance:
            return replace(state, gain=gain)

        beta = state.beta + state.share * step
        K = self.composite(beta)
        reacted, _ = regression_weights(K, w, linear, phi)
        moved = self._at(reacted, beta, K @ reacted, min(1.0, 2 * state.share))
        if not moved.objective > state.objective:
            beta = maximize_on_simplex(Z.T @ linear, Z.T @ (w[:, None] * Z), state.beta)
            moved = self._at(alpha, beta, Z @ beta, state.share / 4)
        return replace(moved, gain=gain)


def unsupported(model: CompositeKernelRegression | CompositeKernelClassification) -> str | None:
    """Why MAP does not apply to a model; None where it does."""
    if isinstance(model, CompositeKernelRegression):
        if model.collapsed:
            return "it needs alpha, which a collapsed declaration integrates out"
        if model.several:
            return "it takes one output; VB and Gibbs take several"
        if len(model.target_values) + 2 * model.rho <= 2:
            return "the noise's precision has no mode on its own scale unless N + 2 rho > 2"
    if isinstance(model.varsigma, LearnedScale):
        return "it does not move a learned varsigma"
    rule = model.combination
    uniform = isinstance(rule, DirichletWeights) and rule.varphi == 1
    if uniform or isinstance(rule, FixedWeights):
        return None
    # Otherwise the weights' update is not a quadratic programme.
    return (
        "its weights must be uniform on the simplex or known, DirichletWeights(varphi=1) or "
        f"FixedWeights, not {rule!r}"
    )


def maximize_on_simplex(linear: Array, quadratic: Array, near: Array) -> Array:
    """Maximise b'beta - beta'A beta / 2 over beta >= 0, sum beta = 1; O(K^3).

    A (K, K) may be singular, as redundant kernels make it. `near` is a point of the simplex,
    returned if the solver finds no better one. Vanishing weights are exactly zero.
    """
    import piqp

    size = np.trace(quadratic) / len(linear)
    if not size > 0:
        return near  # A = 0 implies b = 0 here: nothing depends on the weights.
    A = quadratic / size
    b = linear / size
    solver = piqp.DenseSolver()
    settings = solver.settings
    settings.eps_abs = settings.eps_duality_gap_abs = RELATIVE_PRECISION
    settings.eps_rel = settings.eps_duality_gap_rel = 0.0
    lower = np.zeros_like(b)
    solver.setup(A, -b, np.ones((1, len(b))), np.ones(1), x_l=lower)
    # The status is ignored: if rounding prevents this precision, the last iterate may still do.
    solver.solve()
    result = solver.result
    # By complementarity, a weight is zero if its multiplier is larger.
    weights = np.where(result.x > result.z_bl, result.x, 0.0)
    if not np.isfinite(weights).all() or not weights.any():
        return near
    weights /= weights.sum()
    # Computed from the step, because a difference of two values would lose it in rounding.
    step = weights - near
    gain = step @ (b - A @ (near + weights) / 2)
    return weights if gain >= 0 else near


def find_composite_kernel_mode(
    model: CompositeKernelRegression | CompositeKernelClassification,
    run: Run,
    *,
    max_iterations: Count = 2000,
    tolerance: Positive = 1e-6,
    starts: Count | None = None,
) -> PointOutput:
    """Climb to a mode of log p + sum_m log phi_m by the module's updates, from several weights.

    `log_density` is that of the declared variables, without the sum of log phi; `climbs` have it.
    The attribute ``expected_gain`` is what another iteration would gain.

    Parameters
    ----------
    max_iterations : int, default=2000
        Largest number of iterations of a start.
    tolerance : float, default=1e-6
        A start ends when an iteration has at most this to gain, in nats.
    starts : int, optional
        Number of initial weights: uniform, each kernel alone, random; each with four ridge
        regressions as starts of alpha. The highest mode wins; sparse priors (sigma and varsigma far
        below 1) have many, and a higher one may exist. By default uniform and each kernel alone, 8
        at most.
    """
    design = model.design
    if isinstance(model, CompositeKernelClassification):
        likelihood: _Normal | _Logit = _Logit(model.label_codes.astype(float))
    else:
        likelihood = _Normal(model.target_values, model.rho, model.varrho)
    assert not isinstance(model.varsigma, LearnedScale)
    alternation = _Alternation(design, likelihood, model.sigma, model.varsigma, tolerance)
    ascended = multistart_ascent(
        [partial(alternation.start, ridge=ridge) for ridge in RIDGES],
        alternation.update,
        run,
        len(design),
        known=None if model.learned else np.ones(1),
        starts=starts,
        max_iterations=max_iterations,
        # `update` returns the same state at the end.
        tolerance=0.0,
        engine="MAP",
    )
    state = ascended.state
    phi = alternation.phi(state.alpha)
    values = {"phi": phi, "alpha": state.alpha}
    if isinstance(likelihood, _Normal):
        values["gamma"] = np.asarray(likelihood.gamma(state.f))
    ends = {}
    if model.learned:
        values["beta"] = state.beta
        ends["beta"] = np.array([end.beta for end in ascended.states])
    return PointOutput(
        values=values,
        log_density=state.objective - float(np.log(phi).sum()),
        climbs=ascended.histories,
        best=ascended.best,
        converged="yes" if ascended.converged else "no",
        attributes={"lp_measure": "constrained", "expected_gain": float(state.gain)},
        ends=ends,
    )
