"""Completed kernels from any result: means, deviations, intervals of chosen entries."""

import re

import arviz as az
import numpy as np
import pytest
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference.engine.convergence import convergence_of_chains
from kernelzoo.inference.engine.fit import fit
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from mutual_fixture import random_kernels

QUIET = {"random_seed": 1, "progressbar": False}
VISIBLE = np.array([[1, 1], [1, 1], [1, 1], [1, 0]], dtype=bool)
SEEN = np.ix_([0, 1, 2], [0, 1, 2])
KERNELS = random_kernels(4, 2, 5)[0]


def model_of(**options):
    kernels = dict(zip("ab", KERNELS, strict=True))
    return MutualKernelCompletion(kernels, VISIBLE, lam=1.0, nu=9.0, **options)


@pytest.fixture(scope="module")
def drawn():
    model = model_of(entries={"b": [(3, 0), (3, 3)]})
    kept = ["M", "Q_b", "entries_b"]
    return model, fit(model, "exact", draws=400, var_names=kept, **QUIET)


def test_moments_and_intervals(drawn):
    model, result = drawn
    completed = kz.predict(model, result, ci_prob=0.8, keep_draws=True)
    b = completed.sel(kernel="b")
    np.testing.assert_allclose(completed["kernel_mean"].sel(kernel="a"), KERNELS[0])
    np.testing.assert_allclose(b["kernel_mean"].values[SEEN], KERNELS[1][SEEN])
    np.testing.assert_allclose(b["kernel_sd"].values[SEEN], 0, atol=1e-9)
    assert (completed["kernel_sd"].sel(kernel="a") == 0).all()
    assert (b["kernel_sd"].sel(object=3) > 0).all()
    draws = completed["draws_b"].stack(sample=("chain", "draw"))
    np.testing.assert_allclose(draws.mean("sample"), completed["mean_b"])
    np.testing.assert_allclose(
        completed["mean_b"], [b["kernel_mean"][3, 0], b["kernel_mean"][3, 3]]
    )
    inside = (draws > completed["lower_b"]) & (draws < completed["upper_b"])
    np.testing.assert_allclose(inside.mean("sample"), 0.8, atol=0.01)
    assert list(completed["entry_b"].values) == ["3|0", "3|3"]
    assert completed.attrs["ci_prob"] == 0.8
    assert "draws_b" not in kz.predict(model, result)


def test_a_point_has_no_deviations():
    model = model_of()
    result = fit(model, "em", **QUIET)
    completed = kz.predict(model, result)
    b = completed.sel(kernel="b")
    np.testing.assert_allclose(b["kernel_mean"], result["point"]["Q_b"])
    np.testing.assert_allclose(completed["model_matrix"], result["point"]["M"])
    assert np.isnan(b["kernel_sd"].sel(object=3)).all()
    assert (b["kernel_sd"].values[SEEN] == 0).all()


def test_draws_serve_where_there_are_no_moments(drawn):
    model, result = drawn
    bare = result.copy()
    del bare["moments"]
    completed = kz.predict(model, bare).sel(kernel="b")
    draws = result["posterior"]["Q_b"].values[0]
    np.testing.assert_allclose(completed["kernel_mean"], draws.mean(axis=0))
    np.testing.assert_allclose(completed["kernel_sd"], draws.std(axis=0, ddof=1), atol=1e-10)
    del bare["posterior"]
    with pytest.raises(ValueError, match="moments or draws of Q_b"):
        kz.predict(model, bare)


def test_results_of_other_data_are_told_apart(drawn):
    """Visible entries are the model's, hidden ones the result's: they must be of one fit."""
    _, result = drawn
    other = MutualKernelCompletion(dict(zip("ab", KERNELS[::-1], strict=True)), VISIBLE, nu=9.0)
    with pytest.raises(ValueError, match=r"'result' argument .* other values of Qvv_a, .*units"):
        kz.predict(other, result)


def test_what_cannot_be_asked(drawn):
    model, result = drawn
    with pytest.raises(ValueError, match="it contains its objects"):
        kz.predict(model, result, KERNELS)
    for level in (1.0, [0.5, 0.9]):
        with pytest.raises(ValueError, match="'ci_prob' argument"):
            kz.predict(model, result, ci_prob=level)


def test_a_chain_is_judged_by_its_slowest_entry():
    """Log det M and traces alone would call these chains converged."""
    model = MutualKernelCompletion(*random_kernels(6, 2, 9), nu=9.0)
    settled = np.random.default_rng(0).normal(size=(2, 500, 2))
    stuck = settled[..., :1] + np.array([-1, 1])[:, None, None]
    posterior = {"log_det_M": settled[..., 0], "missing_Q": settled, "unseen_M": stuck}
    dims = {"missing_Q": ["missing_entry"], "unseen_M": ["unseen_pair"]}
    coords = {"missing_entry": ["a: 0|1", "a: 2|3"], "unseen_pair": ["4|5"]}
    result = az.from_dict({"posterior": posterior}, dims=dims, coords=coords)
    assert convergence_of_chains(result, model, 500) == "no"
    assert re.search(r"R-hat is .* at unseen_M\[4\|5\]", result.attrs["note"])


def test_predictions_say_what_the_slowest_entry_is_worth(drawn):
    model, exact = drawn
    chain = exact.copy()
    assert "slowest" not in kz.predict(model, exact).attrs
    chain.attrs = {"kind": "mcmc"}
    chain["posterior"]["missing_mass"] = chain["posterior"]["entries_b"].isel(entry_b=0)  # a user's
    assert kz.predict(model, chain).attrs["least_effective_draws"] > 100
    posterior = exact["posterior"].to_dataset()
    walk = posterior["entries_b"].copy()
    walk[..., 1] = walk[..., 1].cumsum("draw")
    quick = walk.rename(entry_b="unseen_pair").copy(data=posterior["entries_b"])
    chain["posterior"] = DataTree(posterior.assign(entries_b=walk, unseen_M=quick))
    particles = chain.copy()
    particles.attrs = {"kind": "mcmc", "independent": 0}
    assert "slowest" not in kz.predict(model, particles).attrs
    with pytest.warns(UserWarning, match=r"entries_b\[3\|3\], .* effective draws") as caught:
        completed = kz.predict(model, chain)
    assert {warning.filename for warning in caught} == {__file__}
    assert completed.attrs["least_effective_draws"] < 20
    assert completed.attrs["slowest"] == "entries_b[3|3]"
