"""I- and P-step of the simplified Tanner-Wong algorithm against the joint law of all variables."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import digamma

from family import assert_ks, assert_mean, assert_z
from kernelzoo.custom_steps.kernel_completion.diagonal_tanner_wong import (
    WHOLE,
    Constants,
    DiagonalTannerWongImputation,
    DiagonalTannerWongPosterior,
    diagonal_of_packed,
    draw_parameters,
    impute,
)
from kernelzoo.models.completion.diagonal_draws import Missing, draw_diagonal
from kernelzoo.models.diagonal_wishart_completion import DiagonalWishartCompletion
from kernelzoo.models.multinomial_probit import MultinomialProbit

N1, N2 = 2, 3
R, ETA, ZETA, TAU = 6.4, 4.3, 2.7, 1.9
FORMS = WHOLE | {"diagonal": draw_diagonal}


def constants_of(w):
    return Constants(w, R, ETA, ZETA, TAU)


def unpack(packed):
    """W22.1 (..., n2, n2) of its packed Cholesky factor, by other means than the steps'."""
    factor = np.zeros((*packed.shape[:-1], N2, N2))
    factor[..., *np.tril_indices(N2)] = packed
    i = np.arange(N2)
    factor[..., i, i] = np.exp(factor[..., i, i])
    return factor @ factor.mT


def pack(matrix):
    factor = np.linalg.cholesky(matrix)
    i = np.arange(N2)
    factor[..., i, i] = np.log(factor[..., i, i])
    return factor[..., *np.tril_indices(N2)]


def joint_draws(rng, replicates, diagonal):
    """Independent draws of (lambda, delta, w, W21, W22.1), by other means than the steps'.

    The declaration conditions on a W11 that is diagonal. Its likelihood in delta_j is then that of
    a single w_j from Gamma(r / 2, rate 1 / (2 delta_j)), from which w is drawn here.
    """
    lam = rng.gamma(ZETA, 1 / TAU, replicates)
    delta = lam[:, None] / rng.gamma(ETA, size=(replicates, N1 + N2))
    w = rng.gamma(R / 2, 2 * delta[:, :N1])
    test = delta[:, N1:]
    W21 = rng.normal(scale=np.sqrt(test[:, :, None] * w[:, None]))
    if diagonal:
        return lam, delta, w, W21, rng.gamma((R - N1) / 2, 2 * test)
    standard = stats.wishart(R - N1, np.eye(N2)).rvs(replicates, random_state=rng)
    root = np.sqrt(test)
    return lam, delta, w, W21, pack(standard * root[:, :, None] * root[:, None])


def functionals(lam, delta, w, W21, W22_1, diagonal):
    """Joint functionals (replicate, functional) with light tails under the prior."""
    matrix = None if diagonal else unpack(W22_1)
    own = W22_1 if diagonal else np.diagonal(matrix, axis1=1, axis2=2)
    test = delta[:, N1:]
    whole = own + np.sum(W21**2 / w[:, None], axis=2)
    rate = lam[:, None] + np.hstack([w, whole]) / 2
    # Given lambda and W independent Gammas: their sum tells a joint draw from two draws.
    surprise = (np.log(rate / delta) - digamma(ETA + R / 2)).sum(axis=1)
    sums = [np.log(x).sum(axis=1) for x in (lam[:, None], delta, own, whole, test)]
    logs = np.stack([*sums, surprise], axis=1)
    scaled = (W21 / np.sqrt(test[:, :, None] * w[:, None])).reshape(len(lam), -1)
    values = [
        logs,
        (logs[:, :, None] * logs[:, None])[:, *np.triu_indices(logs.shape[1])],
        np.log(delta),
        np.log(own),
        np.log(own) * np.log(test),
        np.arcsinh(np.hstack([own / test, whole / test, w / delta[:, :N1], lam[:, None] / delta])),
        np.arcsinh(scaled),
        np.arcsinh(scaled**2),
    ]
    if matrix is not None:
        root = np.sqrt(own)
        correlations = (matrix / (root[:, :, None] * root[:, None]))[:, *np.triu_indices(N2, 1)]
        log_det = np.linalg.slogdet(matrix)[1]
        values += [
            correlations,
            correlations**2,
            correlations**2 * np.log(own),
            np.stack([correlations.prod(axis=1), log_det, log_det * sums[1]], axis=1),
        ]
    return np.hstack(values)


