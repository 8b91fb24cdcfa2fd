"""Every public function takes a seed in the same forms."""

import inspect

import numpy as np
import pytest
import xarray as xr

import kernelzoo as kz

X = np.random.default_rng(0).normal(size=(12, 2))
VISIBLE = np.array([[1, 1]] * 4 + [[0, 1]] * 3, dtype=bool)
DISTANCES = ((X[:7, None] - X[:7]) ** 2).sum(axis=-1)
GAPS = np.where(VISIBLE[:, :1] & VISIBLE[:, 0], np.exp(-DISTANCES), np.nan)
MANY = np.random.default_rng(1).normal(size=(30, 6))
DATA = kz.datasets.load("iris")
QUICK = {"draws": 3, "random_seed": 1, "progressbar": False}
REGRESSION = kz.CompositeKernelRegression.example()
REGRESSED = kz.fit(REGRESSION, "vb", **QUICK)
# Known weights are fitted sooner than learned ones.
PROBIT = kz.MultinomialProbit.example().redeclared(combination="fixed")
NEW = REGRESSION["K"].get_value()

#: Functions from a seed to an array that depends on it.
SEEDED = {
    "fit": lambda seed: kz.fit(PROBIT, "vb", draws=3, random_seed=seed, progressbar=False)[
        "posterior"
    ]["W"].to_numpy(),
    "calibrate": lambda seed: kz.calibrate(
        kz.WishartCompletion.example(),
        "exact",
        **{"replicates": 20, "draws": 2, "var_names": ["B"]},
        random_seed=seed,
        progressbar=False,
    )["prior_sbc"]["B"].to_numpy(),
    "missing_entries": lambda seed: np.array(
        kz.completion.missing_entries(
            {"a": np.eye(7), "b": np.eye(7)}, VISIBLE, number=4, random_seed=seed
        )["a"]
    ),
    "complete_kernels": lambda seed: (
        kz.completion.complete_kernels(
            {"a": GAPS, "b": np.exp(-DISTANCES / 9)},
            **{"draws": 1, "thin": 1, "tune": 1, "chains": 1, "cores": 1},
            random_seed=seed,
            progressbar=False,
        ).draws
    ),
    "select": lambda seed: kz.select(
        PROBIT, scales=[1.0], random_seed=seed, progressbar=False
    ).log_scores.to_numpy(),
    "loo_kfold": lambda seed: kz.scores.loo_kfold(
        PROBIT, k=2, draws=2, random_seed=seed, progressbar=False
    ).elpd_i.to_numpy(),
    "split": lambda seed: DATA.split(seed=seed).X_test.index.to_numpy(),
    "folds": lambda seed: next(DATA.folds(3, seed=seed)).X_test.index.to_numpy(),
    "twonorm": lambda seed: kz.datasets.twonorm(10, seed).X.to_numpy(),
    "neal_three_class": lambda seed: kz.datasets.neal_three_class(10, seed).X.to_numpy(),
    "cohort": lambda seed: kz.datasets.cohort(5, seed).X["clinical"].to_numpy(),
    "landmarks": lambda seed: kz.gaussian(1.0).landmarks(4, seed=seed)(X).to_numpy(),
    "extend": lambda seed: kz.extend(
        REGRESSION, REGRESSED, "posterior_predictive", random_seed=seed, progressbar=False
    )["posterior_predictive"]["t"].to_numpy(),
    "predict": lambda seed: kz.predict(
        REGRESSION, REGRESSED, NEW, keep_draws=True, random_seed=seed
    )["t"].to_numpy(),
    **{
        f"{model.__name__}.example": lambda seed, model=model: np.concatenate(
            [data.get_value().ravel() for data in model.example(seed).data_vars]
        )
        for model in kz.MODELS
    },
}
each = pytest.mark.parametrize("seeded", [pytest.param(f, id=name) for name, f in SEEDED.items()])


@each
def test_an_integer_and_a_seed_sequence_repeat(seeded):
    known = seeded(3)
    np.testing.assert_array_equal(seeded(np.int64(3)), known)
    one, again = (seeded(np.random.SeedSequence(3)) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(known, seeded(4))


@each
def test_a_generator_advances(seeded):
    rng = np.random.default_rng(3)
    first, second = seeded(rng), seeded(rng)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, seeded(np.random.default_rng(3)))


@each
def test_without_a_seed_each_call_draws_one(seeded):
    assert not np.array_equal(seeded(None), seeded(None))


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, [1, 2]])
@each
def test_other_seeds_are_refused(seeded, seed):
    with pytest.raises(ValueError, match=r"seed' argument of .* must be an integer of 0 or"):
        seeded(seed)


def test_the_integer_used_is_recorded_and_repeats_the_result():
    model, options = PROBIT, {"draws": 3, "progressbar": False}
    for seed in (None, 5, np.random.SeedSequence(5), np.random.default_rng(5)):
        result = kz.fit(model, "vb", random_seed=seed, **options)
        used = result.attrs["random_seed"]
        assert type(used) is int
        again = kz.fit(model, "vb", random_seed=used, **options)
        np.testing.assert_array_equal(again["posterior"]["W"], result["posterior"]["W"])
    assert kz.fit(model, "vb", random_seed=5, **options).attrs["random_seed"] == 5


@pytest.mark.parametrize("seed", [2**32, 2**64, 2**127 + 1])
def test_a_large_integer_repeats_and_fits_into_files(seed, tmp_path):
    """PyMC's ADVI takes 32 bits, and netCDF 64."""
    model, options = kz.WishartCompletion.example(), {"draws": 3, "progressbar": False}
    result = kz.fit(model, "exact", random_seed=seed, **options)
    result.to_netcdf(tmp_path / "result.nc")
    used = result.attrs["random_seed"]
    assert used < 2**32
    for same in (seed, used):
        again = kz.fit(model, "exact", random_seed=same, **options)
        xr.testing.assert_equal(again["posterior"].to_dataset(), result["posterior"].to_dataset())
    other = kz.fit(model, "exact", random_seed=seed + 1, **options)
    assert not other["posterior"].to_dataset().equals(result["posterior"].to_dataset())


def test_every_public_function_with_a_seed_is_tried():
    spaces = [kz, kz.completion, kz.datasets, kz.scores, kz.plots, kz.kernels, kz.kernels.Kernels]
    spaces += [*kz.MODELS, kz.datasets.Dataset]
    for space in spaces:
        for name, function in inspect.getmembers(space, inspect.isroutine):
            if name.startswith("_") or not function.__module__.startswith("kernelzoo"):
                continue
            named = set(inspect.signature(function).parameters)
            if {"seed", "random_seed", "random_state"} & named:
                assert {name, f"{space.__name__}.{name}"} & SEEDED.keys()
