"""Agreement with a reference posterior, in normal scores of the reference.

A draw's normal score is the standard normal quantile of its place among the reference's draws. In
scores the reference has mean 0 and standard deviation 1 in every element, so that a mean is a bias
in standard deviations, and a standard deviation is a ratio of standard deviations. Scores have all
moments, which draws of covariance matrices often have not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import arviz as az
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats
from xarray import DataTree

from kernelzoo.inference import identified

from .case import Case, NotRunError, check_mixed, reference
from .cells import references, with_reference
from .findings import ALPHA, Finding

__all__ = ["Agreement", "Difference", "differences"]


@dataclass(frozen=True)
class Difference:
    """Difference of a result from the reference, over all elements of all quantities.

    Attributes
    ----------
    p : float
        Probability of so large a difference of any element's mean score or mean absolute score,
        if both results are draws from the same posterior (Bonferroni).
    bias : float
        Largest bias, with its sign, in standard deviations of the reference.
    bias_of, ratio_of : str
        Quantities with the largest bias, and with the standard deviation furthest from its own.
    least_ratio, largest_ratio : float
        Ratios of standard deviations.
    resolution : float
        Bias that would be found in every element, in standard deviations.
    """

    p: float
    bias: float
    bias_of: str
    least_ratio: float
    largest_ratio: float
    ratio_of: str
    resolution: float


def differences(result: DataTree, base: DataTree, alpha: float = ALPHA) -> Difference:
    """Compare a result with the reference.

    Parameters
    ----------
    result, base : DataTree
        Results of `fit` with draws.
    alpha : float
        Probability with which `p` may fall below it for a right engine; for the resolution.

    Raises
    ------
    NotRunError
        When the results have no element in common that varies.
    """
    rows = list(_elements(result, base))
    if not rows:
        raise NotRunError("the results have no quantity in common that varies")
    quantity, bias, ratio, p, error = (list(column) for column in zip(*rows, strict=True))
    if not np.isfinite(p).all():
        unknown = quantity[int(np.argmin(np.isfinite(p)))]
        raise ValueError(f"{unknown} has too few draws or populations for a standard error.")
    worst = int(np.argmax(np.abs(bias)))
    far = int(np.argmax(np.abs(np.log(np.maximum(ratio, 1e-9)))))
    bound = stats.norm.isf(alpha / (4 * len(rows)))
    return Difference(
        p=min(1.0, 2 * len(rows) * float(np.min(p))),
        bias=float(bias[worst]),
        bias_of=quantity[worst],
        least_ratio=float(np.min(ratio)),
        largest_ratio=float(np.max(ratio)),
        ratio_of=quantity[far],
        resolution=float(bound * np.max(error)),
    )


def _elements(result: DataTree, base: DataTree) -> Iterator[tuple[str, float, float, float, float]]:
    """Quantity, bias, ratio, p-value and standard error of the bias of every varying element."""
    ours, theirs = identified(result), identified(base)
    for name in [name for name in theirs.data_vars if name in ours]:
        known, drawn = _by_element(theirs[name]), _by_element(ours[name])
        if known.shape[2] != drawn.shape[2]:
            raise ValueError(
                f"{name} has {drawn.shape[2]} elements, and {known.shape[2]} in the reference."
            )
        if not np.isfinite(drawn).all():
            raise ValueError(f"{name} has draws that are not finite.")
        for i in range(known.shape[2]):
            if np.ptp(known[..., i]) <= 1e-9 * np.abs(known[..., i]).max():
                continue
            places = np.sort(known[..., i], axis=None)
            before, after = (_scores(x[..., i], places) for x in (known, drawn))
            sd = before.std()
            pairs = [(before, after), (abs(before), abs(after))]
            tests = [_test(one, other, base.attrs, result.attrs) for one, other in pairs]
            (shift, error, _), _ = tests
            ratio = after.std() / sd
            yield str(name), shift / sd, ratio, min(t[2] for t in tests), error / sd


def _by_element(values: xr.DataArray) -> NDArray:
    """Draws (chain, draw, element)."""
    ordered = values.transpose("chain", "draw", ...).to_numpy().astype(float)
    return ordered.reshape(*ordered.shape[:2], -1)


def _scores(values: NDArray, places: NDArray) -> NDArray:
    """Compute normal scores of draws; equal draws share their place."""
    below, upto = (np.searchsorted(places, values, side=side) for side in ("left", "right"))
    return stats.norm.ppf(((below + upto) / 2 + 0.5) / (len(places) + 1))


def _test(
    known: NDArray, drawn: NDArray, of_known: Any, of_drawn: Any
) -> tuple[float, float, float]:
    """Difference of means, its standard error and the p-value that it is zero."""
    (one, _), (other, freedom) = _error(known, of_known), _error(drawn, of_drawn)
    error = float(np.hypot(one, other))
    shift = float(drawn.mean() - known.mean())
    if error == 0:
        return shift, 0.0, float(shift == 0)
    # The error of a few populations is itself estimated from few numbers.
    return shift, error, float(2 * stats.t.sf(abs(shift) / error, freedom))


def _error(values: NDArray, attributes: Any) -> tuple[float, float]:
    """Estimate the standard error of a mean of draws (chain, draw), and its degrees of freedom."""
    independent = attributes.get("independent")
    if independent == 0:
        # Particles of one population are dependent in an unknown way; populations are not.
        means = values.mean(1)
        return float(means.std(ddof=1) / np.sqrt(len(means))), len(means) - 1
    if independent == 1 or attributes.get("kind") in ("exact", "vb"):
        return float(values.std() / np.sqrt(values.size)), np.inf
    size = float(az.ess(xr.Dataset({"x": (("chain", "draw"), values)}), method="mean")["x"])
    return float(values.std() / np.sqrt(max(size, 1.0))), np.inf


@dataclass(frozen=True)
class Agreement:
    """Means and spreads of draws against those of the variant's reference.

    Parameters
    ----------
    options : dict
        Arguments of `fit`.
    populations : int, default=1
        Number of fits with different seeds, whose spread is the error of engines with dependent
        draws that are no chains.
    approximate : bool, default=False
        Whether a difference is a bias by design instead of a failure.
    """

    options: dict[str, Any] = field(default_factory=dict)
    populations: int = 1
    approximate: bool = False

    name = "agreement"
    against_reference = True
    measures = "p-value that means and spreads are those of the reference"

    def __call__(self, case: Case) -> Finding:
        """Compare the cell's engine with the reference."""
        variant = with_reference(case.cell.variant)
        # Compared by name: the cell may come from another process.
        own = variant.slug == case.cell.variant.slug
        if own and case.cell.engine == references(variant):
            message = "it is the reference: the rows of other engines say how they agree with it"
            raise NotRunError(message)
        base = reference(case)
        fits = [
            case.fit(random_seed=case.seed + i, **self.options) for i in range(self.populations)
        ]
        result = fits[0]
        if len(fits) > 1:
            draws = xr.concat([f["posterior"].to_dataset() for f in fits], "chain")
            posterior = draws.assign_coords(chain=range(draws.sizes["chain"]))
            result["posterior"] = DataTree(posterior)
        check_mixed(result, "its")
        found = differences(result, base)
        agrees = found.p >= ALPHA
        against = f"against {base.attrs['engine']}" + (
            "" if own else f" of the variant {variant.slug}"
        )
        message = (
            f"{against}: largest bias {found.bias:+.2f} sd ({found.bias_of}), ratios of sds "
            f"{found.least_ratio:.2f} to {found.largest_ratio:.2f} ({found.ratio_of}); a bias of "
            f"{found.resolution:.2f} sd would be found"
        )
        k_hat = float(result.attrs.get("pareto_k", np.nan))
        figures = {
            "bias": found.bias,
            "least_sd_ratio": found.least_ratio,
            "largest_sd_ratio": found.largest_ratio,
            "resolution": found.resolution,
        }
        return Finding(
            *(self.name, self.measures),
            "passed" if agrees else "biased" if self.approximate else "failed",
            message,
            *(found.p, ALPHA),
            figures=figures | ({"pareto_k": k_hat} if np.isfinite(k_hat) else {}),
        )
