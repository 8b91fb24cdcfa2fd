"""Variance explained by kernels: the numbers by hand, and the figures that show them."""

import arviz as az
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference.engine import predict as predict_module

KERNELS, OUTPUTS = ["u", "v"], ["a", "b", "c"]
STACK = np.random.default_rng(0).normal(size=(2, 7, 4))


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def result(outputs=True, own_weights=False, own_noise=True, fixed=False, draws=(2, 6)):
    """Made-up draws of a regression with a bias."""
    rng = np.random.default_rng(1)
    of = ("output",) if outputs else ()
    shape = (3,) if outputs else ()
    own = of if own_weights else ()
    posterior = xr.Dataset(
        {
            "alpha": (("chain", "draw", *of, "function"), rng.normal(size=(*draws, *shape, 5))),
            "beta": (
                ("chain", "draw", *own, "kernel"),
                rng.dirichlet([1, 2], size=(*draws, *([3] if own_weights else []))),
            ),
            "gamma": (
                ("chain", "draw", *(of if own_noise else ())),
                rng.gamma(2.0, size=(*draws, *(shape if own_noise else ()))),
            ),
        },
        coords={"chain": range(draws[0]), "draw": range(draws[1]), "kernel": KERNELS}
        | ({"output": OUTPUTS} if outputs else {}),
    )
    data = xr.Dataset({"K": (("kernel", "obs", "basis"), STACK)}, coords={"kernel": KERNELS})
    if fixed:
        posterior, data["beta"] = posterior.drop_vars("beta"), ("kernel", np.array([0.3, 0.9]))
    tree = DataTree.from_dict({"posterior": posterior, "constant_data": data})
    tree.attrs.update(engine="Gibbs", family="CompositeKernelRegression")
    return tree


CASES = [
    {},
    {"own_noise": False},
    {"own_weights": True},
    {"fixed": True},
    {"outputs": False, "own_noise": False},
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block", [1, 8_000_000], ids=["blocks of one draw", "one block"])
def test_parts_are_covariances_with_the_response(case, block, monkeypatch):
    monkeypatch.setattr(predict_module, "BLOCK", block)
    tree = result(**case)
    explained = kz.scores.variance_explained(tree)
    posterior = tree["posterior"].to_dataset()
    for at in np.ndindex(2, 6):
        draw = posterior.isel(chain=at[0], draw=at[1])
        for output in OUTPUTS if "output" in posterior.dims else [None]:
            one = draw if output is None else draw.sel(output=output)
            beta = one["beta"].values if "beta" in one else np.array([0.3, 0.9])
            f = np.array(
                [b * k @ one["alpha"].values[1:] for b, k in zip(beta, STACK, strict=True)]
            )
            total = f.sum(axis=0).var() + 1 / float(one["gamma"])
            parts = [np.cov(each, f.sum(axis=0), ddof=0)[0, 1] / total for each in f]
            found = explained.isel(chain=at[0], draw=at[1])
            found = found if output is None else found.sel(output=output)
            np.testing.assert_allclose(found["explained"].sel(kernel=KERNELS), parts)
            np.testing.assert_allclose(found["total"], f.sum(axis=0).var() / total)
    assert explained["explained"].dims[-1] == "kernel"
    assert bool(((explained["total"] >= 0) & (explained["total"] <= 1)).all())


def test_a_kernel_that_makes_the_targets_explains_them():
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=(2, 30, 2))
    kernels = {"x": x @ x.T, "z": z @ z.T}
    targets = np.stack([x[:, 0], z[:, 1], rng.normal(size=30)], axis=1)
    model = kz.CompositeKernelRegression(kernels, targets + 0.05 * rng.normal(size=(30, 3)))
    gibbs = kz.fit(model, "gibbs", draws=200, tune=100, chains=1, random_seed=1, progressbar=False)
    means = kz.scores.variance_explained(gibbs)["explained"].mean(("chain", "draw"))
    assert float(means.sel(output=0, kernel="x")) > 0.8
    assert float(means.sel(output=1, kernel="z")) > 0.8
    assert float(means.sel(output=2).sum()) < 0.5


def test_what_has_no_regression_weights_is_refused():
    tree = result()
    tree["posterior"] = tree["posterior"].to_dataset().drop_vars("alpha")
    with pytest.raises(ValueError, match=r"draws of alpha .* Got none of alpha"):
        kz.scores.variance_explained(tree)
    tree.attrs["family"] = "MultinomialProbit"
    with pytest.raises(ValueError, match="fit on CompositeKernelRegression"):
        kz.scores.variance_explained(tree)
    with pytest.raises(ValueError, match="a Dataset of no model"):
        kz.scores.variance_explained(xr.Dataset())


def test_a_panel_shows_each_output():
    tree = result()
    chosen = {"stats.ci_prob": 0.9, "stats.ci_kind": "eti", "stats.point_estimate": "median"}
    with az.rc_context(chosen):
        pc = kz.plots.plot_variance_explained({"one": tree, "other": tree})
    explained = kz.scores.variance_explained(tree)
    for row, output in enumerate(OUTPUTS):
        axes = pc.iget_target(row, 0)
        assert [label.get_text() for label in axes.get_yticklabels()] == [*KERNELS, "all kernels"]
        assert axes.get_title(loc="left") == f"{output}, by kernel"
        own = explained.sel(output=output)
        medians = [*own["explained"].median(("chain", "draw")), own["total"].median()]
        points = pc.viz["point_estimate"][output].sel(model="one").item().get_offsets()
        np.testing.assert_allclose(points[:, 0], medians)
        lines = pc.viz["twig"][output].sel(model="one").item().get_segments()
        np.testing.assert_allclose(lines[2][:, 0], np.quantile(own["total"], [0.05, 0.95]))


def test_a_regression_on_one_output_has_one_panel():
    pc = kz.plots.plot_variance_explained(result(outputs=False, own_noise=False))
    assert list(pc.data.data_vars) == ["targets"]


def test_results_of_other_outputs_are_not_drawn_together():
    other = result(outputs=False, own_noise=False)
    with pytest.raises(ValueError, match="of the same kernels and outputs"):
        kz.plots.plot_variance_explained({"one": result(), "other": other})


def test_weights_of_each_output_are_drawn():
    tree = result(own_weights=True)
    labels = [f"{output}, {kernel}" for output in OUTPUTS for kernel in KERNELS]
    means = tree["posterior"]["beta"].mean(("chain", "draw")).values.ravel()
    with az.rc_context({"stats.point_estimate": "mean"}):
        pc = kz.plots.plot_weights(tree)
    assert [each.get_text() for each in pc.iget_target(0, 0).get_yticklabels()] == labels
    np.testing.assert_allclose(pc.viz["point_estimate"]["beta"].item().get_offsets()[:, 0], means)

    found = kz.inclusion(tree, threshold=0.4)
    assert found["probability"].dims == ("output", "kernel")
    np.testing.assert_allclose(
        found["probability"], (tree["posterior"]["beta"] > 0.4).mean(("chain", "draw"))
    )
