"""Entries on which chains of mutual completion are judged."""

import numpy as np
import pymc as pm
import pytest

from kernelzoo.models.completion.mutual_blocks import MONITORED, monitored_entries, monitored_pairs
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from mutual_fixture import random_kernels, random_problem


@pytest.mark.parametrize("n", [4, 30])
def test_chosen_are_missing_entries_and_unseen_pairs(n):
    kernels = random_problem(n, 3, 1, missing=0.6).kernels
    every = 0
    chosen = monitored_entries(kernels)
    for kernel, pairs in zip(kernels, chosen, strict=True):
        assert np.isin(pairs, kernel.hidden).any(axis=1).all()
        assert len(np.unique(np.sort(pairs), axis=0)) == len(pairs)
        m = len(kernel.hidden)
        every += m * len(kernel.visible) + m * (m + 1) // 2
    assert sum(map(len, chosen)) == min(MONITORED, every)
    both = np.zeros((n, n), dtype=bool)
    for kernel in kernels:
        both[np.ix_(kernel.visible, kernel.visible)] = True
    pairs = monitored_pairs(kernels)
    assert not both[*pairs.T].any()
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert len(pairs) == min(MONITORED, (~both).sum() // 2)
    again = monitored_entries(kernels)
    assert all(np.array_equal(one, other) for one, other in zip(chosen, again, strict=True))


def test_judged_values_are_those_of_their_labels():
    kernels, visible = random_kernels(6, 2, 2, missing=0.6)
    model = MutualKernelCompletion(dict(zip("ab", kernels, strict=True)), visible)
    names = ["missing_Q", "unseen_M", *model.streamed]
    values = pm.draw([model[name] for name in names], mode="FAST_COMPILE", random_seed=1)
    drawn = dict(zip(names, values, strict=True))
    for label, value in zip(model.coords["missing_entry"], drawn["missing_Q"], strict=True):
        name, pair = label.split(": ")
        np.testing.assert_allclose(value, drawn[f"Q_{name}"][*map(int, pair.split("|"))])
    d = np.sqrt(np.diagonal(drawn["M"]))
    for label, value in zip(model.coords["unseen_pair"], drawn["unseen_M"], strict=True):
        i, j = map(int, label.split("|"))
        np.testing.assert_allclose(value, drawn["M"][i, j] / (d[i] * d[j]))
