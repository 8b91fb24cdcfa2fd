"""Likelihoods of classes given the scores of functions: logistic for two classes, else softmax."""

from dataclasses import dataclass, replace
from typing import Protocol, Self, override

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from .gaussian_process import Array
from .softmax import log_sum_exp, softmax


class Likelihood(Protocol):
    """Log likelihood of the scores f (..., N, C), with what its derivatives are made of."""

    #: Classes (N,) as numbers.
    codes: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers N of objects and C of functions."""

    @property
    def observed(self) -> Array:
        """1 where an object is of the class of a function, else 0, shape (N, C)."""

    def log_density(self, f: Array) -> Array:
        """Log likelihood (..., N) of each object."""

    def probabilities(self, f: Array) -> Array:
        """Probabilities (..., N, C) of the functions' classes."""

    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        """Likelihood of some objects."""


@dataclass(frozen=True)
class Logistic(Likelihood):
    """Two classes: 1 has the probability 1 / (1 + exp(-f)). `codes` (N,) are 0 and 1."""

    codes: NDArray[np.int64]

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return len(self.codes), 1

    @property
    @override
    def observed(self) -> Array:
        return self.codes[:, None].astype(float)

    @override
    def log_density(self, f: Array) -> Array:
        return log_expit(f[..., 0] * (2 * self.codes - 1))

    @override
    def probabilities(self, f: Array) -> Array:
        return expit(f)

    @override
    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        return replace(self, codes=self.codes[rows])


@dataclass(frozen=True)
class Softmax(Likelihood):
    """Classes 0, ..., C - 1 with probabilities proportional to exp(f_c). `codes` are (N,)."""

    codes: NDArray[np.int64]
    n_classes: int

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return len(self.codes), self.n_classes

    @property
    @override
    def observed(self) -> Array:
        return (self.codes[:, None] == np.arange(self.n_classes)).astype(float)

    @override
    def log_density(self, f: Array) -> Array:
        return f[..., np.arange(len(self.codes)), self.codes] - log_sum_exp(f, axis=-1)

    @override
    def probabilities(self, f: Array) -> Array:
        return softmax(f)

    @override
    def of_rows(self, rows: NDArray[np.intp]) -> Self:
        return replace(self, codes=self.codes[rows])


def likelihood_of(codes: NDArray[np.int64], n_classes: int) -> Likelihood:
    """Likelihood of classes 0, ..., C - 1, given by `codes` (N,)."""
    return Logistic(codes) if n_classes == 2 else Softmax(codes, n_classes)
