"""Figures of posteriors carry the right numbers: tests read them back from the artists."""

import arviz as az
import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from xarray import Dataset, DataTree

import kernelzoo as kz
from kernelzoo.inference.engine.engine import every_engine
from kernelzoo.inference.plots import plot_bound, plot_engines, plot_weights
from kernelzoo.inference.plots.results import engine_colors

mpl.use("Agg")

KERNELS = ["gaussian", "linear", "cosine"]


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """No figure is shown, no global setting changed."""
    before = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before


def result(chains, draws, seed, *, kernels=KERNELS, engine="Gibbs", **attrs):
    """Result of the layout of MultinomialProbit: 6 objects, 3 classes."""
    rng = np.random.default_rng(seed)
    coords = {"kernel": list(kernels), "basis": np.arange(6)}
    posterior = Dataset(
        {
            "W": (("chain", "draw", "class", "basis"), rng.normal(size=(chains, draws, 3, 6))),
            "beta": (
                ("chain", "draw", "kernel"),
                rng.dirichlet(np.arange(1.0, len(kernels) + 1), (chains, draws)),
            ),
        },
        coords={**coords, "class": ["a", "b", "c"]},
    ).assign_coords(chain=np.arange(chains), draw=np.arange(draws))
    stack = Dataset(
        {"K": (("kernel", "obs", "basis"), rng.normal(size=(len(kernels), 6, 6)))},
        coords={**coords, "obs": np.arange(6)},
    )
    tree = DataTree.from_dict({"/posterior": posterior, "/constant_data": stack})
    tree.attrs.update(family="MultinomialProbit", variant="Mean", engine=engine, **attrs)
    return tree


@pytest.fixture(scope="module")
def results():
    # As in life: a chain method with several chains, independent draws of another number, a point.
    return {
        "Gibbs": result(3, 200, 1),
        "VB": result(1, 500, 2, engine="VB"),
        "MAP": result(1, 1, 3, engine="MAP"),
    }


def lines_of(axes, index):
    """Left and right ends (row, 2) of the `index`-th set of horizontal lines."""
    return np.array([segment[:, 0] for segment in axes.collections[index].get_segments()])


def points_of(axes):
    """Points (row, 2) of each engine, in the order of the results."""
    return [line.get_xydata() for line in axes.get_lines() if line.get_marker() in ("o", "X")]


# --- Intervals


def test_a_subclass_is_drawn_beside_its_parent(results):
    child = result(1, 5, 0)
    child.attrs["model"] = "Child"
    assert len(plot_engines({"parent": results["VB"], "child": child}, var_names="beta")) == 1


@pytest.mark.parametrize("kind", ["eti", "hdi"])
def test_intervals_are_those_of_each_engine(results, kind):
    # Bug: engines with different numbers of draws padded with NaN, chains not joined.
    with az.rc_context({"stats.ci_prob": 0.9, "stats.ci_kind": kind}):
        (axes,) = plot_weights(results)
    for i, tree in enumerate(results.values()):
        beta = tree["posterior"]["beta"].values.reshape(-1, 3)
        for j, prob in enumerate((0.5, 0.9)):
            expected = getattr(az, kind)(beta, prob=prob, axis=0)
            np.testing.assert_allclose(lines_of(axes, 2 * i + j), expected, rtol=1e-6)
        np.testing.assert_allclose(points_of(axes)[i][:, 0], beta.mean(0))
    name = {"eti": "equal-tailed", "hdi": "highest-density"}[kind]
    assert f"mean, 50 % and 90 % {name} intervals" in axes.get_xlabel()
    legend = axes.figure.legends[0].get_texts()
    assert [text.get_text() for text in legend] == list(results)


def exponents():
    tree = result(1, 200, 4)
    posterior = tree["posterior"].to_dataset()
    tree["posterior"] = posterior.assign(beta=40 * posterior["beta"])
    return tree


