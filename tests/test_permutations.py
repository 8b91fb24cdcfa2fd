"""Labelled input goes by its labels in every public function that takes it.

All arguments in one other order give the same answer. One argument alone in another order gives the
same answer or an error that names it, never another answer.
"""

from collections.abc import Callable, Mapping
from functools import cache, singledispatch
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.collections import QuadMesh
from numpy.random import Generator
from xarray import DataArray, Dataset

import kernelzoo as kz

QUIET = {"progressbar": False, "random_seed": 1}
N = 8
RNG = np.random.default_rng(7)
FEATURES, NEW = RNG.normal(size=(N, 3)), RNG.normal(size=(4, 3))
KERNELS = kz.gaussian(0.3) | kz.linear()
#: Kinds of ids. Numbers from 0 might be positions: alone in another order they are refused.
IDS = {
    "names": [f"p{i}" for i in range(N)],
    "counts": list(range(N)),
}
NEW_IDS = ["q0", "q1", "q2", "q3"]


# --- other orders ----------------------------------------------------------------------------


@singledispatch
def turned(value: Any, rng: Generator) -> Any:
    """Value with its rows, columns and keys in other orders."""
    raise NotImplementedError(type(value))


@turned.register
def _(value: pd.Series, rng: Generator) -> pd.Series:
    return value.iloc[rng.permutation(len(value))]


@turned.register
def _(value: pd.DataFrame, rng: Generator) -> pd.DataFrame:
    rows, columns = (rng.permutation(n) for n in value.shape)
    return value.iloc[rows, columns]


@turned.register
def _(value: DataArray, rng: Generator) -> DataArray:
    return value.isel({dim: rng.permutation(n) for dim, n in value.sizes.items()})


@turned.register
def _(value: Dataset, rng: Generator) -> Dataset:
    return value.isel({dim: rng.permutation(n) for dim, n in value.sizes.items()})


@turned.register
def _(value: dict, rng: Generator) -> dict:
    each = {name: turned(one, rng) for name, one in value.items()}
    return {name: each[name] for name in rng.permutation(list(each)).tolist()}


@singledispatch
def in_order(value: Any, place: Mapping) -> Any:
    """Value with its objects in the order of `place`, on every axis that has objects."""
    raise NotImplementedError(type(value))


@in_order.register(pd.Series)
@in_order.register(pd.DataFrame)
def _(value: Any, place: Mapping) -> Any:
    for axis, labels in enumerate(value.axes):
        if set(labels) <= place.keys():
            value = value.reindex(sorted(labels, key=place.__getitem__), axis=axis)
    return value


@in_order.register(DataArray)
@in_order.register(Dataset)
def _(value: Any, place: Mapping) -> Any:
    for dim, labels in value.indexes.items():
        if set(labels) <= place.keys():
            value = value.sel({dim: sorted(labels, key=place.__getitem__)})
    return value


@in_order.register
def _(value: dict, place: Mapping) -> dict:
    return {name: in_order(one, place) for name, one in value.items()}


# --- answers ---------------------------------------------------------------------------------


@singledispatch
def canonical(answer: Any) -> Any:
    """Answer with its labels sorted."""
    return answer


@canonical.register(DataArray)
@canonical.register(Dataset)
def _(answer: Any) -> Any:
    return answer.sortby([dim for dim in answer.dims if dim in answer.indexes])


@canonical.register
def _(answer: dict) -> dict:
    return {name: canonical(one) for name, one in sorted(answer.items())}


@canonical.register
def _(answer: pd.DataFrame) -> pd.DataFrame:
    return answer.sort_index()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, DataArray | Dataset):
        try:
            xr.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
        except AssertionError:
            return False
        return True
    if isinstance(one, pd.DataFrame):
        alike = one.index.equals(other.index) and one.columns.equals(other.columns)
        return alike and np.allclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True)
    return bool(np.allclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True))


def data_of(model: Any) -> dict:
    """Data of a model, by the labels of its dims."""
    arrays = {}
    for data in model.data_vars:
        dims = model.named_vars_to_dims.get(data.name, ())
        values = np.asarray(data.get_value())
        if "labels" in data.name:
            values = np.asarray(model.coords["class"])[values]
        coords = {dim: list(model.coords[dim]) for dim in dims}
        arrays[data.name] = canonical(DataArray(values, coords, dims))
    return arrays


