"""Distributions that PyMC does not have.

`CategoricalProbit` is the multinomial-probit likelihood with its latent utilities integrated out.
"""

from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete, SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.pytensorf import normalize_rng_param
from pytensor.gradient import disconnected_grad
from pytensor.tensor import TensorLike, TensorVariable
from pytensor.tensor.random.utils import normalize_size_param
from scipy.special import roots_hermitenorm

from .checks import argument_error

__all__ = ["CategoricalProbit", "log_ndtr", "probit_log_probability"]

_SQRT2 = np.sqrt(2.0)
_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)

# With the nodes at the mode of the integrand and scaled by its curvature, the error in log p for
# log p > -300 is about 1e-9 for 2 and 3 classes, 2e-8 for 5, 2e-7 for 10 and 3e-6 for 50; below
# -300 it is 1e-12 of log p. Errors of gradients, relative to 1 + |gradient|, are up to ten times
# as large.
QUADRATURE_NODES = 20
NEWTON_STEPS = 3


def log_ndtr(x: TensorVariable) -> TensorVariable:
    """Log of the standard normal distribution function, elementwise.

    Relative error below 1e-12 and a finite gradient for all finite `x`.
    """
    # Each branch sees only arguments it can evaluate: pt.switch differentiates both.
    left, right = pt.minimum(x, 0.0), pt.maximum(x, 0.0)
    return pt.switch(
        x < 0.0,
        pt.log(0.5 * pt.erfcx(-left / _SQRT2)) - 0.5 * left**2,
        pt.log1p(-0.5 * pt.erfc(right / _SQRT2)),
    )


def _inverse_mills(x: TensorVariable) -> TensorVariable:
    """Hazard phi(x) / Phi(x), without cancellation in either tail (1 / inf = 0 is right)."""
    return np.sqrt(2 / np.pi) / pt.erfcx(-x / _SQRT2)


def _mode_and_scale(d: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Mode and curvature scale of log phi(u) + sum_j log Phi(u + d_j), over the last axis of d.

    The derivative is convex and decreasing, so Newton's method climbs to the mode monotonically
    from below. With max(-x, 0) for the hazard of x the derivative is a maximum of lines in u; the
    largest of their roots, minus the mean of 0 and the k lowest d, is such a start and at a
    distance of order one from the mode however large d is.
    """
    n_losers = d.shape[-1]
    means = -pt.sort(d, axis=-1).cumsum(axis=-1) / pt.arange(2, n_losers + 2)
    u = pt.maximum(means.max(axis=-1, keepdims=True), 0.0)
    for _ in range(NEWTON_STEPS + 1):
        x = u + d
        hazard = _inverse_mills(x)
        # Its proven range, which rounding leaves where scores are of the order 1e4 and more.
        curvature = pt.clip(
            1.0 + (hazard * (hazard + x)).sum(-1, keepdims=True), 1.0, n_losers + 1.0
        )
        scale, mode = curvature**-0.5, u
        u = u + (hazard.sum(-1, keepdims=True) - u) / curvature
    return mode, scale


def probit_log_probability(f: TensorVariable, t: TensorVariable) -> TensorVariable:
    r"""Log of :math:`P(t = i \mid f) = E_u \prod_{j \ne i} \Phi(u + f_i - f_j)`, eq (4).

    Gauss-Hermite quadrature in log space, with the nodes moved to the mode of the integrand and
    scaled by its curvature, so that far tails (log p of -300 and less) are right as well. The
    value does not depend on where the nodes are, so their motion carries no gradient.

    Parameters
    ----------
    f : tensor (..., C)
        Regression functions, one a class.
    t : int tensor (...)
        Class of each object, 0..C-1.

    Returns
    -------
    tensor (...)

    Notes
    -----
    O(C x nodes) an object.
    """
    # JAX needs to know the number of classes before it sees a value.
    n_classes = f.type.shape[-1] or f.shape[-1]
    losers = pt.mod(t[..., None] + 1 + pt.arange(n_classes - 1), n_classes)
    d = pt.take_along_axis(f, t[..., None], axis=-1) - pt.take_along_axis(f, losers, axis=-1)
    mode, scale = (disconnected_grad(x) for x in _mode_and_scale(d))
    nodes, weights = roots_hermitenorm(QUADRATURE_NODES)
    u = mode + scale * nodes
    log_integrand = log_ndtr(u[..., None] + d[..., None, :]).sum(-1) - 0.5 * u**2
    return (
        pt.logsumexp(log_integrand + np.log(weights) + 0.5 * nodes**2, axis=-1)
        + pt.log(scale[..., 0])
        - _LOG_SQRT_2PI
    )


class CategoricalProbitRV(SymbolicRandomVariable):
    name = "categorical_probit"
    extended_signature = "[rng],[size],(c)->[rng],()"
    _print_name = ("CategoricalProbit", "\\operatorname{CategoricalProbit}")

    @classmethod
    def rv_op(cls, f: TensorLike, *, size: Any = None, rng: Any = None) -> TensorVariable:
        f = pt.as_tensor(f)
        rng = normalize_rng_param(rng)
        size = normalize_size_param(size)
        if rv_size_is_none(size):
            size = implicit_size_from_params(f, ndims_params=cls.ndims_params)
        utilities_shape = pt.concatenate([size, f.shape[-1:]])
        next_rng, utilities = pt.random.normal(
            f, 1.0, size=utilities_shape, rng=rng, return_next_rng=True
        )
        winner = pt.argmax(utilities, axis=-1)
        return cls(inputs=[rng, size, f], outputs=[next_rng, winner])(rng, size, f)


class CategoricalProbit(Discrete):
    r"""Categorical distribution with the multinomial-probit link.

    An object takes the class with the largest of C latent utilities
    :math:`y_c \sim \mathcal N(f_c, 1)`; the utilities are integrated out. Adding a constant to all
    entries of `f` changes nothing.

    Parameters
    ----------
    f : tensor_like of float (..., C)
        Mean of each class's utility, C >= 2. No class is possible where one is NaN.

    Examples
    --------
    >>> with pm.Model():
    ...     f = pm.Normal("f", 0, 1, shape=(10, 3))
    ...     t = CategoricalProbit("t", f, observed=labels)
    """

    rv_type = CategoricalProbitRV
    rv_op = CategoricalProbitRV.rv_op

    @classmethod
    @override
    def dist(cls, f: TensorLike, **kwargs: Any) -> TensorVariable:
        f = pt.as_tensor_variable(f)
        if f.ndim == 0 or f.type.shape[-1] in (0, 1):
            raise argument_error(
                "f", cls.__name__, "an array with two or more classes on its last axis", f"{f.type}"
            )
        return super().dist([f], **kwargs)

    @override
    def support_point(rv, size: Any, f: TensorVariable) -> TensorVariable:
        winner = pt.argmax(f, axis=-1)
        return winner if rv_size_is_none(size) else pt.full(size, winner)

    @override
    def logp(value, f: TensorVariable) -> TensorVariable:
        n_classes = f.shape[-1]
        inside = pt.and_(value >= 0, value < n_classes)
        # Scores that are no numbers come from parameters that allow no scores.
        possible = pt.and_(inside, ~pt.any(pt.isnan(f), axis=-1))
        safe = pt.clip(value, 0, n_classes - 1).astype("int64")
        return pt.switch(possible, probit_log_probability(f, safe), -np.inf)
