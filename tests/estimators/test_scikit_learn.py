"""scikit-learn's own checks of estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelzoo as kz

FEW = {"draws": 20, "engine": kz.VB(tolerance=0.1, remaining=1.0)}
#: Nothing is left to the choice by prediction.
KNOWN = FEW | {"combination": "mean"}
FEATURES = [
    kz.estimators.KernelProbitClassifier(upsilon=1.0, **KNOWN),
    kz.estimators.CompositeKernelRegressor(varsigma=1.0, **KNOWN),
    kz.estimators.KernelBlocks(),
]
MORE = [
    kz.estimators.KernelProbitClassifier(**FEW),
    kz.estimators.CompositeKernelRegressor(**FEW),
    kz.estimators.KernelProbitClassifier("precomputed", **FEW),
    kz.estimators.CompositeKernelRegressor("precomputed", **FEW),
]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def expected_failures(estimator):
    """Checks that make a matrix that is no kernel out of a kernel."""
    if estimator.kernels != "precomputed":
        return {}
    return {
        "check_estimators_nan_inf": "it predicts from features, where similarities are expected",
        "check_positive_only_tag_during_fit": "it subtracts a number from all entries",
        "check_estimators_dtypes": "it cuts entries to whole numbers",
        "check_classifiers_train": "it rounds entries to single precision, as lists of floats",
        "check_regressors_train": "it rounds entries to single precision, as lists of floats",
    }


@parametrize_with_checks(FEATURES)
def test_checks(estimator, check):
    check(estimator)


# The checks of training pass in double precision.
@pytest.mark.slow
@parametrize_with_checks(MORE, expected_failed_checks=expected_failures, xfail_strict=False)
def test_checks_of_others(estimator, check):
    check(estimator)
