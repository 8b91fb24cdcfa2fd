"""The declaration in blocks against the densities of whole matrices, and its arguments."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

from family import assert_ks, assert_mean
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from mutual_fixture import random_kernels

MODE = "FAST_COMPILE"
N, LAM = 4, 0.3
NU = np.array([5.3, 8.1, 9.4])
VISIBLE = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, 0]], dtype=bool)
KERNELS = random_kernels(N, 3, 1)[0]


def model_of(**options):
    """Kernels a and b with missing objects, c without visible ones."""
    kernels = dict(zip("abc", KERNELS, strict=True))
    return MutualKernelCompletion(kernels, VISIBLE, **{"lam": LAM, **options})


def packed(matrix):
    factor = np.linalg.cholesky(matrix)
    diagonal = np.diag_indices(len(matrix))
    factor[diagonal] = np.log(factor[diagonal])
    return factor[np.tril_indices(len(matrix))]


def point_of(model, M, wholes):
    """Values of the model's value variables: M and whole kernels cut into blocks."""
    point = {"M_cholesky__": packed(M)}
    explicit = () if model.collapsed else model.problem.kernels
    for kernel, Q in zip(explicit, wholes, strict=True):
        v, h = kernel.visible, kernel.hidden
        schur = Q[np.ix_(h, h)]
        if len(v):
            vv, hv = Q[np.ix_(v, v)], Q[np.ix_(h, v)]
            point[f"Qhv_{kernel.name}"] = hv
            schur = schur - hv @ np.linalg.solve(vv, hv.T)
        point[f"Qhh_v_{kernel.name}_cholesky__"] = packed(schur)
    return point


def whole_kernel(kernel, Q):
    """Q with the model's visible block in place of its own, and all else consistent with it."""
    v, h = kernel.visible, kernel.hidden
    if not len(v):
        return Q
    hv = Q[np.ix_(h, v)]
    schur = Q[np.ix_(h, h)] - hv @ np.linalg.solve(Q[np.ix_(v, v)], hv.T)
    whole = Q.copy()
    whole[np.ix_(v, v)] = kernel.values
    whole[np.ix_(h, h)] = schur + hv @ np.linalg.solve(kernel.values, hv.T)
    return whole


def random_whole(model, seed):
    rng = np.random.default_rng(seed)
    M = stats.invwishart(N + 3, N * np.eye(N)).rvs(random_state=rng)
    wholes = stats.wishart(N + 2, np.eye(N) / N).rvs(3, random_state=rng)
    pairs = zip(model.problem.kernels, wholes, strict=True)
    return M, [whole_kernel(kernel, Q) for kernel, Q in pairs]


def log_prior(M, nu):
    # The kernel without visible objects has no say in lambda'.
    strength = LAM * nu[:2].mean()
    return stats.invwishart(strength + N + 1, strength * np.eye(N)).logpdf(M)


def test_density_in_blocks_equals_that_of_whole_matrices():
    """The change to blocks has no Jacobian. Catches a wrong scale or degree of freedom."""
    model = model_of(nu=dict(zip("abc", NU, strict=True)))
    density = model.compile_logp(jacobian=False, mode=MODE)
    for seed in range(3):
        M, wholes = random_whole(model, seed)
        exact = log_prior(M, NU)
        exact += sum(stats.wishart(v, M / v).logpdf(Q) for v, Q in zip(NU, wholes, strict=True))
        assert float(density(point_of(model, M, wholes))) == pytest.approx(exact, rel=1e-10)


def test_collapsed_density_is_the_marginal_one_up_to_a_constant():
    nu = NU
    model = model_of(nu=nu, collapsed=True)
    density = model.compile_logp(jacobian=False, mode=MODE)
    gaps = []
    for seed in range(4):
        M, _ = random_whole(model, seed)
        exact = log_prior(M, nu)
        for kernel, v in zip(model.problem.kernels[:2], nu, strict=False):
            seen = np.ix_(kernel.visible, kernel.visible)
            exact += stats.wishart(v, M[seen] / v).logpdf(kernel.values)
        gaps.append(float(density(point_of(model, M, []))) - exact)
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-9)


