"""Models and rules of combination that are added from outside the package, as a user would.

`toy_paper`, `ordinal_probit` and `toy_rule` are the additions: a file each, of public and
documented names.
"""

import json
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import signature

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy import stats
from xarray import Dataset, DataTree

import kernelzoo as kz
from family import assert_mean, assert_z
from kernelzoo.custom_steps import AlbertChib
from kernelzoo.custom_steps.multinomial_probit.albert_chib import MOVES
from kernelzoo.inference import (
    PAPERS,
    Algorithm,
    Engine,
    ExactOutput,
    Paper,
    add_paper,
    identified,
)
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.models import Declaration, composite_kernel
from kernelzoo.models.combinations.sums import COMBINATIONS_BY_NAME
from kernelzoo.numerics.probit import class_probabilities

OPTIONS = {"random_seed": 3, "progressbar": False}
BY_NUMPY = {"compile_kwargs": {"mode": python_mode()}}
X = np.random.default_rng(0).normal(1.0, 2.0, size=15)
#: Variables of the ordinal probit.
NAMES = "beta", "alpha", "share"


@pytest.fixture(scope="module", autouse=True)
def registries():
    """Everything that is registered here is forgotten again: other tests look at registries."""
    known = [PAPERS, COMBINATIONS_BY_NAME, MOVES]
    before = [dict(registry) for registry in known]
    yield
    for registry, entries in zip(known, before, strict=True):
        registry.clear()
        registry.update(entries)
    for name in ("toy_paper", "toy_rule", "ordinal_probit"):
        sys.modules.pop(name, None)


def toy():
    """Import the ordinal probit once the registries are safe."""
    return import_module("ordinal_probit")


@pytest.fixture(scope="module")
def rules(registries):
    return import_module("toy_rule")


@pytest.fixture(scope="module")
def paper(registries):
    """The new model with its closed-form posterior."""
    return import_module("toy_paper").NormalSample(X)


@pytest.fixture(scope="module")
def results(paper):
    settings = {"exact": {}, "vb": {}, "gibbs": {"draws": 300, "tune": 5, "chains": 2, "cores": 1}}
    return {name: kz.fit(paper, name, **each, **OPTIONS) for name, each in settings.items()}


def test_engines_of_a_new_paper_are_listed(paper):
    reasons = kz.engines(paper).frame["reason"]
    assert [reasons[name] for name in ("Exact", "Gibbs", "VB", "NUTS")] == [""] * 4
    assert "not available for" in reasons["EM"]


def test_a_new_paper_is_used_as_any_other(paper):
    from toy_paper import NormalSample

    model = NormalSample(X)
    results = {"Exact": kz.fit(model, "exact"), "VB": kz.fit(model, kz.VB())}
    comparison = kz.compare_engines(results)
    predictions = kz.predict(model, results["Exact"])
    assert set(comparison.engines.index) == {"Exact", "VB"}
    np.testing.assert_allclose(predictions["mean"], X.mean(), atol=1)


def test_settings_of_a_new_paper_are_arguments_of_its_function(paper):
    assert kz.VB().settings_on(paper) == {"tolerance": 1e-10, "first_rate": None}
    assert "first_rate" in signature(kz.VB).parameters
    far = kz.fit(paper, kz.VB(first_rate=1e6), **OPTIONS)
    plain = kz.fit(paper, "vb", **OPTIONS)
    bounds, usual = (each["trajectory"]["elbo"].to_numpy().ravel() for each in (far, plain))
    assert bounds[0] < usual[0] - 1
    np.testing.assert_allclose(bounds[-1], usual[-1])
    assert json.loads(far.attrs["settings"]) == {"tolerance": 1e-10, "first_rate": 1e6}
    with pytest.raises(ValueError, match=r"argument of VB must .* nearest is 'first_rate'"):
        kz.VB(first_rat=0.5)
    with pytest.raises(ValueError, match="argument of VB on NormalSample must be a finite number"):
        kz.fit(paper, kz.VB(first_rate=-1))


@pytest.mark.parametrize("tree", [None, DataTree()])
def test_an_engine_must_return_a_posterior(paper, tree, monkeypatch):
    monkeypatch.setattr(Engine, "registry", {**Engine.registry})

    class Empty(Engine):
        name = "Empty"
        kind = "mcmc"

        def why_not(self, model):
            return None

        def run(self, model, run):
            return tree

    with pytest.raises(TypeError, match=r"Empty must return a DataTree with 'posterior'\. Got"):
        kz.fit(paper, Empty(), **OPTIONS)


