"""Log loss and CPU seconds of other packages and ours, on the same objects, in one run.

Each package has a process of its own with one BLAS thread, which first fits an eighth of the
objects: imports and compilation are not counted. CPU seconds are those of the fit and of predicting
all new objects, R's start included. The last column has those after which the log loss is at most
0.01 above that of "kernelzoo"; only SVGP is asked before its end, every 50 steps.

Features are standardised. BEMKL, EasyMKL, himalaya and "three kernels" have Gaussian kernels, gamma
a quarter, one and four times the inverse of the median squared distance; the others have the
features. "kernelzoo" is `KernelClassifier` by default; the others of ours are
`KernelProbitClassifier`, by default on 300 landmarks beyond 2,000 objects.
No package is tuned: SVGP has 500 inducing points, minibatches of 1,024 and 1,000 steps of Adam at a
rate of 0.01; BEMKL the settings of its demonstration; vbmp the median width; himalaya labels -1 and
1, and 5 weights of the kernels (default: 100, for time). scikit-learn's are as in `heldout`.

KERNELZOO_PEERS names a Python with GPyTorch, MKLpy and himalaya, which runs this module too: a
function imports what it needs. KERNELZOO_BEMKL and KERNELZOO_VBMP name folders with their source,
for Rscript.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.preprocessing import StandardScaler

SPLITS = 3
WITHIN = 0.01
#: Most objects of a dense kernel, and steps of SVGP.
DENSE = 2000
STEPS = 1000
EVERY = 50
#: Yields functions that predict probabilities (object, class) or labels.
Fit = Iterator[Callable[[], Any]]


def _ours(data: Any) -> Fit:
    from kernelzoo.estimators import KernelClassifier

    fitted = KernelClassifier(random_state=1).fit(data.X, data.y)
    yield lambda: fitted.predict_proba(data.X_new)


def _probit(data: Any, **settings: Any) -> Fit:
    from kernelzoo.estimators import KernelProbitClassifier
    from kernelzoo.models.kernels import gaussian

    X = data.X
    X_new = data.X_new
    if settings.get("kernels") == "precomputed":
        X = np.moveaxis(data.K, 0, -1)
        X_new = np.moveaxis(data.K_new, 0, -1)
    elif not data.K.size:
        gamma, number = settings.pop("columns", ("median", 300))
        settings["kernels"] = gaussian(gamma).landmarks(number)
    fitted = KernelProbitClassifier(random_state=1, **settings).fit(X, data.y)
    yield lambda: fitted.predict_proba(X_new)


def _sklearn(data: Any, name: str) -> Fit:
    from .held_out import CLASSIFIERS

    fitted = CLASSIFIERS[name]().fit(data.X, data.y)
    yield lambda: fitted.predict_proba(data.X_new)


def _svgp(data: Any) -> Fit:
    import gpytorch as gp
    import torch

    torch.manual_seed(1)
    X, X_new, y = (torch.as_tensor(a, dtype=torch.float32) for a in (data.X, data.X_new, data.y))
    kernel = gp.kernels.ScaleKernel(gp.kernels.RBFKernel())

    class Model(gp.models.ApproximateGP):
        def __init__(self, points: Any) -> None:
            q = gp.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gp.variational.VariationalStrategy(self, points, q))
            self.mean = gp.means.ConstantMean()
            self.kernel = kernel

        def forward(self, x: Any) -> Any:
            return gp.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model = Model(X[:500].clone())
    likelihood = gp.likelihoods.BernoulliLikelihood()
    bound = gp.mlls.VariationalELBO(likelihood, model, len(X))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        rows = torch.randperm(len(X))[:1024]
        optimizer.zero_grad()
        (-bound(model.train()(X[rows]), y[rows])).backward()
        optimizer.step()
        if step % EVERY == 0:
            yield lambda: abs(
                likelihood(model.eval()(X_new)).probs.detach()[:, None] - torch.eye(2)[0]
            )


def _himalaya(data: Any) -> Fit:
    from himalaya.kernel_ridge import MultipleKernelRidgeCV

    options = {"n_iter": 5, "alphas": np.logspace(-5, 5, 11), "progress_bar": False}
    ridge = MultipleKernelRidgeCV("precomputed", solver_params=options, random_state=1)
    ridge.fit(data.K, 2.0 * data.y - 1)
    yield lambda: (np.ravel(ridge.predict(data.K_new)) > 0).astype(int)


def _easymkl(data: Any) -> Fit:
    import torch
    from MKLpy.algorithms import EasyMKL

    fitted = EasyMKL().fit([*map(torch.as_tensor, data.K)], torch.as_tensor(data.y))
    yield lambda: fitted.predict([*map(torch.as_tensor, data.K_new)])


def _in_r(data: Any, name: str) -> Fit:
    m = len(data.X_new)
    script = Path(__file__).with_name("peers.R")
    arrays = {"y": data.y, "K": data.K, "K_new": data.K_new, "X": data.X.T, "X_new": data.X_new.T}
    with tempfile.TemporaryDirectory() as folder:
        for key, array in arrays.items():
            np.ascontiguousarray(array, dtype=float).tofile(Path(folder, key))
        given = (name, os.environ[PEERS[name][1]], folder, *data.X.shape, m, 1 / data.gamma)
        subprocess.run(["Rscript", *map(str, (script, *given))], check=True)
        p = np.fromfile(Path(folder, "P")).reshape(-1, m).T
    yield lambda: p


#: Width and scale that suited a part of the letters; nothing else is chosen.
_chosen = {"upsilon": 1000.0, "combination": "mean", "standardize": "scale"}
_tuned: Callable[..., Fit] = partial(_probit, columns=(0.1, 300), **_chosen)
MANY = range(2, 99)
_by_gibbs = {"engine": "gibbs", "draws": 500, "tune": 500, "chains": 2, "cores": 1}
_three: Callable[..., Fit] = partial(_probit, kernels="precomputed")
#: The fit, the variable of the environment that it needs, the most objects, numbers of classes.
PEERS: dict[str, tuple[Callable[[Any], Fit], str, float, range]] = {
    "kernelzoo": (_ours, "", np.inf, MANY),
    "kernelzoo, multinomial probit": (_probit, "", np.inf, MANY),
    "kernelzoo, probit, tuned": (_tuned, "", np.inf, range(26, 27)),
    "kernelzoo, probit, three kernels": (_three, "", DENSE, MANY),
    "kernelzoo, probit, three kernels, Gibbs": (partial(_three, **_by_gibbs), "", 250, MANY),
    "GPyTorch SVGP": (_svgp, "KERNELZOO_PEERS", np.inf, range(2, 3)),
    "BEMKL": (partial(_in_r, name="BEMKL"), "KERNELZOO_BEMKL", DENSE, range(2, 3)),
    "vbmp": (partial(_in_r, name="vbmp"), "KERNELZOO_VBMP", DENSE, range(3, 99)),
    "MKLpy EasyMKL": (_easymkl, "KERNELZOO_PEERS", DENSE, MANY),
    "himalaya": (_himalaya, "KERNELZOO_PEERS", DENSE, range(2, 3)),
    "SVC": (partial(_sklearn, name="SVC"), "", np.inf, MANY),
    "Gaussian process": (partial(_sklearn, name="Gaussian process"), "", DENSE, MANY),
    "boosting": (partial(_sklearn, name="boosting"), "", np.inf, MANY),
    "random forest": (partial(_sklearn, name="random forest"), "", np.inf, MANY),
}


def obstacle(name: str, n: int, classes: int) -> str | None:
    """Say why a peer is not run on `n` objects; None if it is."""
    _, needs, most, those = PEERS[name]
    if classes not in those:
        told = {2: "two classes", 26: "letters"}.get(those[0], "more than two classes")
        return f"not run: for {told}"
    if n > most:
        return f"not run: {8e-9 * n**2:.1f} GB per kernel" if most == DENSE else "not run"
    return f"not run: set {needs}" if needs and needs not in os.environ else None


def some(data: Any, n: int) -> SimpleNamespace:
    """Take the first training objects."""
    parts = {"X": data.X[:n], "y": data.y[:n], "K": data.K[:, :n, :n], "K_new": data.K_new[..., :n]}
    return SimpleNamespace(**vars(data) | parts)


def measured(fit: Callable[[Any], Fit], data: Any) -> Iterator[tuple[float, float, float]]:
    """Yield CPU seconds, log loss and accuracy after each prediction of a fit."""
    # Of this process and of those that it waited for.
    start = sum(os.times()[:4])
    training = 0.0
    for predict in fit(data):
        fitted = sum(os.times()[:4])
        found = np.asarray(predict())
        seconds = training + sum(os.times()[:4]) - start
        codes = found
        own = np.nan
        if found.ndim == 2:
            codes = found.argmax(axis=1)
            own = found[np.arange(len(found)), data.y_new]
        loss = -np.log(np.maximum(own, 1e-12)).mean()
        yield seconds, float(loss), float(np.mean(codes == data.y_new))
        training += fitted - start
        start = sum(os.times()[:4])


def ionosphere() -> list[Any]:
    """Split 351 radar echoes several times."""
    from kernelzoo.datasets import load

    splits = (load("ionosphere").split(test_size=0.3, seed=seed) for seed in range(SPLITS))
    return [(each.X_train, each.X_test, each.y_train, each.y_test) for each in splits]


def simulated(n: int, classes: int) -> list[Any]:
    """Simulate ten overlapping clusters, and join every second or third to a class."""
    rng = np.random.default_rng(0)
    clusters = np.arange(n + 2000) % 10
    centres = 1.2 * rng.normal(size=(10, 8))
    X = rng.normal(size=(len(clusters), 8)) + centres[clusters]
    return [(X[:n], X[n:], clusters[:n] % classes, clusters[n:] % classes)]


def letters() -> list[Any]:
    """Split 20,000 printed letters once."""
    from kernelzoo.datasets import load

    split = load("letter").split(test_size=0.2, seed=1)
    return [(split.X_train, split.X_test, split.y_train, split.y_test)]


SETS: dict[str, Callable[[], list[Any]]] = {
    f"Ionosphere, 245 objects, mean of {SPLITS} splits": ionosphere,
    "400 simulated objects, three classes": lambda: simulated(400, 3),
    "2,000 simulated objects, two classes": lambda: simulated(2000, 2),
    "20,000 simulated objects, two classes": lambda: simulated(20_000, 2),
}
LETTERS = {"16,000 letters, 26 classes": letters}


def prepared(data: Any) -> dict[str, Any]:
    """Standardise features, number the classes, and compute the kernels where they are dense."""
    X, X_new = map(StandardScaler().fit(data[0]).transform, data[:2])
    y, y_new = (np.unique(labels, return_inverse=True)[1] for labels in data[2:])
    gamma = 1 / np.median(cdist(X[:1000], X[:1000], "sqeuclidean"))
    K = K_new = np.empty((3, 0, 0))
    if len(X) <= DENSE:
        scales = -gamma * np.array([0.25, 1, 4])[:, None, None]
        K, K_new = (np.exp(scales * cdist(rows, X, "sqeuclidean")) for rows in (X, X_new))
    return {"X": X, "X_new": X_new, "y": y, "y_new": y_new, "gamma": gamma, "K": K, "K_new": K_new}


def fitted(name: str, splits: list[dict[str, Any]]) -> Any:
    """Results of `measured` for each split, or a line that says why there are none."""
    if told := obstacle(name, len(splits[0]["y"]), splits[0]["y"].max() + 1):
        return told
    needs = PEERS[name][1]
    python = os.environ[needs] if needs == "KERNELZOO_PEERS" else sys.executable
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(splits):
            np.savez(Path(folder, str(number)), **data)
        command = [python, "-W", "ignore", "-m", "benchmarks.peers", name, folder]
        done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode:
        return "failed: " + done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout.splitlines()[-1])


def run(sets: Mapping[str, Callable[[], list[Any]]] | None = None) -> Iterator[str]:
    """Table of every peer on each data set."""
    from .record import markdown_table

    header = ("classifier", "log loss", "accuracy", "CPU s", "CPU s to our log loss")
    for title, read in (sets or SETS).items():
        yield f"**{title}**, load of the machine {os.getloadavg()[0]:.1f}"
        splits = [*map(prepared, read())]
        ours = np.nan
        rows = []
        for name in PEERS:
            runs = fitted(name, splits)
            if isinstance(runs, str):
                rows.append((name, "", "", "", runs))
                continue
            seconds, losses, right = np.mean(runs, axis=0).T
            ours = losses[-1] if name == "kernelzoo" else ours
            reached = [f"{s:.2f}" for s in seconds[losses <= ours + WITHIN]]
            loss = f"{losses[-1]:.3f}"
            after = [*reached, "not reached"][0]
            if np.isnan(losses[-1]):
                loss = after = ""
            rows.append((name, loss, f"{right[-1]:.3f}", f"{seconds[-1]:.2f}", after))
        yield markdown_table(header, rows)


def main(name: str, folder: str) -> None:
    """Print the results of `measured` for each split in a folder."""
    splits = [SimpleNamespace(**np.load(path)) for path in sorted(Path(folder).iterdir())]
    fit = PEERS[name][0]
    next(fit(some(splits[0], len(splits[0].y) // 8)))()
    print(json.dumps([[*measured(fit, data)] for data in splits]))


if __name__ == "__main__":
    main(*sys.argv[1:])
