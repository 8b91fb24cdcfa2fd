"""Kernels: what to compute, on which feature space, how normalised; and the stack they give.

A specification is written once and applied to training and to new objects::

    kernels = gaussian(1 / 13) | linear() | polynomial(2)
    kernels(X_train)            # (kernel, obs, basis), square
    kernels(X_test, X_train)    # new objects against training objects

A specification holds no data.  The constants of its normalisations are those of the objects given
last (the training objects), so new objects never touch them.  Values are those of
``sklearn.metrics.pairwise``; ``covariance`` takes any covariance function of ``pm.gp.cov``.

Notation: S kernels, N training objects, n new objects, M basis functions (M = N for kernels),
D features.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error, check_count, check_name
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
        """Return this one kernel under another name; raises a ValueError for several."""
        if len(self.members) != 1:
            raise argument_error(
                "name", "named", "given to one kernel, before '|'", f"{len(self.members)} kernels"
            )
        return self._with(name=str(name))

    def on(self, space: str) -> "Kernels":
        """Bind the kernels to one feature space: a key of the dict that they will be applied to."""
        return self._with(space=space)

    def normalize(self, *steps: str) -> "Kernels":
        """Append normalisations to every kernel, applied in the order given.

        Parameters
        ----------
        *steps : {"trace", "unit", "center"}
            Training trace N; self-similarity 1; zero mean in feature space.  The constants come
            from the training objects and are applied unchanged to new ones.

        Raises
        ------
        ValueError
            On an unknown name, or on a basis expansion (it is not a matrix of similarities).
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

    def nystroem(self, n_components: int, *, seed: int = 0) -> "Kernels":
        """Replace every kernel by its Nystroem features, for many objects.

        Parameters
        ----------
        n_components : int
            Number of landmarks m, drawn from the training objects: columns of the stack.
        seed : int, default=0
            Of the landmarks.

        Returns
        -------
        Kernels
            Basis expansions whose inner products approximate the kernels; exact where m = N.

        Raises
        ------
        ValueError
            For kernels that are normalised, precomputed or have parameters to learn, and basis
            expansions.

        Notes
        -----
        The stack costs O(S (m^3 + N m (m + D))), and no N x N matrix is formed.

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
            The objects of the rows.  A dict has one entry a feature space, with the same objects.
            DataFrames go by their labels: the index has the ids of the objects, and columns of new
            objects get the order of the training features.  For a precomputed kernel, similarities
            in place of features: (N, N) for training, (n, N) for new objects.
        X_train : the same of N rows, optional
            The training objects; needed when `X` are new ones.

        Returns
        -------
        DataArray of shape (S, n, M)
            Dims "kernel", "obs", "basis", with coords; float64.  For a training stack of kernels
            the labels of "basis" are those of "obs".  New objects without an index of their own are
            numbered on from the training objects.  The attributes describe the kernels that have
            been given names.  Where a kernel has parameters to learn
            (`Theta`): a `ParametricStack`, which models and `predict` take in its place.

        Raises
        ------
        ValueError
            On inputs that are not finite and two-dimensional, disagree in objects or in features
            (naming the ids, or the features), lack a feature space, or cannot be normalised.

        Warns
        -----
        KernelWarning
            Where training features that a kernel adds up as they are differ much in scale: a
            quarter of them or more have less than a hundredth of the largest's standard deviation.

        Notes
        -----
        Costs O(S n N D).  For new objects the training Gram matrix is computed only where centring
        needs it, O(S N^2 D) more.
        """
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
        """Yield name, kernel and feature space of every entry; `objects` are the training ones."""
        pairs = [
            (replace(member, base=member.base.on_training(objects.features[space])), space)
            for member in self.members
            for space in objects.spaces_of(member.space)
        ]
        taken = {member.name_on(space) for member, space in pairs if member.name is not None}
        for member, space in pairs:
            name = member.name_on(space)
            if member.name is None:
                # Given names stay; equal descriptions are numbered in the order of the kernels.
                numbered = (f"{name} #{i}" for i in count(2))
                name = next(each for each in chain([name], numbered) if each not in taken)
                taken.add(name)
            yield name, member, space


