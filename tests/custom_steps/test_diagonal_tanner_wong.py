"""I- and P-step of the simplified Tanner-Wong algorithm against the joint law of all variables."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from family import assert_ks, assert_z
from kernelzoo.custom_steps.diagonal_tanner_wong import (
    WHOLE,
    Constants,
    DiagonalTannerWongImputation,
    DiagonalTannerWongPosterior,
    Parameters,
    diagonal_of_packed,
    diagonal_of_W,
    draw_around_diagonal,
    draw_diagonal,
    draw_parameters,
    draw_wishart,
    impute,
)
from kernelzoo.models.diagonal_wishart_completion import DiagonalWishartCompletion
from kernelzoo.models.multinomial_probit import MultinomialProbit

N1, N2 = 2, 3
R, ETA, ZETA, TAU = 6.4, 4.3, 2.7, 1.9
FORMS = WHOLE | {"diagonal": draw_diagonal}


def constants_of(w):
    return Constants(w, N2, R, ETA, ZETA, TAU)


def unpack(packed):
    """W22.1 of its packed Cholesky factor, by other means than the steps'."""
    factor = np.zeros((N2, N2))
    factor[np.tril_indices(N2)] = packed
    np.fill_diagonal(factor, np.exp(np.diagonal(factor)))
    return factor @ factor.T


def pack(matrix):
    factor = np.linalg.cholesky(matrix)
    np.fill_diagonal(factor, np.log(np.diagonal(factor)))
    return factor[np.tril_indices(N2)]


def joint_draw(rng, diagonal):
    """Lambda, delta and W in one piece, by other means than the steps'.

    W11 comes out as a whole matrix. It is diagonalized: given W11, the blocks of W C with C'W11C
    diagonal have the law that the declaration states, and delta1 is then left out of the test.
    """
    lam = rng.gamma(ZETA, 1 / TAU)
    delta = stats.invgamma(ETA, scale=lam).rvs(N1 + N2, random_state=rng)
    # One training object at a time has the Gamma density of the declaration's W11 in w_j.
    w = rng.gamma(R / 2, 2 * delta[:N1])
    test = delta[N1:]
    W21 = np.sqrt(np.outer(test, w)) * rng.normal(size=(N2, N1))
    if diagonal:
        return lam, delta, w, W21, rng.gamma((R - N1) / 2, 2 * test)
    rows = stats.wishart(R - N1, np.diag(test)).rvs(random_state=rng)
    return lam, delta, w, W21, pack(rows)


def functionals(lam, delta, w, W21, W22_1, diagonal):
    """Joint functionals with light tails under the prior."""
    own = W22_1 if diagonal else np.diagonal(unpack(W22_1))
    whole = own + (W21**2 / w).sum(axis=1)
    test, logs = np.log(delta[N1:]), [np.log(lam)]
    logs += [np.log(delta).sum(), np.log(own).sum(), np.log(whole).sum(), test.sum()]
    values = [
        logs,
        np.outer(logs, logs)[np.triu_indices(len(logs))],
        np.log(delta),
        np.log(lam) * np.log(delta),
        np.log(own),
        np.log(own) * test,
        np.arcsinh(own / delta[N1:]),
        np.arcsinh(whole / delta[N1:]),
        np.arcsinh(w / delta[:N1]),
        np.arcsinh(lam / delta),
        np.arcsinh(W21 / np.sqrt(np.outer(delta[N1:], w))).ravel(),
        np.arcsinh(W21**2 / np.outer(delta[N1:], w)).ravel(),
        np.arcsinh(W21**2 / w).ravel(),
    ]
    if not diagonal:
        matrix = unpack(W22_1)
        correlations = (matrix / np.sqrt(np.outer(own, own)))[np.triu_indices(N2, 1)]
        log_det = np.linalg.slogdet(matrix)[1]
        values += [
            correlations,
            correlations**2,
            [correlations.prod(), log_det, log_det * logs[1], log_det - np.log(own).sum()],
            np.log(own) * correlations[0] ** 2,
        ]
    return np.concatenate(values)


