"""The compiled loops at scores and codes of every kind, and without a compiler."""

import os
import subprocess
import sys

import numpy as np
import pytest

from kernelzoo.numerics.probit import log_probability_and_gradient


def test_certain_labels_have_no_gradient():
    f = np.array([[60.0, 0.0, 0.0], [0.0, 60.0, 0.0]])
    log_p, gradient = log_probability_and_gradient(f, np.array([0, 1]))
    assert np.abs(log_p).max() < 1e-8
    assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite(bad):
    f = np.zeros((3, 3))
    f[1, 2] = bad
    log_p, gradient = log_probability_and_gradient(f, np.zeros(3, dtype=int))
    np.testing.assert_allclose(log_p, [-np.log(3), -np.inf, -np.log(3)], rtol=1e-8)
    assert not gradient[1].any()
    assert gradient[0].any()


def test_codes_of_no_class():
    t = np.array([0, 2, -1])
    log_p, gradient = log_probability_and_gradient(np.zeros((3, 2)), t)
    np.testing.assert_allclose(log_p, [-np.log(2), -np.inf, -np.inf], rtol=1e-8)
    assert not gradient[1:].any()


def test_numbers_of_objects_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"Scores of 3 objects need one class code each"):
        log_probability_and_gradient(np.zeros((3, 2)), np.zeros(4, dtype=int))


@pytest.mark.parametrize(
    "setting", ["disabled", pytest.param("unwritable cache", marks=pytest.mark.slow)]
)
def test_results_without_a_compiler_or_a_cache(setting, tmp_path):
    """The same numbers where numba is switched off, and where nothing can be written."""
    rng = np.random.default_rng(3)
    f, labels = rng.normal(size=(5, 3)), np.arange(5) % 3
    code = (
        "import numpy as np\n"
        "from kernelzoo.numerics.probit import log_probability_and_gradient\n"
        f"f, t = np.array({f.tolist()}), np.array({labels.tolist()})\n"
        "log_p, gradient = log_probability_and_gradient(f, t)\n"
        "print(repr(log_p.tolist()), repr(gradient.tolist()), sep='|')\n"
    )
    environment = dict(os.environ)
    if setting == "disabled":
        environment["NUMBA_DISABLE_JIT"] = "1"
    else:
        folder = tmp_path / "cache"
        (folder / "numba").mkdir(parents=True)
        (folder / "numba").chmod(0o500)
        environment["PYTENSOR_FLAGS"] = f"base_compiledir={folder}"
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error:::kernelzoo", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    log_p, gradient = (np.array(eval(part)) for part in done.stdout.split("|"))
    expected = log_probability_and_gradient(f, labels)
    np.testing.assert_allclose(log_p, expected[0], rtol=1e-9)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-10)
