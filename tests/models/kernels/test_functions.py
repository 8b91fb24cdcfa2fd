"""Kernels of labels, of fingerprints, and of functions of others."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

import kernelzoo as kz
from kernelzoo.estimators import KernelBlocks, KernelRegressor

X = np.random.default_rng(0).normal(size=(12, 3))
NEW = np.random.default_rng(1).normal(size=(5, 3))


@pytest.mark.parametrize(
    "labels",
    [
        ["Ada", "Bob", "Ada", "Cy"],
        np.array([3, 1, 3, 2]),
        pd.Series(["x", "y", "x", "z"], ["a", "b", "c", "d"]),
        pd.Categorical(["u", "v", "u", "w"]),
        pd.DataFrame({"site": ["s", "s", "s", "t"], "person": [1, 2, 1, 1]}),
        np.array([["s", "1"], ["s", "2"], ["s", "1"], ["t", "1"]], dtype=object),
    ],
    ids=["list", "numbers", "series", "categories", "table", "array"],
)
def test_labels_are_the_same_or_not(labels):
    given = pd.Series(labels) if isinstance(labels, pd.Categorical | list) else labels
    expected = np.eye(4)
    expected[0, 2] = expected[2, 0] = 1
    np.testing.assert_array_equal(kz.kernels.same()(given)[0], expected)


def test_labels_of_new_objects_are_those_of_the_training_objects():
    """Whatever the order, and unknown ones have a variance of one and are like none."""
    known = pd.Series(["Ada", "Bob", "Ada"], ["a", "b", "c"], name="person")
    new = pd.Series(["Dora", "Ada", "Bob"], ["d", "e", "f"], name="person")
    stack = kz.kernels.same()(new, known)
    np.testing.assert_array_equal(stack[0], [[0, 0, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(stack["variance"], np.ones((1, 3)))


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ([0, 1], ["0", "1"]),
        ([0, 1], pd.Series(["new", 0], dtype=object)[::-1]),
        ([0, 1], pd.Categorical([0, 1])),
        ([0.0, 1.0], [0, 1]),
        ([False, True], [0, 1]),
        ([2**60, 2**60 + 1], [2**60, 2**60 + 1]),
        (
            pd.to_datetime(["2020-01-01", "2020-01-02"]),
            pd.to_datetime(["2020-01-01 00:00", "2020-01-02 10:00"]),
        ),
    ],
    ids=["text", "mixed", "categories", "floats", "booleans", "large", "dates"],
)
def test_labels_are_equal_whatever_the_type_of_their_column(known, new):
    """Bug: patient 0 was unknown where a new patient had a name."""
    stack = kz.kernels.same()(pd.Series(list(new)), pd.Series(list(known)))
    assert stack[0, 0, 0] == 1
    assert stack[0, 0, 1] == stack[0, 1, 0] == 0


def test_numbers_that_are_not_exact_are_no_labels():
    with pytest.raises(ValueError, match="whole numbers that are exact"):
        kz.kernels.same()(np.array([2.0**60, 1.0]))


def test_columns_of_one_name_are_different_labels():
    frame = pd.DataFrame([["q", "a"], ["r", "a"]], columns=["u", "u"])
    assert kz.kernels.same()(frame.set_axis(["u", "v"], axis=1))[0, 0, 1] == 0
    assert kz.kernels.same()(frame.to_numpy())[0, 0, 1] == 0


def test_a_series_of_labels_has_ids():
    """Bug: scores of responses with other ids than a Series were by position."""
    ids = [f"i{n}" for n in range(20)]
    y = pd.Series(np.random.default_rng(0).normal(size=20), ids)
    tables = {
        "p": pd.Series([f"p{n // 2}" for n in range(20)], ids),
        "x": np.random.default_rng(1).normal(size=(20, 2)),
    }
    kernels = {"p": kz.kernels.same(), "x": kz.gaussian("median")}
    regressor = KernelRegressor(kernels, random_state=1, draws=20).fit(tables, y)
    assert regressor.score(tables, y[::-1]) == regressor.score(tables, y)


def test_a_missing_label_is_named():
    for labels in (pd.Series(["Ada", None], ["a", "b"]), pd.Series([1.0, np.nan], ["a", "b"])):
        with pytest.raises(ValueError, match=r"a label for every object\. Got none for 'b'"):
            kz.kernels.same()(labels)


@pytest.mark.parametrize("standardize", ["scale", "rank"])
def test_an_intercept_of_persons_is_learned(standardize):
    """Known persons are told apart; a new one has the prior's variance."""
    rng = np.random.default_rng(2)
    persons = np.repeat([f"person {n}" for n in range(15)], 4)
    intercept = np.repeat(rng.normal(size=15), 4)
    x = rng.normal(size=(60, 1))
    y = 0.3 * x[:, 0] + intercept + 0.1 * rng.normal(size=60)
    kernels = {"x": kz.linear(), "person": kz.kernels.same()}
    regressor = KernelRegressor(kernels, standardize=standardize, random_state=1, draws=50)
    tables = {"x": pd.DataFrame(x), "person": pd.DataFrame({"id": persons})}
    regressor.fit(tables, y)
    same_x = np.tile(x[:1], (3, 1))
    new = {
        "x": pd.DataFrame(same_x),
        "person": pd.DataFrame({"id": ["person 0", "person 1", "nobody"]}),
    }
    mean, sd = regressor.predict(new, return_std=True)
    assert abs(mean[0] - mean[1] - (intercept[0] - intercept[4])) < 0.3
    assert sd[2] > 3 * sd[:2].max()


