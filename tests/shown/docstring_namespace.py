"""Names that examples of docstrings use without defining them.

They belong to a small problem.
"""

# Names of the examples.
import arviz as az  # noqa: F401
import numpy as np
import pandas as pd
import pymc as pm  # noqa: F401
import pytensor.tensor as pt  # noqa: F401
from sklearn.pipeline import make_pipeline  # noqa: F401

import kernelzoo as kz
from kernelzoo.estimators import (
    CompositeKernelRegressor,  # noqa: F401
    KernelBlocks,  # noqa: F401
    KernelClassifier,  # noqa: F401
    KernelCompleter,  # noqa: F401
    KernelProbitClassifier,  # noqa: F401
    KernelRegressor,  # noqa: F401
)

data = kz.datasets.load("wine").split(test_size=0.85, seed=1)
X_train, y_train = data.X_train, np.asarray(data.y_train)
X_test, y_test = data.X_test.iloc[:10], np.asarray(data.y_test)[:10]
X = np.vstack([X_train, X_test])  # all objects, training objects first
labels = np.concatenate([y_train, y_test])
y = (labels == labels[0]).astype(int)  # two classes, or targets
X_new = X_many = X_test.to_numpy()
# Blocks of the same objects, with ids.
rna = pd.DataFrame(X[:, :6]).rename("p{}".format)
protein = pd.DataFrame(X[:, 6:]).rename("p{}".format)

# A classifier by two engines.
kernels = kz.gaussian(1 / 13) | kz.linear() | kz.polynomial(2)
kernels = kernels.normalize("trace")
model = kz.MultinomialProbit(kernels(X_train), y_train)
vb = kz.fit(model, "vb", draws=50, random_seed=1)
gibbs = result = kz.fit(
    model, "gibbs", draws=20, tune=20, chains=2, cores=1, random_seed=1
)
others = kz.predict(model, gibbs, kernels(X_test, X_train))

# One classifier a kernel, for combinations of classifiers.
single = [kz.gaussian(1 / 13), kz.linear()]
models = [kz.MultinomialProbit(k(X_train), y_train) for k in single]
results = [kz.fit(m, "vb", draws=50, random_seed=1) for m in models]
kernels_new = [kernel(X_test, X_train) for kernel in single]
labels_new = y_test

# A regression.
proline = X_train["proline"]
response = (proline - proline.mean()) / proline.std()
regression = kz.CompositeKernelRegression(
    kernels(X_train), response, combination="fixed"
)
classifier = kz.estimators.KernelClassifier().fit(X, y)
small_model = kz.CompositeKernelRegression.example()
process = kz.GaussianProcessClassification.example()

# A kernel to complete, and two kernels with missing objects.
theta = kz.gaussian(0.4)(X)
ideal = (y_train[:, None] == y_train).astype(float)
K11 = (theta.values[0, : len(ideal), : len(ideal)] + ideal) / 2
completion = kz.WishartCompletion(theta, K11)
exact = kz.fit(completion, "exact", draws=50, random_seed=1)
truth = {
    "a": kz.gaussian(0.1)(X[:12]).values[0],
    "b": kz.gaussian(0.3)(X[:12]).values[0],
}
A, B = truth["a"].copy(), truth["b"].copy()
A[10:] = A[:, 10:] = np.nan
B[:3] = B[:, :3] = np.nan
kinds = np.arange(12) % 2  # classes of their objects
squared_distances = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
# End of the names.

__all__ = ["names"]


def names() -> dict[str, object]:
    """Copy the names: an example does not change those of another."""
    names = globals().items()
    return {name: v for name, v in names if not name.startswith("_")}