def test_exponents_are_drawn_whole_and_not_against_equal_weights(results):
    (axes,) = plot_weights(exponents())
    assert axes.get_xlim()[1] > 20
    assert not [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    (axes,) = plot_weights(results)
    (equal,) = (line for line in axes.get_lines() if line.get_linestyle() == ":")
    np.testing.assert_allclose(equal.get_xdata(), 1 / 3)


def test_rows_are_labelled_by_the_kernel_they_show(results):
    # Bug: labels sorted, or the axis upside down against the labels.
    (axes,) = plot_weights(results["VB"])
    names = [text.get_text() for text in axes.get_yticklabels()]
    rows = dict(zip(names, axes.get_yticks(), strict=True))
    (points,) = points_of(axes)
    means = results["VB"]["posterior"]["beta"].mean(("chain", "draw"))
    for kernel in KERNELS:
        (at,) = points[points[:, 1] == rows[kernel]]
        assert at[0] == pytest.approx(float(means.sel(kernel=kernel)))
    assert axes.yaxis_inverted()


@pytest.fixture
def poor():
    """Results of which VB's is not to be believed."""
    return {"Gibbs": result(2, 200, 1), "VB": result(1, 50, 2, engine="VB", pareto_k=4.123)}


def shown_names(axes):
    return [" ".join(text.get_text().split()) for text in axes[0].figure.legends[0].get_texts()]


def set_apart(tree, name):
    """Move a chain away from the others in one variable."""
    tree["posterior"][name] = tree["posterior"][name] + 3 * tree["posterior"]["chain"]


def test_engines_that_are_not_to_be_believed_are_marked(poor):
    marked = ["Gibbs", "VB (k-hat 4.1: do not read)"]
    assert shown_names(plot_engines(poor, var_names="beta")) == marked
    assert shown_names(plot_weights(poor)) == marked
    titles = [" ".join(a.get_title().split()) for a in plot_weights(poor, kind="simplex")]
    assert titles == marked
    poor["VB"].attrs["pareto_k"] = 0.7
    set_apart(poor["Gibbs"], "beta")
    assert shown_names(plot_engines(poor, var_names="beta")) == ["Gibbs (not converged)", "VB"]


def test_weights_are_marked_by_their_own_chains(poor):
    """Bug: one contrast of 320 with a large R-hat marked weights that had converged."""
    poor["Gibbs"].attrs["converged"] = "no"
    poor["Gibbs"]["posterior"]["W"][:, :, 0] += 9 * poor["Gibbs"]["posterior"]["chain"]
    assert shown_names(plot_weights(poor))[0] == "Gibbs"
    assert shown_names(plot_engines(poor, var_names="beta"))[0] == "Gibbs"
    assert shown_names(plot_engines(poor))[0] == "Gibbs (not converged)"


def styles_of(axes):
    """Colour, marker and its filling of the engines, by their label in the legend."""
    drawn = [line for line in axes.get_lines() if line.get_marker() in ("o", "X")]
    return {
        line.get_label().split()[0]: (
            line.get_color(),
            line.get_marker(),
            line.get_markerfacecolor(),
        )
        for line in drawn
    }


def test_what_is_not_converged_and_what_is_not_to_be_read_look_different(poor):
    good = styles_of(plot_weights(poor)[0])
    set_apart(poor["Gibbs"], "beta")
    apart = styles_of(plot_weights(poor)[0])
    color, marker, filling = good["Gibbs"]
    assert (marker, filling) == ("o", color)
    assert apart["Gibbs"] == (color, "o", "white")
    assert apart["VB"] == good["VB"] == (good["VB"][0], "X", "white")
    # Opaque: nothing is invisible.
    axes = plot_weights(poor)[0]
    assert {artist.get_alpha() for artist in (*axes.collections, *axes.get_lines())} == {None}


def test_an_engine_keeps_its_colour(poor):
    both = styles_of(plot_weights(poor)[0])
    reversed_order = {"VB": poor["VB"], "Gibbs": poor["Gibbs"]}
    assert styles_of(plot_engines(reversed_order, var_names="beta")[0]) == both
    assert styles_of(plot_weights(poor["VB"])[0])["VB"] == both["VB"]
    twice = styles_of(plot_weights({"one": poor["VB"], "two": poor["VB"]})[0])
    assert twice["one"] == both["VB"] != twice["two"]
    triangle = plot_weights(poor, kind="simplex")[1]
    draws, mean = triangle.collections
    np.testing.assert_array_equal(draws.get_facecolor()[0, :3], to_rgb(both["VB"][0]))
    np.testing.assert_array_equal(mean.get_facecolor()[0, :3], to_rgb("white"))


#: Linear RGB as eyes without long, medium or short cones see it: Machado et al. (2009), doi
#: 10.1109/TVCG.2009.113, table 1, severity 1.
EYES = [
    np.eye(3),
    [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
]


def oklab(linear):
    """Colours in a space where distances are those that eyes see: Ottosson (2020)."""
    cones = np.cbrt(
        np.clip(linear, 0, 1)
        @ [[0.4122, 0.2119, 0.0883], [0.5363, 0.6807, 0.2817], [0.0514, 0.1074, 0.6300]]
    )
    return cones @ [[0.2105, 1.9780, 0.0259], [0.7936, -2.4286, 0.7828], [-0.0041, 0.4506, -0.8087]]


def test_every_engine_has_a_colour_of_its_own_also_for_colour_blind_eyes():
    names = [engine.name for engine in every_engine()]
    trees = [DataTree() for _ in names]
    for name, tree in zip(names, trees, strict=True):
        tree.attrs["engine"] = name
    shown = [engine_colors({"": tree})[""] for tree in trees]
    srgb = np.array([to_rgb(color) for color in shown])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    for eye in EYES:
        seen = oklab(linear @ np.transpose(eye))
        apart = np.linalg.norm(seen[:, None] - seen, axis=-1)
        assert apart[np.triu_indices(len(names), 1)].min() > 0.07, eye


def test_engines_share_rows_without_hiding_each_other(results):
    heights = [points[:, 1] for points in points_of(*plot_engines(results, var_names=["beta"]))]
    assert (np.diff(heights, axis=0) > 0).all()
    assert np.ptp(heights, axis=0).max() < 1


def test_weights_come_first_and_of_many_elements_some(results, monkeypatch):
    monkeypatch.setattr("kernelzoo.inference.plots.results.MOST_ELEMENTS", 6)
    axes = plot_engines(results)
    assert [a.get_title(loc="left") for a in axes] == [
        "beta (kernel)",
        "contrast (obs, class), 6 of 18",
    ]
    shown = [text.get_text() for text in axes[1].get_yticklabels()]
    assert shown[0] == "0, a"
    assert shown[-1] == "5, c"


def test_contrasts_are_those_of_their_objects_and_classes(results):
    (axes,) = plot_engines(results, var_names="contrast")
    tree = results["VB"]
    posterior = tree["posterior"].isel(chain=0)
    stack = tree["constant_data"]["K"]
    f = xr.dot(posterior["W"], xr.dot(posterior["beta"], stack, dim="kernel"), dim="basis")
    contrast = (f - f.mean("class")).mean("draw").transpose("obs", "class")
    np.testing.assert_allclose(points_of(axes)[1][:, 0], contrast.values.ravel())


def test_simplex_puts_each_kernel_at_its_own_corner(results):
    corners = np.eye(3)[:, None, None]  # one kernel has all the weight
    for kernel, weights in zip(KERNELS, corners, strict=True):
        tree = result(1, 1, 0)
        tree["posterior"]["beta"] = tree["posterior"]["beta"].copy(data=weights)
        (axes,) = plot_weights({"one": tree}, kind="simplex")
        (at,) = axes.collections[-1].get_offsets()
        distances = {t.get_text(): np.hypot(*(np.array(t.get_position()) - at)) for t in axes.texts}
        assert min(distances, key=distances.get) == kernel
    draws, _ = plot_weights(results, kind="simplex")[1].collections
    assert len(draws.get_offsets()) == 500


# --- Bound


def trajectory(elbo, best):
    tree = DataTree.from_dict(
        {
            "/trajectory": Dataset(
                {"elbo": (("start", "iteration"), np.array(elbo))},
                coords={"start": np.arange(len(elbo)), "iteration": np.arange(1, len(elbo[0]) + 1)},
                attrs={"best_start": best},
            )
        }
    )
    tree.attrs["engine"] = "VB"
    return tree


def test_best_start_is_highlighted_and_every_start_drawn():
    # Bug: the last or the first start highlighted; starts that stopped early dropped.
    t = np.arange(40)
    elbo = np.stack([-50 - 5 * 0.8**t, -40 - 900 * 0.5**t, -60 - 9 * 0.7**t])
    elbo[1, 30:] = np.nan
    bound, change = plot_bound(trajectory(elbo, best=1))
    lines = bound.get_lines()
    for line, values in zip(lines, elbo, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), t + 1)
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert np.argmax([line.get_linewidth() for line in lines]) == 1
    assert lines[0].get_color() == lines[2].get_color() != lines[1].get_color()
    assert lines[1].get_color() == engine_colors({"VB": trajectory(elbo, best=1)})["VB"]
    names = {text.get_text() for text in bound.figure.legends[0].get_texts()}
    assert names == {"other starts", f"start 1: {elbo[1, 29]:,.2f}"}
    np.testing.assert_allclose(change.get_lines()[0].get_ydata(), np.abs(np.diff(elbo[0])))
    assert change.get_yscale() == "log"


def test_noisy_bounds_are_drawn_as_means():
    noise = np.random.default_rng(0).normal(size=(1, 6_000))
    bound, change = plot_bound(trajectory(noise, best=0))
    (line,) = bound.get_lines()
    np.testing.assert_allclose(line.get_ydata(), noise.reshape(-1, 6).mean(1))
    assert line.get_xdata()[-1] == 5997.5
    assert change.get_title() == "Change of means of 6 iterations"


def test_first_iterations_do_not_dwarf_the_bound():
    t = np.arange(100)
    bound, _ = plot_bound(trajectory([-40 - 1e6 * 0.1**t], best=0))
    low, high = bound.get_ylim()
    assert high > -40
    assert low > -100
    assert bound.get_title() == "Lower bound (lowest value, -1,000,040, not shown)"


# --- Errors


def single_kernel():
    tree = result(1, 5, 0)
    tree["posterior"] = DataTree(tree["posterior"].to_dataset().drop_vars("beta"))
    return tree


def other_model():
    tree = result(1, 5, 0)
    tree.attrs["family"] = "Another"
    return tree


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_engines({}), "'results' argument of plot_engines must be at least one"),
        (lambda: plot_engines([result(1, 5, 0)]), "a mapping of results by name, .* Got list"),
        (lambda: plot_engines({1: result(1, 5, 0)}), "a mapping of results by name, .* Got dict"),
        (lambda: plot_weights(DataTree()), "a result of fit. Got an empty DataTree"),
        (lambda: plot_weights(result(1, 5, 0), kind="forset"), "nearest is 'forest'"),
        (lambda: plot_engines(result(1, 5, 0), var_names="bta"), "nearest is 'beta'"),
        (lambda: plot_engines({"a": result(1, 5, 0), "b": other_model()}), "results of one model"),
        (
            lambda: plot_engines({"a": result(1, 5, 0), "b": result(1, 5, 0, kernels=["q", "r"])}),
            "one model on the same data",
        ),
        (lambda: plot_weights(single_kernel()), "learned weights 'beta'"),
        (
            lambda: plot_weights({"a": result(1, 5, 0), "b": result(1, 5, 0, kernels=["q"])}),
            "with the same elements of beta",
        ),
        (
            lambda: plot_weights(result(1, 5, 0, kernels=["q", "r"]), kind="simplex"),
            "three kernels. Got 2",
        ),
        (lambda: plot_weights(exponents(), kind="simplex"), "unless weights sum to 1"),
        (lambda: plot_weights(selections(1), kind="simplex"), "unless weights sum to 1"),
        (lambda: plot_weights({"a": result(1, 5, 0), "b": selections(1)}), "all selections or"),
        (lambda: plot_bound(result(1, 5, 0)), "a bound by iteration .* Got a result of Gibbs"),
    ],
)
def test_errors_say_which_argument_and_why(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_objective_of_em_is_drawn_under_its_own_name():
    tree = trajectory([-10 * 0.9 ** np.arange(20)], best=0)
    tree["trajectory"] = tree["trajectory"].to_dataset().rename(elbo="objective")
    bound, _ = plot_bound(tree)
    assert bound.get_title() == "Objective"
    assert "density" in bound.get_ylabel()


def selections(seed):
    tree = result(2, 100, seed)
    chosen = np.random.default_rng(seed).random((2, 100, 3)) < [0.1, 0.5, 0.8]
    tree["posterior"] = (
        tree["posterior"]
        .to_dataset()
        .assign(beta=(("chain", "draw", "kernel"), chosen.astype(np.int64)))
    )
    return tree


def test_selections_are_drawn_as_inclusion_probabilities_with_two_standard_errors():
    named = {"one": selections(1), "other": selections(2)}
    (axes,) = plot_weights(named)
    for i, tree in enumerate(named.values()):
        found = kz.inclusion(tree)
        np.testing.assert_allclose(points_of(axes)[i][:, 0], found["probability"])
        lines = lines_of(axes, i)
        np.testing.assert_allclose(lines[:, 1] - lines[:, 0], 4 * found["mcse"], rtol=1e-6)
