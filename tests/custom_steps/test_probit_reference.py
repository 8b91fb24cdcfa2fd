"""Both samplers of the multinomial probit against a reference made by long chains."""

import json

import numpy as np
import pytest

import probit_reference
from family import assert_z
from kernelzoo.custom_steps import probit_marginal


@pytest.fixture(scope="module")
def reference():
    return json.loads(probit_reference.PATH.read_text())["functionals"]


def z_scores(chain, reference, *args):
    model = probit_reference.problem()
    chains = [chain(model, *args, rng) for rng in np.random.default_rng(1).spawn(2)]
    result = probit_reference.summary(chains, model.design)
    # The standard errors are estimates themselves.
    assert min(entry["ess"] for entry in result.values()) > 100
    return probit_reference.z_scores(result, reference)


def test_reference_is_converged(reference):
    assert max(entry["rhat"] for entry in reference.values()) < 1.01
    assert min(entry["ess"] for entry in reference.values()) > 1_000


def test_marginal_scheme_agrees(reference):
    assert_z(z_scores(probit_reference.marginal_chain, reference, 1_500, 300))


def test_paper_scheme_agrees(reference):
    assert_z(z_scores(probit_reference.paper_chain, reference, 10_000, 1_000))


def test_wrong_hyperparameter_is_detected(reference, monkeypatch):
    """Planted bug: the variances' rate is taken for twice what it is."""

    class Wrong(probit_marginal.Target):
        def _log_student(self, W):
            value, slope = super()._log_student(W / np.sqrt(2))
            return value, slope / np.sqrt(2)

    monkeypatch.setattr(probit_reference, "Target", Wrong)
    with pytest.raises(AssertionError):
        assert_z(z_scores(probit_reference.marginal_chain, reference, 1_500, 300))