def kernels_of(model: Any) -> dict:
    """Kernels of a completion model, whose data may be factors of them."""
    objects, train = (model.coords[dim] for dim in ("object", "train"))
    return {
        "theta": DataArray(model.theta, {"object": list(objects), "object_": list(objects)}),
        "K11": DataArray(model.K11_values, {"train": list(train), "train_": list(train)}),
    }


# --- cases -----------------------------------------------------------------------------------


class Case(NamedTuple):
    """A function of labelled arguments.

    Attributes
    ----------
    call : callable
    arguments : dict of str to callable of the ids
    """

    call: Callable[..., Any]
    arguments: dict[str, Callable[[list], Any]]


def frame(ids: list, values: np.ndarray = FEATURES) -> pd.DataFrame:
    return pd.DataFrame(values, ids, ["age", "mass", "size"])


def new_frame(ids: list) -> pd.DataFrame:
    return frame(NEW_IDS, NEW)


def labels(ids: list, classes: str = "abcabcab") -> pd.Series:
    return pd.Series(list(classes), ids)


def two_classes(ids: list) -> pd.Series:
    return labels(ids, "abbabaab")


def targets(ids: list) -> pd.Series:
    return pd.Series(FEATURES[:, 0], ids)


def truth(ids: list) -> pd.Series:
    return pd.Series(list("abca"), NEW_IDS)


def grams(ids: list) -> dict:
    stack = KERNELS(FEATURES).to_numpy() + 0.1 * np.eye(N)
    return {name: pd.DataFrame(one, ids, ids) for name, one in zip("gl", stack, strict=True)}


def gram(ids: list) -> pd.DataFrame:
    return grams(ids)["g"]


def cross(ids: list) -> dict:
    stack = KERNELS(NEW, FEATURES).to_numpy()
    return {name: pd.DataFrame(one, NEW_IDS, ids) for name, one in zip("gl", stack, strict=True)}


def train_block(ids: list) -> pd.DataFrame:
    chosen = [ids[i] for i in (4, 1, 2, 0, 5)]
    return gram(ids).loc[chosen, chosen] + 0.1 * np.eye(5)


def train_labels(ids: list) -> pd.Series:
    return pd.Series(list("ababa"), train_block(ids).index)


def lacking(ids: list) -> dict:
    """Kernels without some objects."""
    kernels = grams(ids)
    for name, absent in (("g", [1, 4]), ("l", [6])):
        gone = [ids[i] for i in absent]
        kernels[name].loc[gone] = np.nan
        kernels[name].loc[:, gone] = np.nan
    return kernels


def visible(ids: list) -> pd.DataFrame:
    return pd.DataFrame({name: ~np.isnan(np.diag(k)) for name, k in lacking(ids).items()}, ids)


@cache
def probit(ids: tuple) -> tuple:
    model = kz.MultinomialProbit(grams(list(ids)), labels(list(ids)))
    results = [kz.fit(model, "vb", draws=10, progressbar=False, random_seed=i) for i in (1, 2)]
    return model, *results


@cache
def regression(ids: tuple) -> tuple:
    model = kz.CompositeKernelRegression(grams(list(ids)), targets(list(ids)))
    return model, kz.fit(model, "vb", draws=10, **QUIET)


@cache
def completion(ids: tuple) -> tuple:
    model = kz.WishartCompletion(gram(list(ids)), train_block(list(ids)))
    return model, kz.fit(model, "exact", draws=10, **QUIET)


def predictions(ids: list) -> Dataset:
    """With labels for ids."""
    model, result, _ = probit(tuple(ids))
    return kz.predict(model, result, cross(ids))


def completed(ids: list) -> DataArray:
    return kz.completion.impute_kernels(lacking(ids))


def with_ids(fitted: Callable, call: Callable) -> Callable:
    """Call with what was fitted to the ids of `of`, which stays in its order."""
    return lambda of, **arguments: call(*fitted(tuple(of)), **arguments)


def moments_of(model: Any, engine: str, group: str = "moments") -> Dataset:
    result = kz.fit(model, engine, draws=5, **QUIET)
    return result[group].to_dataset()


def without_columns(ids: list) -> dict:
    """Rows of new objects, without the columns of the training objects that lack the kernel."""
    seen = visible(ids)
    return {name: rows.where(seen[name], axis="columns") for name, rows in cross(ids).items()}