def test_fingerprints_have_the_jaccard_index():
    bits = np.random.default_rng(0).integers(2, size=(12, 9))
    bits[:, 0] = 1
    bits[3] = 0
    gram = kz.kernels.tanimoto()(bits)[0].to_numpy()
    others = np.arange(12) != 3
    jaccard = 1 - cdist(bits.astype(bool), bits.astype(bool), "jaccard")
    np.testing.assert_allclose(gram[np.ix_(others, others)], jaccard[np.ix_(others, others)])
    np.testing.assert_array_equal(gram[3], np.eye(12)[3])
    counts = np.random.default_rng(0).poisson(2.0, size=(40, 6))
    assert np.linalg.eigvalsh(kz.kernels.tanimoto()(counts)[0]).min() > -1e-10
    stack = kz.kernels.tanimoto()(counts[:5], counts)
    np.testing.assert_allclose(stack[0], kz.kernels.tanimoto()(counts)[0, :5])
    np.testing.assert_array_equal(stack["variance"], np.ones((1, 5)))


def test_estimators_take_fingerprints_as_they_are():
    bits = pd.DataFrame(np.random.default_rng(0).integers(2, size=(12, 9)))
    tables = {"bits": bits, "x": pd.DataFrame(X)}
    kernels = {"bits": kz.kernels.tanimoto(), "x": kz.gaussian("median")}
    blocks = KernelBlocks(kernels, normalize=None).fit(tables)
    stack = blocks.kernel_stack(tables)
    np.testing.assert_allclose(stack[0], kz.kernels.tanimoto()(bits)[0])
    scaled = (X - X.mean(0)) / X.std(0)
    np.testing.assert_allclose(stack[1], kz.gaussian("median")(scaled)[0])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (laplacian_kernel, laplacian_kernel),
        (RBF(1.5) + WhiteKernel(), RBF(1.5)),
        (ConstantKernel(2.0) * RBF(), lambda A, B: 2 * rbf_kernel(A, B, gamma=0.5)),
        (lambda A, B: (A @ B.T) ** 2, lambda A, B: (A @ B.T) ** 2),
    ],
    ids=["function", "sum", "product", "lambda"],
)
def test_functions_are_kernels(function, expected):
    kernels = kz.kernels.function(function)
    np.testing.assert_allclose(kernels(X)[0], expected(X, X), rtol=1e-12)
    new = kernels(NEW, X)
    np.testing.assert_allclose(new[0], expected(NEW, X), rtol=1e-12)
    np.testing.assert_allclose(new["variance"][0], np.diag(expected(NEW, NEW)), rtol=1e-12)
    normalized = kernels.normalize("trace")
    np.testing.assert_allclose(normalized(X[:2], X)[0], normalized(X)[0, :2], rtol=1e-12)


def test_self_similarities_need_no_whole_matrix():
    sizes = []

    def counted(A, B):
        sizes.append(len(A) * len(B))
        return A @ B.T

    many = np.random.default_rng(0).normal(size=(1_050, 3))
    stack = kz.kernels.function(counted)(many, X)
    np.testing.assert_allclose(stack["variance"][0], np.einsum("nd,nd->n", many, many))
    assert max(sizes) <= len(many) * len(X)


@pytest.mark.parametrize("kernels", [laplacian_kernel, pm.gp.cov.Matern52(3, ls=1.5)])
def test_estimators_take_functions(kernels):
    written = (
        kz.kernels.covariance if isinstance(kernels, pm.gp.cov.Matern52) else kz.kernels.function
    )
    for given in (kernels, {"x": kernels}):
        table = {"x": pd.DataFrame(X)} if isinstance(given, dict) else X
        found = KernelBlocks(given, standardize=False, normalize=None).fit_transform(table)
        np.testing.assert_allclose(found[..., 0], written(kernels)(X)[0])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda A, B: (A @ B.T)[0], r"shape \(12, 12\).* Got shape \(12,\)"),
        (lambda A, B: A @ B.T + A[:, :1], r"symmetric, k\(x, y\) = k\(y, x\)"),
        (lambda A, B: A @ B.T * np.nan, "'function' argument of function must .*finite"),
        (lambda A, B: np.full((len(A), len(B)), "x"), "numbers"),
        (3, "a function of two arrays"),
    ],
    ids=["shape", "asymmetric", "nan", "text", "number"],
)
def test_what_is_no_kernel_is_refused(function, message):
    with pytest.raises(ValueError, match=message):
        kz.kernels.function(function)(X)
