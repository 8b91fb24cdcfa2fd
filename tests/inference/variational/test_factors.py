"""Factors of normal distributions."""

import numpy as np
import pytest

from kernelzoo.inference.variational.factors import precision_factor


@pytest.mark.parametrize("lost", [1e-17, np.inf])
def test_a_pivot_that_is_rounding_or_infinite_is_refused(lost):
    gram = np.full((3, 3), 1e3)
    precision_factor(gram, np.full(3, 1e-2))
    with pytest.raises(np.linalg.LinAlgError, match="numerically singular"):
        precision_factor(gram, np.array([1.0, lost, lost]))
