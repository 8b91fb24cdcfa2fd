"""The joint model of incomplete kernels and labels has the density of its parts."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from kernelzoo.inference.completion import joint_probit
from kernelzoo.inference.engine.compilation import compiling_with, python_mode

N = 6
IDS = [f"s{i}" for i in range(N)]
LABELS = pd.Series(["x", "y", "z", "x"], index=["s3", "s0", "s4", "s1"])
HIDDEN = [1, 5]
SEEN = [0, 2, 3, 4]


def kernels(hidden=HIDDEN):
    rng = np.random.default_rng(0)
    found = {}
    for name, scale in (("a", 3.0), ("b", 0.5)):
        x = rng.normal(size=(N, 2 * N))
        found[name] = pd.DataFrame(scale * x @ x.T, index=IDS, columns=IDS)
    found["a"].iloc[hidden] = np.nan
    found["a"].iloc[:, hidden] = np.nan
    return found


def class_probability(f, c):
    def integrand(u):
        others = np.delete(f, c)
        return stats.norm.pdf(u) * stats.norm.cdf(u + f[c] - others).prod()

    return integrate.quad(integrand, -10, 10)[0]


@pytest.fixture(scope="module")
def evaluated():
    """Model, log density of the variables as declared, and their values at a point."""
    settings = {"lam": 0.4, "nu": 8.0}
    model = joint_probit(kernels(), LABELS, ["s5", "s2"], tau=2, upsilon=3, completion=settings)
    rng, start = np.random.default_rng(1), model.initial_point(random_seed=1)
    point = {name: x + 0.3 * rng.normal(size=np.shape(x)) for name, x in start.items()}
    with compiling_with(python_mode()):
        variables = [*model.free_RVs, model["Q_a"], model["probability"]]
        outputs = [*model.replace_rvs_by_values(variables), model.logp(jacobian=False)]
        values = model.compile_fn(outputs, inputs=model.value_vars, on_unused_input="ignore")(point)
    *found, density = values
    return dict(zip([v.name for v in variables], found, strict=True)), float(density)


def test_the_log_density_is_the_sum_of_the_parts(evaluated):
    values, found = evaluated
    nu, strength = 8.0, 0.4 * 8.0
    given = {name: kernel.to_numpy() for name, kernel in kernels().items()}
    vv = given["a"][np.ix_(SEEN, SEEN)]
    unit = np.diagonal(vv).mean(), np.diagonal(given["b"]).mean()
    vv, M = vv / unit[0], values["M"]
    order = np.ix_(SEEN + HIDDEN, SEEN + HIDDEN)
    Mo = M[order]
    B = np.linalg.solve(Mo[:4, :4], Mo[:4, 4:])
    C = (Mo[4:, 4:] - Mo[4:, :4] @ B) / nu
    parts = [
        stats.invwishart(strength + N + 1, strength * np.eye(N)).logpdf(M),
        stats.wishart(nu, M / nu).logpdf(given["b"] / unit[1]),
        stats.wishart(nu, Mo[:4, :4] / nu).logpdf(vv),
        stats.matrix_normal(B.T @ vv, C, vv).logpdf(values["Qhv_a"]),
        stats.wishart(nu - 4, C).logpdf(values["Qhh_v_a"]),
        stats.invgamma(2, scale=3).logpdf(values["zeta"]).sum(),
        stats.norm(0, np.sqrt(values["zeta"])).logpdf(values["W"]).sum(),
        stats.expon.logpdf(values["rho"]).sum(),
        stats.dirichlet(values["rho"]).logpdf(values["beta"]),
    ]
    hh = values["Qhh_v_a"] + values["Qhv_a"] @ np.linalg.solve(vv, values["Qhv_a"].T)
    completed = np.empty((N, N))
    completed[order] = np.block([[vv, values["Qhv_a"].T], [values["Qhv_a"], hh]])
    np.testing.assert_allclose(values["Q_a"], unit[0] * completed)
    composite = values["beta"][0] * completed + values["beta"][1] * given["b"] / unit[1]
    train, new = [3, 0, 4, 1], [5, 2]
    f = composite[np.ix_(train, train)] @ values["W"].T
    parts += [np.log(class_probability(row, c)) for row, c in zip(f, [0, 1, 2, 0], strict=True)]
    assert found == pytest.approx(sum(parts), rel=1e-8)
    g = composite[np.ix_(new, train)] @ values["W"].T
    expected = [[class_probability(row, c) for c in range(3)] for row in g]
    np.testing.assert_allclose(values["probability"], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: joint_probit(kernels(), ["x", "y"]), r"a Series with ids"),
        (lambda: joint_probit(kernels(), LABELS.rename({"s3": "q"})), r"the unknown 'q'"),
        (lambda: joint_probit(kernels(), LABELS.rename({"s3": "s0"})), r"'s0' more than once"),
        (lambda: joint_probit(kernels(), LABELS, ["s5", "q"]), r"'new' argument .* unknown 'q'"),
        (lambda: joint_probit(kernels(), LABELS, combination="dirichlet"), r"'combination'"),
        (
            lambda: joint_probit(kernels(), LABELS, completion={"collapsed": True}),
            r"'completion' argument of joint_probit must be not collapsed",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