def test_prior_draws_have_the_law_of_whole_matrices():
    """Completed kernels of forward draws, in the units given, against Q | M ~ W in one piece."""
    model = model_of(nu=NU)
    draws = 1_000
    names = ["M", "Q_a", "Q_b", "Q_c", "trace_Q", "log_det_M"]
    drawn = pm.draw([model[name] for name in names], draws, random_seed=1, mode=MODE)
    prior = dict(zip(names, drawn, strict=True))
    rng = np.random.default_rng(2)
    strength = LAM * NU[:2].mean()
    M = stats.invwishart(strength + N + 1, strength * np.eye(N)).rvs(draws, random_state=rng)
    root = np.linalg.cholesky(M)
    for name, unit, v in zip("abc", model.units, NU, strict=True):
        Q = root @ stats.wishart(v, np.eye(N) / v).rvs(draws, random_state=rng) @ root.mT
        ours = prior[f"Q_{name}"] / unit
        for statistic in (
            lambda q: np.linalg.slogdet(q)[1],
            lambda q: q[:, 0, 1] / np.sqrt(q[:, 0, 0] * q[:, 1, 1]),
            lambda q: q[:, 2, 3] / np.sqrt(q[:, 2, 2] * q[:, 3, 3]),
            lambda q: np.log(np.trace(q, axis1=1, axis2=2)),
        ):
            assert_ks(statistic(ours), statistic(Q))
        ratio = np.linalg.solve(prior["M"], ours)
        assert_mean(np.trace(ratio, axis1=1, axis2=2), N)
    np.testing.assert_allclose(prior["log_det_M"], np.linalg.slogdet(prior["M"])[1])
    traces = [np.trace(prior[f"Q_{name}"], axis1=1, axis2=2) for name in "abc"]
    np.testing.assert_allclose(prior["trace_Q"], np.array(traces).T)


def test_collapsed_density_is_none_where_M_underflows():
    model = model_of(nu=NU, collapsed=True)
    point = {name: np.full_like(x, -400.0) for name, x in model.initial_point().items()}
    assert model.compile_logp(mode=MODE)(point) == -np.inf


def test_collapsed_completion_is_the_expectation_given_M():
    """E[Q_h. | M] of the explicit declaration, from the regression on what is visible."""
    model = model_of(nu=NU, collapsed=True)
    M, EQ = pm.draw([model["M"], model["EQ_a"]], random_seed=1, mode=MODE)
    kernel = model.problem.kernels[0]
    v, h = kernel.visible, kernel.hidden
    B = np.linalg.solve(M[np.ix_(v, v)], M[np.ix_(v, h)])
    np.testing.assert_allclose(EQ[np.ix_(v, h)], kernel.unit * kernel.values @ B)
    hh = M[np.ix_(h, h)] - M[np.ix_(h, v)] @ B + B.T @ kernel.values @ B
    np.testing.assert_allclose(EQ[np.ix_(h, h)], kernel.unit * hh)


def test_chosen_entries_are_those_of_the_completed_kernels():
    model = MutualKernelCompletion(
        {"a": KERNELS[0], "b": KERNELS[1]},
        np.array([[1, 1], [1, 1], [1, 0], [1, 0]], dtype=bool),
        entries={"b": [(2, 1), (3, 3)]},
    )
    entries, Q = pm.draw([model["entries_b"], model["Q_b"]], random_seed=1, mode=MODE)
    np.testing.assert_allclose(entries, [Q[2, 1], Q[3, 3]])
    assert list(model.coords["entry_b"]) == ["2|1", "3|3"]


def test_what_a_result_keeps():
    model = model_of()
    assert model.streamed == ("M", "Q_a", "Q_b", "Q_c")
    assert model.large == {
        *("M", "Q_a", "Q_b", "Q_c", "Qhv_a", "Qhv_b"),
        *("Qhv_c", "Qhh_v_a", "Qhh_v_b", "Qhh_v_c"),
    }
    assert "Qhv_c" not in model.named_vars
    np.testing.assert_array_equal(model.problem.nu, [5.0, 5.0, 5.0])
    np.testing.assert_array_equal(model.coords["hidden_b"], [0, 3])
    assert not model.amendments()


