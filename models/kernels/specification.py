"""Specifications of kernels: functions, feature spaces and normalisations.

A specification is written once and applied to training and to new objects::

    kernels = gaussian(1 / 13) | linear() | polynomial(2)
    kernels(X_train)            # (kernel, obs, basis), square
    kernels(X_test, X_train)    # new objects against training objects

A specification holds no data.  The constants of its normalisations come from the objects given last
(the training objects), never from new objects.  Values are those of ``sklearn.metrics.pairwise``;
``covariance`` takes any covariance function of ``pm.gp.cov``.

Notation: S kernels, N training objects, n new objects, M basis functions (M = N for kernels),
D features.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...validation import (
    Seed,
    argument_error,
    check_count,
    check_name,
    integer_seed,
)
from .base import (
    BaseKernel,
    BasisExpansion,
    Cosine,
    Covariance,
    Gaussian,
    Laplace,
    Linear,
    Polynomial,
    Precomputed,
)
from .features import Objects, cross_gram, feature_spaces
from .learned import LearnedCovariance, LearnedGaussian, LearnedKernel, ParametricStack, Theta
from .member import Member
from .normalization import NORMALIZATIONS
from .nystroem import NystroemFeatures
from .stack import as_stack, kernel_stack
from .warnings import warn_of_unequal_scales

__all__ = [
    "Kernels",
    "Theta",
    "as_stack",
    "basis_expansion",
    "cosine",
    "covariance",
    "cross_gram",
    "gaussian",
    "kernel_stack",
    "laplace",
    "linear",
    "polynomial",
    "precomputed",
]


@dataclass(frozen=True)
class Kernels:
    """An immutable specification of one or several kernels; see the functions of this module.

    Parameters
    ----------
    members : tuple of Member

    Notes
    -----
    ``a | b`` puts kernels side by side.  Calling the specification computes the stack.
    """

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        given = Counter(member.name for member in self.members if member.name is not None)
        repeated = [name for name, times in given.items() if times > 1]
        if repeated:
            raise argument_error(
                "name", "named", "different for each kernel of a stack", f"{repeated[0]!r} twice"
            )

    def __or__(self, other: "Kernels") -> "Kernels":
        if not isinstance(other, Kernels):
            return NotImplemented
        return Kernels(self.members + other.members)

    def __len__(self) -> int:
        return len(self.members)

    def named(self, name: str) -> "Kernels":
        """Return this kernel under another name; raise a ValueError for several kernels."""
        if len(self.members) != 1:
            raise argument_error(
                "name", "named", "given to one kernel, before '|'", f"{len(self.members)} kernels"
            )
        return self._with(name=str(name))

    def on(self, space: str) -> "Kernels":
        """Bind the kernels to one feature space, a key of the dict of features."""
        return self._with(space=space)

    def normalize(self, *steps: str) -> "Kernels":
        """Append normalisations to every kernel, applied in the order given.

        Parameters
        ----------
        *steps : {"trace", "unit", "center"}
            Training trace N; self-similarity 1; zero mean in feature space.  The constants come
            from the training objects, also for new objects.

        Raises
        ------
        ValueError
            For an unknown name, or a basis expansion (which is not a matrix of similarities).
        """
        for step in steps:
            check_name(step, NORMALIZATIONS, "steps", "normalize")
        for member in self.members:
            if not member.base.is_kernel:
                raise argument_error(
                    "steps",
                    "normalize",
                    "applied to kernels: scale a basis expansion inside its own function",
                    f"the basis expansion {member.name_on(None)!r}",
                )
        return Kernels(tuple(replace(m, steps=(*m.steps, *steps)) for m in self.members))

    def nystroem(self, n_components: int, *, seed: Seed = 0) -> "Kernels":
        """Replace every kernel by its Nystroem features, for many objects.

        Parameters
        ----------
        n_components : int
            Number of landmarks m, drawn from the training objects, and of columns of the stack.
        seed : int, SeedSequence, Generator or None, default=0
            Seed of the landmarks.

        Returns
        -------
        Kernels
            Basis expansions whose inner products approximate the kernels; exact for m = N.

        Raises
        ------
        ValueError
            For basis expansions, and kernels that are normalised, precomputed or have parameters
            to learn.

        Notes
        -----
        The stack costs O(S (m^3 + N m (m + D))); no N x N matrix is formed.

        Examples
        --------
        >>> kernels = (gaussian(0.05) | gaussian(0.5)).nystroem(500)
        >>> model = MultinomialProbit(kernels(X_train), labels)
        >>> kz.predict(model, kz.fit(model, "vb"), kernels(X_test, X_train))
        """
        check_count(n_components, "n_components", "nystroem")
        for member in self.members:
            unfit = isinstance(member.base, (Precomputed, LearnedCovariance))
            if unfit or member.steps or not member.base.is_kernel:
                raise argument_error(
                    "kernels",
                    "nystroem",
                    "functions of features, not normalised, without parameters to learn",
                    repr(member.name_on(None)),
                )
        seed = integer_seed(seed, "seed", "nystroem")
        bases = (NystroemFeatures(m.base, n_components, seed) for m in self.members)
        return Kernels(
            tuple(replace(m, base=base) for m, base in zip(self.members, bases, strict=True))
        )

    def _with(self, **changes: Any) -> "Kernels":
        return Kernels(tuple(replace(member, **changes) for member in self.members))

    def __call__(self, X: Any, X_train: Any = None) -> Any:
        """Compute the stack of kernels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, D), or dict of them
            The objects of the rows.  A dict has one entry per feature space, with the same objects.
            DataFrames are aligned by label: the index has the ids of the objects, and columns of
            new objects get the order of the training features.  A precomputed kernel takes
            similarities instead of features: (N, N) for training, (n, N) for new objects.
        X_train : the same of N rows, optional
            The training objects; needed if `X` are new objects.

        Returns
        -------
        DataArray of shape (S, n, M)
            Dims "kernel", "obs", "basis", with coords; float64.  For a training stack of kernels
            the labels of "basis" are those of "obs".  The numbers of new objects without ids
            continue those of the training objects.  The attributes describe the kernels with given
            names.  If a kernel has parameters to learn (`Theta`): a `ParametricStack`, which models
            and `predict` accept instead.

        Raises
        ------
        ValueError
            For inputs that are not finite and two-dimensional, differ in objects or features
            (which are named), lack a feature space, cannot be normalised, or are so large that
            kernels overflow.

        Warns
        -----
        KernelWarning
            If a kernel sums over training features of very different scales: a quarter of them or
            more have less than a hundredth of the largest standard deviation.

        Notes
        -----
        Costs O(S n N D).  For new objects the training Gram matrix is computed only for centring,
        O(S N^2 D) more.
        """
        # What overflows is an error below.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._stack(X, X_train)

    def _stack(self, X: Any, X_train: Any) -> Any:
        train = feature_spaces(X if X_train is None else X_train)
        entries = list(self._resolve(train))
        for name, member, space in entries:
            if isinstance(member.base, Precomputed):
                train = train.with_gram(space, name)
        new = train if X_train is None else feature_spaces(X, train)
        new.check_has(space for _, _, space in entries)
        if new is train:
            added_up = {space for _, member, space in entries if member.base.adds_features_up}
            warn_of_unequal_scales({s: train.features[s] for s in train.features if s in added_up})
        columns = [
            (name, member.evaluate(name, new, train, space)) for name, member, space in entries
        ]
        _check_overflow(dict(columns), new)
        shapes = {name: values.shape for name, values in columns}
        if len(set(shapes.values())) > 1:
            raise argument_error(
                "X", "Kernels", "mapped to as many basis functions by every kernel", str(shapes)
            )
        values = np.stack([values for _, values in columns])
        learned = tuple(
            LearnedKernel(
                *(name, position, member.base, member.steps, space),
                *(new.features[space], train.features[space]),
            )
            for position, (name, member, space) in enumerate(entries)
            if isinstance(member.base, LearnedCovariance)
        )
        expansion = not all(member.base.is_kernel for member in self.members)
        basis = np.array([f"phi{m}" for m in range(values.shape[2])]) if expansion else train.labels
        stack = xr.DataArray(
            values,
            dims=("kernel", "obs", "basis"),
            coords={"kernel": [name for name, _ in columns], "obs": new.coord, "basis": basis},
            name="kernels",
            attrs={name: m.base.describe(s) for name, m, s in entries if m.name is not None},
        )
        return ParametricStack(stack, learned) if learned else stack

    def _resolve(self, objects: Objects) -> Iterator[tuple[str, Member, str | None]]:
        """Yield name, kernel and feature space of every entry, given the training objects."""
        pairs = [
            (replace(member, base=member.base.on_training(objects.features[space])), space)
            for member in self.members
            for space in objects.spaces_of(member.space)
        ]
        taken = {member.name_on(space) for member, space in pairs if member.name is not None}
        for member, space in pairs:
            name = member.name_on(space)
            if member.name is None:
                # Given names do not change; equal descriptions are numbered.
                numbered = (f"{name} #{i}" for i in count(2))
                name = next(each for each in chain([name], numbered) if each not in taken)
                taken.add(name)
            yield name, member, space


def gaussian(gamma: float | Literal["median", "scale"] | Theta | None = None) -> Kernels:
    """Gaussian kernel exp(-gamma ||x - x'||^2).

    z-score the features on the training part first, as ``split`` in ``kz.datasets`` does. Otherwise
    features of large scale dominate, and a good width for one data set gives the identity for
    another.

    Parameters
    ----------
    gamma : float, {"median", "scale"} or Theta, optional
        - a number; 1 / n_features by default;
        - "median": 1 / (2 m), with m the median of ||x_i - x_j||^2 over pairs i < j of training
          objects; of more than 1,000 objects, 1,000 are drawn with a fixed seed, whatever their
          order;
        - "scale": 1 / (n_features v), with v the variance of all entries of the training features,
          as in ``sklearn.svm.SVC(gamma="scale")``;
        - a `Theta`: gamma is learned; ``Theta(ard=True)`` learns one for each feature,
          exp(-sum_d gamma_d (x_d - x'_d)^2).

    Notes
    -----
    A rule is applied to the training objects of each call, for each feature space separately:
    ``kernels(X_new, X_train)`` has the width of ``kernels(X_train)``, which is in its label.

    Examples
    --------
    >>> kernels = (gaussian("median") | linear()).normalize("trace")
    >>> kernels(X_train)["kernel"].values
    array(['gaussian(median=0.0192)', 'linear'], dtype='<U23')
    """
    return _one(LearnedGaussian(gamma) if isinstance(gamma, Theta) else Gaussian(gamma))


def laplace(gamma: float | Literal["median"] | None = None) -> Kernels:
    """Laplace kernel exp(-gamma ||x - x'||_1).

    `gamma` is 1 / n_features by default; "median" is 1 over the median of ||x_i - x_j||_1 over
    pairs of training objects. See `gaussian`.
    """
    return _one(Laplace(gamma))


def polynomial(degree: int = 2, gamma: float = 1.0, coef0: float = 1.0) -> Kernels:
    """Polynomial kernel (gamma x'x + coef0)^degree.

    `degree` must be a whole number from 1, `gamma` > 0 and `coef0` >= 0, so that the kernel is
    positive semidefinite.  `gamma` is 1 by default, as in the papers; scikit-learn's default is
    1 / n_features.
    """
    return _one(Polynomial(degree, gamma, coef0))


def linear() -> Kernels:
    """Linear kernel x'x, without a bias."""
    return _one(Linear())


def cosine() -> Kernels:
    """Cosine similarity x'x / (||x|| ||x'||); 0 for a vector of zeros."""
    return _one(Cosine())


def precomputed() -> Kernels:
    """Precomputed similarities instead of features.

    Apply it to the Gram matrix of the training objects, shape (N, N), and to the similarities of
    new objects to the training objects, shape (n, N), together with that Gram matrix.  To combine
    it with kernels of features, use a dict: ``gaussian().on("x") |
    precomputed().on("sequence")``.
    """
    return _one(Precomputed())


def covariance(function: Any, theta: Theta | None = None) -> Kernels:
    """Any covariance function of ``pm.gp.cov``.

    Parameters
    ----------
    function : pymc.gp.cov.BaseCovariance
        A covariance function with fixed hyperparameters; random variables raise a ValueError. With
        `theta`: a function that maps the parameter, a scalar tensor or one with one entry per
        feature, to a covariance function.
    theta : Theta, optional
        Prior of a parameter to learn.

    Examples
    --------
    >>> covariance(pm.gp.cov.Matern52(3, ls=1.5))
    >>> covariance(lambda scale: pm.gp.cov.Matern52(3, ls=scale), Theta(2, 1)).named("matern")
    """
    if theta is None:
        return _one(Covariance(function))
    return _one(LearnedCovariance(theta, function))


def basis_expansion(function: Callable[[NDArray], NDArray], name: str | None = None) -> Kernels:
    """Features instead of a kernel: the stack has one column per basis function.

    Parameters
    ----------
    function : callable
        Maps objects of shape (n, D) to features of shape (n, M), row by row; fit its parameters
        beforehand. For Nystroem features see `Kernels.nystroem`.
    name : str, optional
        Default: the name of the function.
    """
    expansion = _one(BasisExpansion(function))
    return expansion if name is None else expansion.named(name)


def _one(base: BaseKernel) -> Kernels:
    return Kernels((Member(base),))


def _check_overflow(kernels: Mapping[str, NDArray], objects: Objects) -> None:
    """Raise if a kernel of finite features has entries that are not finite."""
    for name, values in kernels.items():
        if not np.isfinite(values).all():
            largest = max(float(np.abs(each).max()) for each in objects.features.values())
            raise argument_error(
                "X",
                "Kernels",
                "small enough that kernels do not overflow: standardise the features",
                f"entries up to {largest:.3g} in size, for which {name!r} is not finite",
            )
