"""An ordinal probit on several kernels, added from outside."""

import numpy as np
import pymc as pm
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import ndtr
from scipy.stats import truncnorm
from xarray import Dataset, apply_ufunc, dot

from kernelzoo import inference
from kernelzoo.custom_steps import GibbsBlock
from kernelzoo.models import LabelledDeclaration, combinations
from kernelzoo.validation import check_positive


class OrdinalProbit(LabelledDeclaration):
    """Ordered classes: t_n is the interval of y_n ~ N(f_n, 1).

    f = sum_s beta_s K_s alpha with alpha ~ N(0, scale^2) and beta
    uniform on the simplex. The C - 1 cut points are a priori uniform
    between -limit and limit, and sorted: `share` are the classes'
    shares of this range.
    """

    def __init__(
        self, kernels, labels, *, classes=None, scale=1.0, limit=5.0
    ):
        super().__init__()
        self.scale = check_positive(scale, "scale", "OrdinalProbit")
        self.limit = check_positive(limit, "limit", "OrdinalProbit")
        uniform = combinations.DirichletWeights(varphi=1.0)
        stack = self.read_kernels(kernels, uniform, self.scale)
        codes = self.read_labels(labels, classes, stack)
        with self:
            K = pm.Data("K", stack.values, dims=stack.dims)
            observed = pm.Data("labels", codes, dims="obs")
            beta = self.combination.declare()
            alpha = pm.Normal("alpha", 0, self.scale, dims="basis")
            ones = np.ones(self.n_classes)
            share = pm.Dirichlet("share", ones, dims="class")
            pm.OrderedProbit(
                "t",
                eta=self.combination.combine(K, beta) @ alpha,
                cutpoints=cut_points(share, self.limit),
                compute_p=False,
                observed=observed,
                dims="obs",
            )
        self.seal()


def cut_points(share, limit):
    """Cut points (..., C - 1), in NumPy or in PyTensor."""
    return limit * (2 * share.cumsum(-1)[..., :-1] - 1)


def class_probabilities(f, share, limit):
    """Probabilities (..., obs, C), of f (..., obs)."""
    cut = cut_points(share, limit)[..., None, :]
    below = ndtr(cut - f[..., None])
    return np.diff(below, prepend=0.0, append=1.0)


def slice_pair(log_density, point, i, j, rng):
    """Redraw two entries of a point of the simplex, given their sum.

    Slice sampling with an interval that shrinks towards the old
    value (Neal 2003) needs no tuning.
    """
    old, total = point[i], point[i] + point[j]
    lower, upper = 0.0, total
    level = log_density(point) - rng.exponential()
    while True:
        point = point.copy()
        point[i] = rng.uniform(lower, upper)
        point[j] = total - point[i]
        if log_density(point) >= level:
            return point
        if point[i] < old:
            lower = point[i]
        else:
            upper = point[i]


class OrdinalGibbs(GibbsBlock):
    """The sampler of Albert & Chib (1993), with marginal moves.

    It draws y, moves beta and all cut points with alpha integrated
    out, draws alpha, and moves each cut point with y integrated out.
    """

    declarations = (OrdinalProbit,)

    def prepare(self, model, given):
        self.K, self.t = model.kernel_values(), model.label_codes
        self.scale, self.limit = model.scale, model.limit
        # The weight of a single kernel is data.
        self.known = (
            None if model.learned else model["beta"].get_value()
        )
        return ["alpha", "share"] + ["beta"] * model.learned, []

    def utilities(self, f, share, rng):
        """Draw y given f: normal variables between cut points."""
        cut = cut_points(share, self.limit)
        edges = np.concatenate([[-np.inf], cut, [np.inf]])
        ends = edges[self.t] - f, edges[self.t + 1] - f
        return f + truncnorm.ppf(rng.random(len(f)), *ends)

    def composite(self, beta):
        """Composite kernel, and the factor of the covariance of y."""
        K = np.tensordot(beta, self.K, axes=1)
        covariance = np.eye(len(K)) + self.scale**2 * K @ K.T
        return K, np.linalg.cholesky(covariance)

    def log_density(self, y, beta):
        """Log density of y with alpha integrated out."""
        factor = self.composite(beta)[1]
        z = solve_triangular(factor, y, lower=True)
        return -0.5 * z @ z - np.log(np.diag(factor)).sum()

    def sweep(self, values, rng):
        def of_weights(beta):
            return self.log_density(y, beta)

        def of_shift(share):
            return self.log_density(shifted(share), beta)

        def of_cut(share):
            p = class_probabilities(K @ alpha, share, self.limit)
            own = p[np.arange(len(p)), self.t]
            return np.log(own.clip(1e-300)).sum()

        def shifted(share):
            first = share[0] - values["share"][0]
            return y + 2 * self.limit * first

        beta = values.get("beta", self.known)
        share = values["share"]
        f = self.composite(beta)[0] @ values["alpha"]
        y = self.utilities(f, share, rng)
        for s in range(len(beta) - 1):
            beta = slice_pair(of_weights, beta, s, s + 1, rng)
        # Given y, the cut points can hardly move: y moves with them.
        share = slice_pair(of_shift, share, 0, -1, rng)
        y = shifted(share)
        # Draws of alpha and y from the prior, moved to the given y.
        K, factor = self.composite(beta)
        alpha = self.scale * rng.normal(size=K.shape[1])
        rest = y - K @ alpha - rng.normal(size=len(y))
        alpha += self.scale**2 * K.T @ cho_solve((factor, True), rest)
        for c in range(len(share) - 1):
            share = slice_pair(of_cut, share, c, c + 1, rng)
        new = {"beta": beta, "alpha": alpha, "share": share}
        return {name: new[name] for name in values}, {}


def gibbs(model, run):
    return [OrdinalGibbs(model=model)]


def functions(result, stack):
    """Draws of f on kernels (kernel, obs, basis)."""
    known = result["constant_data"].to_dataset()
    drawn = result["posterior"].to_dataset()
    beta = drawn["beta"] if "beta" in drawn else known["beta"]
    each = dot(stack, drawn["alpha"], dim="basis")
    return dot(each, beta, dim="kernel")


def predict(model, result, kernels_new, *, keep_draws):
    """Class probabilities of new objects, and their labels.

    With `keep_draws`, the probabilities of every draw as well.
    """
    drawn = result["posterior"].to_dataset()
    inference.check_draws(model, drawn, "alpha", "beta", "share")
    stack = inference.stack_of_new_objects(model, kernels_new)
    p = apply_ufunc(
        class_probabilities,
        functions(result, stack).transpose("chain", "draw", "obs"),
        drawn["share"],
        model.limit,
        input_core_dims=[["obs"], ["class"], []],
        output_core_dims=[["obs", "class"]],
    )
    mean = p.mean(("chain", "draw"))
    label = mean.idxmax("class")
    found = Dataset({"probability": mean, "label": label})
    return found.assign(probability_draws=p) if keep_draws else found


def identified(result, variant):
    """Compare engines on f, the classes' shares and the weights."""
    f = functions(result, result["constant_data"]["K"])
    drawn = result["posterior"].to_dataset()
    return drawn.drop_vars("alpha").assign(f=f)


inference.add_paper(
    inference.Paper(
        OrdinalProbit,
        gibbs=inference.Algorithm(gibbs),
        predict=predict,
        identified=identified,
        identified_reads=["alpha", "share"],
    )
)
