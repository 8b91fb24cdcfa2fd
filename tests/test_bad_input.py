"""What a user may give by mistake, and the error that says so.

A message names the argument, the rule and what it got. Rows that tests of a single room hold are
not repeated here: alignment by labels (`models/kernels/test_labels.py`,
`inference/test_alignment.py`), results of another model (`inference/engine/test_same_model.py`),
data changed by ``pm.set_data`` (`models/test_declaration.py`), seeds (`test_seeds.py`).
"""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr

import kernelzoo as kz

QUIET = {"progressbar": False, "random_seed": 1}
N = 9
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.array(list("abcabcabc"))
TWO = np.array(list("ababababa"))
IDS = [f"s{i}" for i in range(N)]
KERNELS = kz.gaussian(0.3) | kz.linear()
K = KERNELS(X).to_numpy()
GRAM = K[0] + 0.1 * np.eye(N)
FRAME = pd.DataFrame(X, IDS, list("uvw"))
LABELS = pd.Series(Y, IDS)
#: One id with two contents, and one object twice.
COLLIDING, SAMPLE = FRAME.rename({"s1": "s0"}), FRAME.iloc[[0, 0, *range(2, N)]]
#: Ids with two levels.
LEVELS = pd.MultiIndex.from_product([["g", "h", "i"], range(3)])
NEW = FRAME.iloc[:2].rename(index=lambda one: f"new {one}")
THETA, K11 = GRAM, GRAM[:4, :4] + 0.1 * np.eye(4)
LACKING = {"a": GRAM.copy(), "b": GRAM}
LACKING["a"][2], LACKING["a"][:, 2] = np.nan, np.nan
PREDICTIONS = xr.Dataset(
    {"probability": (("obs", "class"), [[0.5, 0.5], [0.2, 0.8]])}, {"class": ["a", "b"]}
)


def changed(values, at, value):
    """Copy of an array with an entry replaced."""
    copy = np.array(values, dtype=np.result_type(np.asarray(values), np.asarray(value)))
    copy[at] = value
    return copy


def probit(kernels=K, labels=Y, **options):
    return kz.MultinomialProbit(kernels, labels, **options)


def regression(kernels=K, targets=X[:, 0], **options):
    return kz.CompositeKernelRegression(kernels, targets, **options)


def classification(kernels=K, labels=TWO, **options):
    return kz.CompositeKernelClassification(kernels, labels, **options)


def completion(theta=THETA, K11=K11, **options):
    return kz.WishartCompletion(theta, K11, **options)


def mixture(theta=(THETA, THETA**2), K11=K11, **options):
    return kz.WishartKernelMixture(list(theta), K11, **options)


def mutual(kernels=LACKING, visible=None, **options):
    return kz.MutualKernelCompletion(kernels, visible, **options)


def learn(theta=(THETA, THETA**2), K11=K11, objective="alignment", **options):
    return kz.completion.learn_weights(list(theta), K11, objective, **options)


def estimator():
    return kz.estimators.KernelProbitClassifier(draws=5, random_state=1)


@pytest.fixture(scope="module")
def fitted():
    model = kz.MultinomialProbit(KERNELS(FRAME), LABELS)
    return model, kz.fit(model, "vb", draws=5, **QUIET)


