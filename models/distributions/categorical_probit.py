"""Multinomial-probit likelihood with its latent utilities integrated out."""

from typing import Any, override

import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor import TensorLike, TensorVariable

from ...validation import argument_error
from ..operations.probit_likelihood import probit_log_probability
from .drawn import DrawnRV

__all__ = ["CategoricalProbit"]


class CategoricalProbitRV(DrawnRV):
    name = "categorical_probit"
    extended_signature = "[rng],[size],(c)->[rng],()"
    _print_name = ("CategoricalProbit", "\\operatorname{CategoricalProbit}")

    @classmethod
    @override
    def draws(cls, rng: Any, batch: tuple[Any, ...], f: TensorVariable) -> tuple[Any, Any]:
        size = (*batch, f.shape[-1])
        next_rng, utilities = pt.random.normal(f, 1.0, size=size, rng=rng, return_next_rng=True)
        return next_rng, pt.argmax(utilities, axis=-1)


class CategoricalProbit(Discrete):
    r"""Categorical distribution with the multinomial-probit link.

    An object takes the class with the largest of C latent utilities
    :math:`y_c \sim \mathcal N(f_c, 1)`, which are integrated out. The distribution is invariant to
    adding a constant to all entries of `f`.

    Parameters
    ----------
    f : tensor_like of float (..., C)
        Means of the utilities, C >= 2. If one is NaN or infinite, all classes have probability 0.

    Examples
    --------
    >>> with pm.Model():
    ...     f = pm.Normal("f", 0, 1, shape=(10, 3))
    ...     t = kz.distributions.CategoricalProbit("t", f, observed=np.arange(10) % 3)
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
        return probit_log_probability(f, value)
