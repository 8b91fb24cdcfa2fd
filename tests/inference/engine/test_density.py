"""The judge of approximations agrees with PyMC's own density up to the Jacobian."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.logprob.basic import conditional_logp
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import toposort
from scipy import stats

import kernelzoo as kz
from kernelzoo.inference.engine import evaluation, groups
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.engine.groups import densities_of, log_density


def test_potentials_are_counted():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("twice", -(x**2))
    np.testing.assert_allclose(
        log_density(model, {"x": np.array([0.0, 2.0])}) - log_density(model, {"x": np.zeros(2)}),
        [0.0, -2.0 - 4.0],
    )


def test_variables_that_are_added_later_are_counted():
    with pm.Model() as model:
        pm.Normal("x")
    draws = {"x": np.array([0.0, 2.0])}
    before = log_density(model, draws)
    with model:
        pm.Normal("y", model["x"], observed=1.0)
    np.testing.assert_allclose(log_density(model, draws) - before, stats.norm.logpdf([1.0, -1.0]))


def test_missing_variables_are_named():
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(KeyError, match="x"):
        log_density(model, {})


EXAMPLES = [
    kz.MultinomialProbit,
    kz.CompositeKernelRegression,
    kz.CompositeKernelClassification,
    kz.WishartCompletion,
    kz.DiagonalWishartCompletion,
    kz.WishartKernelMixture,
    kz.MutualKernelCompletion,
]


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda cls: cls.__name__)
def prior(request):
    """A model, and ten draws from its prior in two chains."""
    model = request.param.example()
    with model:
        draws = pm.sample_prior_predictive(
            10, random_seed=1, compile_kwargs={"mode": python_mode()}
        )["prior"].to_dataset()
    names = [rv.name for rv in model.free_RVs]
    two = [draws[names].isel(chain=0, draw=slice(i, i + 5)) for i in (0, 5)]
    posterior = xr.concat([x.assign_coords(draw=np.arange(5)) for x in two], dim="chain")
    return model, posterior.assign_coords(chain=[0, 1]).transpose("chain", "draw", ...)


def test_many_draws_at_once_are_as_one_by_one(prior, monkeypatch):
    """Also in blocks of which the last one is shorter."""
    model, posterior = prior
    draws = {name: x.to_numpy()[0] for name, x in posterior.data_vars.items()}
    together = log_density(model, draws)
    values = {}
    for rv in model.free_RVs:
        transform, value = model.rvs_to_transforms[rv], draws[rv.name][3]
        if transform is not None:
            value = transform.forward(value, *rv.owner.inputs).eval(mode=python_mode())
        values[model.rvs_to_values[rv].name] = value
    one = model.compile_logp(jacobian=False, mode=python_mode())
    np.testing.assert_allclose(together[3], one(values), rtol=1e-9)
    monkeypatch.setattr(evaluation, "FEW_DRAWS", 0)
    monkeypatch.setattr(evaluation, "BLOCK_BYTES", 2 * max(x[0].nbytes for x in draws.values()))
    np.testing.assert_allclose(log_density(model, draws), together, rtol=1e-12)


def test_blocks_are_cut_by_the_largest_output(prior, monkeypatch):
    """Bytes from the shapes of the graph are those of its values."""
    model, posterior = prior
    draws = {name: x.to_numpy()[0] for name, x in posterior.data_vars.items()}
    largest, seen = evaluation._largest_output, []

    def compared(inputs, values, outputs):
        every = [v for node in toposort(outputs) for v in node.outputs if hasattr(v.type, "shape")]
        options = {"on_unused_input": "ignore", "mode": python_mode()}
        there = pytensor.function([*inputs], every, **options)(
            *(
                draws[v.name][0] if v.name in draws else x
                for v, x in zip(inputs, values, strict=True)
            )
        )
        seen.append((largest(inputs, values, outputs), max(8 * np.size(x) for x in there)))
        return seen[-1][0]

    monkeypatch.setattr(evaluation, "_largest_output", compared)
    monkeypatch.setattr(evaluation, "BLOCK_BYTES", 8)
    log_density(model, draws)
    assert len(seen) == 1
    assert seen[0][0] == seen[0][1]


def test_log_likelihood_is_pymcs(prior):
    model, posterior = prior
    tree = xr.DataTree.from_dict({"posterior": posterior})
    pm.compute_log_likelihood(
        tree, model=model, progressbar=False, compile_kwargs={"mode": python_mode()}
    )
    pymcs = tree["log_likelihood"].to_dataset()
    ours = densities_of(model, posterior, model.observed_RVs)
    xr.testing.assert_allclose(ours, pymcs.drop_attrs())
    assert set(ours.coords) == set(pymcs.coords)


def test_log_likelihood_without_dims_is_pymcs():
    with pm.Model() as model:
        x = pm.Normal("x", size=2)
        pm.Normal("y", x.sum(), observed=np.arange(3.0))
    posterior = xr.Dataset({"x": (("chain", "draw", "x_dim"), np.arange(8.0).reshape(1, 4, 2))})
    posterior = posterior.assign_coords(chain=[0], draw=np.arange(4))
    tree = xr.DataTree.from_dict({"posterior": posterior})
    pm.compute_log_likelihood(tree, model=model, progressbar=False)
    pymcs = tree["log_likelihood"].to_dataset()
    np.testing.assert_allclose(densities_of(model, posterior, model.observed_RVs)["y"], pymcs["y"])
    assert densities_of(model, posterior, model.observed_RVs)["y"].dims == pymcs["y"].dims


def positive_part(x):
    """The sum of what is positive: of each draw other entries."""
    return x[x > 0].sum()


def test_models_that_are_no_declarations_are_taken_draw_by_draw():
    """PyTensor takes the mask of a stack for one of all draws together."""
    with pm.Model() as model:
        x = pm.Normal("x", size=4)
        pm.Normal("y", positive_part(x), observed=[0.0, 1.0])
    draws = np.random.default_rng(1).normal(size=(6, 4))
    expected = stats.norm.logpdf([0.0, 1.0], np.maximum(draws, 0).sum(1)[:, None])
    posterior = xr.Dataset({"x": (("chain", "draw", "x_dim"), draws[None])})
    posterior = posterior.assign_coords(chain=[0], draw=np.arange(6))
    np.testing.assert_allclose(densities_of(model, posterior, model.observed_RVs)["y"][0], expected)
    of_x = stats.norm.logpdf(draws).sum(1)
    np.testing.assert_allclose(log_density(model, {"x": draws}), of_x + expected.sum(1))


@pytest.mark.parametrize("added", [True, False])
def test_declarations_that_pick_entries_by_value_are_taken_draw_by_draw(added):
    """What a user adds, or a rule of combination of the user's own."""
    model = kz.CompositeKernelRegression.example()
    if added:
        with model:
            pm.Potential("more", positive_part(model["alpha"]))
    outputs = [positive_part(model["alpha"])]
    alpha = model["alpha"].type(name="alpha")
    replaced = graph_replace(outputs, {model["alpha"]: alpha})
    draws = np.random.default_rng(1).normal(size=(5, len(model.coords["function"])))
    (found,) = evaluation.compile_over_draws(model, [alpha], replaced)({"alpha": draws})
    np.testing.assert_allclose(found, np.maximum(draws, 0).sum(1))
    if added:
        # Whatever the graph.
        assert not evaluation._takes_stacks(model, [alpha], [alpha])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda cls: cls.__name__)
