"""Mutual completion of incomplete kernel matrices (Kato & Rivero 2017)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, override

import numpy as np
import numpy.typing as npt
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from ..validation import Seed, argument_error, check_flag, check_name, check_positive, integer_seed
from .completion.incomplete import IncompleteKernel, IncompleteKernels, rank_error, visible_block
from .completion.mutual_blocks import (
    checked_degrees_of_freedom,
    declare_kernel,
    declare_visible,
    monitored_entries,
    monitored_pairs,
    positions,
)
from .declaration import Declaration
from .distributions.wishart import InverseWishart
from .operations.arrays import cholesky_or_nan, log_det

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CompletionProblem:
    """Data and settings of the model, as arrays.

    `lam` is the paper's lambda, `nu` (kernel,) are the degrees of freedom.
    """

    kernels: tuple[IncompleteKernel, ...]
    lam: float
    nu: Array

    @property
    def n_objects(self) -> int:
        """Number of objects l."""
        return len(self.kernels[0].order)

    @property
    def strength(self) -> float:
        """lambda': degrees of freedom of M's prior, less l + 1."""
        return self.lam * float(self.nu[self.informative].mean())

    @property
    def informative(self) -> npt.NDArray[np.intp]:
        """Positions of the kernels that have visible objects."""
        return _informative(self.kernels)


class MutualKernelCompletion(Declaration):
    r"""Several kernels of the same objects, each with missing objects.

    The paper minimises, over a model matrix M and the missing entries of the kernels
    :math:`Q^{(k)}`, eq (2),

    .. math::

        J = \lambda\,\mathrm{KL}(I, M) + \sum_k \mathrm{KL}(Q^{(k)}, M), \qquad
        2\,\mathrm{KL}(Q, M) = \mathrm{tr}(M^{-1}Q) + \ln|M| - \ln|Q| - \ell

    Minimised over the missing entries, the k-th term is :math:`\mathrm{KL}(Q_{vv}, M_{vv})` of the
    visible block. As a function of M, :math:`e^{-\nu\,\mathrm{KL}(Q_{vv}, M_{vv})}` is the
    likelihood of the scale :math:`M_{vv}/\nu` of a Wishart matrix :math:`Q_{vv}` with :math:`\nu`
    degrees of freedom, and :math:`e^{-\nu\lambda\,\mathrm{KL}(I, M)}` is a Wishart density of
    :math:`M^{-1}`. Therefore J is :math:`-1/\nu` times the log posterior density, with respect to
    :math:`M^{-1}`, of

    .. math::

        M &\sim \mathrm{IW}(\lambda' + \ell + 1,\ \lambda' I), \qquad \lambda' = \lambda\nu
            \qquad (\mathrm E M = I) \\
        Q^{(k)} \mid M &\sim \mathrm{W}(\nu, M / \nu) \qquad (\mathrm E\,Q^{(k)} = M)

    for every nu. The paper's estimate is the posterior mode over :math:`M^{-1}`, to which the
    posterior mean converges at the rate 1/nu. The model is declared in blocks that do not constrain
    each other (v = visible, h = missing in kernel k; :math:`B = M_{vv}^{-1} M_{vh}`,
    :math:`C = (M_{hh} - M_{hv} B)/\nu_k`):

    .. math::

        Q_{vv} &\sim \mathrm{W}(\nu_k, M_{vv}/\nu_k) \quad\text{(observed)} \\
        Q_{hv} \mid Q_{vv} &\sim \mathrm{MN}(B' Q_{vv}, C, Q_{vv}) \\
        Q_{hh\cdot v} = Q_{hh} - Q_{hv} Q_{vv}^{-1} Q_{vh} &\sim \mathrm{W}(\nu_k - n_k, C)

    Parameters
    ----------
    kernels : DataArray (kernel, obs, basis), dict of (l, l) arrays or DataFrames, or array
        Square kernels of the same objects; NaN in the whole row and column of a missing object.
        Small negative eigenvalues from rounded entries are set to 0.
    visible : bool array_like, DataFrame or DataArray (object, kernel), optional
        Visible objects of each kernel; objects with entries may be hidden. Default: all objects
        without NaN.
    lam : float, default=0.1
        The paper's lambda: weight of the identity relative to one kernel.
    nu : float, array_like (kernel,) or mapping of name to float, optional
        Degrees of freedom: the larger, the closer the kernels are to M. Real numbers above l - 1
        (above 0 if collapsed), aligned by kernel names. Default: l + 1. If they differ, lambda' is
        lam times their mean over kernels with visible objects.
    normalize : bool, default=True
        Divide each kernel by the mean of its visible diagonal, ``units``: the model is not
        invariant to the kernels' scales. ``Q_...`` are in the original units.
    jitter : float, default=0
        Added to the diagonals of the visible blocks after normalisation; part of the model.
    collapsed : bool, default=False
        Leave the missing blocks out: only M is free, given
        :math:`\sum_k -\nu_k\,\mathrm{KL}(Q_{vv}, M_{vv})` without :math:`\ln|Q_{vv}|`. Visible
        blocks are not inverted and may be rank-deficient, and nu may be smaller.
    entries : mapping of kernel name to pairs of objects, optional
        Entries of completed kernels whose draws are kept, by labels: ``{"a": [("x", "y")]}``.
        A collapsed model keeps those of E[Q | M], which give no intervals for Q.

    Attributes
    ----------
    units : array (kernel,)
        Divisors of the kernels; 1 without normalisation.
    problem : CompletionProblem
        Current data and settings; what ``pm.set_data`` has replaced is checked.

    Raises
    ------
    ValueError
        For kernels of different sizes; missing entries that are not whole rows and columns; a
        visible block that is not positive semidefinite (positive definite unless collapsed);
        objects that are in no kernel; no kernel with two objects; clashing kernel names; and
        settings out of range.

    Warns
    -----
    UserWarning
        Without normalisation, if the kernels' mean diagonals differ by a factor of 1,000.

    Notes
    -----
    ========================= ========================================== =========================
    paper                     meaning                                    code
    ========================= ========================================== =========================
    l, K, n_k, m_k            objects, kernels, visible, missing         dims ``object``,
                                                                         ``kernel``, ``visible_k``,
                                                                         ``hidden_k``
    M                         model matrix, eq (2)                       ``M`` (object, object_)
    M_vv, M_vh, M_hh          its blocks, eq (3)                         not variables
    lambda                    weight of the identity, eqs (2), (16)      ``lam``
    Q_vv                      visible block, eq (1)                      ``Qvv_k``
    Q_hv                      its missing rows                           ``Qhv_k``
    Q_hh - Q_hv Q_vv^-1 Q_vh  Schur complement of its missing block      ``Qhh_v_k``
    Q                         completed kernel, in the units given       ``Q_k`` (object, object_)
    E[Q | M], eqs (19)-(20)   the same, when collapsed                   ``EQ_k``
    ========================= ========================================== =========================

    ``k`` stands for the kernel's name. A kernel without missing objects has no ``Q_k``; a kernel
    without visible objects follows M and does not affect the others. The paper's model has normal
    vectors with covariance M, eq (14), whose visible parts have second moments :math:`Q_{vv}`, eq
    (12); here Wishart matrices replace them. Its algorithm decreases the sum J, but not every term;
    line 7 prints :math:`M_{vh,vh}`. Its eq (16) is a Wishart density of :math:`M^{-1}`.

    A density evaluation costs O(K l^3). Chains are monitored on ``log_det_M`` and ``trace_Q``
    (incomplete), on the moments of all entries, and on draws of what mixes slowest: up to 30
    missing entries, ``missing_Q`` (missing_entry), and up to 30 correlations in M of pairs of
    objects that no kernel has both of, ``unseen_M`` (unseen_pair), chosen with a fixed seed.

    References
    ----------
    T. Kato and R. Rivero (2017), Mutual kernel matrix completion.

    Examples
    --------
    >>> model = kz.MutualKernelCompletion({"a": A, "b": B})     # NaN rows and columns
    >>> kz.fit(model, "em")["point"]["Q_a"]
    >>> kz.fit(model, "gibbs")["moments"]["Q_a_sd"]
    """

    def __init__(
        self,
        kernels: Any,
        visible: Any = None,
        *,
        lam: float = 0.1,
        nu: Any = None,
        normalize: bool = True,
        jitter: float = 0.0,
        collapsed: bool = False,
        entries: Mapping[str, Sequence[tuple[Any, Any]]] | None = None,
    ):
        owner = type(self).__name__
        normalize = check_flag(normalize, "normalize", owner)
        collapsed = check_flag(collapsed, "collapsed", owner)
        given = IncompleteKernels.of(
            kernels, visible, normalize=normalize, jitter=jitter, owner=owner
        )
        self._kernels = given.kernels
        self.collapsed = collapsed
        names = [kernel.name for kernel in given.kernels]
        _check_kernel_names(names, owner)
        n = len(given.objects)
        self.lam = check_positive(lam, "lam", owner)
        nu = checked_degrees_of_freedom(nu, names, n, owner, collapsed=collapsed)
        for kernel in given.kernels:
            if not (collapsed or kernel.full_rank):
                raise rank_error(kernel, owner)
        super().__init__(coords=_coords(given))
        incomplete = [kernel.name for kernel in given.kernels if len(kernel.hidden)]
        self.streamed = ("M", *(f"{self.completion}_{name}" for name in incomplete))
        missing = {f"{block}_{name}" for block in ("Qhv", "Qhh_v") for name in incomplete}
        self.large = frozenset({*self.streamed, *missing})

        with self:
            units = pm.Data("units", [kernel.unit for kernel in given.kernels], dims="kernel")
            freedom = pm.Data("nu", nu, dims="kernel")
            strength = self.lam * freedom[_informative(given.kernels)].mean()
            M = InverseWishart(
                "M", strength + n + 1, strength * pt.eye(n), dims=("object", "object_")
            )
            declare = declare_visible if collapsed else declare_kernel
            traces = []
            for k, kernel in enumerate(given.kernels):
                ordered = M[kernel.order][:, kernel.order]
                whole, trace = declare(kernel, ordered, freedom[k])
                if len(kernel.hidden):
                    inverse = np.argsort(kernel.order)
                    completed = units[k] * whole[inverse][:, inverse]
                    name = f"{self.completion}_{kernel.name}"
                    pm.Deterministic(name, completed, dims=("object", "object_"))
                    traces.append(units[k] * trace)
            pm.Deterministic("log_det_M", log_det(cholesky_or_nan(M)))
            if traces:
                pm.Deterministic(f"trace_{self.completion}", pt.stack(traces), dims="incomplete")
            self._declare_monitored(M, given.objects)
            self._declare_entries(entries or {}, given.objects)
        self.seal()

    @classmethod
    @override
    def example(cls, random_seed: Seed = 0) -> Self:
        """Smallest instance that every engine can fit: 4 objects, nested masks."""
        seed = integer_seed(random_seed, "random_seed", "example")
        x = np.random.default_rng(seed).normal(size=(4, 2))
        distances = ((x[:, None] - x[None]) ** 2).sum(-1)
        kernels = {"near": np.exp(-2 * distances), "far": np.exp(-distances / 4)}
        visible = np.array([[True, True], [True, True], [True, True], [True, False]])
        return cls(kernels, visible, lam=0.5, nu=9.0)

    @property
    def completion(self) -> str:
        """Prefix of the names of completed kernels: "Q", or "EQ" (means) in a collapsed model."""
        return "EQ" if self.collapsed else "Q"

    @property
    def units(self) -> Array:
        """Divisors of the kernels, array (kernel,)."""
        return self["units"].get_value()

    @property
    def problem(self) -> CompletionProblem:
        """Current data and settings; ValueError if ``pm.set_data`` has set invalid data."""
        owner = type(self).__name__
        units = self.units
        given = self["nu"].get_value()
        if not ((units > 0) & np.isfinite(units)).all():
            requirement = "finite and above 0 when pm.set_data sets them"
            raise argument_error("units", owner, requirement, f"{units}")
        names = [kernel.name for kernel in self._kernels]
        n = len(self._kernels[0].order)
        nu = checked_degrees_of_freedom(given, names, n, owner, collapsed=self.collapsed)
        kernels = tuple(map(self._as_set, self._kernels, units.tolist()))
        return CompletionProblem(kernels, self.lam, nu)

    def _as_set(self, kernel: IncompleteKernel, unit: float) -> IncompleteKernel:
        """Return a kernel with its current data, which are checked if they have changed."""
        if not len(kernel.visible):
            return replace(kernel, unit=unit)
        owner = type(self).__name__
        name = f"Qvv_{kernel.name}_values"
        values = self[name].get_value()
        if np.array_equal(values, kernel.values):
            return replace(kernel, unit=unit)
        kernel = replace(kernel, values=visible_block(values, name, owner), unit=unit)
        if not (self.collapsed or kernel.full_rank):
            raise rank_error(kernel, owner)
        return kernel

    def _declare_monitored(self, M: TensorVariable, objects: npt.NDArray[Any]) -> None:
        """Declare the monitored missing entries, and correlations of pairs that no kernel has."""
        labels = []
        values = []
        for kernel, pairs in zip(self._kernels, monitored_entries(self._kernels), strict=True):
            if len(pairs):
                labels += [f"{kernel.name}: {one}|{other}" for one, other in objects[pairs]]
                values.append(self[f"{self.completion}_{kernel.name}"][*pairs.T])
        if labels:
            self.add_coord("missing_entry", labels)
            judged = pt.concatenate(values)
            pm.Deterministic(f"missing_{self.completion}", judged, dims="missing_entry")
        if len(pairs := monitored_pairs(self._kernels)):
            self.add_coord("unseen_pair", [f"{one}|{other}" for one, other in objects[pairs]])
            i, j = pairs.T
            correlations = M[i, j] / pt.sqrt(M[i, i] * M[j, j])
            pm.Deterministic("unseen_M", correlations, dims="unseen_pair")

    def _declare_entries(self, entries: Mapping[str, Any], objects: npt.NDArray[Any]) -> None:
        """Declare the chosen entries of completed kernels, by labels."""
        owner = type(self).__name__
        if not isinstance(entries, Mapping):
            got = f"a {type(entries).__name__}"
            raise argument_error("entries", owner, "pairs of objects by kernel name", got)
        incomplete = [kernel.name for kernel in self._kernels if len(kernel.hidden)]
        for key, pairs in entries.items():
            name = check_name(str(key), incomplete, "entries", owner)
            rows, columns = positions(pairs, pd.Index(objects), f'entries["{name}"]', owner)
            labels = [f"{one}|{other}" for one, other in pairs]
            self.add_coord(f"entry_{name}", labels)
            chosen = self[f"{self.completion}_{name}"][rows, columns]
            pm.Deterministic(f"entries_{name}", chosen, dims=f"entry_{name}")


def _check_kernel_names(names: Sequence[str], owner: str) -> None:
    """Raise if names of variables made from the kernels' names would be invalid or ambiguous."""
    for name in names:
        if "/" in name:
            raise argument_error("kernels", owner, "named without '/'", repr(name))
        for ending in ("_", "_values", "_cholesky__"):
            if f"{name}{ending}" in names:
                got = f"{name!r} and {name + ending!r}"
                requirement = f"named such that no two names differ by {ending!r} alone"
                raise argument_error("kernels", owner, requirement, got)


def _informative(kernels: Sequence[IncompleteKernel]) -> npt.NDArray[np.intp]:
    return np.flatnonzero([len(kernel.visible) > 0 for kernel in kernels])


def _coords(given: IncompleteKernels) -> dict[str, npt.NDArray[Any]]:
    """Coords of all objects, and of the visible and hidden objects of each kernel."""
    dims = {"object": given.objects}
    for kernel in given.kernels:
        dims[f"visible_{kernel.name}"] = given.objects[kernel.visible]
        dims[f"hidden_{kernel.name}"] = given.objects[kernel.hidden]
    doubled = {f"{dim}_": labels for dim, labels in dims.items()}
    names = [kernel.name for kernel in given.kernels]
    incomplete = [kernel.name for kernel in given.kernels if len(kernel.hidden)]
    return {"kernel": np.array(names), "incomplete": np.array(incomplete), **dims, **doubled}
