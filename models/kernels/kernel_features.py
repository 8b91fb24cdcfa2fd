"""Features whose inner products are a kernel or approximate it, for many objects.

Features of normalised kernels
------------------------------
With phi(x) the features, k the kernel and N training objects:

========== ==============================================  ========================================
step       features                                        error
========== ==============================================  ========================================
"trace"    phi(x) sqrt(N / sum_i k(x_i, x_i))              that of phi: k(x, x) is exact
"unit"     phi(x) / sqrt(k(x, x))                          that of phi: k(x, x) is exact
"center"   phi(x) - mu, mu = mean_i phi(x_i)               that of phi, centred
========== ==============================================  ========================================

After centring, k(x, x) is k(x, x) - 2 phi(x)'mu + mu'mu, whose means come from the features: for
Nystroem features it is an upper bound of ||phi(x) - mu||^2, for exact features it is exact.  The
inner products of features are those of the normalised kernel's own features, so that no step adds
to their error.  Nystroem features therefore have a trace of at most N after "trace", and
self-similarities of at most 1 after "unit".  Random features of a Gaussian, Laplace or Matern
kernel have them exactly.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import comb
from typing import Any, ClassVar, Self, override

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel, Covariance, Gaussian, Laplace, Linear, Polynomial
from .normalization import Around, around, check_self_similarity, check_trace
from .rows import Rows, blocks_of

__all__ = [
    *("LANDMARKS", "ExactFeatures", "FeatureMap", "KernelFeatures", "LandmarkColumns"),
    *("NystroemFeatures", "RandomFeatures", "check_exact", "check_frequencies", "fingerprint"),
]

# More exact features than this cost more than Nystroem features as good.
MOST_FEATURES = 5_000
# Eigenvalues of the landmarks' kernel below this fraction of the largest are dominated by rounding.
RELATIVE_FLOOR = 1e-12
# k-means is run on this many objects per cluster at most, so that they fit into memory.
OBJECTS_PER_CLUSTER = 50


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Map of objects (n, D) to features (n, M), with everything that depends on training data.

    `constants` tell the map from maps with other training objects or another order of them.
    """

    function: Callable[[NDArray], NDArray]
    n_features: int
    constants: tuple[NDArray, ...]
    landmarks: NDArray | None = None

    def __call__(self, X: NDArray) -> NDArray:
        """Features (n, M) of objects (n, D)."""
        return self.function(X)


def fingerprint(constants: Sequence[NDArray]) -> str:
    """Short fingerprint of arrays up to rounding errors: last digits depend on the machine."""
    digest = sha256()
    for array in constants:
        largest = float(np.abs(array).max(initial=0.0))
        # Zeros may have a sign.
        parts = np.round(array / (largest or 1.0) * 2**20) + 0.0
        digest.update(f"{array.shape} {largest:.6g}".encode() + parts.tobytes())
    return digest.hexdigest()[:8]


@dataclass(frozen=True)
class KernelFeatures(BaseKernel):
    """Features in place of the kernel `base`, a function of features."""

    base: BaseKernel
    is_kernel: ClassVar[bool] = False
    kind: ClassVar[str]

    @abstractmethod
    def fitted(self, X: Rows) -> FeatureMap:
        """Choose what depends on the training objects (N, D)."""

    def normalized(self, X: Rows, steps: Sequence[str], name: str) -> FeatureMap:
        """Features of the normalised kernel on training objects (N, D); `name` is for messages."""
        base, steps = around(self.base, X, steps)
        return _normalized(replace(self, base=base).fitted(X), base.diagonal, X, steps, name)

    @property
    @override
    def adds_features_up(self) -> bool:
        return self.base.adds_features_up

    @override
    def on_training(self, X: Any) -> Self:
        return replace(self, base=self.base.on_training(X))

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        """Features (n, M) of X, with the training objects Y."""
        return self.normalized(X if Y is None else Y, (), self.kind)(X)

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return self.base.diagonal(X)

    @override
    def describe(self, space: str | None) -> str:
        return f"{self.kind} {self.base.describe(space)}"


