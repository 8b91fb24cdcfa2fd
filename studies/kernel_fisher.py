"""Fisher discriminant from a kernel matrix alone: a method of table 1 of Zhang et al. (2004).

Source: Baudat and Anouar (2000), Generalized discriminant analysis using a kernel approach.
"""

from typing import override

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from kernelzoo.inference.kernel_completion.classifiers import KernelClassifier
from kernelzoo.validation import argument_error, check_positive

__all__ = ["KernelFisherDiscriminant"]


class KernelFisherDiscriminant(KernelClassifier):
    """Regularised Fisher discriminant in feature space (KFDA), with the nearest mean on its axes.

    The axes maximise the scatter between classes relative to the scatter within classes plus
    ``ridge`` times the identity of feature space. At most C - 1 axes have scatter between classes.
    Each axis is scaled to unit regularised scatter within classes, so that distances are
    Mahalanobis distances.

    Parameters
    ----------
    ridge : float, default=1e-3
        Ridge on the scale of the kernel: scatters are divided by n1.

    Notes
    -----
    Scatter within classes and total scatter give the same axes, so `fit` needs one Cholesky
    factorisation of the centred kernel plus ``n1 ridge I`` and an eigenproblem of size C:
    O(n1^3 / 3 + n1^2 C). Prediction costs O(n2 n1 C).
    """

    def __init__(self, ridge: float = 1e-3):
        self.ridge = ridge

    @override
    def _learn(self, K11: NDArray, codes: NDArray) -> None:
        owner = type(self).__name__
        ridge = check_positive(self.ridge, "ridge", owner)
        n1 = len(K11)
        members = np.eye(len(self.classes_))[codes]
        indicators = members / np.sqrt(members.sum(axis=0))
        indicators -= indicators.mean(axis=0)
        row_means = K11.mean(axis=0)
        centred = K11 - row_means - row_means[:, None] + row_means.mean()
        penalised = centred.copy()
        penalised.flat[:: n1 + 1] += n1 * ridge
        try:
            factor = cho_factor(penalised, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            raise argument_error(
                "K11", owner, "positive semidefinite", f"a negative eigenvalue below -{n1 * ridge}"
            ) from None
        solved = cho_solve(factor, indicators, check_finite=False)
        # Share of the total (regularised) scatter that lies between the classes, along each axis.
        share, rotation = eigh(indicators.T @ centred @ solved)
        keep = share > len(share) * np.finfo(float).eps
        share, rotation = share[keep], rotation[:, keep]
        axes = solved @ (rotation * np.sqrt(n1 / (share * (1.0 - share))))
        # With centred coefficients, new rows need not be centred.
        self._axes = axes - axes.mean(axis=0)
        self._means = (members / members.sum(axis=0)).T @ (K11 @ self._axes)
        self._norms = (self._means**2).sum(axis=1)

    @override
    def _score(self, K21: NDArray) -> NDArray:
        return 2.0 * (K21 @ self._axes) @ self._means.T - self._norms