def test_draws_of_a_new_paper_have_the_moments_of_its_closed_form(paper, results):
    m, k, a, b = paper.posterior
    exact = {"mu": (m, b / (k * (a - 1))), "tau": (a / b, a / b**2)}
    # Mean field: the right means, and too small a variance.
    mean_field = {"mu": (m, b / (k * a)), "tau": (a / b, a**2 / (a + 0.5) / b**2)}
    for name, result in results.items():
        for variable, (mean, variance) in (mean_field if name == "vb" else exact).items():
            draws = result["posterior"][variable]
            squares = (draws - mean) ** 2
            for values, expected in ((draws, mean), (squares, variance)):
                ess = values.size if name != "gibbs" else float(az.ess(values))
                assert_mean(values.to_numpy().ravel(), expected, ess)


def test_evidence_of_a_new_paper_bounds_its_elbo(paper, results):
    log_evidence = kz.log_evidence(paper)
    elbo = results["vb"]["trajectory"]["elbo"].to_numpy().ravel()
    assert results["exact"].attrs["log_evidence"] == log_evidence
    assert (np.diff(elbo) > -1e-9).all()
    assert log_evidence - 0.1 < elbo[-1] < log_evidence
    # Importance sampling from q, whose weights nearly agree.
    stats = results["vb"]["sample_stats"]
    assert_mean(np.exp(stats["lp"] - stats["lq"] - log_evidence).to_numpy().ravel(), 1.0)


def test_a_new_paper_is_recommended_and_its_time_bounded(paper):
    choice = kz.recommend(paper)
    assert choice.engine.name == "Exact"
    with pytest.warns(UserWarning, match="VB was ended by max_seconds"):
        ended = kz.fit(paper, "vb", max_seconds=1e-9, **OPTIONS)
    assert (ended.attrs["converged"], ended.attrs["ended_by"]) == ("no", "max_seconds")
    assert ended["trajectory"].sizes["iteration"] == 1


def test_an_algorithm_that_keeps_nothing_says_that_time_ended_it(paper):
    """Bug: it died of the KeyboardInterrupt that ends loops, with no word of the time."""

    class Unsaved(type(paper)):
        pass

    def unsaved(model, run):
        with run.track(None, "VB") as bar:
            while True:
                bar.advance()

    add_paper(Paper(Unsaved, vb=Algorithm(unsaved)))
    model = Unsaved(X)
    with pytest.raises(ValueError, match="'max_seconds' argument of fit must be enough for VB to"):
        kz.fit(model, "vb", max_seconds=1e-9, **OPTIONS)


def test_a_sweep_keeps_the_posterior(paper):
    result = kz.fit(paper, "exact", draws=8000, **OPTIONS)
    names, posterior = ("mu", "tau"), result["posterior"]
    draws = {name: posterior[name][0].values for name in names}
    step = PAPERS[type(paper)].gibbs.function(paper, None)[0]
    rng, swept = np.random.default_rng(4), []
    for i in range(4000):
        now = {name: draws[name][i] for name in names}
        swept.append(step.sweep(now, rng)[0])
    for name in names:
        moved = [each[name] for each in swept]
        assert stats.ks_2samp(moved, draws[name][4000:]).pvalue > 1e-3


def differences(step_type, model, sweeps=3, size=1500):
    """Standard errors by which sweeps move means: 0 for a right step.

    They are means over the joint distribution: variables and data are
    drawn from the declaration. The statistics contain the data, through
    the likelihood: a step that ignores them keeps the prior of the
    variables.
    """
    drawn = pm.sample_prior_predictive(size, model=model, random_seed=1)
    prior = drawn["prior"].to_dataset().isel(chain=0)
    labels = drawn["prior_predictive"]["t"].values[0]
    K, rng = model["K"].get_value(), np.random.default_rng(2)
    step = step_type(model=model)

    def statistics(values, t):
        beta, alpha, share = (values[name] for name in NAMES)
        f = np.tensordot(beta, K, axes=1) @ alpha
        p = toy().class_probabilities(f, share, model.limit)
        likelihood = p[np.arange(len(t)), t].mean()
        squares = beta**2, alpha**2, share**2
        return np.concatenate([alpha, share, *squares, [likelihood]])

    moves = []
    for i, data in enumerate(labels):
        pm.set_data({"labels": data}, model=model)
        step.prepare(model, None)
        before = {name: prior[name].values[i] for name in NAMES}
        now = before
        for _ in range(sweeps):
            now = step.sweep(now, rng)[0]
        moves.append(statistics(now, data) - statistics(before, data))
    error = np.std(moves, axis=0, ddof=1) / np.sqrt(size)
    return np.mean(moves, axis=0) / error