def drawn(kernels: Any, targets: Any) -> tuple:
    """Model, and two draws that do not depend on the order of the objects: the MAP, and near it."""
    fixed = kz.combinations.FixedWeights({"g": 0.3, "l": 0.7})
    model = kz.CompositeKernelRegression(kernels, targets, combination=fixed)
    result = kz.fit(model, "map", **QUIET)
    point = result["posterior"].to_dataset()
    draws = xr.concat([point, point.assign(alpha=0.9 * point["alpha"])], "draw")
    order = list(model.coords["kernel"])
    weights = DataArray(
        [[[0.3, 0.7], [0.8, 0.2]]], {"kernel": ["g", "l"]}, ["chain", "draw", "kernel"]
    )
    draws["beta"] = weights.sel(kernel=order)
    result["posterior"] = xr.DataTree(draws.assign_coords(draw=[0, 1]))
    result.attrs["kind"] = "mcmc"
    return model, result


def drawn_kernels(kernels: Any, labels: Any) -> DataArray:
    """Sums of the blocks of classes, which the order of objects within a class does not change."""
    pictures = kz.plots.plot_kernels(kernels, labels)
    ends = labels.value_counts().sort_index().cumsum().to_numpy()[:-1]
    sums = [
        [part.sum() for row in np.split(values, ends) for part in np.split(row, ends, axis=1)]
        for values in (np.asarray(axes.images[0].get_array()) for axes in pictures)
    ]
    return DataArray(sums, {"kernel": [axes.get_title() for axes in pictures]}, ["kernel", "block"])


@cache
def plane(ids: tuple) -> tuple:
    model = kz.MultinomialProbit(KERNELS(frame(list(ids))[["age", "mass"]]), labels(list(ids)))
    return model, kz.fit(model, "vb", draws=5, **QUIET)


def regions(model: Any, result: Any, X: pd.DataFrame) -> dict:
    """Regions and the objects drawn; the features keep their order, which is that of the axes."""
    features = X[["age", "mass"]]
    axes = kz.plots.plot_decision_regions(model, result, KERNELS, features, resolution=5)
    objects = [each for each in axes.collections if not isinstance(each, QuadMesh)]
    points = {each.get_label(): np.sort(np.asarray(each.get_offsets()), axis=0) for each in objects}
    meshes = [each for each in axes.collections if isinstance(each, QuadMesh)]
    drawn = [np.ma.filled(np.ma.masked_invalid(mesh.get_array()), 0.0) for mesh in meshes]
    return {"probability": DataArray(np.stack(drawn)), **points}


