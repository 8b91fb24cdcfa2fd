"""Distance, area under the curve and coverage: on cases whose numbers are known."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import kernelzoo as kz
from kernelzoo.inference.mutual_completion.scores import (
    correlation_distance,
    entry_coverage,
    missing_entries,
)
from mutual_fixture import random_kernels

OBJECTS = list("abcdef")
NAMES = ("one", "two", "three")
VALUES, VISIBLE = random_kernels(6, 3, 1)
TRUTH = {name: pd.DataFrame(Q, OBJECTS, OBJECTS) for name, Q in zip(NAMES, VALUES, strict=True)}
MASK = pd.DataFrame(VISIBLE, OBJECTS, NAMES)


def completed_of(values, names=NAMES, objects=OBJECTS):
    coords = {"kernel": list(names), "object": objects, "object_": objects}
    return xr.DataArray(values, dims=("kernel", "object", "object_"), coords=coords)


# --- correlation distance --------------------------------------------------------------------


def test_distance_is_the_papers():
    ours = VALUES + 0.3 * np.eye(6)
    expected = [
        1 - np.trace(Q @ P) / (np.linalg.norm(Q) * np.linalg.norm(P))
        for Q, P in zip(VALUES, ours, strict=True)
    ]
    found = correlation_distance(completed_of(ours), TRUTH)
    assert tuple(found["kernel"].values) == NAMES
    np.testing.assert_allclose(found, expected)
    same = correlation_distance(completed_of(3 * VALUES), TRUTH)
    np.testing.assert_allclose(same, 0, atol=1e-12)
    assert (same >= 0).all()


def test_distance_goes_by_names_not_by_places():
    order, objects = [2, 0], [3, 1, 0, 5, 4, 2]
    shuffled = VALUES[order][:, objects][:, :, objects]
    ours = completed_of(shuffled, [NAMES[k] for k in order], [OBJECTS[i] for i in objects])
    np.testing.assert_allclose(correlation_distance(ours, TRUTH), 0, atol=1e-12)
    imputed = kz.completion.impute_kernels(TRUTH, MASK)
    np.testing.assert_array_equal(
        correlation_distance(imputed, TRUTH),
        correlation_distance(imputed, {name: TRUTH[name] for name in NAMES[::-1]}),
    )


def test_what_the_distance_cannot_be_taken_of():
    with pytest.raises(ValueError, match=r"'truth' argument.*no \['three'\]"):
        correlation_distance(completed_of(VALUES), {name: TRUTH[name] for name in NAMES[:2]})
    for other in (dict(TRUTH), VALUES, xr.Dataset({"a": 1})):
        with pytest.raises(ValueError, match=r"'completed' argument.*\(kernel, object, object\)"):
            correlation_distance(other, TRUTH)
    with pytest.raises(ValueError, match=r"'truth' argument.*objects that were completed"):
        correlation_distance(completed_of(VALUES, objects=list("ABCDEF")), TRUTH)


# --- entries and their intervals -------------------------------------------------------------


def test_entries_are_missing_ones_chosen_evenly():
    chosen = missing_entries(TRUTH, MASK, number=3, random_seed=1)
    assert chosen == missing_entries(TRUTH, MASK, number=3, random_seed=1)
    counts = {}
    for seed in range(150):
        for name, pairs in missing_entries(TRUTH, MASK, number=3, random_seed=seed).items():
            assert len(set(pairs)) == len(pairs)
            for one, other in pairs:
                assert not (MASK.loc[one, name] and MASK.loc[other, name])
                counts.setdefault(name, {}).setdefault((one, other), 0)
                counts[name][one, other] += 1
    for name, by_pair in counts.items():
        hidden = int((~MASK[name]).sum())
        seen = 6 - hidden
        assert len(by_pair) == hidden * seen + hidden * (hidden + 1) // 2
        p = 3 / len(by_pair)
        sd = np.sqrt(150 * p * (1 - p))
        assert max(abs(n - 150 * p) for n in by_pair.values()) < 5 * sd


def test_all_entries_are_taken_where_there_are_fewer():
    mask = MASK.copy()
    mask["one"], mask.loc["f", "one"] = True, False
    mask["two"] = True
    chosen = missing_entries(TRUTH, mask, number=50, random_seed=0)
    assert set(chosen["one"]) == {*((o, "f") for o in OBJECTS)}
    assert "two" not in chosen


def intervals(lower, upper, entries):
    data = {}
    for name, pairs in entries.items():
        dim = f"entry_{name}"
        labels = [f"{one}|{other}" for one, other in pairs]
        for bound, values in (("lower", lower), ("upper", upper)):
            data[f"{bound}_{name}"] = xr.DataArray(values[name], {dim: labels}, dim)
    return xr.Dataset(data)


def test_coverage_is_the_share_of_entries_inside():
    entries = {"two": [("a", "b"), ("c", "f"), ("e", "e"), ("f", "a")], "one": [("d", "d")]}
    true = {
        name: np.array([TRUTH[name].loc[pair] for pair in pairs]) for name, pairs in entries.items()
    }
    width = {"two": np.array([1.0, 1.0, -1.0, 1.0]), "one": np.array([-1.0])}
    completed = intervals(
        {name: true[name] - width[name] for name in entries},
        {name: true[name] + 1.0 for name in entries},
        entries,
    )
    found = entry_coverage(completed, TRUTH, entries)
    assert dict(zip(found["kernel"].values, found.values, strict=True)) == {"two": 0.75, "one": 0}
    # Entries go by labels: other places of the objects in the truth change nothing.
    turned = {name: Q.loc[OBJECTS[::-1], OBJECTS[::-1]] for name, Q in TRUTH.items()}
    xr.testing.assert_equal(entry_coverage(completed, turned, entries), found)


def test_coverage_needs_a_truth_with_the_labels():
    """Without them the last entry would stand for all."""
    entries = {"two": [("a", "b")]}
    completed = intervals({"two": np.array([-9.0])}, {"two": np.array([9.0])}, entries)
    with pytest.raises(ValueError, match=r"'truth' argument .* one with kernel 'two'"):
        entry_coverage(completed, [*TRUTH.values()], entries)
    bare = {name: Q.to_numpy() for name, Q in TRUTH.items()}
    with pytest.raises(ValueError, match=r"'truth' argument of entry_coverage must be labelled"):
        entry_coverage(completed, bare, entries)


def test_coverage_of_a_result():
    """Truth drawn from the posterior itself: intervals cover at their level."""
    values = random_kernels(4, 2, 5)[0]
    kernels = dict(zip("ab", values, strict=True))
    visible = np.array([[1, 1], [1, 1], [1, 1], [1, 0]], dtype=bool)
    entries = missing_entries(kernels, visible)
    assert entries == {"b": [(0, 3), (1, 3), (2, 3), (3, 3)]}
    model = kz.MutualKernelCompletion(kernels, visible, lam=1.0, nu=9.0, entries=entries)
    result = kz.fit(
        model,
        "exact",
        draws=400,
        var_names=["Q_b", "M", "entries_b"],
        random_seed=1,
        progressbar=False,
    )
    completed = kz.predict(model, result)
    draws = result["posterior"]["Q_b"].values[0]
    inside = [entry_coverage(completed, kernels | {"b": Q}, entries).item() for Q in draws]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)
    with pytest.raises(ValueError, match=r"'entries' argument.*no intervals of 'b'"):
        entry_coverage(completed.drop_vars("lower_b"), kernels, entries)
    with pytest.raises(ValueError, match=r"'entries' argument.*made with"):
        entry_coverage(completed, kernels, {"b": entries["b"][:2]})