def test_sweeps_keep_the_joint_distribution(registries):
    X = np.random.default_rng(3).normal(size=(6, 2))
    kernels = (kz.gaussian(0.5) | kz.linear())(X)
    labels = [0, 1, 2, 0, 1, 2]
    model = toy().OrdinalProbit(kernels, labels, scale=0.5, limit=2.0)
    assert_z(differences(toy().OrdinalGibbs, model))

    class Wrong(toy().OrdinalGibbs):
        """The density of y lacks its determinant."""

        def log_density(self, y, beta):
            factor = self.composite(beta)[1]
            return -0.5 * np.sum(np.linalg.solve(factor, y) ** 2)

    with pytest.raises(AssertionError):
        assert_z(differences(Wrong, model))


def test_a_sweep_keeps_the_prior(paper):
    model, rng = type(paper)(X), np.random.default_rng(5)
    step = PAPERS[type(model)].gibbs.function(model, None)[0]
    m, k, a, b = model.prior
    swept = []
    for _ in range(10_000):
        tau = rng.gamma(a, 1 / b)
        mu = rng.normal(m, 1 / np.sqrt(k * tau))
        pm.set_data({"data": rng.normal(mu, 1 / np.sqrt(tau), size=len(X))}, model=model)
        step.posterior = model.posterior
        swept.append(step.sweep({"mu": mu, "tau": tau}, rng)[0])
    tau, mu = (np.array([each[name] for each in swept]) for name in ("tau", "mu"))
    assert stats.kstest(tau, stats.gamma(a, scale=1 / b).cdf).pvalue > 1e-3
    assert stats.kstest((mu - m) * np.sqrt(k * tau), stats.norm.cdf).pvalue > 1e-3


def test_a_step_must_return_its_variables(paper):
    step = PAPERS[type(paper)].gibbs.function(paper, None)[0]
    for wrong in (({"mu": 0.0}, {}), {"mu": 0.0, "tau": 1.0}):
        step.sweep = lambda values, rng, wrong=wrong: wrong
        with pytest.raises(ValueError, match="The sweep of NormalGibbs must return"):
            step.step(paper.initial_point())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mu": np.nan, "tau": 1.0}, "in the support of its variables. Got 'mu' from nan to nan"),
        ({"mu": 0.0, "tau": -1.0}, "in the support of its variables. Got 'tau' from -1 to -1"),
        ({"mu": np.zeros(1), "tau": 1.0}, r"that of 'mu' is \(\) unconstrained\. Got \(1,\)"),
    ],
)
def test_a_step_must_stay_in_the_support(paper, wrong, message):
    """Bug: a chain of NaN had converged."""
    step = PAPERS[type(paper)].gibbs.function(paper, None)[0]
    step.sweep = lambda values, rng: (wrong, {})
    with pytest.raises(ValueError, match=f"NormalGibbs of 'mu', 'tau' must return .*{message}"):
        step.step(paper.initial_point())


@pytest.mark.parametrize("stats", [{}, {"moved": 1.0, "other": 2.0}])
def test_a_step_must_return_the_statistics_that_it_declares(paper, stats):
    step = PAPERS[type(paper)].gibbs.function(paper, None)[0]
    step.stats_dtypes_shapes = {"moved": (float, [])}
    step.sweep = lambda values, rng: (values, stats)
    with pytest.raises(ValueError, match="statistics of NormalGibbs of 'mu', 'tau' must be those"):
        step.step(paper.initial_point())


