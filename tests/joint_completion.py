"""One model of incomplete kernels and of the labels of some of their objects.

The reference for `complete_kernels` with `fit`, which ignore what labels say about kernels: where
the labelled objects have all their rows, labels say nothing about the missing rows of new objects,
and both must give the same probabilities. A density evaluation costs O(K l^3) for l objects.
"""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt

from kernelzoo.models import MutualKernelCompletion
from kernelzoo.models.combinations import FixedWeights
from kernelzoo.models.distributions import CategoricalProbit
from kernelzoo.models.multinomial_probit import declare_regressors
from kernelzoo.models.operations.probit_likelihood import probit_log_probability


def joint_probit(kernels, labels, new, *, tau, upsilon, completion):
    """`MutualKernelCompletion` with `MultinomialProbit`, of equal weights, on its kernels.

    `labels` are a Series by ids; probabilities of the objects `new` are in ``probability``.
    """
    model = MutualKernelCompletion(kernels, **completion)
    objects = pd.Index(model.coords["object"])
    train, others = objects.get_indexer(labels.index), objects.get_indexer(new)
    known, codes = np.unique(labels, return_inverse=True)
    names = ("obs", objects[train]), ("basis", objects[train]), ("new", objects[others])
    model.add_coords({**dict(names), "class": known})
    rule = FixedWeights()
    with model:
        whole = pt.stack(
            [
                model[f"Q_{kernel.name}"] / kernel.unit if len(kernel.hidden) else kernel.values
                for kernel in model.problem.kernels
            ]
        )
        beta, W = rule.declare(), declare_regressors(tau, upsilon)
        f = rule.combine(whole[:, train[:, None], train], beta) @ W.T
        CategoricalProbit("t", f, observed=codes, dims="obs")
        g = rule.combine(whole[:, others[:, None], train], beta) @ W.T
        each = [probit_log_probability(g, pt.full(len(others), c)) for c in range(len(known))]
        pm.Deterministic("probability", pt.exp(pt.stack(each, axis=-1)), dims=("new", "class"))
    return model
