"""Overrelaxed Bartlett factors against the ones that they are made of."""

import numpy as np
import pytest

from kernelzoo.custom_steps.moves.overrelaxation import overrelaxed_bartlett
from kernelzoo.numerics.matrix_draws import Bartlett

DF, N = 7.3, 4


@pytest.mark.parametrize("alpha", [-0.8, 0.0, 1.0])
def test_noise_below_the_diagonal_goes_on_and_the_diagonal_is_fresh(alpha):
    start = Bartlett.draw(DF, N, np.random.default_rng(1)).a
    fresh = Bartlett.draw(DF, N, np.random.default_rng(2)).a
    drawn = overrelaxed_bartlett(start, DF, alpha, np.random.default_rng(2))
    mixed = alpha * start + np.sqrt(1 - alpha**2) * fresh
    np.testing.assert_allclose(np.tril(drawn.a, -1), np.tril(mixed, -1))
    np.testing.assert_array_equal(np.diagonal(drawn.a), np.diagonal(fresh))
    assert (np.triu(drawn.a, 1) == 0).all()
    assert drawn.df == DF