def joint_test(form=None, p_step=None, *, diagonal=False, replicates=4_000, seed=1):
    """Getting it right (Geweke 2004), one step at a time.

    From a joint draw a step leaves the joint law as it is. Replicates are independent: paired
    differences of the functionals have mean zero, and each functional has the distribution it has
    in replicates that no step has touched.
    """
    rng = np.random.default_rng(seed)
    before, after = [], []
    for _ in range(replicates):
        lam, delta, w, W21, W22_1 = joint_draw(rng, diagonal)
        before.append(functionals(lam, delta, w, W21, W22_1, diagonal))
        constants = constants_of(w)
        if form is not None:
            W21, W22_1 = impute(constants, delta, form, rng)
        if p_step is not None:
            own = W22_1 if diagonal else diagonal_of_packed(W22_1)
            lam, delta = p_step(constants, delta, diagonal_of_W(constants, W21, own), rng)
        after.append(functionals(lam, delta, w, W21, W22_1, diagonal))
    before, after = np.array(before), np.array(after)
    differences = after - before
    moved = np.abs(differences).max(axis=0) > 1e-9
    differences = differences[:, moved]
    assert_z(differences.mean(axis=0) / (differences.std(axis=0, ddof=1) / replicates**0.5))
    half = replicates // 2
    for old, new in zip(before[:half, moved].T, after[half:, moved].T, strict=True):
        assert_ks(new, old)


@pytest.mark.parametrize("name", FORMS)
def test_imputation_leaves_the_joint_law(name):
    joint_test(form=FORMS[name], diagonal=name == "diagonal")


@pytest.mark.parametrize("diagonal", [False, True])
def test_posterior_step_leaves_the_joint_law(diagonal):
    joint_test(p_step=draw_parameters, diagonal=diagonal)


@pytest.mark.parametrize("name", FORMS)
def test_sweep_leaves_the_joint_law(name):
    joint_test(FORMS[name], draw_parameters, diagonal=name == "diagonal")


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name", FORMS)
def test_wrong_degrees_of_freedom_of_the_imputation_are_detected(name, change):
    def wrong(delta, df, rng):
        return FORMS[name](delta, df + change, rng)

    with pytest.raises(AssertionError):
        joint_test(form=wrong, diagonal=name == "diagonal")


@pytest.mark.parametrize("name", ["r", "eta", "zeta"])
@pytest.mark.parametrize("change", [-1, 1])
def test_wrong_shapes_of_the_posterior_step_are_detected(name, change):
    def wrong(constants, delta, diagonal, rng):
        shape = getattr(constants, name) + change
        return draw_parameters(constants._replace(**{name: shape}), delta, diagonal, rng)

    with pytest.raises(AssertionError):
        joint_test(p_step=wrong)


def test_rate_of_the_diagonal_read_as_a_scale_is_detected():
    """Planted bug: the second argument of eq (15), a rate, taken for a scale."""

    def wrong(delta, df, rng):
        return rng.gamma(df / 2, 1 / (2 * delta))

    with pytest.raises(AssertionError):
        joint_test(form=wrong, diagonal=True)


def test_uncorrelated_entries_beside_the_right_diagonal_are_detected():
    """Planted bug: TW2's diagonal put into a W22.1 that is declared whole, as a diagonal matrix."""

    def wrong(delta, df, rng):
        return pack(np.diag(draw_diagonal(delta, df, rng)))

    with pytest.raises(AssertionError):
        joint_test(form=wrong)


def test_forgotten_regression_on_the_training_objects_is_detected():
    """Planted bug: the diagonal of W22.1 taken for that of W22."""

    def wrong(constants, delta, diagonal, rng):
        kept = np.concatenate([diagonal[:N1], 0.5 * diagonal[N1:]])
        return draw_parameters(constants, delta, kept, rng)

    with pytest.raises(AssertionError):
        joint_test(p_step=wrong)


def test_delta_drawn_beside_another_lambda_is_detected():
    """Planted bug: lambda and delta both from the old values, as if they were independent."""

    def wrong(constants, delta, diagonal, rng):
        one, other = (draw_parameters(constants, delta, diagonal, rng) for _ in range(2))
        return Parameters(one.lam, other.delta)

    with pytest.raises(AssertionError):
        joint_test(p_step=wrong)


