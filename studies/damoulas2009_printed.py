"""Algorithm 1 of Damoulas and Girolami (2009) as printed.

Expectations replace variables: E[beta] replaces beta in V_c (eq 10) and in Q(rho), Q(beta) leaves
out the covariance of W, and exponents and kernel parameters enter by their expectations ("first
order", appendix B). The monitored objective is E.5-E.7, the sum of E.1-E.4, at Z = 1 / E[1/zeta];
it may fall, and an iteration may cycle. Where the paper samples (appendix B.4), the factors here
are those of the package: by quadrature, enumeration, or a normal distribution. The package's own
`VB` has a bound of all factors that never falls.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from kernelzoo.inference import Run
from kernelzoo.inference.multinomial_probit.vb_kernels import KernelFamily
from kernelzoo.inference.variational.concentration import concentration_factor
from kernelzoo.inference.variational.factors import binary_factor, precision_factor
from kernelzoo.inference.variational.simplex import simplex_factor
from kernelzoo.models import MultinomialProbit
from kernelzoo.models.combinations import Binary, Mean, WeightedSum
from kernelzoo.models.combinations.normal_coordinates import draw_hyperparameters
from kernelzoo.numerics.probit import log_probability_and_gradient


@dataclass(frozen=True)
class Printed:
    """Expectations after an iteration."""

    family: KernelFamily
    kernels: NDArray
    y: NDArray
    W: NDArray
    W_var: NDArray
    zeta_rate: NDArray
    weights: NDArray
    rho_mean: NDArray
    objective: float = -np.inf
    roots: tuple[NDArray, ...] = ()
    beta: Any = None
    rho: Any = None
    psi: Any = None


def start(
    model: MultinomialProbit, weights: NDArray, rng: np.random.Generator | None = None
) -> Printed:
    """State before the first iteration: Z = 1, and utilities at scores of zero.

    With `rng` they are at the scores of random regressors, scaled to variance one.
    """
    family = KernelFamily(model.composition)
    rule = model.combination
    psi = family.start(weights) if len(family.coordinates) else None
    kernels = _first_order(family, psi) if psi else family.stack(np.empty(0))
    rho = np.nan
    if not isinstance(rule, WeightedSum):
        weights = np.ones(1)
    elif isinstance(rule, Binary):
        weights = weights / weights.max()
    elif isinstance(rule, Mean):
        rho = rule.mu / rule.lam
    W = np.zeros((model.n_classes, kernels.shape[2]))
    f = np.zeros((len(model.label_codes), model.n_classes))
    if rng is not None:
        f = np.tensordot(weights, kernels @ rng.normal(size=W.shape).T, axes=1)
        f /= f.std() or 1.0
    y = f + log_probability_and_gradient(f, model.label_codes)[1]
    scales = np.full_like(W, model.tau + 0.5)
    return Printed(family, kernels, y, W, W, scales, weights, np.full(len(weights), rho), psi=psi)


def _first_order(family: KernelFamily, psi: Any) -> NDArray:
    """Kernels (S, N, M) at the expected exponents and parameters."""
    points, weights = psi.expectation
    values = family.coordinates.values(points)
    means = {name: weights @ value for name, value in values.items()}
    return family.stack(family.coordinates.psi(means))


def iterate(model: MultinomialProbit, state: Printed) -> Printed:
    """Iterate once: eqs 9-10, eq 11, appendix B.4, eqs 7-8, and the objective E.5-E.7."""
    # W, eqs 9-10.
    precision = (model.tau + 0.5) / state.zeta_rate
    K = np.tensordot(state.weights, state.kernels, axes=1)
    gram = K.T @ K
    target = state.y.T @ K
    roots = tuple(precision_factor(gram, row)[0] for row in precision)
    V = np.array([cho_solve((root, True), np.eye(len(root))) for root in roots])
    W = (V @ target[..., None])[..., 0]
    W_var = np.diagonal(V, axis1=1, axis2=2)
    zeta_rate = model.upsilon + 0.5 * (W**2 + W_var)  # eq 11
    new = replace(state, W=W, W_var=W_var, roots=roots, zeta_rate=zeta_rate)
    # Weights, and exponents and kernel parameters, appendix B.4.
    new = _update_weights(model.combination, new)
    if new.psi is not None:
        second = np.outer(new.weights, new.weights)
        likelihood = new.family.log_likelihood(new.y @ W, new.weights, second, W.T @ W)
        psi = new.psi.updated(likelihood)
        new = replace(new, psi=psi, kernels=_first_order(new.family, psi))
    # Y, eqs 7-8.
    K = np.tensordot(new.weights, new.kernels, axes=1)
    f = K @ W.T
    log_z, gradient = log_probability_and_gradient(f, model.label_codes)
    objective = printed_objective(
        float(log_z.sum()),
        -2 * float(sum(np.log(np.diag(root)).sum() for root in roots)),
        (model.tau + 0.5) / zeta_rate,
        W,
        W_var,
        float(sum(np.sum((K @ each) * K) for each in V)),
    )
    return replace(new, y=f + gradient, objective=objective)


def _update_weights(rule: Any, state: Printed) -> Printed:
    """Q(beta) and Q(rho), from the means of W alone."""
    f = state.kernels @ state.W.T
    linear = np.tensordot(f, state.y, axes=2)
    quadratic = np.tensordot(f, f, axes=([1, 2], [1, 2]))
    if isinstance(rule, Binary):
        beta = binary_factor(rule.each(len(linear)), linear, quadratic, rule.empty)
        return replace(state, beta=beta, weights=beta.mean)
    if not isinstance(rule, Mean):
        return state
    on_simplex = simplex_factor(state.rho_mean, linear, quadratic, near=state.beta)
    rho = concentration_factor(rule.mu, rule.lam, np.log(on_simplex.mean), near=state.rho)
    return replace(
        state, beta=on_simplex, weights=on_simplex.mean, rho=rho, rho_mean=np.asarray(rho.mean)
    )


def printed_objective(
    log_z: float, log_det: float, precision: NDArray, W: NDArray, W_var: NDArray, spread: float
) -> float:
    """E.5-E.7, the sum of E.1-E.4, for the fixed Z = 1/precision; spread = sum_nc k_n'V_c k_n."""
    return float(
        0.5 * (W.size + log_det)
        + log_z
        - 0.5 * np.sum(precision * (W_var + W**2))
        + 0.5 * np.log(precision).sum()
        - 0.5 * spread
    )