#: By what is wrong: a call, the argument and the owner that the message names, the rule, and what
#: was got.
TABLE = {
    # Labels.
    "NaN among strings": (
        lambda: probit(labels=["a", np.nan, "b"] * 3),
        ("labels", "MultinomialProbit", "without missing labels", "3 missing, the first at"),
    ),
    "None among strings": (
        lambda: probit(labels=["a", None, "b"] * 3),
        ("labels", "MultinomialProbit", "without missing labels", "3 missing"),
    ),
    "NA in a Series": (
        lambda: probit(labels=pd.Series([1, None, 2] * 3, dtype="Int64")),
        ("labels", "MultinomialProbit", "without missing labels", "3 missing"),
    ),
    "a Categorical without some codes": (
        lambda: probit(labels=pd.Categorical.from_codes([0, 1, -1] * 3, ["a", "b"])),
        ("labels", "MultinomialProbit", "without missing labels", "3 missing"),
    ),
    "infinite labels": (
        lambda: probit(labels=[1.0, np.inf, 2.0] * 3),
        ("labels", "MultinomialProbit", "classes such as strings or whole numbers", "inf"),
    ),
    "measurements for labels": (
        lambda: probit(labels=X[:, 0]),
        ("labels", "MultinomialProbit", "classes such as strings or whole numbers", "0.12"),
    ),
    "complex labels": (
        lambda: probit(labels=[1j, 2j, 1j] * 3),
        ("labels", "MultinomialProbit", "classes such as strings or whole numbers", "1j"),
    ),
    "the number 1 and the string 1": (
        lambda: probit(labels=[1, "1", 2] * 3),
        ("labels", "MultinomialProbit", "labels of one type", "int and str"),
    ),
    "one class": (
        lambda: probit(labels=["a"] * N),
        ("labels", "MultinomialProbit", "labels of at least two classes", "only 'a'"),
    ),
    "a table of labels": (
        lambda: probit(labels=np.eye(3)[[0, 1, 2] * 3]),
        ("labels", "MultinomialProbit", "one-dimensional, one label per object", "shape (9, 3)"),
    ),
    "sparse labels": (
        lambda: probit(labels=sp.csr_matrix([[0, 1, 1]])),
        ("labels", "MultinomialProbit", "a dense array", "a sparse csr_matrix"),
    ),
    "masked labels": (
        lambda: probit(labels=np.ma.masked_array([0, 1, 2] * 3, [True] + [False] * 8)),
        ("labels", "MultinomialProbit", "without masked entries", "1 masked, the first at"),
    ),
    "too few labels": (
        lambda: probit(labels=Y[:5]),
        ("labels", "MultinomialProbit", "of length 9, one label per object", "length 5"),
    ),
    "a label that is no class": (
        lambda: probit(classes=["a", "b"]),
        ("labels", "MultinomialProbit", "among the classes ['a', 'b']", "the unseen class 'c'"),
    ),
    "a class twice": (
        lambda: probit(classes=["a", "b", "c", "c"]),
        ("classes", "MultinomialProbit", "at least two distinct classes", "['a', 'b', 'c', 'c']"),
    ),
    "three classes for two": (
        lambda: classification(labels=Y),
        ("labels", "CompositeKernelClassification", "of two classes", "3 classes"),
    ),
    # Targets.
    "NaN in targets": (
        lambda: regression(targets=changed(X[:, 0], 4, np.nan)),
        ("targets", "CompositeKernelRegression", "finite", "1 NaN or infinite entries, the first"),
    ),
    "strings for targets": (
        lambda: regression(targets=["1.5"] * N),
        ("targets", "CompositeKernelRegression", "real numbers", "str"),
    ),
    "dates for targets": (
        lambda: regression(targets=np.full(N, np.datetime64("2020-01-01"))),
        ("targets", "CompositeKernelRegression", "real numbers", "date"),
    ),
    "complex targets": (
        lambda: regression(targets=X[:, 0] + 0j),
        ("targets", "CompositeKernelRegression", "real numbers", "complex"),
    ),
    "too few targets": (
        lambda: regression(targets=X[:8, 0]),
        ("targets", "CompositeKernelRegression", "9 numbers, one per object", "shape (8,)"),
    ),
    "a table of too few targets": (
        lambda: regression(targets=X[:8]),
        ("targets", "CompositeKernelRegression", "table of 9 rows (obs, output)", "shape (8, 3)"),
    ),
    "targets by output and object": (
        lambda: regression(targets=X.T),
        ("targets", "CompositeKernelRegression", "table of 9 rows (obs, output)", "shape (3, 9)"),
    ),
    "targets of three dims": (
        lambda: regression(targets=X[:, :, None]),
        ("targets", "CompositeKernelRegression", "table of 9 rows", "shape (9, 3, 1)"),
    ),
    "a table without targets": (
        lambda: regression(targets=X[:, :0]),
        ("targets", "CompositeKernelRegression", "table of 9 rows", "shape (9, 0)"),
    ),
    "NaN in a table of targets": (
        lambda: regression(targets=changed(X, (4, 1), np.nan)),
        ("targets", "CompositeKernelRegression", "finite", "the first at position (4, 1)"),
    ),
    "two outputs of one name": (
        lambda: regression(targets=pd.DataFrame(X, columns=["a", "b", "a"])),
        ("targets", "CompositeKernelRegression", "outputs with distinct names", "'a' more than"),
    ),
    "outputs of two levels": (
        lambda: regression(targets=pd.concat({"u": pd.DataFrame(X)}, axis=1)),
        ("targets", "CompositeKernelRegression", "one level of columns", "2 levels"),
    ),
    "alpha integrated out of several outputs": (
        lambda: regression(targets=X, collapsed=True),
        ("collapsed", "CompositeKernelRegression", "False for several outputs", "True"),
    ),
    "an unknown way to share": (
        lambda: regression(targets=X, shared="noise"),
        ("shared", "CompositeKernelRegression", "'weights', 'all'", "'noise'"),
    ),
    "huge targets": (
        lambda: regression(targets=X[:, 0] * 1e80),
        ("targets", "CompositeKernelRegression", "at most 1e60 in size", "one of 2.33e+80"),
    ),
    # Features.
    "one column of features": (
        lambda: KERNELS(X[:, 0]),
        ("X", "Kernels", "of shape (objects, features)", "shape (9,)"),
    ),
    "a block without columns": (
        lambda: KERNELS({"u": FRAME, "v": FRAME[[]]}),
        ('X["v"]', "Kernels", "of shape (objects, features)", "shape (9, 0)"),
    ),
    "no objects": (
        lambda: KERNELS(X[:0]),
        ("X", "Kernels", "of shape (objects, features)", "shape (0, 3)"),
    ),
    "no blocks": (
        lambda: KERNELS({}),
        ("X", "Kernels", "a dict with at least one block", "none"),
    ),
    "NaN in features": (
        lambda: KERNELS(changed(X, (1, 2), np.nan)),
        ("X", "Kernels", "finite", "1 NaN or infinite entries, the first at position (1, 2)"),
    ),
    "NaN in a table": (
        lambda: KERNELS(pd.DataFrame(changed(X, (1, 2), np.nan)).rename(lambda i: f"o{i}")),
        ("X", "Kernels", "finite", "the first at position (1, 2), 'o1', 2"),
    ),
    "infinite features": (
        lambda: KERNELS(changed(X, (1, 2), np.inf)),
        ("X", "Kernels", "finite", "the first at position (1, 2)"),
    ),
    "features that overflow": (
        lambda: KERNELS(X * 1e200),
        ("X", "Kernels", "small enough that kernels do not overflow", "entries up to 2.33e+200"),
    ),
    "features that overflow in a width": (
        lambda: kz.gaussian("median")(X * 1e200),
        ("X", "gaussian('median')", "small enough that squares do not overflow", "2.33e+200"),
    ),
    "sparse features": (
        lambda: KERNELS(sp.csr_matrix(X)),
        ("X", "Kernels", "a dense array, such as X.toarray()", "a sparse csr_matrix"),
    ),
    "ragged features": (
        lambda: KERNELS([[1.0, 2.0], [3.0]]),
        ("X", "Kernels", "an array of numbers", "a ragged one"),
    ),
    "strings in a column": (
        lambda: KERNELS(FRAME.assign(w="high")),
        ("X['w']", "Kernels", "real numbers (of categories by pd.get_dummies; ", "str"),
    ),
    "new features of another width": (
        lambda: KERNELS(X[:2, :2], X),
        ("X", "gaussian(0.3)", "of 3 features, as the training objects are", "2 features"),
    ),
    "a new feature renamed": (
        lambda: KERNELS(NEW.rename(columns={"u": "x"}), FRAME),
        ("X", "Kernels", "of the features that the training objects have", "the unknown 'x'"),
    ),
    "a block that is missing at prediction": (
        lambda: KERNELS({"u": NEW}, {"u": FRAME, "v": FRAME}),
        ("X", "Kernels", "a dict with the block 'v' of the training objects", "['u']"),
    ),
    # Kernels.
    "a kernel that is not symmetric": (
        lambda: probit(changed(GRAM, (0, 1), 5.0)),
        ("kernels", "MultinomialProbit", "symmetric", "5 at (0, 1) but"),
    ),
    "an indefinite kernel": (
        lambda: probit(-GRAM),
        ("kernels", "MultinomialProbit", "positive semidefinite", "a smallest eigenvalue"),
    ),
    "NaN in a kernel": (
        lambda: probit(changed(GRAM, (0, 1), np.nan)),
        ("kernels", "MultinomialProbit", "finite", "1 NaN or infinite entries"),
    ),
    "strings for a kernel": (
        lambda: probit(GRAM.astype(str)),
        ("kernels", "MultinomialProbit", "a two-dimensional array of numbers", "<U32"),
    ),
    "a complex kernel": (
        lambda: probit(GRAM + 0j),
        ("kernels", "MultinomialProbit", "a two-dimensional array of numbers", "complex128"),
    ),
    "a sparse kernel": (
        lambda: probit({"a": sp.csr_matrix(GRAM)}),
        ('kernels["a"]', "MultinomialProbit", "a dense array", "a sparse csr_matrix"),
    ),
    "a masked kernel": (
        lambda: probit({"a": np.ma.masked_array(GRAM, np.eye(N))}),
        ('kernels["a"]', "MultinomialProbit", "without masked entries", "9 masked"),
    ),
    "kernels of other sizes": (
        lambda: probit({"a": GRAM, "b": GRAM[:4, :4]}),
        ('kernels["b"]', "MultinomialProbit", "of shape (9, 9), objects by basis", "shape (4, 4)"),
    ),
    "no kernels": (
        lambda: probit({}),
        ("kernels", "MultinomialProbit", "at least one kernel", "none"),
    ),
    "one vector": (
        lambda: probit(GRAM[0]),
        ("kernels", "MultinomialProbit", "a dict of named arrays, or an array of", "shape (9,)"),
    ),
    "names that collide": (
        lambda: probit({1: GRAM, "1": GRAM}),
        ("kernels", "MultinomialProbit", "of kernels with distinct names", "'1' more than once"),
    ),
    "an id that is missing": (
        lambda: probit({"a": pd.DataFrame(GRAM, [None, *IDS[1:]], [None, *IDS[1:]])}),
        ("kernels", "MultinomialProbit", "labelled without gaps", "1 missing, the first at"),
    ),
    "ids of a kernel that collide": (
        lambda: kz.MultinomialProbit(KERNELS(SAMPLE), LABELS[::-1]),
        ("labels", "MultinomialProbit", "an array, aligned by position", "'s0' more than once"),
    ),
    # Ids that repeat.
    "features that differ under one id": (
        lambda: KERNELS(COLLIDING),
        ("X", "Kernels", "or equal wherever an id repeats", "different rows for 's0'"),
    ),
    "new features that differ under one id": (
        lambda: KERNELS(COLLIDING, FRAME),
        ("X", "Kernels", "or equal wherever an id repeats", "different rows for 's0'"),
    ),
    "objects of KernelBlocks that differ under one id": (
        lambda: kz.estimators.KernelBlocks().fit(COLLIDING),
        ("X", "Kernels", "or equal wherever an id repeats", "different rows for 's0'"),
    ),
    "objects of a block that differ under one id": (
        lambda: estimator().fit({"a": FRAME, "b": COLLIDING}, Y),
        ('X["b"]', "Kernels", "labelled by distinct ids", "'s0' more than once"),
    ),
    "objects of an estimator that differ under one id": (
        lambda: estimator().fit(COLLIDING, Y),
        ("X", "Kernels", "or equal wherever an id repeats", "different rows for 's0'"),
    ),
    "labels that differ under one id": (
        lambda: estimator().fit(SAMPLE, Y),
        ("y", "KernelProbitClassifier", "or equal wherever an id repeats", "rows for 's0'"),
    ),
    "targets that differ under one id": (
        lambda: kz.estimators.CompositeKernelRegressor().fit(SAMPLE, X[:, 0]),
        ("y", "CompositeKernelRegressor", "or equal wherever an id repeats", "rows for 's0'"),
    ),
    "new objects of an estimator that differ under one id": (
        lambda: estimator().fit(FRAME, Y).predict(COLLIDING),
        ("X", "Kernels", "or equal wherever an id repeats", "different rows for 's0'"),
    ),
    "truths that differ under one id": (
        lambda: estimator().fit(FRAME, Y).score(SAMPLE, Y),
        ("y", "KernelProbitClassifier", "or equal wherever an id repeats", "rows for 's0'"),
    ),
    "ids of KernelCompleter that collide": (
        lambda: kz.estimators.KernelCompleter().fit(
            {"a": pd.DataFrame(GRAM, COLLIDING.index, COLLIDING.index)}
        ),
        ("kernels", "complete_kernels", "labelled by distinct ids", "'s0' more than once"),
    ),
    "columns of a precomputed kernel that collide": (
        lambda: kz.estimators.KernelBlocks("precomputed").fit(
            pd.DataFrame(GRAM, COLLIDING.index, COLLIDING.index)
        ),
        ("X", "KernelBlocks", "a frame with distinct names of columns", "'s0' more than once"),
    ),
    # Settings.
    "a string for a flag": (
        lambda: regression(bias="no"),
        ("bias", "CompositeKernelRegression", "True or False", "'no'"),
    ),
    "a number for a flag": (
        lambda: regression(collapsed=1),
        ("collapsed", "CompositeKernelRegression", "True or False", "1"),
    ),
    "a string for a number": (
        lambda: probit(tau="one"),
        ("tau", "MultinomialProbit", "a finite number above 0", "'one'"),
    ),
    "a number in a string": (
        lambda: probit(tau="1"),
        ("tau", "MultinomialProbit", "a finite number above 0", "'1'"),
    ),
    "an infinite rate": (
        lambda: regression(rho=np.inf),
        ("rho", "CompositeKernelRegression", "a finite number above 0", "inf"),
    ),
    "an array for a number": (
        lambda: regression(sigma=np.ones(2)),
        ("sigma", "CompositeKernelRegression", "a finite number above 0", "array([1., 1.])"),
    ),
    "an unknown rule": (
        lambda: probit(combination="sum"),
        ("combination", "MultinomialProbit", "one of 'mean'", "'sum'"),
    ),
    "weights of too few kernels": (
        lambda: probit(combination=kz.combinations.FixedWeights([1.0])),
        ("weights", "FixedWeights", "a vector of 2 numbers, one per kernel", "1 numbers"),
    ),
    "negative weights": (
        lambda: kz.combinations.FixedWeights([1.0, -1.0]),
        ("weights", "FixedWeights", "a vector of non-negative numbers, not all zero", "-1.0"),
    ),
    "a width below zero": (
        lambda: kz.gaussian(-1.0),
        ("gamma", "gaussian", "a finite number above 0", "-1.0"),
    ),
    "a degree that is no count": (
        lambda: kz.polynomial(2.5),
        ("degree", "polynomial", "a whole number from 1", "2.5"),
    ),
    # Completion.
    "a theta of other objects": (
        lambda: completion(
            pd.DataFrame(THETA, IDS, IDS), pd.DataFrame(K11, list("wxyz"), list("wxyz"))
        ),
        ("K11", "WishartCompletion", "labelled by objects of theta", "the unknown 'w'"),
    ),
    "a K11 of all objects": (
        lambda: completion(K11=THETA),
        ("K11", "WishartCompletion", "of fewer objects than theta (9)", "n2 = 0"),
    ),
    "a singular theta": (
        lambda: completion(np.ones((N, N))),
        ("theta", "WishartCompletion", "positive definite", "a smallest eigenvalue"),
    ),
    "a sparse theta": (
        lambda: completion(sp.csr_matrix(THETA)),
        ("theta", "WishartCompletion", "a dense array", "a sparse csr_matrix"),
    ),
    "weights in strings": (
        lambda: completion([THETA, THETA], weights=["0.5", "0.5"]),
        ("weights", "WishartCompletion", "2 finite non-negative numbers", "['0.5', '0.5']"),
    ),
    "degrees of freedom in a string": (
        lambda: completion(r="20"),
        ("r", "WishartCompletion", "a finite number above n - 1 = 8", "'20'"),
    ),
    "few degrees of freedom": (
        lambda: completion(r=3.0),
        ("r", "WishartCompletion", "a finite number above n - 1 = 8", "3.0"),
    ),
    "weights of a mixture that are strings": (
        lambda: mixture(alpha=["a", "b"]),
        ("alpha", "WishartKernelMixture", "2 finite non-negative numbers", "['a', 'b']"),
    ),
    "an object that no kernel has": (
        lambda: mutual({"a": LACKING["a"], "b": LACKING["a"]}),
        ("kernels", "MutualKernelCompletion", "in at least one kernel", "1 in none: 2"),
    ),
    "a mask of another shape": (
        lambda: mutual({"a": GRAM, "b": GRAM}, np.ones((3, 2), dtype=bool)),
        ("visible", "MutualKernelCompletion", "true or false for 9 objects", "shape (3, 2)"),
    ),
    "a mask of numbers": (
        lambda: mutual({"a": GRAM, "b": GRAM}, np.full((N, 2), 0.5)),
        ("visible", "MutualKernelCompletion", "true or false for 9 objects", "0.5"),
    ),
    "single entries that are missing": (
        lambda: mutual({"a": changed(changed(GRAM, (0, 1), np.nan), (1, 0), np.nan), "b": GRAM}),
        ('kernels["a"]', "MutualKernelCompletion", "NaN in the whole row and column", "(0, 1)"),
    ),
    "entries of no object": (
        lambda: mutual(entries={"a": [(2, 99)]}),
        ('entries["a"]', "MutualKernelCompletion", "pairs of objects", "an unknown object"),
    ),
    "an unknown objective": (
        lambda: learn(objective="error"),
        ("objective", "learn_weights", "one of", "'error'"),
    ),
    "an objective without labels": (
        lambda: learn(objective="leave-one-out log score"),
        ("labels", "learn_weights", "given", "None"),
    ),
    "an unknown way to impute": (
        lambda: kz.completion.impute_kernels(LACKING, method="median"),
        ("method", "impute_kernels", "one of 'zero', 'mean'", "'median'"),
    ),
    "a negative number of entries": (
        lambda: kz.completion.missing_entries(LACKING, number=-1),
        ("number", "missing_entries", "an integer of 1 or more", "-1"),
    ),
    # Engines.
    "an unknown engine": (
        lambda: kz.fit(probit(), "gibs"),
        ("engine", "fit", "one of", "'gibs' (the nearest is 'gibbs')"),
    ),
    "negative draws": (
        lambda: kz.fit(probit(), "vb", draws=-1),
        ("draws", "fit", "an integer of 1 or more", "-1"),
    ),
    "draws that are no integer": (
        lambda: kz.fit(probit(), "vb", draws=10.0),
        ("draws", "fit", "an integer of 1 or more", "10.0"),
    ),
    "an unknown variable": (
        lambda: kz.fit(probit(), "vb", var_names=["w"]),
        ("var_names", "fit", "one of", "'w'"),
    ),
    "no seconds": (
        lambda: kz.fit(probit(), "vb", max_seconds=0),
        ("max_seconds", "fit", "a finite number above 0", "0"),
    ),
    "an unknown setting": (
        lambda: kz.fit(probit(), kz.VB(start=3)),
        ("settings", "VB", "one of", "'start'"),
    ),
    # Scores and pictures.
    "probabilities that do not sum to one": (
        lambda: kz.scores.held_out(
            PREDICTIONS.assign(probability=PREDICTIONS["probability"] * 1.1), ["a", "b"]
        ),
        ("predictions", "held_out", "probabilities of the classes", "a sum of 1.1"),
    ),
    "negative probabilities": (
        lambda: kz.scores.held_out(
            PREDICTIONS.assign(probability=PREDICTIONS["probability"] * [2.0, -1.0] + [0, 1.0]),
            ["a", "b"],
        ),
        ("predictions", "held_out", "probabilities of the classes", "a sum of"),
    ),
    "an array for predictions": (
        lambda: kz.scores.held_out(np.full((2, 2), 0.5), ["a", "b"]),
        ("predictions", "held_out", "a Dataset as predict returns it", "a ndarray"),
    ),
    "a truth that is no class": (
        lambda: kz.scores.held_out(PREDICTIONS, ["a", "c"]),
        ("labels_new", "held_out", "among the classes ['a', 'b']", "the unseen class 'c'"),
    ),
    "a truth too short": (
        lambda: kz.scores.held_out(PREDICTIONS, ["a"]),
        ("labels_new", "held_out", "of length 2", "length 1"),
    ),
    "an unknown rule of combination": (
        lambda: kz.combine_classifiers([PREDICTIONS], "sum"),
        ("rule", "combine_classifiers", "one of 'product'", "'sum'"),
    ),
    "no classifiers": (
        lambda: kz.combine_classifiers([]),
        ("predictions", "combine_classifiers", "Datasets with the variable", "none"),
    ),
    "a split that is no share": (
        lambda: kz.datasets.load("iris").split(1.5, seed=1),
        ("test_size", "split", "between 0 and 1", "1.5"),
    ),
    "ids of two levels of features": (
        lambda: KERNELS(FRAME.set_axis(LEVELS)),
        ("X", "Kernels", "labelled by ids of one level", "('g', 0)"),
    ),
    "kernels whose squares overflow": (
        lambda: probit(1e200 * K),
        ("kernels", "MultinomialProbit", "at most 1e+60 in size: kernels.normalize", "e+200"),
    ),
    "kernels of all objects whose squares overflow": (
        lambda: completion(1e200 * THETA, 1e200 * K11),
        ("theta", "WishartCompletion", "at most 1e+60 in size", "e+200"),
    ),
    "a polynomial of infinite degree": (
        lambda: kz.polynomial(np.inf),
        ("degree", "polynomial", "a whole number from 1", "inf"),
    ),
    "a polynomial of no degree": (
        lambda: kz.polynomial(None),
        ("degree", "polynomial", "a whole number from 1", "None"),
    ),
    "a string for a constant": (
        lambda: kz.polynomial(2, 1.0, "a"),
        ("coef0", "polynomial", "0 or positive", "'a'"),
    ),
    "a number beyond floating point": (
        lambda: kz.gaussian(10**400),
        ("gamma", "gaussian", "a finite number above 0", "1000"),
    ),
    "no function of basis functions": (
        lambda: kz.kernels.basis_expansion(None),
        ("function", "basis_expansion", "a function of objects", "None"),
    ),
    "outputs of an estimator with one name": (
        lambda: kz.estimators.CompositeKernelRegressor().fit(
            X, pd.DataFrame(X[:, :2], columns=["a", "a"])
        ),
        ("y", "CompositeKernelRegressor", "of outputs with distinct names", "'a' more than once"),
    ),
    "an empty result for an estimator": (
        lambda: kz.estimators.KernelProbitClassifier.from_result(xr.DataTree(), X, Y),
        ("result", "KernelProbitClassifier.from_result", "a result of fit", "an empty DataTree"),
    ),
    "features for the kernel of a probit": (
        lambda: kz.MultinomialProbit(FRAME, LABELS),
        ("kernels", "MultinomialProbit", "square, labelled alike", "shape (1, 9, 3)"),
    ),
    "features for the kernels of a regression": (
        lambda: regression({"a": X, "b": X}),
        ("kernels", "CompositeKernelRegression", "pass kernels(X), for basis", "shape (2, 9, 3)"),
    ),
    "features for the kernels of a classification": (
        lambda: classification(np.stack([X, X])),
        ("kernels", "CompositeKernelClassification", "pass kernels(X)", "shape (2, 9, 3)"),
    ),
    "as many features as objects": (
        lambda: classification(pd.DataFrame(GRAM, IDS, list("abcdefghi"))),
        ("kernels", "CompositeKernelClassification", "square, labelled alike", "'a' instead of"),
    ),
    "features for the kernel of all objects": (
        lambda: completion(X),
        ("theta", "WishartCompletion", "pass kernels(X)", "shape (1, 9, 3)"),
    ),
    "features for incomplete kernels": (
        lambda: mutual({"a": X, "b": X}),
        ("kernels", "MutualKernelCompletion", "pass kernels(X)", "shape (2, 9, 3)"),
    ),
    "ids of two levels of kernels": (
        lambda: kz.MultinomialProbit({"a": pd.DataFrame(GRAM, LEVELS, LEVELS)}, LABELS.to_numpy()),
        ("kernels", "MultinomialProbit", "labelled by ids of one level", "('g', 0)"),
    ),
}
#: As above, of a fitted classifier; the call takes model and result.
OF_RESULTS = {
    "transposed test kernels": (
        lambda model, result: kz.predict(
            model, result, KERNELS(X[:2], X).to_numpy().swapaxes(1, 2)
        ),
        ("kernels_new", "predict", "9 training objects)", "which looks transposed"),
    ),
    "kernels of no training objects": (
        lambda model, result: kz.predict(model, result, KERNELS(X[:2], X[:5]).to_numpy()),
        ("kernels_new", "predict", "9 training objects)", "shape (2, 2, 5)"),
    ),
    "no test kernels": (
        lambda model, result: kz.predict(model, result),
        ("kernels_new", "predict", "kernels between new and training objects", "None"),
    ),
    "test kernels that lack one": (
        lambda model, result: kz.predict(model, result, KERNELS(NEW, FRAME)[:1]),
        ("kernels_new", "predict", "the kernels ['gaussian(0.3)', 'linear']", "['gaussian(0.3)']"),
    ),
    "test features for test kernels": (
        lambda model, result: kz.predict(model, result, NEW),
        ("kernels_new", "predict", "pass kernels(X_new, X_train)", "an array of shape"),
    ),
    "a new object without similarities": (
        lambda model, result: kz.predict(
            model, result, KERNELS(NEW, FRAME).where(lambda K: K["obs"] != "new s1")
        ),
        ("kernels_new", "predict", "finite", "without similarities: 'new s1' (1 in all); Kernel"),
    ),
    "an empty result to predict": (
        lambda model, result: kz.predict(model, xr.DataTree(), KERNELS(NEW, FRAME)),
        ("result", "predict", "a result of fit", "an empty DataTree"),
    ),
    "a result without draws to predict": (
        lambda model, result: kz.predict(model, result.sel(draw=[]), KERNELS(NEW, FRAME)),
        ("result", "predict", "a result with draws", "none in its posterior"),
    ),
    "a prior to predict": (
        lambda model, result: kz.predict(
            model, xr.DataTree.from_dict({"prior": xr.Dataset()}), KERNELS(NEW, FRAME)
        ),
        ("result", "predict", "a result of fit", "draws of prior"),
    ),
    "a group of a result to predict": (
        lambda model, result: kz.predict(model, result["posterior"], KERNELS(NEW, FRAME)),
        ("result", "predict", "a result of fit", "its group 'posterior'"),
    ),
    "an empty result to extend": (
        lambda model, result: kz.extend(model, xr.DataTree()),
        ("result", "extend", "a result of fit", "an empty DataTree"),
    ),
    "an empty result to compare": (
        lambda model, result: kz.compare_engines({"a": result, "b": xr.DataTree()}),
        ('results["b"]', "compare_engines", "a result of fit", "an empty DataTree"),
    ),
    "an array of test features for test kernels": (
        lambda model, result: kz.predict(model, result, NEW.to_numpy()),
        ("kernels_new", "predict", "pass kernels(X_new, X_train)", "an array of shape (2, 3)"),
    ),
    "test features by the names of the kernels": (
        lambda model, result: kz.predict(
            model, result, dict.fromkeys(KERNELS(X)["kernel"].values, X[:2])
        ),
        ("kernels_new", "predict", "pass kernels(X_new, X_train)", "shape (2, 2, 3)"),
    ),
    "test features as a stack": (
        lambda model, result: kz.predict(model, result, KERNELS(X)[..., :3].drop_vars("basis")),
        ("kernels_new", "predict", "pass kernels(X_new, X_train)", "shape (2, 9, 3)"),
    ),
    "a sparse test kernel": (
        lambda model, result: kz.predict(
            model, result, {name: sp.csr_matrix(GRAM[:2]) for name in ("gaussian(0.3)", "linear")}
        ),
        ('kernels_new["gaussian(0.3)"]', "predict", "a dense array", "a sparse csr_matrix"),
    ),
    "infinite test kernels": (
        lambda model, result: kz.predict(model, result, KERNELS(NEW, FRAME) * np.inf),
        ("kernels_new", "predict", "finite", "NaN or infinite entries"),
    ),
    "a string for a flag of predict": (
        lambda model, result: kz.predict(model, result, KERNELS(NEW, FRAME), keep_draws="yes"),
        ("keep_draws", "predict", "True or False", "'yes'"),
    ),
    "an unknown group": (
        lambda model, result: kz.extend(model, result, "predictive"),
        ("groups", "extend", "one of 'posterior_predictive'", "'predictive'"),
    ),
    "labels of other objects": (
        lambda model, result: kz.compare_engines(
            {"a": result, "b": result},
            model=model,
            kernels_new=KERNELS(NEW, FRAME),
            labels_new=LABELS[:2],
        ),
        ("labels_new", "held_out", "labelled by the ids", "the unknown 's0', 's1'"),
    ),
}