def test_declarations_take_stacks(example):
    model = example.example()
    values, terms = groups._terms(model)
    assert evaluation._takes_stacks(model, values, list(terms.values()))


def test_what_depends_on_no_draw_is_repeated():
    model = kz.CompositeKernelRegression.example()
    x = model["beta"]
    values = {x: x.type(name="beta")}
    evaluate = evaluation.compile_over_draws(
        model, list(values.values()), [values[x] * 2, pt.as_tensor(np.arange(3.0)) + 1]
    )
    n = len(model.coords["kernel"])
    twice, same = evaluate({"beta": np.ones((4, n))})
    np.testing.assert_array_equal(twice, np.full((4, n), 2.0))
    np.testing.assert_array_equal(same, np.tile([1.0, 2.0, 3.0], (4, 1)))


def draws_of(model, n, seed=3):
    """Made-up values of the free variables."""
    rng = np.random.default_rng(seed)
    return {
        "phi": rng.gamma(2.0, size=(n, 9)),
        "alpha": rng.normal(size=(n, 9)),
        "beta": rng.dirichlet(np.ones(2), size=n),
        "varphi": rng.gamma(2.0, size=(n, 2)),
    }


def point_by_point(model, draws):
    """Log densities by PyMC, at values without transforms."""
    values = {rv: rv.type() for rv in model.free_RVs}
    known = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    total = sum(x.sum() for x in conditional_logp({**values, **known}).values())
    function = pytensor.function(list(values.values()), total, mode=python_mode())
    return [function(*(draws[rv.name][i] for rv in values)) for i in range(len(draws["phi"]))]