def test_functions_of_a_paper_must_return_what_engines_take(paper):
    """Bug: "'dict' object has no attribute 'assign_attrs'"."""

    class Loose(type(paper)):
        pass

    add_paper(Paper(Loose, gibbs=Algorithm(lambda model, run: None), predict=lambda *_, **__: {}))
    model = Loose(X)
    with pytest.raises(TypeError, match="<lambda> must return a list of step methods"):
        kz.fit(model, "gibbs", **OPTIONS)
    with pytest.raises(TypeError, match="'predict' of the Paper of Loose must return a Dataset"):
        kz.predict(model, kz.fit(model, "exact", **OPTIONS))
    add_paper(replace(PAPERS[Loose], identified=lambda result, variant: {}))
    with pytest.raises(TypeError, match="'identified' of the Paper of Loose must return a Datas"):
        identified(kz.fit(model, "exact", **OPTIONS), model)


def test_variables_that_a_paper_reads_must_be_those_of_its_model(paper):
    """Bug: with a misspelt name, engines were compared by all variables, without a word."""

    class Misspelt(type(paper)):
        pass

    add_paper(replace(PAPERS[type(paper)], model=Misspelt, identified_reads=["mu", "taw"]))
    with pytest.raises(ValueError, match=r"'identified_reads' argument of Paper .*Got 'taw'"):
        kz.fit(Misspelt(X), "exact", **OPTIONS)


def test_errors_in_a_sweep_name_the_step(paper):
    step = PAPERS[type(paper)].gibbs.function(paper, None)[0]
    step.sweep = lambda values, rng: np.linalg.cholesky(-np.eye(2))
    with pytest.raises(np.linalg.LinAlgError) as error:
        step.step(paper.initial_point())
    assert error.value.__notes__ == ["In the sweep of NormalGibbs of 'mu', 'tau'."]


def test_a_bound_must_be_one(paper):
    """Bugs: a bound that fell by 100 nats had converged, as one that was NaN and a short log q."""

    class Bounded(type(paper)):
        pass

    fitted = PAPERS[type(paper)].vb.function

    def with_changes(**changes):
        add_paper(Paper(Bounded, vb=Algorithm(lambda *args: replace(fitted(*args), **changes))))
        return kz.fit(Bounded(X), "vb", **OPTIONS)

    fell = with_changes(elbo=[np.array([-100.0, 0.0, -1.0])]).attrs
    assert fell["converged"] == "no"
    assert "ends 1 below its maximum" in fell["note"]
    assert with_changes(elbo=[np.array([-1.0, 0.0, -1e-9])]).attrs["converged"] == "yes"
    with pytest.raises(ValueError, match="bound of VB on Bounded is NaN from iteration 1 on"):
        with_changes(elbo=[np.array([0.0, np.nan])])
    with pytest.raises(ValueError, match=r"'sample' must return 1000 log densities.*\(5,\)"):
        with_changes(sample=lambda draws, rng: (sized(draws), np.zeros(5)))


def test_what_a_subclass_identifies_replaces_its_parent_s(paper):
    """Bug: the function of the first class of a name answered for all."""
    parent = kz.fit(paper, "exact", **OPTIONS)
    for number in (1.0, 2.0):

        class Renewed(type(paper)):
            """Defined again, as in a notebook."""

        mean = {"m": ((), number)}
        add_paper(Paper(Renewed, identified=lambda result, variant, mean=mean: Dataset(mean)))
        model = Renewed(X)
        result = kz.fit(model, "exact", **OPTIONS)
        for of in (None, model):
            assert identified(result, of)["m"] == number
            assert list(identified(parent, of and paper).data_vars) == ["standardised"]


@pytest.mark.parametrize(
    "draw",
    [lambda n: {"mu": np.zeros(n)}, lambda n: sized(3), lambda n: sized(n, np.nan), np.zeros],
)
def test_a_sampler_must_return_all_draws(paper, draw):
    """Bug: three draws for a thousand were a result, and so were draws that are NaN."""

    class Sampled(type(paper)):
        pass

    def sampled(model, run):
        return ExactOutput(lambda draws, rng: draw(draws))

    add_paper(Paper(Sampled, exact=Algorithm(sampled)))
    with pytest.raises(ValueError, match=r"'sample' .*must return"):
        kz.fit(Sampled(X), "exact", **OPTIONS)


def sized(n, tau=1.0):
    """Draws of the toy paper's variables, all alike."""
    return {"mu": np.zeros(n), "tau": np.full(n, tau)}


def test_a_paper_refuses_what_is_no_algorithm(paper):
    with pytest.raises(ValueError, match="'exact' argument of Paper must be an Algorithm"):
        Paper(type(paper), exact=print)
    with pytest.raises(ValueError, match="'model' argument of Paper must be a class"):
        Paper(paper)


