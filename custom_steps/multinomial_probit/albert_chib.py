"""Albert-Chib data augmentation as a PyMC step method for the multinomial probit.

A sweep draws the utilities Y (damoulas2009, eq 3), then W and zeta (appendix A), given the
composite kernel.

============= ============================================ ========================
paper         meaning                                      code
============= ============================================ ========================
y_n           latent utilities, drawn afresh every sweep   ``y`` (N, C)
K^beta,theta  composite kernel                             ``Composition.composite``
W, Z          regressors and their variances               ``W``, ``zeta`` (C, M)
============= ============================================ ========================
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...models.multinomial_probit import Composition, MultinomialProbit
from ...validation import argument_error
from ..block import GibbsBlock, Names, declared
from .conditionals import draw_regressors, draw_shift, draw_variances
from .cone import sample_cone

__all__ = ["AlbertChib", "sweep"]


def sweep(
    values: Mapping[str, np.ndarray],
    labels: np.ndarray,
    composition: Composition,
    tau: float,
    upsilon: float,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Draw W and zeta, given the other variables in `values`.

    Costs one composite kernel, K'K and C Cholesky factorisations of size M.
    """
    composite = composition.composite(values)
    y = sample_cone(composite @ values["W"].T, labels, rng)
    zeta = values["zeta"]
    W = draw_regressors(y, zeta, composite, composition.gram(values, composite), rng)
    W = draw_shift(W, zeta, rng)
    return {"W": W, "zeta": draw_variances(W, tau, upsilon, rng)}


class AlbertChib(GibbsBlock):
    """Albert-Chib data augmentation for `MultinomialProbit`, as a PyMC step method.

    A sweep redraws W and zeta given the weights and parameters of kernels, which NUTS takes if they
    are random. The latent utilities are drawn anew in each sweep and not recorded. Kernels and
    labels are read at construction: make a new step after ``pm.set_data``, which must not change
    the features of kernels with parameters.

    Parameters
    ----------
    vars : sequence of TensorVariable, optional
        W, with or without zeta. Default: both.
    **shared
        reads, model, rng and blocked: see `GibbsBlock`.

    Notes
    -----
    Source: damoulas2009, appendix A.

    Examples
    --------
    >>> with model:
    ...     pm.sample(step=[AlbertChib()])  # NUTS on beta and rho
    """

    name = "albert_chib"
    declarations = (MultinomialProbit,)
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}

    def prepare(self, model: Any, given: Names | None) -> tuple[Names, Names]:
        """Read kernels and labels; choose the variables."""
        owner = type(self).__name__
        if "beta" in {variable.name for variable in model.deterministics}:
            raise TypeError(
                f"{owner} reads the weights beta themselves; {type(model.combination).__name__} "
                "declares them as a Deterministic."
            )
        owned = given or ["W", "zeta"]
        if "W" not in owned or set(owned) - {"W", "zeta"}:
            raise argument_error("vars", owner, "W, or W and zeta", f"{sorted(owned)}")
        model.check_stand_ins()
        self._composition = model.composition
        self._labels = model.label_codes.astype(np.intp)
        self._tau, self._upsilon = model.tau, model.upsilon
        others = ("zeta", "beta", "theta")
        return owned, [name for name in declared(model) if name in others and name not in owned]

    def sweep(
        self, values: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Redraw the owned variables."""
        settings = self._labels, self._composition, self._tau, self._upsilon
        return sweep(values, *settings, rng), {}