CASES = {
    # Kernels.
    "kernels": Case(lambda X: KERNELS(X), {"X": frame}),
    "kernels of new objects": Case(
        lambda X, X_new: KERNELS(X_new, X), {"X": frame, "X_new": new_frame}
    ),
    "kernels of spaces": Case(
        lambda u, v: KERNELS({"u": u, "v": v}), {"u": frame, "v": lambda ids: frame(ids) ** 2}
    ),
    "kernels of spaces of new objects": Case(
        lambda X, X_new: KERNELS(X_new, X),
        {
            "X": lambda ids: {"u": frame(ids), "v": frame(ids) ** 2},
            "X_new": lambda ids: {"u": new_frame(ids), "v": new_frame(ids) ** 2},
        },
    ),
    "normalised kernels": Case(
        lambda X, X_new: KERNELS.normalize("trace")(X_new, X),
        {"X": frame, "X_new": new_frame},
    ),
    "median": Case(
        lambda X, X_new: kz.gaussian("median")(X_new, X), {"X": frame, "X_new": new_frame}
    ),
    "precomputed": Case(
        lambda K, K_new: kz.kernels.precomputed().normalize("trace")(K_new, K),
        {"K": gram, "K_new": lambda ids: cross(ids)["g"]},
    ),
    "as_stack": Case(kz.kernels.as_stack, {"kernels": grams}),
    "nearest_psd": Case(kz.kernels.nearest_psd, {"similarities": grams}),
    # Models.
    "MultinomialProbit": Case(
        lambda **given: data_of(kz.MultinomialProbit(**given)),
        {"kernels": grams, "labels": labels},
    ),
    "MultinomialProbit, fixed weights": Case(
        lambda kernels, labels, weights: data_of(
            kz.MultinomialProbit(kernels, labels, combination=kz.combinations.FixedWeights(weights))
        ),
        {
            "kernels": grams,
            "labels": labels,
            "weights": lambda ids: pd.Series([0.2, 0.8], list("gl")),
        },
    ),
    "CompositeKernelRegression": Case(
        lambda **given: data_of(kz.CompositeKernelRegression(**given)),
        {"kernels": grams, "targets": targets},
    ),
    "CompositeKernelClassification": Case(
        lambda **given: data_of(kz.CompositeKernelClassification(**given)),
        {"kernels": grams, "labels": two_classes},
    ),
    **{
        cls.__name__: Case(
            lambda cls=cls, **given: kernels_of(cls(**given)),
            {"theta": gram, "K11": train_block},
        )
        for cls in (kz.WishartCompletion, kz.DiagonalWishartCompletion)
    },
    "WishartCompletion, weights": Case(
        lambda **given: data_of(kz.WishartCompletion(**given)),
        {
            "theta": grams,
            "K11": train_block,
            "weights": lambda ids: pd.Series([0.2, 0.8], list("gl")),
        },
    ),
    "WishartKernelMixture": Case(
        lambda **given: data_of(kz.WishartKernelMixture(**given)),
        {"theta": grams, "K11": train_block},
    ),
    "MutualKernelCompletion": Case(
        lambda kernels: data_of(kz.MutualKernelCompletion(kernels)), {"kernels": lacking}
    ),
    "MutualKernelCompletion, mask": Case(
        lambda **given: data_of(kz.MutualKernelCompletion(**given)),
        {"kernels": grams, "visible": visible},
    ),
    # Engines.
    "fit, VB of MultinomialProbit": Case(
        lambda kernels, labels: moments_of(
            kz.MultinomialProbit(kernels, labels, combination="mean"), "vb", "variational"
        )[["W_mean"]],
        {"kernels": gram, "labels": labels},
    ),
    "fit, MAP of CompositeKernelRegression": Case(
        lambda kernels, targets: moments_of(
            kz.CompositeKernelRegression(kernels, targets, combination="fixed"), "map", "point"
        )[["gamma"]],
        {"kernels": grams, "targets": targets},
    ),
    "fit, Exact of WishartCompletion": Case(
        lambda **given: moments_of(kz.WishartCompletion(**given), "exact")[["K21_mean"]],
        {"theta": gram, "K11": train_block},
    ),
    "fit, EM of MutualKernelCompletion": Case(
        lambda kernels: moments_of(
            kz.MutualKernelCompletion(kernels), kz.EM(tolerance=1e-10), "point"
        )[["M", "Q_g", "Q_l"]],
        {"kernels": lacking},
    ),
    "log_evidence": Case(
        lambda **given: kz.log_evidence(kz.WishartCompletion(**given)),
        {"theta": gram, "K11": train_block},
    ),
    # Predictions and comparisons.
    "predict": Case(
        with_ids(probit, lambda model, vb, _, kernels_new: kz.predict(model, vb, kernels_new)),
        {"kernels_new": cross},
    ),
    "predict, regression": Case(
        with_ids(regression, lambda model, vb, kernels_new: kz.predict(model, vb, kernels_new)),
        {"kernels_new": cross},
    ),
    "predict, completion": Case(
        with_ids(completion, lambda model, exact, labels: kz.predict(model, exact, labels=labels)),
        {"labels": train_labels},
    ),
    "compare_engines": Case(
        with_ids(
            probit,
            lambda model, one, other, **given: kz.compare_engines(
                {"one": one, "other": other}, model=model, **given
            ).engines[["accuracy", "log_score", "brier"]],
        ),
        {"kernels_new": cross, "labels_new": truth},
    ),
    "combine_classifiers": Case(
        lambda one, other: kz.combine_classifiers([one, other]),
        {"one": predictions, "other": lambda ids: predictions(ids).isel(obs=[2, 1, 3, 0])},
    ),
    # Completion.
    "learn_weights": Case(
        lambda **given: kz.completion.learn_weights(objective="leave-one-out log score", **given),
        {"theta": grams, "K11": train_block, "labels": train_labels},
    ),
    "match_wishart": Case(lambda theta: kz.completion.match_wishart(theta)[0], {"theta": grams}),
    "impute_kernels": Case(kz.completion.impute_kernels, {"kernels": lacking}),
    "impute_kernels, mask": Case(
        kz.completion.impute_kernels, {"kernels": grams, "visible": visible}
    ),
    "missing_entries": Case(
        lambda kernels: {
            f"{name} {sorted(pair)}": 1
            for name, pairs in kz.completion.missing_entries(
                kernels, number=999, random_seed=1
            ).items()
            for pair in pairs
        },
        {"kernels": lacking},
    ),
    # Draws depend on the order, even with one seed: points are compared, which do not.
    "complete_kernels": Case(
        lambda kernels: (
            kz.completion.complete_kernels(
                kernels, engine="em", model={"lam": 0.5, "jitter": 0.1}, **QUIET
            ).mean
        ),
        {"kernels": lacking},
    ),
    "KernelCompleter": Case(
        lambda K, K_new: (
            kz.estimators.KernelCompleter(engine="em", jitter=0.1, random_state=1)
            .fit(K)
            .transform(K_new)
        ),
        {"K": lacking, "K_new": without_columns},
    ),
    "inclusion": Case(
        lambda kernels, targets: kz.inclusion(drawn(kernels, targets)[1], threshold=0.5)[
            ["probability"]
        ],
        {"kernels": grams, "targets": targets},
    ),
    "extend": Case(
        lambda kernels, targets: kz.extend(*drawn(kernels, targets), "log_likelihood", **QUIET)[
            "log_likelihood"
        ].to_dataset(),
        {"kernels": grams, "targets": targets},
    ),
    # Scores.
    "held_out": Case(kz.scores.held_out, {"predictions": predictions, "truth": truth}),
    "correlation_distance": Case(
        kz.scores.correlation_distance, {"completed": completed, "truth": grams}
    ),
    # Pictures.
    "plot_kernels": Case(drawn_kernels, {"kernels": grams, "labels": labels}),
    "plot_decision_regions": Case(with_ids(plane, regions), {"X": frame}),
    "plot_reliability": Case(
        lambda predictions, labels: DataArray(
            kz.plots.plot_reliability(predictions, labels).get_lines()[1].get_xydata()
        ),
        {"predictions": predictions, "labels": truth},
    ),
}
#: Cases whose first argument names the ids that something was fitted to.
FITTED = [name for name, case in CASES.items() if case.call.__qualname__.startswith("with_ids")]


