"""Errors of EM on the mixture of kernels name what the user has called."""

import pytest

import kernelzoo as kz


class Renamed(kz.WishartKernelMixture):
    """A user's own subclass."""


@pytest.mark.parametrize("model_type", [kz.WishartKernelMixture, Renamed, kz.WishartCompletion])
def test_bad_settings_name_the_model(model_type):
    message = rf"^EM on {model_type.__name__} does not take 'start', a setting for Mutual"
    with pytest.raises(ValueError, match=message):
        kz.fit(model_type.example(), kz.EM(start="mean"), progressbar=False)


def test_a_missing_limit_names_the_model():
    one = kz.WishartKernelMixture.example(eta=6.0, alpha=[1.0, 0.0])
    with pytest.raises(
        ValueError, match=r"argument of EM on WishartKernelMixture .*grows linearly"
    ):
        kz.fit(one, kz.EM(max_iterations="limit"), progressbar=False)


@pytest.mark.parametrize("engine", [kz.EM(memory=1), kz.VB(starts=1), kz.Gibbs(moves=1)])
def test_settings_of_other_models_name_the_model(engine):
    (setting,) = engine.settings
    message = rf"^{engine.name} on WishartKernelMixture does not take '{setting}', a setting for "
    with pytest.raises(ValueError, match=message):
        kz.fit(kz.WishartKernelMixture.example(), engine, progressbar=False)


@pytest.mark.parametrize("engine", [kz.EM, kz.Exact, kz.VB, kz.Gibbs])
@pytest.mark.parametrize("options", [{"concentration": 1.0}, {"prior": "wishart"}])
def test_engines_that_delegate_refuse_what_is_not_conjugate(engine, options):
    model = kz.WishartKernelMixture.example(**options)
    with pytest.raises(ValueError, match=rf"{engine.__name__} does not apply: its ") as error:
        kz.fit(model, engine(), progressbar=False)
    assert "WishartCompletion" not in str(error.value)