def _normalized(
    features: FeatureMap,
    diagonal: Callable[[NDArray], NDArray],
    X: Rows,
    steps: Sequence[str],
    name: str,
) -> FeatureMap:
    """Features of a normalised kernel, from those of the kernel and its self-similarities.

    "trace" and "center" read the training objects (N, D) once more, in blocks.
    """
    done: list[tuple[str, Any]] = []

    def stepped(values: NDArray | None, similarity: NDArray) -> tuple[NDArray | None, NDArray]:
        """Features (n, M) and self-similarities (n,) after the steps; features may be None."""
        for step, constant in done:
            values, similarity = _step(step, constant, values, similarity, name)
        return values, similarity

    def after_steps(x: NDArray) -> NDArray:
        values, _ = stepped(features(x), diagonal(x))
        assert values is not None
        return values

    for step in steps:
        constant: Any = None
        if step == "trace":
            # Self-similarities depend on the features only after centring.
            needed = any(before == "center" for before, _ in done)
            trace = sum(
                stepped(features(x) if needed else None, diagonal(x))[1].sum()
                for _, x in blocks_of(X, features.n_features)
            )
            constant = len(X) / check_trace(trace, name)
        elif step == "center":
            constant = np.zeros(features.n_features)
            for _, x in blocks_of(X, features.n_features):
                constant += after_steps(x).sum(axis=0) / len(X)
        done.append((step, constant))
    if not done:
        return features
    # The steps' constants are told by what they do to one object, whose self-similarity is so
    # large that no centre makes it negative.
    told, _ = stepped(np.ones((1, features.n_features)), np.array([1e200]))
    assert told is not None
    return replace(features, function=after_steps, constants=(*features.constants, told))


def _step(
    step: str, constant: Any, values: NDArray | None, diagonal: NDArray, name: str
) -> tuple[NDArray | None, NDArray]:
    """Features (n, M), or None, and self-similarities (n,) after one step with its constant."""
    if step == "trace":
        return None if values is None else values * np.sqrt(constant), diagonal * constant
    if step == "unit":
        check_self_similarity(diagonal, name)
        scaled = None if values is None else values / np.sqrt(diagonal)[:, None]
        return scaled, np.ones_like(diagonal)
    assert values is not None
    return values - constant, diagonal - 2 * values @ constant + constant @ constant


@dataclass(frozen=True)
class ExactFeatures(KernelFeatures):
    """Features whose inner products are a linear or polynomial kernel."""

    kind = "exact"

    @override
    def fitted(self, X: Rows) -> FeatureMap:
        base = self.base
        if not isinstance(base, Around):
            return _monomials(check_exact(base), X.shape[1])
        features, root = _monomials(check_exact(base.base), X.shape[1]), np.sqrt(base.scale)

        def shifted(X: NDArray) -> NDArray:
            return features(X - base.centre) * root

        constants = (*features.constants, base.centre, np.array([root]))
        return replace(features, function=shifted, constants=constants)


def check_exact(base: BaseKernel) -> Polynomial:
    """Return a linear or polynomial kernel as a polynomial one; other kernels raise."""
    if isinstance(base, Linear):
        return Polynomial(1, 1.0, 0.0)
    if isinstance(base, Polynomial):
        return base
    got = repr(base.describe(None))
    raise argument_error("kernels", "exact_features", "linear or polynomial", got)


def _monomials(base: Polynomial, n_columns: int) -> FeatureMap:
    """Monomials times the roots of their coefficients in (gamma x'x + c)^d, multinomial theorem."""
    from scipy.special import gammaln
    from sklearn.preprocessing import PolynomialFeatures

    degree = int(base.degree)
    lowest = 0 if base.coef0 else degree
    n_features = comb(n_columns + degree, degree)
    n_features -= comb(n_columns + degree - 1, degree - 1) if lowest else 0
    if n_features > MOST_FEATURES:
        rule = f"of at most {MOST_FEATURES} features (or use nystroem)"
        got = f"{n_features} for {base.describe(None)!r} of {n_columns} columns"
        raise argument_error("kernels", "exact_features", rule, got)
    monomials = PolynomialFeatures((lowest, degree), include_bias=lowest == 0)
    powers = monomials.fit(np.zeros((1, n_columns))).powers_
    total = powers.sum(axis=1)
    logs = gammaln(degree + 1) - gammaln(powers + 1).sum(axis=1) - gammaln(degree - total + 1)
    scale = base.gamma**total * base.coef0 ** (degree - total)
    roots = np.sqrt(np.exp(logs) * scale)
    return FeatureMap(lambda X: monomials.transform(X) * roots, len(roots), (roots,))


