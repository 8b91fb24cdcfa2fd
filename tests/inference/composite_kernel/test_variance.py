"""Variance explained by kernels: the numbers by hand, and the figures that show them."""

import numpy as np
import pytest
import xarray as xr
from xarray import DataTree

import kernelzoo as kz
from kernelzoo.inference import new_objects

KERNELS, OUTPUTS = ["u", "v"], ["a", "b", "c"]
STACK = np.random.default_rng(0).normal(size=(2, 7, 4))


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
    monkeypatch.setattr(new_objects, "BLOCK_NUMBERS", block)
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


def test_draws_that_are_no_numbers_are_refused_by_name():
    tree = result()
    tree["posterior"]["gamma"].values[0, 0] = np.nan
    with pytest.raises(ValueError, match="finite draws of gamma"):
        kz.scores.variance_explained(tree)


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
