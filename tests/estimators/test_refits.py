"""A fitted estimator changes only when a fit succeeds, and parameters set since wait for it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import kernelzoo as kz
from kernelzoo.estimators import (
    CompositeKernelRegressor,
    KernelBlocks,
    KernelCompleter,
    KernelProbitClassifier,
    blocks,
    completer,
    predictor,
)

FEW = {"engine": kz.VB(tolerance=0.1, remaining=1.0), "draws": 20, "random_state": 1}
FEW |= {"combination": "mean", "blocks": {"a": [0, 1], "b": [2, 3]}}
RNG = np.random.default_rng(0)
X, OTHER, NEW = (pd.DataFrame(RNG.normal(size=(n, 4)), columns=list("pqrs")) for n in (12, 9, 3))
OTHER = OTHER.rename(columns={"p": "z"})
Y = X["p"].to_numpy()
GRAM = X @ X.T + np.eye(12)
LACKING = np.stack([GRAM, GRAM], axis=-1)
LACKING[2, :, 1] = LACKING[:, 2, 1] = np.nan
SWAPPED = {"blocks": {"b": [0, 1], "a": [2, 3]}}


def stopped(*_, **__):
    raise KeyboardInterrupt


#: Estimator, its data and others, parameters to set before a refit, that are refused in the end or
#: not, the room and the function in which Ctrl-C is pressed, and what the estimator answers.
CASES = {
    "classifier": (
        KernelProbitClassifier(upsilon=1.0, **FEW),
        (X, Y > 0),
        (OTHER, np.arange(9) % 3),
        SWAPPED,
        {"engine": "vbb"},
        (predictor, "fit"),
        lambda fitted: (fitted.predict_proba(NEW), fitted.weights_["description"], fitted.classes_),
    ),
    "regressor": (
        CompositeKernelRegressor(varsigma=1.0, **FEW),
        (X, Y),
        (OTHER, np.arange(9) * 1000.0),
        SWAPPED,
        {"engine": "vbb"},
        (predictor, "fit"),
        lambda fitted: (fitted.predict(NEW), fitted.weights_["description"], fitted.kernel_names_),
    ),
    "blocks": (
        KernelBlocks(blocks=FEW["blocks"]),
        (X,),
        (OTHER,),
        SWAPPED | {"standardize": False},
        {"kernels": kz.gaussian(kz.kernels.Theta())},
        (blocks, "FittedBlocks"),
        lambda fitted: (fitted.transform(NEW), fitted.get_feature_names_out()),
    ),
    "completer": (
        KernelCompleter(draws=3, engine="exact", random_state=1),
        (LACKING,),
        (LACKING[:9, :9] * 2,),
        {"engine": "em", "method": "mean", "lam": 3.0, "random_state": 5, "normalize": None},
        {"excess": -1.0},
        (completer, "complete_kernels"),
        lambda fitted: (fitted.completions(LACKING[:4]).draws, fitted.kernel_names_),
    ),
}


@pytest.mark.filterwarnings("ignore::kernelzoo.ApproximationWarning")
@pytest.mark.parametrize("how", ["set", "refused", "interrupted"])
@pytest.mark.parametrize("case", CASES)
def test_fits_that_fail_change_nothing(case, how, monkeypatch):
    """Bug: a refused fit left the scale of the new targets, and the new order of the blocks."""
    estimator, data, others, since, refused, interrupted, answers = CASES[case]
    fitted = clone(estimator).fit(*data)
    before, parameters = answers(fitted), fitted.get_params(deep=False)
    state = {name: value for name, value in vars(fitted).items() if name not in parameters}
    fitted.set_params(**since)
    if how == "refused":
        fitted.set_params(**refused)
        with pytest.raises(ValueError, match=next(iter(refused))):
            fitted.fit(*others)
    elif how == "interrupted":
        with monkeypatch.context() as patch:
            patch.setattr(*interrupted, stopped)
            with pytest.raises(KeyboardInterrupt):
                fitted.fit(*others)
    for now, then in zip(answers(fitted), before, strict=True):
        np.testing.assert_array_equal(now, then)
    left = {name: value for name, value in vars(fitted).items() if name not in parameters}
    assert left.keys() == state.keys()
    assert all(left[name] is state[name] for name in state)