@dataclass(frozen=True)
class NystroemFeatures(KernelFeatures):
    """Nystroem features K_ll^(-1/2) k(x, l) with landmarks l_1..l_m.

    Their inner products are the kernel projected on the landmarks, and the kernel itself if all
    training objects are landmarks.  Williams & Seeger (2001), Using the Nystroem method to speed up
    kernel machines.  The features of c times the kernel are sqrt(c) times those of the kernel.
    scikit-learn's Nystroem takes no kernel with a shifted origin and compares eigenvalues with an
    absolute floor.  The same training objects in the same order give the same landmarks.
    """

    n_components: int
    seed: int
    by: str = "uniform"

    kind = "nystroem"

    @override
    def fitted(self, X: Rows) -> FeatureMap:
        """Choose landmarks; O(m^3), and what their choice costs."""
        base, m = self.base, self.n_components
        if m > len(X):
            rule = f"at most the number of training objects, {len(X)}"
            raise argument_error("n_components", self.kind, rule, str(m))
        landmarks = LANDMARKS[self.by](X, m, np.random.default_rng(self.seed))
        gram = base.pairwise(landmarks, None)
        eigenvalues, axes = np.linalg.eigh(gram)
        # The floor keeps division by small roots from amplifying rounding errors.
        least = max(RELATIVE_FLOOR * eigenvalues[-1], np.finfo(float).tiny)
        root = (axes / np.sqrt(np.maximum(eigenvalues, least))) @ axes.T
        # The root has rounding errors that a small eigenvalue magnifies: the Gram matrix is told.
        constants = (landmarks, gram)
        return FeatureMap(lambda X: base.pairwise(X, landmarks) @ root, m, constants, landmarks)


@dataclass(frozen=True)
class LandmarkColumns(NystroemFeatures):
    """Columns k(x, l) of a kernel at landmarks, the basis functions of the models.

    They are the inner products of Nystroem features with those of the landmarks.
    """

    kind = "landmarks"

    @override
    def normalized(self, X: Rows, steps: Sequence[str], name: str) -> FeatureMap:
        features = super().normalized(X, steps, name)
        assert features.landmarks is not None
        at_landmarks = features(features.landmarks)
        return replace(features, function=lambda X: features(X) @ at_landmarks.T)


def _uniform(X: Rows, m: int, rng: np.random.Generator) -> NDArray:
    """Draw training objects that differ as far as there are different ones.

    Imputed objects may be equal: many equal landmarks would be a single column.
    """
    chosen = rng.choice(len(X), m, replace=False)
    rows = np.asarray(X[chosen])
    repeated = _repeated(rows)
    if not repeated.any():
        return rows
    left = rng.permutation(np.setdiff1d(np.arange(len(X)), chosen))
    while repeated.any() and len(left):
        places = np.flatnonzero(repeated)[: len(left)]
        rows[places], left = np.asarray(X[left[: len(places)]]), left[len(places) :]
        repeated = _repeated(rows)
    return rows


def _repeated(rows: NDArray) -> NDArray:
    """Whether each row is that of an earlier one."""
    repeated = np.ones(len(rows), dtype=bool)
    repeated[np.unique(rows, axis=0, return_index=True)[1]] = False
    return repeated


def _by_k_means(X: Rows, m: int, rng: np.random.Generator) -> NDArray:
    """Centres of clusters of a uniform sample of the training objects.

    Zhang, Tsang & Kwok (2008), Improved Nystroem low-rank approximation and error analysis.
    """
    from sklearn.cluster import MiniBatchKMeans

    sample = _uniform(X, min(OBJECTS_PER_CLUSTER * m, len(X)), rng)
    # scikit-learn forms distances from squares.
    centre = np.median(sample, axis=0)
    clusters = MiniBatchKMeans(m, random_state=int(rng.integers(2**31)), n_init=1)
    return clusters.fit(sample - centre).cluster_centers_ + centre


LANDMARKS: dict[str, Callable[[Rows, int, np.random.Generator], NDArray]] = {
    "uniform": _uniform,
    "kmeans": _by_k_means,
}

