"""Ctrl-C: a marked result or a clear message."""

import signal
import subprocess
import sys
import textwrap

import numpy as np
import pymc as pm
import pytest

import kernelzoo as kz
from kernelzoo.inference import mode
from kernelzoo.inference.engine import fit as fit_module
from kernelzoo.inference.engine import independent
from kernelzoo.inference.engine.progress import Clock, interruptible

QUIET = {"random_seed": 1, "progressbar": False}


def press():
    """Ctrl-C of the user, at once."""
    signal.raise_signal(signal.SIGINT)


def pressed_in_call(function, number):
    """The function, in whose call of this number the user presses Ctrl-C."""
    calls = iter(range(10**9))

    def pressing(*args, **kwargs):
        if next(calls) == number:
            press()
        return function(*args, **kwargs)

    return pressing


@pytest.fixture(scope="module")
def model():
    return kz.WishartCompletion.example()


def failing(error):
    """A library that catches Ctrl-C and raises its own error."""

    def run(*args, **kwargs):
        try:
            press()
        except KeyboardInterrupt:
            raise error from None

    return run


@pytest.mark.parametrize(
    "error",
    [
        ValueError("Not enough samples to build a trace."),
        RuntimeError("LLVM: symbol not found"),
        SystemError("returned a result with an exception set"),
        KeyboardInterrupt(),
    ],
    ids=["PyMC", "llvmlite", "SciPy", "bare"],
)
def test_an_interrupt_without_a_result_is_explained(model, monkeypatch, error):
    monkeypatch.setattr(kz.Gibbs, "run", failing(error))
    with pytest.raises(KeyboardInterrupt, match="Gibbs was interrupted before it") as ended:
        kz.fit(model, "gibbs", **QUIET)
    assert ended.value.__cause__ is error
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_errors_stay_as_they_are(model, monkeypatch):
    def run(*args, **kwargs):
        raise RuntimeError("planted")

    monkeypatch.setattr(kz.Gibbs, "run", run)
    with pytest.raises(RuntimeError, match="planted"):
        kz.fit(model, "gibbs", **QUIET)


def test_ctrl_c_while_chains_tune_is_explained(model):
    def stop(trace, draw):
        if draw.draw_idx == 5:
            press()

    with pytest.raises(KeyboardInterrupt, match="Gibbs was interrupted before"):
        kz.fit(model, "gibbs", draws=10, tune=10, chains=1, cores=1, callback=stop, **QUIET)


@pytest.mark.filterwarnings("ignore:Gibbs was interrupted")
def test_a_result_says_that_it_was_interrupted(model):
    def stop(trace, draw):
        if draw.draw_idx == 30:
            press()

    result = kz.fit(model, "gibbs", draws=100, tune=5, chains=1, cores=1, callback=stop, **QUIET)
    assert 20 <= result["posterior"].sizes["draw"] < 30
    assert result.attrs["ended_by"] == "interrupt"
    assert result.attrs["converged"] == "no"


@pytest.mark.filterwarnings("ignore:Gibbs was interrupted")
@pytest.mark.parametrize("stored", [False, True])
def test_one_ctrl_c_ends_chains_in_turn_and_keeps_the_interrupted_one(model, tmp_path, stored):
    draws_of = dict.fromkeys(range(3), 0)

    def in_second_chain(trace, draw):
        draws_of[draw.chain] += 1
        if draw.chain == 1 and draw.draw_idx == 21:
            press()

    options = {
        "draws": 30,
        "tune": 2,
        "chains": 3,
        "cores": 1,
        "callback": in_second_chain,
        **QUIET,
    }
    store = tmp_path / "draws" if stored else None
    result = kz.fit(model, "gibbs", store=store, **options)
    assert draws_of[0] == 32
    assert draws_of[1] == 22
    assert draws_of[2] <= 1
    assert result["posterior"].sizes["draw"] in (19, 20)
    np.testing.assert_array_equal(result["posterior"]["chain"], [0, 1])
    assert result.attrs["ended_by"] == "interrupt"
    assert result.attrs["converged"] == "no"
    np.testing.assert_array_equal(result["moments"]["draws"][:2], [30, 20])


