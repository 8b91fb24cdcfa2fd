"""How often the utilities and the means of the regressors are updated with the same covariances.

The covariances of the probit's regressors do not depend on the utilities, and on large problems
they take nearly all the time of an iteration.
"""

from ...models.probit import default_nodes

__all__ = ["inner_steps"]

# Updates at most, and their share of the time of the covariances.
MOST = 6
SHARE = 0.25
# As measured, in units of a multiplication of a factorisation: a node of the quadrature, and a
# number of the covariances, which is read from memory.
NODE = 900
NUMBER = 12
# Numbers of the covariances that are kept for it at most (1 GB).
MOST_KEPT = 1 << 27


def inner_steps(n_kernels: int, n_obs: int, n_basis: int, n_classes: int) -> int:
    """Count the updates that are worth their while; none on small problems.

    Ten classes get the first one at about 400 objects with Gram matrices, six at 1,000.
    """
    if n_classes * n_basis**2 > MOST_KEPT:
        return 0
    quadrature = NODE * n_obs * n_classes * default_nodes(n_classes)
    products = 4 * n_kernels * n_obs * n_basis * n_classes
    step = quadrature + products + NUMBER * n_classes * n_basis**2
    return min(MOST, int(SHARE * n_classes * n_basis**3 / step))