#: Twice the smoothness of Matern covariances: their frequencies are t with so many degrees
#: (Rasmussen & Williams 2006, Gaussian processes for machine learning, eq 4.15).
DEGREES: dict[type, float] = {
    pm.gp.cov.ExpQuad: np.inf,
    pm.gp.cov.Matern12: 1.0,
    pm.gp.cov.Matern32: 3.0,
    pm.gp.cov.Matern52: 5.0,
}


@dataclass(frozen=True)
class RandomFeatures(KernelFeatures):
    """Random Fourier features F^(-1/2) (cos omega_f'x, sin omega_f'x) of a kernel k(x - x').

    The frequencies omega_f are drawn from the kernel's spectral distribution (Rahimi & Recht 2007,
    Random features for large-scale kernel machines, figure 1).  Inner products have variances of
    at most 1 / F, and phi(x)'phi(x) = 1.  A cosine and a sine of each frequency vary less than
    cosines with random phases (Sutherland & Schneider 2015, On the error of random Fourier
    features), which scikit-learn's RBFSampler has, for Gaussian kernels only.
    """

    n_components: int
    seed: int

    kind = "random features"

    @override
    def fitted(self, X: Rows) -> FeatureMap:
        rng = np.random.default_rng(self.seed)
        n = self.n_components // 2
        omega = _frequencies(self.base, _orthogonal_normals(n, X.shape[1], rng), rng)

        def waves(X: NDArray) -> NDArray:
            phases = X @ omega.T
            out = np.empty((len(X), 2 * n))
            np.cos(phases, out=out[:, :n])
            np.sin(phases, out=out[:, n:])
            out /= np.sqrt(n)
            return out

        return FeatureMap(waves, 2 * n, (omega,))

    @override
    def normalized(self, X: Rows, steps: Sequence[str], name: str) -> FeatureMap:
        # Differences of objects need no shift.
        return _normalized(self.fitted(X), self.base.diagonal, X, steps, name)


def _orthogonal_normals(n: int, n_columns: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw standard normal vectors (n, D), orthogonal within each D of them; O(n D^2).

    Yu, Suresh, Choromanski, Holtmann-Rice & Kumar (2016), Orthogonal random features, eq 4.
    """
    z = rng.normal(size=(-(-n // n_columns), n_columns, n_columns))
    directions, triangle = np.linalg.qr(z)
    # Signs make the directions uniform (Mezzadri 2007); lengths are those of normal vectors.
    directions *= np.sign(np.diagonal(triangle, axis1=1, axis2=2))[:, None, :]
    lengths = np.sqrt(rng.chisquare(n_columns, size=z.shape[:2]))
    return (directions * lengths[:, :, None]).reshape(-1, n_columns)[:n]


def check_frequencies(base: BaseKernel) -> None:
    """Raise unless a kernel has random features."""
    if isinstance(base, Gaussian | Laplace):
        return
    if not isinstance(base, Covariance) or type(base.function) not in DEGREES:
        rule = (
            "gaussian, laplace, or covariance of pm.gp.cov.ExpQuad, Matern12, Matern32 or Matern52 "
            "(for other kernels use nystroem)"
        )
        raise argument_error("kernels", "random_features", rule, repr(base.describe(None)))


def _frequencies(base: BaseKernel, z: NDArray, rng: np.random.Generator) -> NDArray:
    """Frequencies (F, D) of a kernel from standard normal vectors z (F, D)."""
    if isinstance(base, Gaussian | Laplace):
        gamma = 1 / z.shape[1] if base.number is None else base.number
        if isinstance(base, Gaussian):
            return z * np.sqrt(2 * gamma)
        # Cauchy, as the ratio of two normal variables.
        return z * gamma / np.abs(rng.normal(size=z.shape))
    assert isinstance(base, Covariance)
    function, omega = base.function, np.zeros_like(z)
    active = np.asarray(function.active_dims)
    omega[:, active] = z[:, active] / np.asarray(function.ls.eval(mode="FAST_COMPILE"))
    if np.isfinite(degrees := DEGREES[type(function)]):
        omega *= np.sqrt(degrees / rng.chisquare(degrees, size=len(z)))[:, None]
    return omega
