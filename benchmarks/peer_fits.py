"""Fits of `peers`, each in a process of its own: ``python -m benchmarks.peer_fits NAME DATA.npz``.

A fit yields functions that predict probabilities (object, class) or labels; an iterative one yields
many. It imports what it needs: the module runs where other packages are not installed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

#: Most objects of a dense kernel, and steps of SVGP.
DENSE, STEPS, EVERY = 2000, 1000, 50
Fit = Iterator[Callable[[], Any]]


def _ours(data: Any, **settings: Any) -> Fit:
    from kernelzoo.estimators import KernelProbitClassifier
    from kernelzoo.models.kernels import gaussian

    X, X_new = data.X, data.X_new
    if "kernels" in settings:
        X, X_new = np.moveaxis(data.K, 0, -1), np.moveaxis(data.K_new, 0, -1)
    elif not data.K.size:
        settings["kernels"] = gaussian("median").landmarks(300)
    fitted = KernelProbitClassifier(random_state=1, **settings).fit(X, data.y)
    yield lambda: fitted.predict_proba(X_new)


def _sklearn(data: Any, name: str) -> Fit:
    from benchmarks.held_out import CLASSIFIERS

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
            self.mean, self.kernel = gp.means.ConstantMean(), kernel

        def forward(self, x: Any) -> Any:
            return gp.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model, likelihood = Model(X[:500].clone()), gp.likelihoods.BernoulliLikelihood()
    bound = gp.mlls.VariationalELBO(likelihood, model, len(X))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        rows = torch.randperm(len(X))[:1024]
        optimizer.zero_grad()
        (-bound(model.train()(X[rows]), y[rows])).backward()
        optimizer.step()
        if step % EVERY == 0:
            with torch.no_grad():
                yield lambda: abs(likelihood(model.eval()(X_new)).probs.numpy()[:, None] - (1, 0))


def _himalaya(data: Any) -> Fit:
    from himalaya.kernel_ridge import MultipleKernelRidgeCV

    options = {"n_iter": 10, "alphas": np.logspace(-5, 5, 11), "progress_bar": False}
    ridge = MultipleKernelRidgeCV("precomputed", solver_params=options, random_state=1)
    ridge.fit(data.K, 2.0 * data.y - 1)
    yield lambda: (np.ravel(ridge.predict(data.K_new)) > 0).astype(int)


def _easymkl(data: Any) -> Fit:
    import torch
    from MKLpy.algorithms import EasyMKL

    fitted = EasyMKL().fit([*map(torch.as_tensor, data.K)], torch.as_tensor(data.y))
    yield lambda: fitted.predict([*map(torch.as_tensor, data.K_new)])


def _in_r(data: Any, name: str) -> Fit:
    m, script = len(data.X_new), Path(__file__).with_name("peers.R")
    arrays = {"y": data.y, "K": data.K, "K_new": data.K_new, "X": data.X.T, "X_new": data.X_new.T}
    with tempfile.TemporaryDirectory() as folder:
        for key, array in arrays.items():
            np.ascontiguousarray(array, dtype=float).tofile(Path(folder, key))
        given = (name, os.environ[PEERS[name][1]], folder, *data.X.shape, m, 1 / data.gamma)
        subprocess.run(["Rscript", *map(str, (script, *given))], check=True)
        p = np.fromfile(Path(folder, "P")).reshape(-1, m).T
    yield lambda: p


_by_gibbs = {"engine": "gibbs", "draws": 500, "tune": 500, "chains": 2, "cores": 1}
_three: Callable[..., Fit] = partial(_ours, kernels="precomputed")
#: The fit, the variable of the environment that it needs, the most objects, numbers of classes.
PEERS: dict[str, tuple[Callable[[Any], Fit], str, float, range]] = {
    "kernelzoo": (_ours, "", np.inf, range(2, 9)),
    "kernelzoo, three kernels": (_three, "", DENSE, range(2, 9)),
    "kernelzoo, three kernels, Gibbs": (partial(_three, **_by_gibbs), "", 250, range(2, 9)),
    "GPyTorch SVGP": (_svgp, "KERNELZOO_PEERS", np.inf, range(2, 3)),
    "BEMKL": (partial(_in_r, name="BEMKL"), "KERNELZOO_BEMKL", DENSE, range(2, 3)),
    "vbmp": (partial(_in_r, name="vbmp"), "KERNELZOO_VBMP", DENSE, range(3, 9)),
    "MKLpy EasyMKL": (_easymkl, "KERNELZOO_PEERS", DENSE, range(2, 9)),
    "himalaya": (_himalaya, "KERNELZOO_PEERS", DENSE, range(2, 3)),
    "SVC": (partial(_sklearn, name="SVC"), "", np.inf, range(2, 9)),
    "Gaussian process": (partial(_sklearn, name="Gaussian process"), "", DENSE, range(2, 9)),
    "boosting": (partial(_sklearn, name="boosting"), "", np.inf, range(2, 9)),
}


def obstacle(name: str, n: int, classes: int) -> str | None:
    """Say why a peer is not run on `n` objects; None if it is."""
    _, needs, most, those = PEERS[name]
    if classes not in those:
        return f"not run: for {'two' if 2 in those else 'more than two'} classes"
    if n > most:
        return f"not run: {8e-9 * n**2:.1f} GB per kernel" if most == DENSE else "not run"
    return f"not run: set {needs}" if needs and needs not in os.environ else None


def measured(name: str, data: Any) -> Iterator[tuple[float, float, float]]:
    """Yield CPU seconds, log loss and accuracy after each prediction of a fit."""
    fit, few, training = PEERS[name][0], len(data.y) // 8, 0.0
    part = {"X": data.X[:few], "y": data.y[:few]}
    part |= {"K": data.K[:, :few, :few], "K_new": data.K_new[..., :few]}
    next(fit(SimpleNamespace(**vars(data) | part)))()
    # Of this process and of those that it waited for.
    start = sum(os.times()[:4])
    for predict in fit(data):
        fitted = sum(os.times()[:4])
        found = np.asarray(predict())
        seconds = training + sum(os.times()[:4]) - start
        codes, own = found, np.nan
        if found.ndim == 2:
            codes, own = found.argmax(axis=1), found[np.arange(len(found)), data.y_new]
        loss = -np.log(np.maximum(own, 1e-12)).mean()
        yield seconds, float(loss), float(np.mean(codes == data.y_new))
        training += fitted - start
        start = sum(os.times()[:4])


if __name__ == "__main__":
    print(json.dumps([*measured(sys.argv[1], SimpleNamespace(**np.load(sys.argv[2])))]))