def test_a_model_that_is_not_sealed_says_so():
    class Unsealed(Declaration):
        def __init__(self):
            super().__init__()
            with self:
                pm.Normal("x", pm.Normal("mu"), observed=X)

    with pytest.raises(ValueError, match=r"Unsealed must end with self\.seal\(\)"):
        kz.fit(Unsealed(), "nuts", draws=10**9, **OPTIONS)


def test_predictions_of_a_new_paper(paper, results):
    m, k, a, b = paper.posterior
    sd = np.sqrt(b * (k + 1) / (k * (a - 1)))
    for result in results.values():
        predictions = kz.predict(paper, result)
        np.testing.assert_allclose(
            [predictions["mean"], predictions["target_sd"]], [m, sd], rtol=0.1
        )
        assert predictions.attrs["model"] == "NormalSample"
    with pytest.raises(TypeError, match="its options are 'keep_draws'"):
        kz.predict(paper, results["vb"], labels=[0])


def test_engines_on_a_new_paper_are_compared_on_what_it_identifies(results):
    comparison = kz.compare_engines(results)
    assert comparison.reference == "exact"
    variables = comparison.variables.loc["standardised"]
    assert variables.loc["gibbs", "z"] < variables.loc["gibbs", "z_bound"]
    assert abs(variables.loc["vb", "difference"]) < 0.2


def patients(n, seed=7):
    """Blocks of features with ids, and ordered classes, of which the first block knows."""
    rng = np.random.default_rng(seed)
    ids = [f"P{i}" for i in range(n)]
    blocks = {
        name: pd.DataFrame(rng.normal(size=(n, 2)), ids, ["a", "b"]) for name in ("blood", "noise")
    }
    y = 2 * blocks["blood"]["a"] + rng.normal(size=n)
    codes = np.digitize(y, [-1.0, 1.0])
    grades = pd.Categorical.from_codes(codes, ["none", "mild", "severe"], ordered=True)
    return blocks, pd.Series(grades, ids)


def rows(blocks, chosen):
    """Rows of each block."""
    return {name: block[chosen] for name, block in blocks.items()}


KERNELS = kz.gaussian("median").on("blood") | kz.gaussian("median").on("noise")


@pytest.fixture(scope="module")
def ordinal(registries):
    """An ordinal probit, its chains, and kernels of new objects."""
    blocks, grades = patients(30)
    train = rows(blocks, slice(20))
    shuffled = grades[:20].sample(frac=1, random_state=1)
    model = toy().OrdinalProbit(KERNELS(train), shuffled)
    result = kz.fit(model, "gibbs", draws=200, tune=50, chains=2, cores=1, **OPTIONS)
    return model, result, KERNELS(rows(blocks, slice(20, None)), train)


def test_a_new_model_on_kernels_predicts_its_classes(ordinal, tmp_path):
    model, result, new = ordinal
    found = kz.predict(model, result, new, keep_draws=True)
    assert found["class"].values.tolist() == ["none", "mild", "severe"]
    assert found["obs"].values.tolist() == [f"P{i}" for i in range(20, 30)]
    np.testing.assert_allclose(found["probability"].sum("class"), 1.0)
    most = found["probability"].argmax("class")
    np.testing.assert_array_equal(found["label"], found["class"][most])
    # PyMC's own distribution, at one draw.
    drawn = result["posterior"].to_dataset().isel(chain=1, draw=3)
    f = np.einsum("s,snm,m->n", drawn["beta"], new, drawn["alpha"])
    cut = 10 * drawn["share"].to_numpy().cumsum()[:2] - 5
    law = pm.OrderedProbit.dist(eta=f[:, None], cutpoints=cut, compute_p=False)
    p = np.exp(pm.logp(law, np.arange(3)).eval())
    np.testing.assert_allclose(found["probability_draws"][1, 3], p, atol=1e-8)
    result.to_netcdf(tmp_path / "ordinal.nc")
    again = kz.predict(model, az.from_netcdf(tmp_path / "ordinal.nc"), new)
    np.testing.assert_array_equal(again["probability"], found["probability"])