def joint_test(form=None, p_step=None, *, diagonal=False, replicates=1_500, seed=1):
    """Getting it right (Geweke 2004), one step at a time.

    From a joint draw a step leaves the joint law as it is. Replicates are independent: paired
    differences of the functionals have mean zero, and each functional has the distribution it has
    in replicates that no step has touched.
    """
    rng = np.random.default_rng(seed)
    draws = joint_draws(rng, replicates, diagonal)
    before, moved = functionals(*draws, diagonal), []
    for lam, delta, w, W21, W22_1 in zip(*draws, strict=True):
        constants = constants_of(w)
        parameters = lam, delta
        if form is not None:
            W21, W22_1 = impute(constants, delta, form, rng).values()
        if p_step is not None:
            own = W22_1 if diagonal else diagonal_of_packed(W22_1)
            parameters = p_step(constants, delta, Missing(W21, own).diagonal_of_W22(w), rng)
        moved.append((*parameters, w, W21, W22_1))
    after = functionals(*(np.array(x) for x in zip(*moved, strict=True)), diagonal)
    differences = after - before
    changed = np.abs(differences).max(axis=0) > 1e-9
    differences = differences[:, changed]
    assert_z(differences.mean(axis=0) / (differences.std(axis=0, ddof=1) / replicates**0.5))
    half = replicates // 2
    for old, new in zip(before[:half, changed].T, after[half:, changed].T, strict=True):
        assert_ks(new, old)


@pytest.mark.parametrize("name", FORMS)
def test_imputation_leaves_the_joint_law(name):
    joint_test(form=FORMS[name], diagonal=name == "diagonal")


@pytest.mark.parametrize("diagonal", [False, True])
def test_posterior_step_leaves_the_joint_law(diagonal):
    joint_test(p_step=draw_parameters, diagonal=diagonal, replicates=4_000)


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
    def wrong(constants, delta, diagonal_of_W22, rng):
        shape = getattr(constants, name) + change
        return draw_parameters(constants._replace(**{name: shape}), delta, diagonal_of_W22, rng)

    with pytest.raises(AssertionError):
        joint_test(p_step=wrong, replicates=4_000)


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
    """Planted bug: W22 as small as W22.1 is on average."""

    def wrong(constants, delta, diagonal_of_W22, rng):
        return draw_parameters(constants, delta, share * diagonal_of_W22, rng)

    share = (R - N1) / R
    with pytest.raises(AssertionError):
        joint_test(p_step=wrong)


def test_delta_drawn_beside_another_lambda_is_detected():
    """Planted bug: lambda and delta both from the old values, as if they were independent."""

    def wrong(constants, delta, diagonal_of_W22, rng):
        one, other = (draw_parameters(constants, delta, diagonal_of_W22, rng) for _ in range(2))
        return one[0], other[1]

    with pytest.raises(AssertionError):
        joint_test(p_step=wrong)


@pytest.mark.parametrize("name", FORMS)
def test_forms_give_one_law_of_the_diagonal(name):
    """Eq (15) is the law of the diagonal in eq (13): TW1 and TW2 drive the same chain."""
    rng, draws = np.random.default_rng(2), 20_000
    delta, df = np.array([0.3, 1.0, 4.0]), 4.4
    sample = np.array([FORMS[name](delta, df, rng) for _ in range(draws)])
    own = sample if name == "diagonal" else np.diagonal(unpack(sample), axis1=1, axis2=2)
    levels = stats.gamma(df / 2, scale=2 * delta).cdf(own)
    for column in levels.T:
        assert_ks(column, "uniform")
    # Independent entries: products of their levels vanish on average.
    centred = levels - 0.5
    products = (centred[:, :, None] * centred[:, None])[:, *np.triu_indices(N2, 1)]
    assert_mean(products, 0.0)


def test_packed_matrix_has_the_diagonal_of_the_whole():
    packed = np.random.default_rng(3).normal(size=N2 * (N2 + 1) // 2)
    np.testing.assert_allclose(diagonal_of_packed(packed), np.diagonal(unpack(packed)), rtol=1e-12)


def sampled(model, cores=1, draws=200, chains=2):
    with model:
        return pm.sample(
            draws,
            tune=20,
            chains=chains,
            cores=cores,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            step=[DiagonalTannerWongImputation(), DiagonalTannerWongPosterior()],
            compile_kwargs={"mode": "FAST_COMPILE"},
        )["posterior"].to_dataset()


@pytest.mark.parametrize("diagonal", [False, True])
def test_same_seed_same_draws(diagonal):
    model = DiagonalWishartCompletion.example(diagonal_W22_1=diagonal)
    one, two = sampled(model, draws=20), sampled(model, draws=20, cores=2)
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], two[name])


def test_packed_draws_reach_the_trace_as_matrices():
    """W22_1 of the trace, given its delta, is Wishart: what the step packs PyMC unpacks."""
    model = DiagonalWishartCompletion.example()
    trace = sampled(model, draws=1_500, chains=1)
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
    with pytest.raises(ValueError, match=r"'variant' argument .* Got 'TW3'"):
        DiagonalTannerWongImputation(variant="TW3", model=model)
    declared = DiagonalWishartCompletion.example(diagonal_W22_1=True)
    with pytest.raises(ValueError, match=r"'TW2' for a model with diagonal_W22_1=True"):
        DiagonalTannerWongImputation(variant="TW1", model=declared)
