"""What the probit's VB does on large problems, tried on small ones."""

import numpy as np
import pytest

from kernelzoo.inference.multinomial_probit import vb as updates
from kernelzoo.inference.multinomial_probit import vb as vb
from kernelzoo.inference.multinomial_probit.vb import ascend, inner_steps
from kernelzoo.models.combinations.products import Product
from kernelzoo.models.combinations.sums import Binary, FixedWeights, Mean
from probit_vb_fixture import RUN, model_of

pytestmark = pytest.mark.filterwarnings("ignore:VB did not converge")


@pytest.mark.parametrize("combination", [Mean(), FixedWeights(), Binary()])
def test_more_updates_with_the_same_covariances_reach_the_same_bound_sooner(
    combination, monkeypatch
):
    """A factor that is not updated, or with moments of another iteration, ends elsewhere."""
    monkeypatch.setattr(vb, "COORDINATES", None)
    model = model_of(7, 2, 3, n_obs=60, combination=combination)
    settings = {"starts": 1, "remaining": 1e-4, "tolerance": 1e-9}
    (plain,) = vb.fit_multinomial_probit(model, RUN, **settings).elbo
    monkeypatch.setattr(updates, "inner_steps", lambda *_: 5)
    (more,) = vb.fit_multinomial_probit(model, RUN, **settings).elbo
    assert (np.diff(more) > -1e-8).all()
    assert -1e-3 < more[-1] - plain[-1] < 0.05
    assert more[4] > plain[4]
    assert len(more) < len(plain) / 2


def test_a_step_ascends_and_arrives_where_the_covariance_is_right():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6))
    gram, precision = root @ root.T, rng.gamma(2.0, size=(2, 6))
    mean, target = rng.normal(size=(2, 2, 6))
    right = [np.asfortranarray(np.linalg.inv(gram + np.diag(d))) for d in precision]
    top = np.array([inverse @ t for inverse, t in zip(right, target, strict=True)])

    def height(m):
        return np.sum(m * target) - 0.5 * np.sum(m * (m @ gram + precision * m))

    given = {"gram": gram, "precision": precision, "target": target}
    np.testing.assert_allclose(ascend(mean, right, **given), top, rtol=1e-10)
    # A covariance that is far too large would overshoot.
    wrong = [np.asfortranarray(np.eye(6) * 50)] * 2
    stepped = ascend(mean, wrong, **given)
    assert height(mean) < height(stepped) < height(top)
    np.testing.assert_array_equal(ascend(np.zeros((2, 6)), right, **given | {"target": 0.0}), 0.0)


def test_exponents_are_left_alone(monkeypatch):
    product = model_of(7, 2, 3, n_obs=20, combination=Product())

    def ascended():
        return vb.fit_multinomial_probit(product, RUN, max_iterations=5, starts=1).elbo[0]

    plain = ascended()
    monkeypatch.setattr(updates, "inner_steps", lambda *_: 5)
    np.testing.assert_array_equal(ascended(), plain)


def test_small_problems_have_none():
    assert inner_steps(2, 200, 200, 10) == 0
    assert inner_steps(2, 1000, 1000, 10) >= 5
    # The columns make the covariances expensive, the objects the updates.
    assert inner_steps(2, 200, 500, 10) > inner_steps(2, 500, 500, 10) > 0
    assert inner_steps(2, 500, 200, 10) == 0
    # The covariances are kept: not more than a gigabyte of them.
    assert inner_steps(2, 1000, 4000, 10) == 0
    assert inner_steps(2, 4000, 1000, 10) > 0