def ascend(model: MultinomialProbit, run: Run, algorithm: dict[str, Any]) -> Printed:
    """Iterate from each start, and return the state with the highest objective."""
    n = len(model.coords["kernel"])
    learned = model.composition.learned
    first = np.full(n, 1 / n) if learned else model.composition.known
    beginnings = [first, *np.eye(n)][: algorithm.get("starts", 1) if learned else 1]
    rng = run.rng(2) if algorithm.get("begin") == "random" else None
    ends = []
    for weights in beginnings:
        state = start(model, weights, rng)
        for _ in range(algorithm["max_iterations"]):
            before = state.objective
            state = iterate(model, state)
            if abs(state.objective - before) <= algorithm["tolerance"] * abs(state.objective):
                break
        ends.append(state)
    return max(ends, key=lambda end: end.objective)


def draws(
    model: MultinomialProbit, state: Printed, number: int, rng: np.random.Generator
) -> dict[str, NDArray]:
    """Draw the free variables from their factors."""
    out: dict[str, NDArray] = {}
    for name in ("rho", "beta"):
        if (factor := getattr(state, name)) is not None:
            out[name] = factor.sample(number, rng)
    if state.psi is not None:
        psi, _ = state.psi.sample(number, rng)
        coordinates = state.family.coordinates
        out |= coordinates.values(psi)
        if coordinates.n_exponents:
            rates = coordinates.a, coordinates.b
            out["pi"], out["chi"] = draw_hyperparameters(out["beta"], *rates, rng)
    shape = (number, *state.zeta_rate.shape)
    out["zeta"] = state.zeta_rate / rng.gamma(model.tau + 0.5, size=shape)
    out["W"] = np.empty(shape)
    for c, (mean, root) in enumerate(zip(state.W, state.roots, strict=True)):
        noise = rng.normal(size=(len(mean), number))
        out["W"][:, c] = mean + solve_triangular(root, noise, lower=True, trans="T").T
    return out
