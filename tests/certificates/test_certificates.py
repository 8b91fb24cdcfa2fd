"""Certificates: right engines are green, biased amber, broken red, and none is missing."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from xarray import Dataset, DataTree

import kernelzoo as kz
from certificates import agreement, case, code, modes, ranks
from certificates import run as running
from certificates.agreement import Agreement, differences
from certificates.bounds import BoundRises
from certificates.case import UnfinishedError
from certificates.cells import all_cells
from certificates.findings import ALPHA, Finding, colour_of
from certificates.modes import Peak, Stationary
from certificates.ranks import Calibration, Miscalibration, p_value
from certificates.run import certify
from certificates.table import evidence, page
from kernelzoo.inference.diagnostics.calibrate import Band


@pytest.fixture(scope="module")
def wishart_em():
    return next(cell for cell in all_cells() if cell.slug == "wishart-em")


def finding(outcome, decisive=True, **figures):
    return Finding("check", "measure", outcome, "told", decisive=decisive, figures=figures)


#: Figures of an agreement with the reference.
NEAR = {"bias": 0.2, "least_sd_ratio": 0.9, "largest_sd_ratio": 1.1, "resolution": 0.3}


def result(draws):
    posterior = Dataset({"x": (("chain", "draw", "i"), draws[None])})
    tree = DataTree.from_dict({"posterior": posterior})
    tree.attrs |= {"kind": "exact", "independent": 1, "engine": "Exact"}
    return tree


@pytest.mark.parametrize(
    ("findings", "colour"),
    [
        ([finding("passed"), finding("not run")], "green"),
        ([finding("passed"), finding("biased")], "amber"),
        ([finding("biased"), finding("failed")], "red"),
        ([finding("passed", decisive=False), finding("not run")], "not run"),
        ([finding("passed", bias_found=1.6)], "pale"),
        ([finding("passed", bias_found=1.6), finding("passed", **NEAR)], "green"),
        ([finding("passed", bias_found=0.4)], "green"),
        ([finding("passed", **NEAR | {"bias": -0.4})], "amber"),
        ([finding("passed", **NEAR | {"least_sd_ratio": 0.7})], "amber"),
        ([finding("passed", **NEAR | {"largest_sd_ratio": 1.3})], "amber"),
        ([finding("passed", **NEAR | {"pareto_k": 0.8})], "amber"),
        ([finding("passed"), finding("unfinished")], "unfinished"),
        ([finding("unfinished"), finding("biased")], "amber"),
        ([], "not run"),
    ],
)
def test_colours(findings, colour):
    assert colour_of(findings) == colour


def test_shrunk_and_shifted_draws_are_found_and_right_ones_are_not():
    rng = np.random.default_rng(1)
    # Draws without moments: the scores have all of them.
    base, same = (result(rng.standard_cauchy(size=(4000, 2))) for _ in range(2))
    assert differences(same, base).p >= ALPHA
    shrunk = differences(result(0.8 * rng.standard_cauchy(size=(4000, 2))), base)
    assert shrunk.p < ALPHA
    assert shrunk.largest_ratio < 0.95
    normal = result(rng.normal(size=(4000, 2)))
    shifted = differences(result(0.3 + rng.normal(size=(4000, 2))), normal)
    assert shifted.p < ALPHA
    assert shifted.bias == pytest.approx(0.3, abs=0.08)


def test_p_values_of_ranks_are_uniform():
    rng = np.random.default_rng(2)
    band = Band(40, 0.5)
    p = [p_value(band, rng.uniform(size=40)) for _ in range(300)]
    assert stats.kstest(p, "uniform", alternative="greater").pvalue > 1e-3
    assert np.mean(np.array(p) < 0.2) > 0.08
    assert p_value(band, rng.uniform(size=40) ** 3) < 1e-4


def test_every_engine_that_applies_has_a_cell():
    cells = {(cell.variant.slug, cell.engine) for cell in all_cells()}
    for variant in {cell.variant for cell in all_cells()}:
        rows = kz.engines(variant.example()).frame.query("applies != 'no'").index
        assert {(variant.slug, engine) for engine in [*rows, "declaration"]} <= cells
    assert {cell.variant.model for cell in all_cells()} == set(kz.MODELS)
    assert len({cell.slug for cell in all_cells()}) == len(all_cells())


def ranks_of(truths):
    """Result of `calibrate` with an engine whose draws are standard normal."""
    group = Dataset({"x": (("chain", "draw", "i"), stats.norm.cdf(truths)[None])})
    tree = DataTree.from_dict({"prior_sbc": group})
    tree.attrs |= {"draws": 31, "failures": "{}", "not_converged": 0}
    return tree


def test_ranks_tell_an_approximations_bias_and_spread():
    rng = np.random.default_rng(4)
    truths = np.stack([rng.normal(size=160), -0.5 + 2 * rng.normal(size=160)], axis=1)
    found = Miscalibration(160)._finding(ranks_of(truths))
    assert found.outcome == "biased"
    assert found.figures["bias"] == pytest.approx(0.5, abs=0.4)
    assert found.figures["spread"] == pytest.approx(2, abs=0.3)
    assert "truths spread" in found.message
    assert Calibration(160)._finding(ranks_of(truths)).outcome == "failed"
    assert Miscalibration(160)._finding(ranks_of(truths[:, :1])).outcome == "passed"


def test_failed_fits_of_an_approximation_are_no_bias():
    ranks = ranks_of(np.random.default_rng(4).normal(size=(160, 1)))
    ranks.attrs["failures"] = '{"3": "planted"}'
    found = Miscalibration(160)._finding(ranks)
    assert found.outcome == "failed"
    assert "planted" in found.message


def fitted_in(seconds, left, monkeypatch):
    """Numbers of replicates asked for, when each takes so many seconds of planned and all time."""
    clock, asked = [0.0], []

    def calibrate(*given, replicates, **options):
        clock[0] += seconds * (replicates - (asked[-1] if asked else 0))
        asked.append(replicates)
        return ranks_of(np.random.default_rng(1).normal(size=(replicates, 1)))

    def fit(*given, **options):
        clock[0] += seconds

    monkeypatch.setattr(ranks, "calibrate", calibrate)
    monkeypatch.setattr(ranks.time, "monotonic", lambda: clock[0])
    model = kz.CompositeKernelRegression.example()
    cell = SimpleNamespace(slug="cell")
    planned, ends = left
    example = case.Case(cell, model, kz.VB(), 1, Path(), planned, ends)
    monkeypatch.setattr(case.Case, "fit", fit)
    Calibration(80)(example)
    return asked


def test_calibration_makes_its_least_and_as_many_replicates_as_are_planned(monkeypatch):
    assert fitted_in(1, (60, 900), monkeypatch) == [20, 40]
    assert fitted_in(0.1, (60, 900), monkeypatch) == [20, 40, 80]
    assert fitted_in(30, (60, 900), monkeypatch) == [20]
    with pytest.raises(case.UnfinishedError, match="20 replicates would take 1800 s"):
        fitted_in(90, (60, 900), monkeypatch)


def test_a_cell_from_another_process_is_its_own_reference(tmp_path):
    cell = next(cell for cell in all_cells() if cell.slug == "wishart-exact")
    shipped = pickle.loads(pickle.dumps(cell))
    example = case.Case(shipped, None, kz.Exact(), 1, tmp_path, np.inf, np.inf)
    with pytest.raises(case.NotRunError, match="it is the reference: the rows"):
        Agreement()(example)


class Unfinished:
    name, measures = "long", "nothing"

    def __call__(self, case):
        raise UnfinishedError("its time was over")


class Broken:
    name, measures = "broken", "nothing"

    def __call__(self, case):
        raise FloatingPointError("planted")


@pytest.mark.parametrize(
    ("check", "verdict", "done"),
    [(Unfinished(), "unfinished", False), (Broken(), "red", True)],
)
def test_cells_whose_check_ends_early(wishart_em, tmp_path, monkeypatch, check, verdict, done):
    monkeypatch.setattr(running, "checks_of", lambda engine: (check,))
    monkeypatch.setattr(running, "_recipe", lambda cell, seed: "recipe")
    assert certify(wishart_em, tmp_path).verdict == verdict
    assert running.is_done(wishart_em, running.read(tmp_path)["wishart-em"]) is done


def test_cells_are_written_read_and_done_until_their_checks_change(
    wishart_em, tmp_path, monkeypatch
):
    one = certify(wishart_em, tmp_path)
    assert one.verdict == "green"
    content = json.loads((tmp_path / "wishart-em.json").read_text())
    assert {"verdict", "seed", "seconds", "versions", "checks", "recipe"} <= content.keys()
    assert {"statistic", "threshold", "outcome"} <= content["checks"][0].keys()
    assert running.read(tmp_path) == {"wishart-em": one}
    text = page(running.read(tmp_path), all_cells())
    assert f"**{len(all_cells())} cells: 1 green, " in text
    assert ">WishartCompletion</a>" in text
    assert running.is_done(wishart_em, one)
    assert not running.is_done(wishart_em, None)
    monkeypatch.setattr(running, "checks_of", lambda engine: (Broken(),))
    assert not running.is_done(wishart_em, one)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_statistic_that_is_not_finite_has_failed(wishart_em, tmp_path, monkeypatch, value):
    figures = {"known": 1.0, "unknown": value}
    told = Finding("check", "measure", "passed", "told", value, 1.0, figures=figures)
    monkeypatch.setattr(running, "checks_of", lambda engine: (lambda case: told,))
    monkeypatch.setattr(running, "_recipe", lambda cell, seed: "recipe")
    one = certify(wishart_em, tmp_path)
    assert one.verdict == "red"
    assert one.checks[0].statistic is None
    assert one.checks[0].figures == {"known": 1.0}


def test_error_of_populations_is_that_of_their_means():
    populations = np.random.default_rng(5).normal(size=(4, 30)) + np.arange(4)[:, None]
    found, freedom = agreement._error(populations, {"independent": 0})
    assert found == pytest.approx(stats.sem(populations.mean(axis=1)))
    assert freedom == 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_draws_without_a_standard_error_do_not_agree():
    rng = np.random.default_rng(3)
    population = result(5 + rng.normal(size=(300, 2)))
    population.attrs["independent"] = 0
    with pytest.raises(ValueError, match="x has too few draws or populations"):
        differences(population, result(rng.normal(size=(4000, 2))))


@pytest.mark.parametrize(
    ("bounds", "outcome"),
    [
        ([-3.0, -2.0, np.nan], "passed"),
        ([-3.0, -2.0, -2.1], "failed"),
        ([-3.0, np.nan, -2.0], "failed"),
        ([-3.0, -2.0, -np.inf], "failed"),
    ],
)
def test_a_bound_that_is_lost_does_not_rise(bounds, outcome):
    rows = ("start", "iteration"), [bounds, [-3.0, -2.5, -2.0]]
    fitted = DataTree.from_dict({"trajectory": Dataset({"elbo": rows})})
    case = SimpleNamespace(fit=lambda **options: fitted)
    found = running._with_finite_figures(BoundRises()(case))
    assert found.outcome == outcome


def test_slopes_that_are_infinite_around_an_answer_prove_nothing(monkeypatch):
    def density(x):
        return 0.0, np.where(x == 0, 1.0, np.inf)

    monkeypatch.setattr(modes, "peak_of", lambda engine, case: Peak(np.zeros(2), density, ""))
    found = Stationary()(SimpleNamespace(engine=kz.EM(), seed=1))
    assert found.outcome == "failed"


def test_exponents_of_an_answer_are_taken_as_they_are():
    """Weights on the simplex are moved off its corners; exponents add up to any number."""
    K = np.abs(kz.MultinomialProbit.example()["K"].get_value())
    labels = kz.MultinomialProbit.example()["labels"].get_value()
    model = kz.MultinomialProbit(K @ K.mT, labels, combination="product")
    values = model.initial_point()
    free = {rv.name: rv.eval() for rv in model.free_RVs}
    free["beta"] = np.full_like(free["beta"], 3.0)
    point = {n: ([f"{n}_{i}" for i in range(np.ndim(v))], v) for n, v in free.items()}
    answer = DataTree.from_dict({"point": Dataset(point)})
    found = modes._answer(model, model.free_RVs, answer)
    assert np.isclose(found, np.log(3.0)).sum() == free["beta"].size
    assert found.size == sum(np.size(value) for value in values.values())


@pytest.mark.filterwarnings("ignore:MAP stopped")
@pytest.mark.parametrize(("converged", "outcome"), [("yes", "failed"), ("no", "biased")])
def test_an_answer_that_map_itself_denies_is_not_wrong(converged, outcome):
    model = kz.CompositeKernelRegression.example()
    fitted = kz.fit(model, kz.MAP(method="gradient", max_iterations=1), progressbar=False)
    fitted.attrs["converged"] = converged
    example = SimpleNamespace(model=model, engine=kz.MAP(), seed=1, fit=lambda *given: fitted)
    assert Stationary()(example).outcome == outcome


def test_a_fit_that_ctrl_c_ended_is_no_finding(monkeypatch):
    fitted = DataTree()
    fitted.attrs["ended_by"] = "interrupt"
    monkeypatch.setattr(case, "fit", lambda *given, **options: fitted)
    with pytest.raises(KeyboardInterrupt):
        case._fitted(kz.WishartCompletion.example(), kz.EM(), 1.0, {})


def test_missing_cells_are_told_and_foreign_files_refused(tmp_path):
    cells = all_cells()
    assert f"{len(cells)} not run yet" in page({}, cells)
    (tmp_path / "foreign.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a certificate"):
        running.read(tmp_path)


def test_every_coloured_cell_leads_to_its_evidence():
    cells = all_cells()
    found = running.read(Path(__file__).resolve().parents[2] / "docs" / "certificates")
    cards = {cell.variant.slug: evidence(cell.variant, found, cells) for cell in cells}
    links = re.findall(r'<td class="[^"]+"><a href="cards/(.+?)\.html#(.+?)">', page(found, cells))
    assert len(links) == len(cells)
    assert all(f'<a id="{anchor}"></a>' in cards[card] for card, anchor in links)


@pytest.mark.parametrize("renewed", [False, True])
def test_a_card_gives_a_cell_the_words_and_the_colour_of_the_page(renewed):
    """Also where some cells are stale and others are not."""
    cells = all_cells()
    found = running.read(Path(__file__).resolve().parents[2] / "docs" / "certificates")
    if renewed:
        found = {slug: replace(each, code="old") for slug, each in found.items()}
        present = code.fingerprint_of_code(next(c for c in cells if c.slug == "probit-vb"))
        found["probit-vb"] = replace(found["probit-vb"], code=present)
    text = page(found, cells)
    on_page = re.findall(r'<td class="([^"]+)"><a href="cards/.+?\.html#(.+?)">(.+?)</a>', text)
    assert len(on_page) == len(cells)
    for cell in cells:
        row = rf'<a id="{cell.slug}"></a>[^|]+\| <span class="certificate (.+?)">(.+?)</span>'
        ((kind, told),) = re.findall(row, evidence(cell.variant, found, cells))
        assert (kind, cell.slug, told) in on_page
    if renewed:
        made = [(slug, told) for _, slug, told in on_page if slug in found]
        assert [slug for slug, told in made if "stale" not in told] == ["probit-vb"]


def test_changed_code_makes_a_certificate_stale(wishart_em, tmp_path, monkeypatch):
    one = certify(wishart_em, tmp_path)
    assert ' stale"' not in page({"wishart-em": one}, all_cells())
    changed = "def f(x):\n    return x\n"
    for text, same in [
        ('"""Say."""\n' + changed, True),
        (changed.replace("return", "# Why.\n    return"), True),
        (changed.replace("return x", "return -x"), False),
    ]:
        for name, content in (("before.py", changed), ("after.py", text)):
            (tmp_path / name).write_text(content, encoding="utf-8")
        code._statements.cache_clear()
        before, after = (code._statements(tmp_path / f"{n}.py") for n in ("before", "after"))
        assert (before == after) is same
    monkeypatch.setattr(code, "_statements", lambda path: b"changed")
    code.fingerprint_of_code.cache_clear()
    # Where nothing is of the present code, a sentence says so, and no cell is hatched.
    told = page({"wishart-em": one}, all_cells())
    assert "made by an earlier version of the code" in told
    assert ' stale"' not in told
    assert "of them stale" not in told
    exact = next(cell for cell in all_cells() if cell.slug == "wishart-exact")
    present = replace(one, cell=exact.slug, code=code.fingerprint_of_code(exact))
    told = page({"wishart-em": one, exact.slug: present}, all_cells())
    assert "earlier version" not in told
    assert "1 of them stale" in told
    assert told.count(' stale"') == 1
    assert not running.is_done(wishart_em, one)
    code.fingerprint_of_code.cache_clear()


@pytest.mark.parametrize(
    ("slug", "files", "others"),
    [
        (
            "wishart-em",
            {"models/wishart_completion.py", "inference/kernel_completion/wishart.py"},
            {"inference/kernel_completion/classifiers.py"},
        ),
        (
            "probit-gibbs",
            {"custom_steps/multinomial_probit/marginal.py", "custom_steps/moves/ellipse.py"},
            {"inference/multinomial_probit/vb.py"},
        ),
        (
            "probit-vb",
            {"inference/multinomial_probit/vb_kernels.py", "inference/variational/ascent.py"},
            {"inference/multinomial_probit/predict.py"},
        ),
        # Its draws are those of the step.
        ("mutual-exact", {"custom_steps/mutual_completion/steps.py"}, set()),
        ("probit-advi", {"models/multinomial_probit.py", "inference/generic.py"}, set()),
        ("probit-declaration", {"models/multinomial_probit.py", "models/declaration.py"}, set()),
    ],
)
def test_code_of_a_cell_is_that_of_its_declaration_engine_and_steps(slug, files, others):
    cell = next(cell for cell in all_cells() if cell.slug == slug)
    found = {path.relative_to(code._PACKAGE).as_posix() for path in code.files_of(cell)}
    assert files <= found
    assert not {"validation.py", "inference/engine/fit.py", *others} & found


def test_certificates_outlast_a_version_of_kernelzoo_but_not_of_a_library(monkeypatch):
    cell = all_cells()[0]
    now = running.versions()
    recipe = running._recipe(cell, 1)
    monkeypatch.setattr(running, "versions", lambda: now | {"kernelzoo": "999"})
    assert running._recipe(cell, 1) == recipe
    monkeypatch.setattr(running, "versions", lambda: now | {"numpy": "999"})
    assert running._recipe(cell, 1) != recipe
