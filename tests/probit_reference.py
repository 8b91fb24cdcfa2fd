"""Reference posteriors of small multinomial probits: long chains of the paper's sampler.

Made, from the root of the checkout, in about four minutes on one core, by

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -P tests/probit_reference.py

which writes tests/data/multinomial_probit_reference.json: means and Monte Carlo errors of the
functionals below, and how well the chains that made them agree.
"""

import json
from functools import partial
from pathlib import Path

import arviz as az
import numpy as np
from pymc.step_methods.step_sizes import DualAverageAdaptation

import kernelzoo as kz
from kernelzoo.custom_steps.moves.metropolis import (
    initial_concentration_tuning,
    initial_weight_tuning,
)
from kernelzoo.custom_steps.multinomial_probit.albert_chib import Moves, Tuning, adapt, sweep
from kernelzoo.custom_steps.multinomial_probit.conditionals import draw_variances
from kernelzoo.custom_steps.multinomial_probit.kernel_coordinates import KernelCoordinates
from kernelzoo.custom_steps.multinomial_probit.marginal import Target, marginal_sweep
from kernelzoo.numerics.probit import class_probabilities
from probit_fixture import State

PATH = Path(__file__).parent / "data" / "multinomial_probit_reference.json"
SETTINGS = {"chains": 4, "sweeps": 60_000, "tune": 5_000, "thin": 10, "random_seed": 2009}


def three_classes():
    """24 objects, three classes, two kernels whose weights are learned."""
    rng = np.random.default_rng(7)
    labels = np.arange(24) % 3
    centres = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])
    X = centres[labels] + rng.normal(size=(24, 2))
    kernels = (kz.gaussian(0.5) | kz.linear()).normalize("trace")(X)
    return kz.MultinomialProbit(
        kernels, labels, tau=3.0, upsilon=1.0, combination=kz.combinations.Mean(2.0, 1.0)
    )


def two_classes():
    """20 objects, two classes, one kernel, regressors without a prior variance."""
    rng = np.random.default_rng(8)
    labels = np.arange(20) % 2
    X = np.where(labels == 0, -0.7, 0.7)[:, None] + rng.normal(size=(20, 1))
    return kz.MultinomialProbit(kz.gaussian(0.5)(X), labels, tau=1.0, upsilon=0.5)


PROBLEMS = {"three classes": three_classes, "two classes": two_classes}


def functionals(states, stack):
    """Identified quantities (draw, ...) of a list of states, by name."""
    W, zeta, beta, rho = (np.array(column) for column in zip(*states, strict=True))
    f = np.einsum("ds,snm,dcm->dnc", beta, stack, W, optimize=True)
    result = of_scores(f, zeta)
    if len(stack) > 1:
        result |= {"beta": beta[:, 1:], "rho": np.log(rho)}
    return result


def of_scores(f, zeta, probabilities=None):
    """What the likelihood knows of scores (draw, obs, class), and of variances."""
    contrast = f - f.mean(axis=-1, keepdims=True)
    probabilities = class_probabilities(f) if probabilities is None else probabilities
    return {
        "contrast": np.arcsinh(contrast[..., 1:]),
        "size": np.log(np.square(contrast).mean(axis=(1, 2)))[:, None],
        "square": np.arcsinh(contrast[..., 1:]) ** 2,
        "probability": probabilities[..., 1:],
        "zeta": np.log(zeta).mean(axis=(1, 2))[:, None],
    }


def dispersed(model, rng):
    """Start of a chain: regressors of the prior's size, weights anywhere."""
    s, _, m = model.design.shape
    W = rng.standard_normal((model.n_classes, m))
    zeta = draw_variances(W, model.tau, model.upsilon, rng)
    return State(W, zeta, rng.dirichlet(np.ones(s)), np.ones(s))


def paper_chain(model, sweeps, tune, rng, thin=1):
    """States of the paper's sampler."""
    s, composition = len(model.design), model.composition
    step = partial(
        sweep,
        labels=model.label_codes,
        composition=composition,
        tau=model.tau,
        upsilon=model.upsilon,
        rng=rng,
        moves=Moves(),
    )
    values, tuning = dispersed(model, rng)._asdict(), Tuning()
    if s > 1:
        tuning = Tuning(0, initial_weight_tuning(s), initial_concentration_tuning(s))
    for _ in range(tune):
        values, info = step(values, tuning=tuning)
        tuning = adapt(tuning, values, info, composition)
    kept = []
    for i in range(sweeps):
        values, _ = step(values, tuning=tuning)
        if i % thin == 0:
            kept.append(State(**values))
    return kept


def marginal_chain(model, sweeps, tune, rng):
    """States of the sampler with the latent variables integrated out."""
    kernels = KernelCoordinates.of(model.composition)
    target = Target.of(kernels, model.label_codes, model.n_classes, model.tau, model.upsilon)
    values = dispersed(model, rng)._asdict()
    tuning = DualAverageAdaptation(0.1, 0.75, gamma=0.05, k=0.75, t0=10)
    for _ in range(tune):
        new, info = marginal_sweep(values, target, rng, step=tuning.current(True), length=4.0)
        values |= new
        tuning.update(info.acceptance, tune=True)
    kept = []
    for _ in range(sweeps):
        new, _ = marginal_sweep(values, target, rng, step=tuning.current(False), length=4.0)
        values |= new
        kept.append(State(**values))
    return kept


def summary(per_chain):
    """Means, Monte Carlo errors, R-hat and effective draws of each functional, by its chains."""
    draws = {name: np.array([chain[name] for chain in per_chain]) for name in per_chain[0]}
    tree = az.from_dict({"posterior": draws})["posterior"].to_dataset()
    mcse, rhat, ess = az.mcse(tree, method="mean"), az.rhat(tree), az.ess(tree, method="mean")
    return {
        name: {
            "mean": tree[name].mean(("chain", "draw")).values,
            "error": mcse[name].values,
            "rhat": float(rhat[name].max()),
            "ess": float(ess[name].min()),
        }
        for name in draws
    }


def z_scores(ours, reference):
    """Differences of means in standard errors, all functionals in one vector."""
    return np.concatenate(
        [
            np.ravel(
                (ours[name]["mean"] - np.asarray(entry["mean"]))
                / np.hypot(ours[name]["error"], entry["error"])
            )
            for name, entry in reference.items()
        ]
    )


def entries(model):
    """What the file keeps of one problem."""
    rngs = np.random.default_rng(SETTINGS["random_seed"]).spawn(SETTINGS["chains"])
    sizes = (SETTINGS["sweeps"], SETTINGS["tune"])
    chains = [
        functionals(paper_chain(model, *sizes, rng, SETTINGS["thin"]), model.design) for rng in rngs
    ]
    return {
        name: {
            "mean": np.round(entry["mean"], 6).tolist(),
            "error": np.round(entry["error"], 7).tolist(),
            "rhat": round(entry["rhat"], 4),
            "ess": round(entry["ess"]),
        }
        for name, entry in summary(chains).items()
    }


def main():
    """Make the file."""
    content = {
        "problems": "tests/probit_reference.py: PROBLEMS",
        "sampler": "Albert-Chib with Metropolis moves (damoulas2009, appendix A)",
        "made_by": "python -P tests/probit_reference.py",
        "settings": SETTINGS,
        "functionals": {name: entries(problem()) for name, problem in PROBLEMS.items()},
    }
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
