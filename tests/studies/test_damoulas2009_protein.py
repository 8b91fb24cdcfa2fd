"""Tables 8 to 10 of damoulas2009: the division, its scaling, what is left out."""

import numpy as np
import pytest

from kernelzoo import datasets
from studies import damoulas2009
from studies.data import absence

needs_proteins = pytest.mark.skipif(
    absence("protein_fold") is not None, reason="protein_fold is not at hand"
)


@needs_proteins
def test_division_is_the_published_one_scaled_on_its_training_part():
    split, raw = damoulas2009.proteins(), datasets.load("protein_fold").X
    assert (len(split.y_train), len(split.y_test)) == (311, 383)
    assert len(np.unique(split.y_train)) == len(np.unique(split.y_test)) == 27
    assert tuple(split.X_train) == tuple(damoulas2009.PROTEIN_SPACES)
    for name, view in damoulas2009.PROTEIN_SPACES.items():
        train, test = raw[view].iloc[:311], raw[view].iloc[311:]
        expected = (test - train.mean()) / train.std(ddof=0)
        np.testing.assert_allclose(split.X_test[name], expected, atol=1e-9)
        assert split.X_test[name].mean().abs().max() > 0.05


def test_kernels_are_polynomials_of_two_scales():
    X = np.random.default_rng(0).normal(size=(5, 3))
    scaled, raw = (
        damoulas2009.SPACE_KERNELS[column](X).values[0]
        for column in (damoulas2009.SCALED, damoulas2009.RAW)
    )
    np.testing.assert_allclose(raw, (1 + X @ X.T) ** 2)
    np.testing.assert_allclose(np.diag(scaled), 1)
    root = np.sqrt(np.diag(raw))
    np.testing.assert_allclose(scaled, raw / np.outer(root, root))


@needs_proteins
def test_objects_of_norm_1_are_scaled_in_each_space():
    X = damoulas2009.proteins().X_train["Comp"]
    scaled = damoulas2009._of_norm_1(X)
    np.testing.assert_allclose((scaled**2).sum(axis=1), 1)
    kernel = damoulas2009.SPACE_KERNELS[damoulas2009.UNIT](scaled).values[0]
    lengths = np.linalg.norm(X, axis=1)
    cosine = X.to_numpy() @ X.to_numpy().T / np.outer(lengths, lengths)
    np.testing.assert_allclose(kernel, ((1 + cosine) / 2) ** 2)


@needs_proteins
def test_kernels_as_they_are_have_large_entries_and_a_product_that_is_nearly_diagonal():
    product, largest = 1.0, 0.0
    for X in damoulas2009.proteins().X_train.values():
        kernel = damoulas2009.SPACE_KERNELS[damoulas2009.RAW](X).values[0]
        product, largest = product * kernel, max(largest, kernel.max())
    assert largest > 1e4
    root = np.sqrt(np.diag(product))
    assert np.linalg.cond(product / np.outer(root, root)) < 2


@needs_proteins
@pytest.mark.parametrize("column", [damoulas2009.SCALED, damoulas2009.UNIT])
def test_a_study_scales_objects_as_its_column_says(column, monkeypatch):
    def seen(kernels, *args, **settings):
        raise InterruptedError(kernels)

    monkeypatch.setattr(damoulas2009, "fitted", seen)
    split = damoulas2009.proteins()
    with pytest.raises(InterruptedError) as caught:
        damoulas2009._classify(column, split, ["Comp"], "Comp", 1, damoulas2009.PROTEIN_RECIPE)
    X = split.X_train["Comp"]
    X = damoulas2009._of_norm_1(X) if column == damoulas2009.UNIT else X
    expected = damoulas2009.SPACE_KERNELS[column](X).values
    np.testing.assert_allclose(caught.value.args[0].values, expected, rtol=1e-12)


def test_learned_product_of_kernels_as_they_are_is_left_out_and_says_so():
    for column in (damoulas2009.SCALED, damoulas2009.RAW, damoulas2009.UNIT):
        study = damoulas2009.tables_8_to_10(column)
        skipped = {t.rows[0] for t in study.tasks if t.skip and "exponents" in t.skip}
        assert skipped == ({"WProd"} if column == damoulas2009.RAW else set())
        algorithms = [task.settings["recipe"]["algorithm"] for task in study.tasks]
        assert {each["max_iterations"] for each in algorithms} == {100}
        # The paper's sds are over starts.
        assert {each["begin"] for each in algorithms} == {"random"}
        assert study.published["FixSum", column].mean == 40.1