def test_an_interrupt_of_the_users_callback_ends_all_chains_as_ctrl_c_does(model):
    """Bug: the chains after the first one ran whole, and nothing said that draws are missing."""
    chains = []

    def stop(trace, draw):
        chains.append(draw.chain)
        if draw.draw_idx == 7:
            raise KeyboardInterrupt

    options = {"draws": 12, "tune": 2, "chains": 3, "cores": 1, "callback": stop, **QUIET}
    with pytest.warns(UserWarning, match="Gibbs was interrupted: the result is incomplete"):
        result = kz.fit(model, "gibbs", **options)
    assert len(chains) <= 8 + 2
    assert result["posterior"].sizes["chain"] == 1
    assert result["posterior"].sizes["draw"] == 6
    assert result.attrs["ended_by"] == "interrupt"
    assert result.attrs["converged"] == "no"
    assert "interrupted" in result.attrs["note"]


@pytest.mark.filterwarnings("ignore:VB was interrupted")
def test_ctrl_c_while_densities_are_evaluated_keeps_the_draws_before(monkeypatch):
    model = kz.MultinomialProbit.example()
    monkeypatch.setattr(independent, "DRAWS_OF_PART", 20)
    whole = kz.fit(model, "vb", draws=100, **QUIET)
    compile_densities = independent.compile_densities
    monkeypatch.setattr(
        independent, "compile_densities", lambda model: pressed_in_call(compile_densities(model), 2)
    )
    part = kz.fit(model, "vb", draws=100, **QUIET)
    assert part["posterior"].sizes["draw"] == 40
    assert part.attrs["ended_by"] == "interrupt"
    assert part.attrs["converged"] == "no"
    for group in ("posterior", "sample_stats", "log_likelihood"):
        for name, values in part[group].data_vars.items():
            np.testing.assert_array_equal(values, whole[group][name].isel(draw=slice(40)))


def test_ctrl_c_while_log_likelihoods_are_evaluated_keeps_the_fit(monkeypatch):
    model = kz.MultinomialProbit.example()
    options = {"draws": 10, "tune": 2, "chains": 1, "cores": 1, **QUIET}
    function = pressed_in_call(fit_module.densities_of, 0)
    monkeypatch.setattr(fit_module, "densities_of", function)
    result = kz.fit(model, "gibbs", **options)
    assert result["posterior"].sizes["draw"] == 10
    assert "log_likelihood" not in result.children
    assert "ended_by" not in result.attrs


def test_ctrl_c_in_the_curvature_of_laplace_is_explained(monkeypatch):
    with pm.Model() as model:
        x = pm.Normal("x", 1.0, 2.0, shape=2)
        pm.Normal("y", x, 1.0, observed=np.array([0.5, 3.0]))
    monkeypatch.setattr(mode.Mode, "curvature", pressed_in_call(mode.Mode.curvature, 0))
    with pytest.raises(KeyboardInterrupt, match="Laplace was interrupted before it had a result"):
        kz.fit(model, "laplace", draws=20, **QUIET)


def test_the_users_handler_stays():
    seen = []
    previous = signal.signal(signal.SIGINT, lambda *args: seen.append(args[0]))
    try:
        with interruptible("Gibbs", Clock()):
            signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, previous)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gibbs", "nuts"])
def test_a_program_without_main_guard_is_told_of_it(tmp_path, engine):
    """The model is larger than the buffer of a pipe, which nobody would read."""
    program = """
        import multiprocessing
        import sys
        import numpy as np
        import kernelzoo as kz

        multiprocessing.set_start_method("spawn", force=True)
        x = np.random.default_rng(0).normal(size=(150, 2))
        kernels = kz.gaussian(1.0) | kz.linear()
        model = kz.CompositeKernelRegression(kernels(x), x[:, 0])
        kz.fit(model, sys.argv[1], draws=5, tune=5, chains=2, cores=2, progressbar=False)
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(program))
    ended = subprocess.run(
        [sys.executable, "-P", script, engine], capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 1
    assert 'if __name__ == "__main__":' in ended.stderr.rpartition("RuntimeError")[-1]
