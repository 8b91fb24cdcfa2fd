"""Completion of features that some objects lack, for thousands of objects."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from ...models.kernels.labels import (
    as_frame,
    check_distinct,
    check_ids,
    counts_rows,
    labels_of,
    listed,
)
from ...user_warnings import warn_user
from ...validation import (
    Count,
    Positive,
    Seed,
    argument_error,
    check_arguments,
    check_real,
    check_unmasked,
    integer_seed,
)
from ..engine.clock import track
from .low_rank import Expected, FeatureBlock, Problem, minimize

__all__ = ["complete_features"]

type Array = npt.NDArray[np.float64]

OWNER = "complete_features"
# Products of larger features leave double precision.
LARGEST = 1e60


def complete_features(
    features: Mapping[str, Any],
    *,
    n_components: Count = 20,
    lam: Positive = 0.1,
    max_iterations: Count = 5000,
    tolerance: Positive = 0.01,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> xr.Dataset:
    r"""Complete features in place of kernels, for objects that lack some of them.

    Mutual kernel completion by EM at the size of thousands of objects: kernels
    :math:`Q^{(k)} = F_k F_k'` are given by their features, and the model matrix has a number of
    components, :math:`M = UU' + \delta I`. Objects to be predicted later are completed together
    with the training objects, without labels.

    Parameters
    ----------
    features : mapping of str to DataFrame or array (obs, basis)
        Features of each kernel, from scikit-learn's Nystroem for example. DataFrames go by their
        ids: an object that a kernel lacks has no row in its table, or a row of NaN. Arrays have a
        row for each object, NaN where it is missing.
    n_components : int, default=20
        R, the number of components of M; l - 1 if that is less. Many follow the noise of single
        objects: compare a few numbers by the predictions, or by visible rows that are left out.
    lam : float, default=0.1
        The paper's lambda.
    max_iterations : int, default=5000
    tolerance : float, default=0.01
        The iterations end when no completed feature is estimated to change by more than this part
        of the largest feature of its kernel. Changes are assumed to go on to shrink as they do: on
        12 problems of 40 to 150 objects, 0.01 left features off by 0.008 to 0.012, and twice by
        0.03 and 0.05.
    random_seed : int, SeedSequence, Generator or None, optional
        Seed of the directions in which eigenvectors are first sought.
    progressbar : bool, default=True

    Returns
    -------
    Dataset
        ``features`` (kernel, obs, basis), a stack that models take: the expected features, and R
        columns for the variance of missing ones, so that inner products are E[Q | M] but for delta
        on the diagonals of missing objects. Shorter tables are filled with zeros. ``visible``
        (kernel, obs), ``objective`` (iteration) is -J without the terms ln|Q_vv|; attributes
        ``noise`` (delta), ``converged``.

    Raises
    ------
    ValueError
        For rows of which only some entries are missing, features above 1e60, objects that lack all
        kernels, kernels with fewer than two objects, repeated ids, and ids for some of the tables
        only.

    Warns
    -----
    UserWarning
        If the iterations end before the tolerance is met.

    Notes
    -----
    An iteration costs O(l R (sum_k r_k + K R)) for K kernels of r_k features; memory is
    O(l (sum_k r_k + K R)). Kernels are divided by their mean self-similarity while they are
    completed, and returned in the units given. There are no draws: `complete_kernels` has them, for
    a thousand objects or so.

    Examples
    --------
    >>> tables = {"rna": rna, "protein": protein.iloc[5:]}  # five objects have no protein
    >>> completed = kz.completion.complete_features(tables, n_components=5, random_seed=1)
    >>> model = kz.MultinomialProbit(completed["features"], labels)
    """
    check_arguments(complete_features, locals())
    rng = np.random.default_rng(integer_seed(random_seed, "random_seed", OWNER))
    tables, objects = _read(features)
    blocks, scales = _blocks(tables, objects)
    problem = Problem(blocks, lam)
    n_components = min(n_components, problem.n - 1)
    with track(max_iterations, "EM", visible=progressbar) as bar:
        found = minimize(
            problem,
            n_components,
            rng,
            max_iterations=max_iterations,
            tolerance=tolerance,
            report=lambda objective: bar.advance(objective=-0.5 * objective),
        )
    if not found.converged:
        warn_user(
            f"{OWNER} ended after {len(found.objective)} iterations, before the features "
            "converged: increase max_iterations or tolerance."
        )
    stack = _stacked(found.expected, scales)
    code = sha256(np.ascontiguousarray(stack)).hexdigest()[:8]
    return xr.Dataset(
        {
            "features": (("kernel", "obs", "basis"), stack),
            "visible": (("kernel", "obs"), np.array([block.visible for block in blocks])),
            "objective": (("iteration",), -0.5 * found.objective),
        },
        coords={
            "kernel": list(tables),
            "obs": objects.to_numpy(),
            "basis": [f"phi{m} {code}" for m in range(stack.shape[2])],
        },
        attrs={"noise": found.model.noise, "converged": "yes" if found.converged else "no"},
    )


def _read(features: Any) -> tuple[dict[str, Array], pd.Index]:
    """Features (l, r) of every kernel, with NaN in the rows of missing objects, and the objects."""
    if not isinstance(features, Mapping) or not features:
        got = "none" if isinstance(features, Mapping) else type(features).__name__
        raise argument_error("features", OWNER, "a dict with a table for each kernel", got)
    given = {str(name): as_frame(table) for name, table in features.items()}
    if len(given) < len(features):
        raise argument_error("features", OWNER, "of distinct names", listed(list(features)))
    arrays: dict[str, Array] = {}
    for name, table in given.items():
        argument = f'features["{name}"]'
        check_unmasked(table, argument, OWNER)
        arrays[name] = check_real(table, argument, OWNER)
        if arrays[name].ndim != 2 or 0 in arrays[name].shape:
            raise argument_error(argument, OWNER, "of shape (obs, basis)", str(arrays[name].shape))
    labelled = [str(name) for name, table in features.items() if labels_of(table) is not None]
    if not labelled:
        sizes = {name: len(array) for name, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise argument_error("features", OWNER, "of the same objects", f"rows {sizes}")
        return arrays, pd.RangeIndex(next(iter(sizes.values())))
    if len(labelled) < len(given):
        others = listed([name for name in given if name not in labelled])
        raise argument_error("features", OWNER, "DataFrames, or arrays, all of them", others)
    indexes = [given[name].index for name in given]
    for name in given:
        argument, index = f'features["{name}"]', given[name].index
        check_ids(index, argument, OWNER)
        check_distinct(index, argument, OWNER)
        if counts_rows(index) and not all(index.equals(other) for other in indexes):
            rule = "labelled by ids, or of a row for every object"
            got = f"{len(index)} rows without ids, and tables of other objects"
            raise argument_error(argument, OWNER, rule, got)
    objects = pd.Index(
        list(dict.fromkeys(label for table in given.values() for label in table.index))
    )
    rows = {}
    for name, array in arrays.items():
        rows[name] = np.full((len(objects), array.shape[1]), np.nan)
        rows[name][objects.get_indexer(given[name].index)] = array
    return rows, objects


def _blocks(tables: Mapping[str, Array], objects: pd.Index) -> tuple[list[FeatureBlock], Array]:
    """Visible features with a mean self-similarity of one, and by what root they were divided."""
    blocks, scales = [], []
    for name, table in tables.items():
        argument, lacking = f'features["{name}"]', np.isnan(table)
        visible = ~lacking.any(axis=1)
        if (partly := lacking.any(axis=1) & ~lacking.all(axis=1)).any():
            got = f"some entries missing in the rows of {listed(objects[partly].tolist())}"
            raise argument_error(argument, OWNER, "complete or wholly NaN in each row", got)
        if (largest := np.abs(table[visible]).max(initial=0.0)) > LARGEST:
            rule = f"NaN where missing, and at most {LARGEST:g} in size elsewhere"
            raise argument_error(argument, OWNER, rule, f"one of {largest:.3g}")
        if visible.sum() < 2:
            raise argument_error(argument, OWNER, "of at least two objects", f"{visible.sum()}")
        if largest == 0:
            raise argument_error(argument, OWNER, "other than zero", "zeros only")
        # Squares of small features would leave double precision.
        scale = largest * np.sqrt(np.mean(np.sum((table[visible] / largest) ** 2, axis=1)))
        blocks.append(FeatureBlock(table[visible] / scale, visible))
        scales.append(scale)
    nowhere = ~np.any([block.visible for block in blocks], axis=0)
    if nowhere.any():
        requirement = "such that each object has the features of at least one kernel"
        got = f"{listed(objects[nowhere].tolist())} in none"
        raise argument_error("features", OWNER, requirement, got)
    return blocks, np.array(scales)


def _stacked(expected: Sequence[Expected], scales: Array) -> Array:
    """Features (kernel, l, r + R) in the units given."""
    most = max(each.features.shape[1] for each in expected)
    n, n_components = expected[0].spread.shape
    stack = np.zeros((len(expected), n, most + n_components))
    for out, each, scale in zip(stack, expected, scales, strict=True):
        out[:, : each.features.shape[1]] = scale * each.features
        out[:, most:] = scale * each.spread
    return stack
