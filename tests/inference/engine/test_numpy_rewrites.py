"""Rewrites of graphs that NumPy evaluates: they apply, and change no value."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from scipy.special import expit

from kernelzoo.inference.engine.compilation import SummedProducts, python_mode
from kernelzoo.models.operations.matrix_product import matrix_product
from kernelzoo.models.operations.weighted_sum import weighted_sum

PLAIN = Mode(linker="py", optimizer="fast_run").excluding("fusion")


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


@pytest.mark.parametrize("columns", [1, 3, 20])
@pytest.mark.parametrize("drawn", ["weights", "right", "both"])
def test_products_with_weighted_sums_over_draws(columns, drawn):
    rng = np.random.default_rng(1)
    stack, w, b = pt.tensor3("stack"), pt.vector("w"), pt.matrix("b", shape=(None, columns))
    values = [rng.normal(size=(2, 4, 5)), rng.normal(size=(6, 2)), rng.normal(size=(6, 5, columns))]
    many = {"weights": [w], "right": [b], "both": [w, b]}[drawn]
    stacks = {v: pt.tensor(v.name, dtype="float64", shape=(None, *v.type.shape)) for v in many}
    for v, i in ((w, 1), (b, 2)):
        if v not in many:
            values[i] = values[i][0]
    inputs = [stack, stacks.get(w, w), stacks.get(b, b)]
    out = vectorize_graph([matrix_product(weighted_sum(stack, w), b)], replace=stacks)
    rewritten, plain = (pytensor.function(inputs, out, mode=m) for m in (python_mode(), PLAIN))
    applied = any(isinstance(node.op, SummedProducts) for node in rewritten.maker.fgraph.toposort())
    assert applied == (drawn != "right")
    np.testing.assert_allclose(rewritten(*values)[0], plain(*values)[0], rtol=1e-12)


def test_a_sum_that_is_needed_elsewhere_is_formed_once():
    stack, w, b = pt.tensor3("stack"), pt.matrix("w"), pt.tensor3("b")
    one = pt.vector()
    (total,) = vectorize_graph([weighted_sum(stack, one)], replace={one: w})
    function = pytensor.function(
        [stack, w, b], [matrix_product(total, b), total.sum()], mode=python_mode()
    )
    assert "SummedProducts" not in str(names_of(function))