def test_a_new_model_on_kernels_refuses_other_objects(ordinal):
    model, result, new = ordinal
    blocks, grades = patients(30)
    train = rows(blocks, slice(20))
    np.testing.assert_array_equal(model.label_codes, grades[:20].cat.codes)
    mirrored = {name: block[::-1].set_axis(block.index) for name, block in train.items()}
    with pytest.raises(ValueError, match="against objects with other features"):
        kz.predict(model, result, KERNELS(rows(blocks, slice(20, None)), mirrored))
    with pytest.raises(ValueError, match="kernels normalised as the training kernels"):
        kz.predict(model, result, KERNELS.normalize("trace")(rows(blocks, slice(20, None)), train))
    with pytest.raises(ValueError, match="computed against the training objects"):
        kz.predict(model, result, new.assign_coords(basis=[f"Q{i}" for i in range(20)]))
    K, learned = KERNELS(train), kz.gaussian(kz.kernels.Theta(1, 2))
    for wrong in (
        grades[:20].rename({"P3": "Q"}),
        grades[:19],
        grades[:20].where(grades == "mild"),
    ):
        with pytest.raises(ValueError, match="'labels' argument of OrdinalProbit"):
            toy().OrdinalProbit(K, wrong)
    with pytest.raises(ValueError, match="without parameters to learn"):
        toy().OrdinalProbit(learned(train["blood"]), grades[:20])
    lacking = result.copy()
    del lacking["posterior"]["alpha"]
    with pytest.raises(ValueError, match="a result with draws of alpha"):
        kz.predict(model, lacking, new)


def test_a_new_model_on_one_kernel_has_no_weights_to_learn(ordinal):
    """Bug: the step asked for draws of weights that are data."""
    model, _, new = ordinal
    one = model.redeclared(kernels=KERNELS(rows(patients(30)[0], slice(20)))[:1])
    result = kz.fit(one, "gibbs", draws=20, tune=5, chains=2, cores=1, **OPTIONS)
    assert set(identified(result)) == {"f", "share"}
    np.testing.assert_allclose(kz.predict(one, result, new[:1])["probability"].sum("class"), 1.0)


def test_a_new_model_on_kernels_is_scored_on_left_out_objects(ordinal):
    options = {"draws": 20, "tune": 5, "chains": 2, "cores": 1} | OPTIONS
    assert np.isfinite(kz.scores.loo_kfold(ordinal[0], "gibbs", k=2, **options).elpd)


def test_gibbs_on_a_new_model_on_kernels_agrees_with_nuts(registries):
    X = np.random.default_rng(3).normal(size=(8, 2))
    kernels = (kz.gaussian(0.5) | kz.linear())(X)
    model = toy().OrdinalProbit(kernels, np.digitize(X[:, 0], [-0.5, 0.5]), scale=0.5)
    sizes = {"chains": 2, "cores": 1} | OPTIONS
    results = [
        identified(kz.fit(model, "gibbs", draws=2_000, tune=50, **sizes)),
        identified(kz.fit(model, "nuts", draws=1_000, tune=500, **sizes)),
    ]
    for name in ("beta", "share", "f"):
        for power in (1, 2):
            each = [(result[name] ** power).to_dataset(name="x") for result in results]
            means = [values["x"].mean(("chain", "draw")).to_numpy() for values in each]
            errors = [az.mcse(values)["x"].to_numpy() for values in each]
            assert_z((means[0] - means[1]) / np.hypot(*errors))


@dataclass(frozen=True)
class SquaredWeights(kz.combinations.WeightedSum):
    """K = sum_s v_s^2 K_s / sum_s v_s^2 with v_s ~ HalfNormal(1): no weight is a variable."""

    def declare(self):
        squares = pm.HalfNormal("v", dims="kernel") ** 2
        return pm.Deterministic("beta", squares / squares.sum(), dims="kernel")


def probit(rule):
    """Four objects of two classes, two kernels that are three basis functions each."""
    kernels = np.abs(np.random.default_rng(2).normal(size=(2, 4, 3)))
    stack = kz.kernels.as_stack(kernels)
    return kz.MultinomialProbit(stack, [0, 1, 1, 1], tau=3.0, combination=rule)


@pytest.fixture(scope="module")
def sampled(rules):
    """A classifier under a new rule, and its chains."""
    model = probit(rules.RootOfSquares(0.5))
    return model, kz.fit(model, "gibbs", draws=250, tune=25, chains=2, cores=1, **OPTIONS)


