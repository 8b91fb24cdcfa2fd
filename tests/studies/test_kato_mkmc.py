"""The studies of Kato and Rivero: their cells, what each method is told, what is measured."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

import kernelzoo as kz
from kernelzoo.models.kernels.stack import as_stack
from studies import kato
from studies.__main__ import STUDIES, main
from studies.data import absence
from studies.kato import Problem, nested_mask, training_part

METHODS = kato.METHODS
NAMES = ("u", "v", "w")


def small_problem(column, seed, ratio):
    """Thirty objects of two classes in three views, which are much alike."""
    rng = np.random.default_rng(seed)
    labels = np.arange(30) % 2
    shared = rng.normal(size=(30, 4)) + 0.8 * labels[:, None]
    kernels = {}
    for name in NAMES:
        x = shared + 0.5 * rng.normal(size=(30, 4))
        kernels[name] = kz.gaussian(0.25)(x).to_numpy()[0]
    visible = nested_mask(rng, 30, 3, ratio)
    return Problem(as_stack(kernels), visible, labels, NAMES)


def run(methods, *, ratio=50, every_kernel=True, seed=4):
    return kato.completion(
        "mfeat",
        seed,
        ratio=ratio,
        methods={name: METHODS[name] for name in methods},
        parts=kato.PARTS,
        every_kernel=every_kernel,
    )


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(kato, "problem", small_problem)


@pytest.fixture(scope="module")
def studies():
    for data in ("mfeat", "kernels_digits200", "protein_fold", "kernels_embryo"):
        if reason := absence(data):
            pytest.skip(reason)
    return [STUDIES[f"kato-figure{number}"]() for number in (2, 3, 4)]


def test_figures_share_their_units(studies):
    assert [study.name for study in studies] == [f"kato-figure{number}" for number in (2, 3, 4)]
    assert {study.ledger for study in studies} == {"kato"}
    keys = [set(study.units(2)) for study in studies]
    assert keys[0] < keys[2]
    assert keys[1] < keys[2]
    shown = [study.shown for study in studies]
    rows = {row for study in studies for task in study.tasks for row in task.rows}
    assert set.union(*map(set, shown)) == rows
    # Two are in two of the figures: M at half missing.
    assert all("50 %: AUC of M" in row for row in shown[0] & shown[1])
    assert not shown[2] & (shown[0] | shown[1])


def test_published_numbers_stand_beside_nothing_of_ours(studies):
    study = studies[0]
    (task,) = (task for task in study.tasks if task.column == kato.YEAST)
    assert {(row, task.column) for row in task.rows} == set(study.published)
    assert "not available" in task.skip
    cell = study.published["EM as printed, 50 %: AUC of M, small part", kato.YEAST]
    assert cell.mean == 77.9
    assert np.isnan(cell.spread)
    assert not studies[1].published
    assert not studies[2].published


def test_methods_are_the_recipes(studies):
    assert METHODS["EM as printed"]["lam"] == 0.001
    assert METHODS["EM as printed"]["engine"] == {
        "start": "zero",
        "memory": 0,
        "max_iterations": 100,
    }
    assert {METHODS[name]["lam"] for name in ("zero", "mean", "EM", "Gibbs")} == {0.1}
    assert kato.PARTS["large"] == pytest.approx(1000 / 2318, abs=0.002)
    repeated = {t.column: t.splits for t in studies[2].tasks if "Gibbs" not in t.rows[0]}
    assert repeated["mfeat"] == studies[2].splits == 30


def test_rows_are_those_that_a_run_fills(small, monkeypatch):
    column = kato.COLUMNS["mfeat"] | {"kernels": NAMES}
    monkeypatch.setitem(kato.COLUMNS, "mfeat", column)
    everything = kato.figure_4().tasks
    for ratio in (20, 50):
        tasks = [
            task
            for task in everything
            if task.column == "mfeat" and task.settings["ratio"] == ratio
        ]
        assert [set(task.settings["methods"]) for task in tasks] == [
            set(kato.PLAIN),
            {"Gibbs"},
        ]
        values = kato.completion("mfeat", 1, **tasks[0].settings)
        assert tuple(values) == tasks[0].rows
        rows = [row.replace("Gibbs", "mean") for row in tasks[1].rows if "coverage" not in row]
        assert set(rows) <= set(values)


def test_numbers_are_those_of_the_pieces(small):
    given = small_problem("mfeat", 4, 0.5)
    values = run(["mean", "EM"])
    model = kz.MutualKernelCompletion(given.kernels, given.visible, lam=0.1, collapsed=True)
    completed = kz.predict(model, kz.fit(model, "em", progressbar=False))
    distance = 100 * kz.scores.correlation_distance(completed["kernel_mean"], given.kernels).mean()
    assert values["EM, 50 %: distance"] == pytest.approx(float(distance))
    train = training_part(np.random.default_rng(4), given.labels, 0.43)
    area = kato.svm_auc(completed["model_matrix"], given.labels, train)
    assert values["EM, 50 %: AUC of M, large part"] == pytest.approx(100 * area)
    mean = kz.completion.impute_kernels(given.kernels, given.visible)
    area = kato.svm_auc(mean.sel(kernel="v"), given.labels, train)
    assert values["mean, 50 %: AUC of v, large part"] == pytest.approx(100 * area)
    # Unit diagonals: eq (22) is the mean but for lambda.
    M = (0.1 * np.eye(30) + mean.sum("kernel").to_numpy()) / 3.1
    area = kato.svm_auc(M, given.labels, train)
    assert values["mean, 50 %: AUC of M, large part"] == pytest.approx(100 * area)


@pytest.mark.parametrize("classes", [2, 3])
def test_areas_under_the_curve_are_means_over_machines_of_one_class(classes):
    rng = np.random.default_rng(1)
    labels = np.arange(60) % classes
    x = rng.normal(size=(60, 2)) + 1.5 * np.eye(classes)[labels][:, :2]
    train = rng.random(60) < 0.5
    K = x @ x.T
    areas = []
    for c in range(classes) if classes > 2 else [1]:
        machine = SVC(kernel="precomputed").fit(K[np.ix_(train, train)], labels[train] == c)
        scores = machine.decision_function(K[np.ix_(~train, train)])
        areas.append(roc_auc_score(labels[~train] == c, scores))
    assert kato.svm_auc(K, labels, train) == pytest.approx(np.mean(areas))
    assert 0.6 < np.mean(areas) < 1


def test_units_of_kernels_do_not_matter_to_the_imputations_matrix(small):
    given = small_problem("mfeat", 4, 0.5)
    scaled = given._replace(kernels=given.kernels * np.array([1.0, 5.0, 0.1])[:, None, None])
    for method in ("zero", "mean"):
        one, other = (kato._impute(g, 0, METHODS[method]).M for g in (given, scaled))
        np.testing.assert_allclose(one, other)


@pytest.mark.skipif(absence("mfeat") is not None, reason="mfeat is not at hand")
def test_lambda_hardly_matters_to_the_imputations_matrix():
    """As the choices of the studies say: the paper names none for it."""
    given = kato.problem("mfeat", 4, 0.5)
    train = training_part(np.random.default_rng(4), given.labels, 0.2)
    for method in ("zero", "mean"):
        small, ours = (
            kato._impute(given, 0, METHODS[method] | {"lam": lam}).M for lam in (0.001, 0.1)
        )
        areas = [kato.svm_auc(M, given.labels, train) for M in (small, ours)]
        assert abs(areas[0] - areas[1]) < 0.003


def test_gibbs_tells_its_coverage(monkeypatch):
    def two_views(column, seed, ratio):
        """One of them complete, which leaves little to compile."""
        given = small_problem(column, seed, ratio)
        visible = np.column_stack([np.ones(30, dtype=bool), given.visible[:, 1]])
        return Problem(given.kernels[:2], visible, given.labels, NAMES[1:2])

    monkeypatch.setattr(kato, "problem", two_views)
    recipe = METHODS["Gibbs"] | {"fit": {"draws": 300, "tune": 100, "chains": 1}}
    monkeypatch.setitem(METHODS, "Gibbs", recipe)
    values = run(["Gibbs", "mean"], every_kernel=False)
    assert set(values) == {
        *(f"Gibbs, 50 %: {m}" for m in ("distance", "coverage", "AUC of M, small part")),
        *(f"mean, 50 %: {m}" for m in ("distance", "AUC of M, small part")),
    }
    assert values["Gibbs, 50 %: distance"] < values["mean, 50 %: distance"]
    assert 30 < values["Gibbs, 50 %: coverage"] <= 100


def test_the_command_writes_the_table(small, studies, monkeypatch, tmp_path, capsys):
    tasks = [t for t in studies[2].tasks if t.column == "mfeat" and t.settings["ratio"] == 20][:1]
    study = replace(studies[2], tasks=tuple(tasks))
    monkeypatch.setitem(STUDIES, study.name, lambda: study)
    assert main([study.name, "--splits", "1", "--out", str(tmp_path)]) == 0
    assert "/kato" in capsys.readouterr().out.replace("\n", "")
    assert {path.name for path in tmp_path.glob("[!.]*")} == {"kato-figure4.csv", "kato"}
