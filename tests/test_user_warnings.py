"""Warnings point at the user's line, whoever raises them and however deep."""

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

import kernelzoo as kz

RUN = {"draws": 5, "random_seed": 1, "progressbar": False, "log_likelihood": False}


def vanishing_weights():
    stack = kz.kernels.as_stack({"a": np.eye(3) + 1, "b": np.eye(3) + 2})
    kz.MultinomialProbit(stack, [0, 1, 1], combination=kz.combinations.Mean(0.1, 1.0))


def vb_unconverged():
    kz.fit(kz.MultinomialProbit.example(), kz.VB(max_iterations=2, starts=1), **RUN)


def vb_of_regression_unconverged():
    kz.fit(kz.CompositeKernelRegression.example(), kz.VB(max_iterations=2), **RUN)


def em_unconverged():
    kz.fit(kz.WishartCompletion.example(), kz.EM(max_iterations=1), **RUN)


def map_unconverged():
    kz.fit(kz.CompositeKernelRegression.example(), kz.MAP(max_iterations=1), **RUN)


def cross_validation():
    engine = kz.VB(max_iterations=2, starts=1)
    estimator = kz.estimators.KernelProbitClassifier(engine=engine, draws=5, random_state=1)
    cross_val_score(estimator, np.arange(24.0).reshape(12, 2) % 7, np.arange(12) % 2, cv=2)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (cross_validation, "did not converge"),
        (vanishing_weights, "makes weights of kernels smaller"),
        (vb_unconverged, "did not converge"),
        (vb_of_regression_unconverged, "did not converge"),
        (em_unconverged, "converge|iteration"),
        (map_unconverged, "MAP stopped"),
    ],
)
def test_warnings_point_at_the_line_of_the_user(act, message):
    with pytest.warns(UserWarning, match=message) as caught:
        act()
    own = [
        warning
        for warning in caught
        if "kernelzoo" in warning.filename or warning.filename == __file__
    ]
    assert {warning.filename for warning in own} == {__file__}