def test_engines_know_the_rules_that_are_registered_with_them(rules, sampled):
    reasons = kz.engines(sampled[0]).frame["reason"]
    assert [reasons[name] for name in ("Gibbs", "NUTS", "SMC")] == [""] * 3
    assert "with a method variational_factor, not RootOfSquares" in reasons["VB"]
    with pytest.raises(ValueError, match=r"Gibbs does not apply.*RootOfSquares.*SquaredWeights"):
        kz.fit(probit(SquaredWeights()), "gibbs")


def test_gibbs_under_a_new_rule_samples_the_posterior(sampled):
    """Against draws of the prior that are weighted by their likelihood."""
    model, result = sampled
    rng, size = np.random.default_rng(4), 20_000
    beta = rng.exponential(1 / model.combination.rate, size=(size, 2))
    W = rng.normal(size=(size, 2, 3)) / np.sqrt(rng.gamma(3.0, size=(size, 2, 3)))
    composite = np.sqrt(np.einsum("dk,knm->dnm", beta, model.design**2))
    f = np.einsum("dnm,dcm->dnc", composite, W)
    p = class_probabilities(f)[:, np.arange(4), model.label_codes].prod(1)
    contrast = f[..., 0] - f[..., 1]
    found = identified(result)
    pairs = [
        (beta, found["beta"]),
        (contrast, found["contrast"].isel({"class": 0}) - found["contrast"].isel({"class": 1})),
        (contrast**2, (found["contrast"].isel({"class": 0}) * 2) ** 2),
    ]
    for weighted, chains in pairs:
        mean = p @ weighted / p.sum()
        error = np.sqrt(p**2 @ (weighted - mean) ** 2) / p.sum()
        gap = chains.mean(("chain", "draw")).to_numpy() - mean
        mcse = az.mcse(chains.to_dataset(name="x"))["x"].to_numpy()
        assert_z(gap / np.hypot(error, mcse))


def test_predictions_under_a_new_rule(sampled):
    model, result = sampled
    new = np.abs(np.random.default_rng(1).normal(size=(2, 5, 3)))
    beta = result["posterior"]["beta"].to_numpy().reshape(-1, 2)
    composite = np.sqrt(np.einsum("dk,knm->dnm", beta, new**2))
    check_predictions(model, result, new, composite)
    # The log likelihood is the declaration's, which combines tensors.
    trained = np.sqrt(np.einsum("dk,knm->dnm", beta, model.design**2))
    W = result["posterior"]["W"].to_numpy().reshape(-1, 2, 3)
    p = class_probabilities(np.einsum("dnm,dcm->dnc", trained, W))
    likelihood = np.exp(result["log_likelihood"]["t"].to_numpy().reshape(-1, 4))
    np.testing.assert_allclose(likelihood, p[:, np.arange(4), model.label_codes], atol=1e-8)


def test_a_new_rule_with_vb(rules):
    """Gibbs and VB of conjugate weights agree up to the mean field's error."""
    model = probit(rules.NormalWeights(0.3))
    reasons = kz.engines(model).frame["reason"]
    assert [reasons[name] for name in ("VB", "Gibbs", "NUTS")] == [""] * 3
    assert "starts" in kz.VB().settings_on(model)
    results = {
        "gibbs": kz.fit(model, "gibbs", draws=1_000, tune=50, chains=2, cores=1, **OPTIONS),
        "vb": kz.fit(model, "vb", draws=4_000, **OPTIONS),
    }
    elbo = results["vb"]["trajectory"]["elbo"].isel(start=0).to_numpy()
    assert (np.diff(elbo[np.isfinite(elbo)]) > -1e-6).all()
    # Draws of q integrate the utilities out, as `lp` does, and so come nearer to the evidence.
    stats = results["vb"]["sample_stats"]
    log_ratio = (stats["lp"] - stats["lq"]).to_numpy().ravel()
    rng, size = np.random.default_rng(5), 20_000
    beta = rng.normal(1.0, 0.3, size=(size, 2))
    W = rng.normal(size=(size, 2, 3)) / np.sqrt(rng.gamma(3.0, size=(size, 2, 3)))
    f = np.einsum("dk,knm,dcm->dnc", beta, model.design, W, optimize=True)
    p = class_probabilities(f)[:, np.arange(4), model.label_codes].prod(1)
    assert elbo[np.isfinite(elbo)][-1] < log_ratio.mean() < np.log(p.mean())
    variables = kz.compare_engines(results, reference="gibbs").variables
    # Measured: 0.45 and 0.32 standard deviations.
    assert abs(variables.loc[("contrast", "vb"), "difference"]) < 0.6
    assert abs(variables.loc[("beta", "vb"), "difference"]) < 0.5
    new = np.abs(np.random.default_rng(1).normal(size=(2, 5, 3)))
    for result in results.values():
        beta = result["posterior"]["beta"].to_numpy().reshape(-1, 2)
        check_predictions(model, result, new, np.einsum("dk,knm->dnm", beta, new))


