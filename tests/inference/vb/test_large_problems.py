"""What the probit's VB does on large problems, tried on small ones."""

import numpy as np
import pytest

from kernelzoo.inference.vb import multinomial_probit as vb
from kernelzoo.inference.vb import multinomial_probit_updates as updates
from kernelzoo.inference.vb.inner_steps import inner_steps
from probit_vb_fixture import RUN, model_of

pytestmark = pytest.mark.filterwarnings("ignore:VB did not converge")


def bounds(**settings):
    return vb.fit_multinomial_probit(model_of(30, 2, 2), RUN, **settings).elbo


def test_more_updates_with_the_same_covariances_reach_the_same_bound_sooner(monkeypatch):
    """Means of W from utilities of another iteration would lower the bound or end elsewhere."""
    settings = {"starts": 1, "remaining": 1e-4, "tolerance": 1e-9}
    (plain,) = bounds(**settings)
    monkeypatch.setattr(updates, "inner_steps", lambda *_: 5)
    (more,) = bounds(**settings)
    assert (np.diff(more) > -1e-9).all()
    assert abs(more[-1] - plain[-1]) < 1e-3
    assert more[9] > plain[9] + 0.01
    assert len(more) < len(plain)


def test_printed_equations_are_left_alone(monkeypatch):
    plain = bounds(weights="plug-in", max_iterations=20)
    monkeypatch.setattr(updates, "inner_steps", lambda *_: 5)
    monkeypatch.setattr(vb, "LARGE", 0.0)
    np.testing.assert_array_equal(bounds(weights="plug-in", max_iterations=20), plain)


def test_small_problems_have_none():
    assert inner_steps(2, 300, 300, 10) == 0
    assert inner_steps(2, 1000, 1000, 10) >= 5
    # The covariances are kept: not more than a gigabyte of them.
    assert inner_steps(2, 4000, 4000, 10) == 0


def test_starts_compete_and_the_same_one_wins(monkeypatch):
    all_of_them = bounds()
    monkeypatch.setattr(vb, "LARGE", 0.0)
    asked_for = bounds(starts=3)
    assert [len(bound) for bound in asked_for] == [len(bound) for bound in all_of_them]
    competing = bounds()
    assert sorted(len(bound) for bound in competing)[:2] == [10, 20]
    best = int(np.argmax([bound[-1] for bound in competing]))
    np.testing.assert_array_equal(competing[best], all_of_them[best])
    assert competing[best][-1] > max(bound[-1] for bound in all_of_them) - 0.02