def check(call, argument, owner, rule, got):
    with pytest.raises(ValueError, match="argument of") as error:
        call()
    message = str(error.value)
    assert message.startswith(f"The '{argument}' argument of {owner} must be "), message
    assert rule in message.partition(" Got ")[0], message
    assert got in message, message


@pytest.mark.parametrize("case", TABLE)
def test_bad_input_is_refused(case):
    call, expected = TABLE[case]
    check(call, *expected)


@pytest.mark.parametrize("case", OF_RESULTS)
def test_bad_input_beside_a_result_is_refused(case, fitted):
    call, expected = OF_RESULTS[case]
    check(lambda: call(*fitted), *expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, result: kz.predict(None, result, K), "'model' argument of predict must be"),
        (lambda model, result: kz.predict(KERNELS, result, K), "'model' argument of predict must"),
        (lambda model, result: kz.predict(result, model, K), "'model' argument of predict must be"),
        (lambda model, result: kz.predict(model, None, K), "'result' argument of predict must be"),
        (lambda model, result: kz.extend(None, result), "'model' argument of extend must be"),
        (lambda model, result: kz.engines(None), "'model' argument of engines must be"),
        (
            lambda model, result: kz.compare_engines({"a": None}),
            "'results.*' argument of compare_eng",
        ),
        (
            lambda model, result: kz.plots.plot_engines({"a": None}),
            r"""'results\["a"\]' argument of plot_engines must be a result of fit""",
        ),
        (lambda model, result: kz.plots.plot_bound(None), "'result' argument of plot_bound must"),
        (lambda model, result: kz.inclusion(None), "'result' argument of inclusion must be"),
        (lambda model, result: kz.pareto_k({}), "'result' argument of pareto_k must be"),
        (
            lambda model, result: kz.estimators.KernelProbitClassifier.from_result(None, X, Y),
            "'result' argument of KernelProbitClassifier.from_result must be",
        ),
    ],
)
def test_what_is_no_model_or_no_result_is_refused(call, message, fitted):
    with pytest.raises(TypeError, match=message):
        call(*fitted)
