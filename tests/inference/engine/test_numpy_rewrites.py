"""Rewrites of graphs that NumPy evaluates: they apply, and change no value."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from scipy.special import expit

from kernelzoo.inference.engine.evaluation import python_mode


def names_of(function):
    return {str(node.op) for node in function.maker.fgraph.toposort()}


def test_softplus_and_its_gradient():
    x = pt.vector("x")
    function = pytensor.function(
        [x], [pt.softplus(x), pt.grad(pt.softplus(x).sum(), x)], mode=python_mode()
    )
    assert "Softplus" not in str(names_of(function))
    values = np.array([-800.0, -40.0, -37.0, -1e-3, 0.0, 1e-3, 18.0, 33.3, 40.0, 800.0])
    softplus, slope = function(values)
    np.testing.assert_allclose(softplus, np.logaddexp(0, values), rtol=1e-14)
    np.testing.assert_allclose(slope, expit(values), rtol=1e-14)