def answer(name: str, ids: list, arguments: dict) -> Any:
    of = {"of": ids} if name in FITTED else {}
    try:
        return canonical(CASES[name].call(**of, **arguments))
    finally:
        plt.close("all")


@cache
def expected(name: str, kind: str) -> Any:
    case = CASES[name]
    return answer(name, IDS[kind], {key: make(IDS[kind]) for key, make in case.arguments.items()})


def attempt(name: str, kind: str, arguments: dict) -> Any:
    """Answer, or the error, which is allowed where counting ids might be positions."""
    try:
        return answer(name, IDS[kind], arguments)
    except ValueError as error:
        if kind != "counts":
            raise
        return str(error)


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("name", CASES)
def test_all_objects_in_another_order_give_the_same_answer(name, kind):
    """What was fitted stays in its order."""
    ids = IDS[kind]
    order = np.random.default_rng(0).permutation(N + len(NEW_IDS))
    place = dict(zip([*ids, *NEW_IDS], order.tolist(), strict=True))
    given = {key: in_order(make(ids), place) for key, make in CASES[name].arguments.items()}
    found = attempt(name, kind, given)
    if isinstance(found, str):
        assert name in FITTED
        assert "numbers 0 to" in found
    else:
        assert same(found, expected(name, kind))


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize(
    ("name", "alone"), [(name, alone) for name, case in CASES.items() for alone in case.arguments]
)
def test_one_argument_in_another_order_gives_the_same_answer_or_an_error(name, alone, kind):
    ids = IDS[kind]
    given = {key: make(ids) for key, make in CASES[name].arguments.items()}
    given[alone] = turned(given[alone], np.random.default_rng(1))
    found = attempt(name, kind, given)
    if isinstance(found, str):
        assert "argument of" in found
    else:
        assert same(found, expected(name, kind))