def gaussian(gamma: float | Literal["median", "scale"] | Theta | None = None) -> Kernels:
    """Gaussian kernel exp(-gamma ||x - x'||^2).

    z-score the features first, on the training part (``kz.datasets`` does so in ``split``): among
    features as they are, those of large scale decide alone, and a width that suits one data set
    makes the kernel of another one the identity.

    Parameters
    ----------
    gamma : float, {"median", "scale"} or Theta, optional
        - a number; 1 / n_features by default;
        - "median": 1 / (2 m), with m the median of ||x_i - x_j||^2 over pairs i < j of training
          objects, of 1,000 drawn with a fixed seed where there are more, whatever their order;
        - "scale": 1 / (n_features v), with v the variance of all entries of the training features,
          as in ``sklearn.svm.SVC(gamma="scale")``;
        - a `Theta`: gamma is learned; ``Theta(ard=True)`` gives one for each feature,
          exp(-sum_d gamma_d (x_d - x'_d)^2).

    Notes
    -----
    A rule in place of a number is applied to the training objects of each call, in each feature
    space by itself: ``kernels(X_new, X_train)`` has the width of ``kernels(X_train)``, which its
    label says.

    Examples
    --------
    >>> kernels = (gaussian("median") | linear()).normalize("trace")
    >>> kernels(X_train)["kernel"].values
    array(['gaussian(median=0.0192)', 'linear'], dtype='<U23')
    """
    return _one(LearnedGaussian(gamma) if isinstance(gamma, Theta) else Gaussian(gamma))


def laplace(gamma: float | Literal["median"] | None = None) -> Kernels:
    """Laplace kernel exp(-gamma ||x - x'||_1).

    `gamma` is 1 / n_features by default; "median" is 1 over the median of ||x_i - x_j||_1 among the
    training objects. See `gaussian`.
    """
    return _one(Laplace(gamma))


def polynomial(degree: int = 2, gamma: float = 1.0, coef0: float = 1.0) -> Kernels:
    """Polynomial kernel (gamma x'x + coef0)^degree.

    Positive semidefinite for a whole `degree` from 1, `gamma` > 0 and `coef0` >= 0, which is what
    is allowed.  `gamma` is 1 by default, as in the papers, where scikit-learn takes 1 / n_features.
    """
    return _one(Polynomial(degree, gamma, coef0))


def linear() -> Kernels:
    """Linear kernel x'x, without a bias."""
    return _one(Linear())


def cosine() -> Kernels:
    """Cosine similarity x'x / (||x|| ||x'||); 0 for a vector of zeros."""
    return _one(Cosine())


def precomputed() -> Kernels:
    """Similarities given in place of features.

    Applied to the Gram matrix of the training objects, shape (N, N); and to the similarities of new
    objects to the training objects, shape (n, N), together with that Gram matrix.  Beside kernels
    of features it reads an entry of a dict: ``gaussian().on("x") | precomputed().on("sequence")``.
    """
    return _one(Precomputed())


def covariance(function: Any, theta: Theta | None = None) -> Kernels:
    """Any covariance function of ``pm.gp.cov``.

    Parameters
    ----------
    function : pymc.gp.cov.BaseCovariance
        With fixed hyperparameters: a random variable among them raises a ValueError. With `theta`,
        a function of the parameter, a scalar tensor or one of a number a feature, that returns it.
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
    """Features in place of a kernel: the stack then has a column a basis function.

    Parameters
    ----------
    function : callable
        Maps objects of shape (n, D) to features of shape (n, M), each row by itself; fitted
        beforehand where it has something to fit. Nystroem features: `Kernels.nystroem`.
    name : str, optional
        By default the name of the function.
    """
    expansion = _one(BasisExpansion(function))
    return expansion if name is None else expansion.named(name)


def _one(base: BaseKernel) -> Kernels:
    return Kernels((Member(base),))