def test_exchanged_data_reach_the_problem():
    model = MutualKernelCompletion.example()
    block = 2 * model["Qvv_far_values"].get_value()
    with model:
        pm.set_data({"Qvv_far_values": block, "units": [3.0, 5.0], "nu": [4.0, 6.0]})
    problem = model.problem
    np.testing.assert_array_equal(problem.kernels[1].values, block)
    assert [kernel.unit for kernel in problem.kernels] == [3.0, 5.0]
    np.testing.assert_array_equal(problem.nu, [4.0, 6.0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"units": [1.0, 0.0]}, "'units' argument .* above 0"),
        ({"nu": [2.0, 9.0]}, "'nu' argument .* above l - 1 = 3"),
        ({"Qvv_far_values": -np.eye(3)}, "'Qvv_far_values' argument .* semidefinite"),
        ({"Qvv_far_values": np.triu(np.ones((3, 3)))}, "'Qvv_far_values' argument .* symmetric"),
        ({"Qvv_far_values": np.ones((3, 3))}, "'kernels.*far.* rank 1 of 3"),
    ],
)
def test_exchanged_data_are_checked(data, message):
    model = MutualKernelCompletion.example()
    with model:
        pm.set_data(data)
    with pytest.raises(ValueError, match=message):
        model.problem  # noqa: B018


@pytest.mark.parametrize(
    "nu",
    [
        pd.Series({"c": 9.4, "a": 5.3, "b": 8.1}),
        xr.DataArray([8.1, 9.4, 5.3], dims="kernel", coords={"kernel": list("bca")}),
        pd.Series(NU),
        xr.DataArray(NU, dims="kernel"),
    ],
    ids=["Series", "DataArray", "Series without names", "DataArray without names"],
)
def test_degrees_of_freedom_go_by_the_names_that_they_have(nu):
    np.testing.assert_array_equal(model_of(nu=nu).problem.nu, NU)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 0.0}, "'lam' argument"),
        ({"nu": 3.0}, r"'nu' argument .* above l - 1 = 3.* Got 3.0"),
        ({"nu": [5.0, 6.0]}, "'nu' argument"),
        ({"nu": "many"}, "'nu' argument"),
        ({"nu": {"a": 5.0}}, "'nu' argument"),
        ({"nu": pd.Series({"a": 5.0, "b": 6.0, "d": 7.0})}, r"'nu' argument .* \['a', 'b', 'd'\]"),
        ({"nu": 0.0, "collapsed": True}, "'nu' argument .* above 0"),
        ({"normalize": "trace"}, "'normalize' argument .* True or False"),
        ({"entries": {"aa": [(0, 1)]}}, "'entries' argument .* nearest is 'a'"),
        ({"entries": {"a": [(0, 9)]}}, r'entries\["a"\].* pairs of objects.* \(0, 9\)'),
        ({"entries": {"a": (0, 1)}}, r'entries\["a"\].* such as \[\(0, 3\)\]'),
        ({"entries": {"a": []}}, r'entries\["a"\].* pairs of objects'),
        ({"entries": [(0, 1)]}, "'entries' argument .* by kernel name. Got a list"),
    ],
)
def test_settings_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        model_of(**options)


def test_rank_deficient_blocks_need_jitter_or_a_collapsed_model():
    x = np.arange(1.0, 5.0)
    kernels = {"flat": np.outer(x, x), "b": KERNELS[1]}
    with pytest.raises(ValueError, match=r"flat.*jitter=.*collapsed=True.*rank 1"):
        MutualKernelCompletion(kernels)
    MutualKernelCompletion(kernels, jitter=1e-3)
    collapsed = MutualKernelCompletion(kernels, collapsed=True)
    assert np.isfinite(collapsed.compile_logp(mode=MODE)(collapsed.initial_point()))


def test_names_must_fit_into_a_result():
    with pytest.raises(ValueError, match="without '/'"):
        MutualKernelCompletion({"a/b": KERNELS[0]})
    for ending in ("_", "_values"):
        with pytest.raises(ValueError, match=f"differ by '{ending}' alone"):
            MutualKernelCompletion({"a": KERNELS[0], f"a{ending}": KERNELS[1]})