def test_models_of_one_structure_share_a_function_but_neither_data_nor_constants():
    first, second = (kz.CompositeKernelClassification.example(random_seed=s) for s in (0, 1))
    other_prior = kz.CompositeKernelClassification.example(sigma=3.0)
    draws = draws_of(first, 4)
    vars(evaluation._COMPILED).clear()
    for model, functions in ((first, 1), (second, 1), (other_prior, 2), (first, 2)):
        np.testing.assert_allclose(log_density(model, draws), point_by_point(model, draws))
        assert len(evaluation._COMPILED.functions) == functions
    pm.set_data({"K": 2 * second["K"].get_value()}, model=second)
    np.testing.assert_allclose(log_density(second, draws), point_by_point(second, draws))


def test_threads_do_not_share_a_function():
    model = kz.CompositeKernelClassification.example()
    draws = draws_of(model, 300)
    alone = log_density(model, draws)
    own = []

    def evaluate(_):
        found = log_density(model, draws)
        own.append(evaluation._COMPILED.functions)
        return found

    with ThreadPoolExecutor(3) as pool:
        for together in pool.map(evaluate, range(6)):
            np.testing.assert_array_equal(together, alone)
    assert not any(evaluation._COMPILED.functions is each for each in own)


def test_the_log_likelihood_of_an_approximation_is_that_of_its_draws():
    model = kz.CompositeKernelRegression.example()
    result = kz.fit(model, kz.VB(max_iterations=20), draws=30, progressbar=False, random_seed=1)
    separate = densities_of(model, result["posterior"].to_dataset(), model.observed_RVs)
    xr.testing.assert_allclose(result["log_likelihood"].to_dataset().drop_attrs(), separate)
    joint = log_density(model, {k: v.to_numpy()[0] for k, v in result["posterior"].items()})
    np.testing.assert_allclose(result["sample_stats"]["lp"][0], joint)


def test_arguments_in_another_order_are_told_apart():
    model = kz.CompositeKernelClassification.example()
    a, b = pt.dscalar("a"), pt.dscalar("b")
    draws = {"a": np.array([5.0]), "b": np.array([1.0])}
    for inputs in ([a, b], [b, a]):
        (found,) = evaluation.compile_over_draws(model, inputs, [a - b])(draws)
        np.testing.assert_array_equal(found, [4.0])


def test_potentials_read_observed_values():
    with pm.Model() as model:
        x = pm.Normal("x")
        y = pm.Normal("y", x, observed=[1.0, 2.0])
        pm.Potential("p", -(y**2).sum())
    given = {"x": np.array([0.5, 0.5])}
    expected = stats.norm.logpdf(0.5) + stats.norm.logpdf([1.0, 2.0], 0.5).sum() - 5.0
    np.testing.assert_allclose(log_density(model, given), [expected] * 2)
