import numpy as np
import pytest
from xarray import Dataset

from kernelzoo.inference.diagnostics.scores import held_out
from kernelzoo.inference.multinomial_probit.classifier_combination import combine_classifiers

P = np.array(
    [
        [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.4, 0.1]],
        [[0.1, 0.8, 0.1], [0.1, 0.6, 0.3], [0.3, 0.6, 0.1]],
        [[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.1, 0.2, 0.7]],
    ]
)


def predictions(p, obs=("x", "y", "z"), classes=("a", "b", "c")):
    return Dataset(
        {"probability": (("obs", "class"), p)}, coords={"obs": list(obs), "class": list(classes)}
    )


EACH = [predictions(p) for p in P]
PRODUCT = P.prod(0) / P.prod(0).sum(-1, keepdims=True)
LARGEST = P.max(0) / P.max(0).sum(-1, keepdims=True)
VOTES = np.array([[2, 1, 0], [1, 2, 0], [1, 1, 1]]) / 3


@pytest.mark.parametrize(
    ("rule", "expected", "labels"),
    [
        ("product", PRODUCT, ["b", "b", "b"]),
        ("mean", P.mean(0), ["b", "b", "b"]),
        ("max", LARGEST, ["b", "a", "c"]),
        # Three ways tied on the last object: the largest mean decides.
        ("majority", VOTES, ["a", "b", "b"]),
    ],
)
def test_rules(rule, expected, labels):
    combined = combine_classifiers(EACH, rule)
    np.testing.assert_allclose(combined["probability"], expected)
    np.testing.assert_allclose(combined["probability"].sum("class"), 1)
    assert combined["label"].values.tolist() == labels
    found = held_out(combined, ["b", "b", "b"])
    assert found["accuracy"] == pytest.approx(np.mean([each == "b" for each in labels]))
    assert set(found) == {"accuracy", "log_score", "brier"}


def test_names_and_order_of_dims_do_not_matter():
    named = {"shape": EACH[0], "colour": EACH[1].transpose("class", "obs")}
    np.testing.assert_allclose(
        combine_classifiers(named, "mean")["probability"], P[:2].mean(axis=0)
    )


def test_products_of_many_or_contradicting_classifiers():
    many = combine_classifiers([predictions(np.full((3, 3), 0.333) + 1e-3 * np.eye(3))] * 900)
    assert np.isfinite(many["probability"]).all()
    contradicting = [predictions(np.eye(3)), predictions(np.roll(np.eye(3), 1, axis=0))]
    # What both exclude stays out; what one of them excludes is even.
    expected = (np.eye(3) + contradicting[1]["probability"].values) / 2
    np.testing.assert_allclose(
        combine_classifiers(contradicting)["probability"], expected, atol=1e-300
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((EACH, "sum"), "'rule'.*one of 'product'"),
        (([],), "'predictions'.*'probability'"),
        (([Dataset()],), "'predictions'.*'probability'"),
        (([EACH[0], predictions(P[1], obs="xyq")],), "same objects and classes"),
        (([EACH[0], predictions(P[1], classes="abd")],), "same objects and classes"),
        (([EACH[0], predictions(P[1, :2], obs="xy")],), "same objects and classes"),
        (
            ([EACH[0], predictions(P[1] * [[1], [np.nan], [1]])],),
            r"'predictions\[1\]'.* nan at .*'y'",
        ),
        (([EACH[0], predictions(P[1] * [[1], [1], [2]])],), "sum to one .* sum of 2 .* object 'z'"),
        (({"a": predictions(P[0] + [[-0.3, 0.3, 0]]), "b": EACH[1]},), r"\['a'\].* of -0\.1 at"),
    ],
)
def test_wrong_requests(arguments, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        combine_classifiers(*arguments)
