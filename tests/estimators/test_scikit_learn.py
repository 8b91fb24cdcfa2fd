"""scikit-learn's own checks of estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernelzoo as kz

FEW = {"draws": 20, "engine": kz.VB(tolerance=0.1, remaining=1.0)}
#: Nothing is left to the choice by prediction.
KNOWN = FEW | {"combination": "mean"}
FEATURES = [
    kz.estimators.KernelClassifier(),
    kz.estimators.KernelProbitClassifier(upsilon=1.0, **KNOWN),
    kz.estimators.CompositeKernelRegressor(varsigma=1.0, **KNOWN),
    kz.estimators.KernelBlocks(),
]
MORE = [
    kz.estimators.KernelRegressor(),
    kz.estimators.KernelClassifier("precomputed"),
    kz.estimators.KernelRegressor("precomputed"),
    kz.estimators.KernelProbitClassifier(**FEW),
    kz.estimators.CompositeKernelRegressor(**FEW),
    kz.estimators.KernelProbitClassifier("precomputed", **FEW),
    kz.estimators.CompositeKernelRegressor("precomputed", **FEW),
]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def expected_failures(estimator):
    """Checks of what weights do not mean, and those that make a matrix that is no kernel."""
    repeated = "a row that repeats is a column of the kernels too, an object of weight 2 is not"
    if estimator.kernels != "precomputed":
        return {"check_sample_weight_equivalence_on_dense_data": repeated}
    return {
        "check_sample_weight_equivalence_on_dense_data": repeated,
        "check_estimators_nan_inf": "it predicts from features, where similarities are expected",
        "check_positive_only_tag_during_fit": "it subtracts a number from all entries",
        "check_estimators_dtypes": "it cuts entries to whole numbers",
        "check_classifiers_train": "it rounds entries to single precision, as lists of floats",
        "check_regressors_train": "it rounds entries to single precision, as lists of floats",
    }


@parametrize_with_checks(FEATURES, expected_failed_checks=expected_failures)
def test_checks(estimator, check):
    check(estimator)


# The checks of training pass in double precision.
@pytest.mark.slow
@parametrize_with_checks(MORE, expected_failed_checks=expected_failures, xfail_strict=False)
def test_checks_of_others(estimator, check):
    check(estimator)