def test_forms_give_one_law_of_the_diagonal():
    """Eq (15) is the law of the diagonal in eq (13): TW1 and TW2 drive the same chain."""
    rng, draws = np.random.default_rng(2), 20_000
    delta, df = np.array([0.3, 1.0, 4.0]), 4.4
    exact = stats.gamma(df / 2, scale=2 * delta)
    samples = [draw_diagonal(delta, df, rng) for _ in range(draws)]
    for form in (draw_wishart, draw_around_diagonal):
        diagonals = np.array([diagonal_of_packed(form(delta, df, rng)) for _ in range(draws)])
        for name, sample in {"form": diagonals, "diagonal": np.array(samples)}.items():
            levels = exact.cdf(sample)
            for column in levels.T:
                assert_ks(column, "uniform")
            # Independent entries: products of levels about their mean vanish on average.
            products = np.array([np.prod(levels[:, [i, j]] - 0.5, axis=1) for i, j in _pairs()])
            z = products.mean(axis=1) / (products.std(axis=1) / draws**0.5)
            assert_z(z), name


def _pairs():
    return [(0, 1), (0, 2), (1, 2)]


def test_packed_matrix_has_the_diagonal_of_the_whole():
    packed = np.random.default_rng(3).normal(size=N2 * (N2 + 1) // 2)
    np.testing.assert_allclose(diagonal_of_packed(packed), np.diagonal(unpack(packed)), rtol=1e-12)


def sampled(model, cores=1, variant=None, draws=200, chains=2):
    with model:
        return pm.sample(
            draws,
            tune=20,
            chains=chains,
            cores=cores,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            step=[DiagonalTannerWongImputation(variant=variant), DiagonalTannerWongPosterior()],
            compile_kwargs={"mode": "FAST_COMPILE"},
        )["posterior"].to_dataset()


@pytest.mark.parametrize("diagonal", [False, True])
def test_same_seed_same_draws(diagonal):
    model = DiagonalWishartCompletion.example(diagonal_W22_1=diagonal)
    one, two = sampled(model), sampled(model, cores=2)
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], two[name])


def test_packed_draws_reach_the_trace_as_matrices():
    """W22_1 of the trace, given its delta, is Wishart: what the step packs PyMC unpacks."""
    model = DiagonalWishartCompletion.example()
    trace = sampled(model, draws=4_000, chains=1)
    # The I-step precedes the P-step: a draw's W22_1 goes with the delta of the draw before.
    delta = trace["delta"].values[0, :-1, model.n_train :]
    W22_1 = trace["W22_1"].values[0, 1:]
    W21 = trace["W21"].values[0, 1:]
    df = model.r - model.n_train
    scaled = W22_1 / np.sqrt(delta[:, :, None] * delta[:, None])
    assert_ks(np.linalg.det(scaled), _determinants(df, len(scaled)))
    for j in range(model.n_test):
        assert_ks(scaled[:, j, j], stats.chi2(df).cdf)
        assert_ks(W21[:, j, 0] / np.sqrt(delta[:, j] * model.w[0]), stats.norm.cdf)


def _determinants(df, draws):
    return np.linalg.det(stats.wishart(df, np.eye(2)).rvs(draws, random_state=5))


def test_other_models_variables_and_variants_are_refused():
    with pytest.raises(TypeError, match="needs a DiagonalWishartCompletion"):
        DiagonalTannerWongImputation(model=MultinomialProbit.example())
    model = DiagonalWishartCompletion.example()
    with pytest.raises(ValueError, match=r"must be W21, W22_1. Got \['delta'\]"):
        DiagonalTannerWongImputation([model["delta"]], model=model)
    with pytest.raises(ValueError, match=r"'variant' argument .* nearest is 'TW1'"):
        DiagonalTannerWongImputation(variant="TW", model=model)
    with pytest.raises(ValueError, match=r"'TW2' for a model with diagonal_W22_1=True"):
        declared = DiagonalWishartCompletion.example(diagonal_W22_1=True)
        DiagonalTannerWongImputation(variant="TW1", model=declared)