def test_weights_of_a_new_rule_may_follow_from_other_variables(rules):
    model = probit(SquaredWeights())
    sizes = {"draws": 5, "tune": 2, "chains": 1} | OPTIONS | BY_NUMPY
    result = kz.fit(model, kz.NUTS(max_treedepth=2), **sizes)
    new = np.random.default_rng(1).normal(size=(2, 5, 3))
    v = result["posterior"]["v"].to_numpy().reshape(-1, 2)
    weights = v**2 / (v**2).sum(1, keepdims=True)
    check_predictions(model, result, new, np.einsum("dk,knm->dnm", weights, new))

    with model, pytest.raises(TypeError, match="Got SquaredWeights"):
        AlbertChib()


def test_a_new_sum_in_a_composite_kernel(rules, monkeypatch):
    monkeypatch.setitem(composite_kernel.COMBINATIONS, "squared", SquaredWeights)
    model = kz.CompositeKernelRegression.example(combination="squared")
    reasons = kz.engines(model).frame["reason"]
    assert reasons["NUTS"] == ""
    knows = "it knows the combinations FixedWeights, DirichletWeights, Binary"
    assert reasons["Gibbs"] == f"{knows}, not SquaredWeights"
    assert reasons["VB"] == f"{knows}, not SquaredWeights"
    # Draws that are quick to have: predictions take any.
    drawn = pm.sample_prior_predictive(10, model=model, random_seed=1, **BY_NUMPY)["prior"]
    result = DataTree.from_dict({"posterior": drawn.to_dataset()})
    new = np.random.default_rng(1).normal(size=(2, 3, 8))
    drawn = result["posterior"].isel(chain=0)
    alpha, squares = drawn["alpha"].to_numpy(), drawn["v"].to_numpy() ** 2
    weights = squares / squares.sum(1, keepdims=True)
    y = np.einsum("ds,snm,dm->dn", weights, new, alpha[:, 1:]) + alpha[:, :1]
    np.testing.assert_allclose(kz.predict(model, result, new)["mean"], y.mean(0))


def check_predictions(model, result, new, composite):
    """Compare with averages over composite kernels (draw, obs, basis)."""
    W = result["posterior"]["W"].to_numpy().reshape(-1, 2, 3)
    expected = class_probabilities(np.einsum("dnm,dcm->dnc", composite, W)).mean(0)
    found = kz.predict(model, result, new)["probability"]
    np.testing.assert_allclose(found, expected, atol=1e-8)


class OrderedWeights(kz.combinations.WeightedSum):
    """Weights that follow from another variable."""

    def declare(self):
        steps = pm.Exponential("step", 1.0, dims="kernel")
        return pm.Deterministic("beta", steps.cumsum() / steps.cumsum().sum(), dims="kernel")

    def variational_factor(self, linear, curvature):
        raise NotImplementedError


def test_weights_that_are_no_random_variable_are_refused_by_engines_that_draw_them():
    """Bug: Gibbs drew utilities with the weights (1, 1), and said nothing."""
    MOVES[OrderedWeights] = MOVES[kz.combinations.FixedWeights]
    example = kz.MultinomialProbit.example()
    model = kz.MultinomialProbit(example.design, example.label_codes, combination=OrderedWeights())
    for engine in ("gibbs", "vb"):
        with pytest.raises(ValueError, match="draws the weights beta themselves; OrderedWeights"):
            kz.fit(model, engine, **OPTIONS)
    with pytest.raises(TypeError, match="draws the weights beta themselves; OrderedWeights"):
        AlbertChib(model=model)


def test_a_weighted_sum_that_is_none_is_refused():
    """Bug: engines took its kernels as they are, NUTS what it makes of them."""
    with pytest.raises(TypeError, match="Powers is a WeightedSum and must not define terms"):

        class Powers(kz.combinations.WeightedSum):
            def terms(self, stack):
                return stack**2
