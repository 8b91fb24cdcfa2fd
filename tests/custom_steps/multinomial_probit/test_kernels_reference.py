"""Learned kernels against references that no engine had a part in: selections, exponents, theta."""

import json

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
import probit_kernels_reference
from family import assert_ks, assert_z
from probit_kernels_reference import PROBLEMS
from probit_reference import summary, z_scores

REFERENCE = json.loads(probit_kernels_reference.PATH.read_text())["problem"]
each_problem = pytest.mark.parametrize("name", PROBLEMS)
QUIET = {"random_seed": 1, "progressbar": False, "log_likelihood": False, "cores": 1, "chains": 2}


def engine_test(name, engine, draws, tune):
    """Two chains of an engine have the means of the reference."""
    problem, reference = PROBLEMS[name], REFERENCE[name]["functionals"]
    result = kz.fit(problem.model(), engine, draws=draws, tune=tune, **QUIET)
    chains = []
    for chain in result["posterior"]["chain"].values:
        posterior = result["posterior"].sel(chain=chain)
        values = {variable: posterior[variable].values for variable in posterior.data_vars}
        chains.append(problem.functionals(values))
    if "state" in reference:
        # Chains may never see the rare ones.
        seen = np.array(reference["state"]["mean"]) > 0.01
        reference = reference | {
            "state": {key: np.array(of)[seen] for key, of in reference["state"].items()}
        }
        chains = [chain | {"state": chain["state"][:, seen].astype(float)} for chain in chains]
    found = summary(chains)
    # The standard errors are estimates themselves.
    assert min(entry["ess"] for entry in found.values()) > 100
    assert_z(z_scores(found, reference))


def test_reference_is_precise():
    for entry in REFERENCE.values():
        assert entry["ess"] > 10_000


@each_problem
def test_reference_is_of_the_declaration(name):
    """Its prior draws have the law of the declaration's, its composite kernels are the same."""
    problem, n = PROBLEMS[name], 2_000
    model = problem.model()
    values = problem.prior(n, np.random.default_rng(1))
    drawn = pm.draw([model[v] for v in values], n, random_seed=2, mode="FAST_COMPILE")
    for ours, declared in zip(values.values(), drawn, strict=True):
        for one, other in zip(ours.T, declared.T, strict=True):
            assert_ks(one, other)
    composition = model.composition
    for i, composite in enumerate(problem.composite({k: v[:5] for k, v in values.items()})):
        at = {k: v[i] for k, v in values.items()}
        np.testing.assert_allclose(composition.composite(at), composite, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "draws"), [("product", 1_100), ("binary", 600), ("theta", 800)])
def test_gibbs_agrees(name, draws):
    engine_test(name, kz.Gibbs(), draws, 300)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in PROBLEMS),
        ("binary", {"block": 1}),
        *((name, {"moves": 1, "collapsed": 3}) for name in ("product", "theta")),
        *((name, {"collapsed": 0}) for name in ("product", "theta")),
    ],
)
def test_the_papers_scheme_agrees_in_a_long_run(name, settings):
    engine_test(name, kz.Gibbs(scheme="paper", **settings), 12_000, 1_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["product", "theta"])
def test_nuts_agrees(name):
    engine_test(name, kz.NUTS(target_accept=0.95), 2_000, 1_000)


@pytest.mark.slow
def test_wrong_hyperparameter_is_detected(monkeypatch):
    """Planted bug: the variances' rate is taken for twice what it is."""
    monkeypatch.setattr(probit_kernels_reference, "UPSILON", 2.0)
    with pytest.raises(AssertionError, match="z-score"):
        engine_test("theta", kz.Gibbs(), 800, 300)
