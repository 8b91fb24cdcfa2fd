"""VB's equations for the multinomial probit against slow references with loops and inverses."""

from functools import partial

import numpy as np
import pytest

from kernelzoo.inference.multinomial_probit import vb as updates
from kernelzoo.models.kernels import as_stack
from kernelzoo.models.multinomial_probit import MultinomialProbit
from probit_slow_reference import (
    RULES,
    parametric_problem,
    prior_sample,
    slow_problem,
    slow_reference,
)
from probit_vb_fixture import problem

LEARNED = [
    *((rule, False) for rule in ("binary", "binary, empty", "product", "fixed product")),
    *((rule, True) for rule in RULES),
]


@pytest.mark.parametrize("gram", [True, False])
def test_one_kernel_agrees_with_a_slow_reference(gram):
    kernels, labels = problem(3, 1, 3, n_obs=15, gram=gram)
    model = MultinomialProbit(as_stack(kernels), labels, tau=0.7, upsilon=1.3)
    W, _ = slow_reference(kernels[0], labels, 3, 0.7, 1.3, iterations=8)
    data = updates.Data.of(model)
    state = updates.start(data, np.ones(1))
    for _ in range(8):
        state = updates.update(data, state)
    np.testing.assert_allclose(state.W_mean, W, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("rule", "parametric"), LEARNED)
def test_learned_kernels_agree_with_a_slow_reference(rule, parametric, monkeypatch):
    """On the same samples of the prior; but for rounding."""
    monkeypatch.setattr(updates.KernelFamily, "start", prior_sample)
    model = parametric_problem(rule, parametric)
    data = updates.Data.of(model)
    weights = data.family.composition.known if rule == "fixed" else np.ones(2)
    state = updates.start(data, weights)
    psi = state.psi.samples if state.psi is not None else np.zeros((1, 0))
    slow = slow_problem(rule, parametric, psi, plug_in=False).run(iterations=6)
    objectives = []
    for _ in range(6):
        state = updates.update(data, state)
        objectives.append(state.objective)
    close = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10)
    close(objectives, slow["objectives"])
    close(state.W_mean, slow["W"])
    close(state.zeta_rate, slow["zeta_rate"])
    close(state.utilities.mean, slow["y"])
    if state.psi is not None:
        close(state.psi.weights, slow["r"])
    if rule.startswith("binary"):
        close(state.weights.beta.probability[rule == "binary" :], slow["q"])
