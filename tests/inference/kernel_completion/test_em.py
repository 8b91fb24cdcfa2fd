"""EM in spectral form against the printed iterations and the declaration's log density."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from kernelzoo.custom_steps.block import ValueMap
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.fit import fit
from kernelzoo.inference.kernel_completion.wishart import completion_by_em
from kernelzoo.inference.paper_engines import EM
from kernelzoo.models.wishart_completion import WishartCompletion
from kernelzoo.numerics.wishart import Spectrum

RUN = Run(progressbar=False)


def model_of(eta=12.5, r=10.5):
    small = WishartCompletion.example()
    return WishartCompletion(small.theta, small.K11_values, r=r, eta=eta)


def printed_iterations(model, C, iterations):
    """Parameter matrices C = Sigma^-1 by eqs (5)-(6), literally."""
    theta, K11, r, eta = model.theta, model.K11_values, model.r, model.eta
    n1 = model.n_train
    c = r + eta - len(theta) - 1
    inverse = np.linalg.inv(K11 + theta[:n1, :n1])
    for _ in range(iterations):
        C22_inverse = np.linalg.inv(C[n1:, n1:])
        K22_1 = (r - n1) * C22_inverse
        K21 = -C22_inverse @ C[n1:, :n1] @ K11
        shifted = K21 + theta[n1:, :n1]
        new = r / (r - n1) * K22_1 + theta[n1:, n1:] + K21 @ np.linalg.solve(K11, K21.T)
        new = (new - shifted @ inverse @ shifted.T) / c
        C22 = np.linalg.inv(new)
        C21 = -C22 @ shifted @ inverse
        C = np.block([[c * inverse + C21.T @ new @ C21, C21.T], [C21, C22]])
    return C


@pytest.mark.parametrize("eta", [12.5, 6.0, 5.2], ids=["limit", "linear growth", "exponential"])
@pytest.mark.parametrize("iterations", [1, 2, 9])
def test_iterates_are_the_printed_ones(eta, iterations):
    model = model_of(eta)
    C = printed_iterations(model, eta * np.linalg.inv(model.theta), iterations)
    answer = completion_by_em(model, RUN, max_iterations=iterations)
    Sigma = np.linalg.inv(C)
    n1, K11 = model.n_train, model.K11_values
    B = np.linalg.solve(Sigma[:n1, :n1], Sigma[:n1, n1:]).T
    S = np.linalg.inv(C[n1:, n1:])
    exact = {
        "Sigma11": Sigma[:n1, :n1],
        "Sigma22_1": S,
        "B": B,
        "K21": B @ K11,
        "K22_1": (model.r - n1) * S,
        "K22": (model.r - n1) * S + B @ K11 @ B.T,
    }
    assert exact.keys() == answer.values.keys()
    for name, value in exact.items():
        np.testing.assert_allclose(answer.values[name], value, rtol=1e-9, atol=1e-11)
    prior_of_C = stats.wishart(eta, np.linalg.inv(model.theta))
    objective = stats.wishart(model.r, Sigma[:n1, :n1]).logpdf(K11) + prior_of_C.logpdf(C)
    np.testing.assert_allclose(answer.climbs[0][-1], objective, rtol=1e-9)
    assert len(answer.climbs[0]) == iterations


@pytest.mark.parametrize("eta", [12.5, 6.0])
def test_objective_never_falls(eta):
    objective = completion_by_em(model_of(eta), RUN, max_iterations=50).climbs[0]
    assert (np.diff(objective) >= -1e-10).all()


def test_declaration_is_stationary_at_the_limit():
    """With K21 and K22.1 integrated out, and Sigma's density taken over Sigma^-1, as EM does."""
    model = model_of()
    answer = completion_by_em(model, RUN, max_iterations="limit")
    assert answer.converged == "yes"
    names = ("Sigma11", "Sigma22_1", "B")
    rvs = [model[name] for name in names]
    n, n2 = len(model.theta), model.n_test
    # Sigma's density is that of its blocks over |Sigma11|^n2; that of Sigma^-1 has |Sigma|^(n+1)
    # more.
    density = model.logp(vars=[*rvs, model["K11"]], jacobian=False)
    values = [model.rvs_to_values[rv] for rv in rvs]
    log_dets = []
    for rv, value in zip(rvs[:2], values[:2], strict=True):
        matrix = model.rvs_to_transforms[rv].backward(value)
        log_dets.append(pt.linalg.slogdet(matrix)[1])
    density += (n + 1) * sum(log_dets) - n2 * log_dets[0]
    gradient = pytensor.function(values, pt.grad(density, values), mode="FAST_COMPILE")
    point = ValueMap(model, rvs).unconstrain(answer.values)
    at_limit = gradient(*(point[value.name] for value in values))
    np.testing.assert_allclose(np.concatenate([g.ravel() for g in at_limit]), 0, atol=1e-7)
    elsewhere = completion_by_em(model, RUN, max_iterations=3)
    point = ValueMap(model, rvs).unconstrain(elsewhere.values)
    away = gradient(*(point[value.name] for value in values))
    assert max(np.abs(g).max() for g in away) > 1e-2


def test_limit_and_what_the_result_says_on_the_way():
    model = model_of()
    theta22_1 = Spectrum.of(model.theta, model.K11_values).theta22_1
    limit = completion_by_em(model, RUN, max_iterations="limit")
    scale = (model.r - model.n_train) / (model.eta - len(model.theta) - 1)
    np.testing.assert_allclose(limit.values["K22_1"], scale * theta22_1)
    far = completion_by_em(model, RUN, max_iterations=400)
    assert far.converged == "yes"
    np.testing.assert_allclose(far.climbs[0][-1], limit.climbs[0][-1])
    near = completion_by_em(model, RUN, max_iterations=4)
    assert near.converged == "no"
    assert "max_iterations='limit' computes the limit" in near.note


def test_linear_growth_in_the_papers_setting():
    model = model_of(eta=6.0)
    theta22_1 = Spectrum.of(model.theta, model.K11_values).theta22_1
    at = {t: completion_by_em(model, RUN, max_iterations=t) for t in (100, 101, 1_000_000)}
    step = at[101].values["K22_1"] - at[100].values["K22_1"]
    np.testing.assert_allclose(step, (model.r - 3) / model.r * theta22_1, rtol=1e-9)
    grown = at[1_000_000].values["K22_1"] - at[100].values["K22_1"]
    np.testing.assert_allclose(grown, (1_000_000 - 100) * step, rtol=1e-9)
    assert at[100].converged == "no fixed point"
    assert "grows linearly" in at[100].note
    assert "Stopped after 100 iterations" in at[100].note
    np.testing.assert_allclose(at[100].values["K21"], at[101].values["K21"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iterations": 0}, "'max_iterations' argument"),
        ({"max_iterations": "limit"}, "grows linearly"),
        ({"tolerance": 0.0}, "'tolerance' argument"),
        ({"start": "mean"}, "EM on WishartCompletion does not take 'start', a setting for Mutual"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        fit(model_of(eta=6.0), EM(**settings), progressbar=False)


def test_models_without_a_mode_are_declined():
    model = WishartCompletion(np.array([[1.0, 0.2], [0.2, 1.0]]), [[1.0]], r=1.2, eta=1.3)
    assert "r + eta > n + 1" in EM().why_not(model)
    assert EM().why_not(model_of()) is None
