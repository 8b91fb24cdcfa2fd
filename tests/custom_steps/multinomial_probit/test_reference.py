"""Both samplers of the multinomial probit, and NUTS, against references made by long chains."""

import json

import numpy as np
import pytest

import kernelzoo as kz
import probit_reference
from family import assert_z
from kernelzoo.custom_steps.multinomial_probit import marginal as probit_marginal_sweep
from probit_fixture import State
from probit_reference import PROBLEMS, functionals, marginal_chain, paper_chain, summary, z_scores

REFERENCE = json.loads(probit_reference.PATH.read_text())["functionals"]
each_problem = pytest.mark.parametrize("problem", PROBLEMS)


def chains_test(problem, chain, sweeps, tune):
    """Two chains from dispersed starts have the means of the reference."""
    model = PROBLEMS[problem]()
    rngs = np.random.default_rng(1).spawn(2)
    agree(problem, [functionals(chain(model, sweeps, tune, rng), model.design) for rng in rngs])


def agree(problem, chains):
    result = summary(chains)
    # The standard errors are estimates themselves.
    assert min(entry["ess"] for entry in result.values()) > 100
    assert_z(z_scores(result, REFERENCE[problem]))


@each_problem
def test_reference_is_converged(problem):
    entries = REFERENCE[problem].values()
    assert max(entry["rhat"] for entry in entries) < 1.005
    assert min(entry["ess"] for entry in entries) > 3_000


@each_problem
def test_marginal_scheme_agrees(problem):
    chains_test(problem, marginal_chain, 800, 200)


@pytest.mark.slow
def test_paper_scheme_agrees():
    chains_test("three classes", paper_chain, 6_000, 1_000)


@pytest.mark.slow
@each_problem
@pytest.mark.parametrize(
    ("chain", "sweeps"), [(marginal_chain, 10_000), (paper_chain, 50_000)], ids=["new", "paper"]
)
def test_schemes_agree_in_a_long_run(problem, chain, sweeps):
    chains_test(problem, chain, sweeps, 1_000)


@pytest.mark.slow
@each_problem
def test_nuts_agrees(problem):
    model = PROBLEMS[problem]()
    result = kz.fit(
        model,
        "nuts",
        draws=1_500,
        tune=700,
        chains=2,
        cores=1,
        random_seed=1,
        progressbar=False,
        log_likelihood=False,
    )
    known = {"beta": np.ones(1), "rho": np.ones(1)}
    chains = []
    for chain in result["posterior"]["chain"].values:
        posterior = result["posterior"].sel(chain=chain)
        draws = {name: posterior[name].values for name in posterior.data_vars}
        states = [State(**(known | {name: draws[name][i] for name in draws})) for i in range(1_500)]
        chains.append(functionals(states, model.design))
    agree(problem, chains)


def test_wrong_hyperparameter_is_detected(monkeypatch):
    """Planted bug: the variances' rate is taken for twice what it is."""

    draw = probit_marginal_sweep.draw_variances

    def wrong(W, tau, upsilon, rng):
        return draw(W, tau, 2 * upsilon, rng)

    monkeypatch.setattr(probit_marginal_sweep, "draw_variances", wrong)
    with pytest.raises(AssertionError, match="z-score"):
        chains_test("two classes", marginal_chain, 400, 200)
