import numpy as np
import pytest

from kernelzoo.numerics.kernel_products import Design


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("chosen", [[], [6], [1, 6], [0, 2, 4, 5, 7]])
def test_composite_is_the_weighted_sum_of_all_kernels(chosen, constant):
    """Few kernels with a weight, which alone are read, or many of nine."""
    rng = np.random.default_rng(1)
    stack, beta = rng.normal(size=(9, 5, 4)), np.zeros(9 - constant)
    beta[chosen] = rng.normal(size=len(chosen))
    weights = np.append(beta, 1.0) if constant else beta
    expected = sum(w * kernel for w, kernel in zip(weights, stack, strict=True))
    found = Design.of(stack, constant).composite(beta)
    np.testing.assert_allclose(found, expected, atol=1e-14)
