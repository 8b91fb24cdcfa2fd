"""Figures of posteriors carry the right numbers: tests read them back from the artists."""

import arviz as az
import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from xarray import Dataset, DataTree

import kernelzoo as kz
from kernelzoo.inference.plots import plot_bound, plot_engines, plot_weights

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


def ends(lines):
    """Left and right ends (row, 2) of horizontal lines."""
    return np.array([segment[:, 0] for segment in lines.get_segments()])


# --- Intervals


def test_a_subclass_is_drawn_beside_its_parent(results):
    child = result(1, 5, 0)
    child.attrs["model"] = "Child"
    assert plot_engines({"parent": results["VB"], "child": child}, var_names="beta")


def test_intervals_end_at_the_quantiles_of_each_engine(results):
    # Bug: engines with different numbers of draws padded with NaN, chains not joined.
    chosen = {"stats.ci_prob": 0.9, "stats.ci_kind": "eti", "stats.point_estimate": "median"}
    with az.rc_context(chosen):
        pc = plot_weights(results)
    for name, tree in results.items():
        beta = tree["posterior"]["beta"].values.reshape(-1, 3)
        for label, prob in (("trunk", 0.5), ("twig", 0.9)):
            lines = pc.viz[label]["beta"].sel(model=name).item()
            quantiles = np.quantile(beta, [(1 - prob) / 2, (1 + prob) / 2], axis=0).T
            np.testing.assert_allclose(ends(lines), quantiles, rtol=1e-6)
        points = pc.viz["point_estimate"]["beta"].sel(model=name).item().get_offsets()
        np.testing.assert_allclose(points[:, 0], np.median(beta, axis=0))


def exponents():
    tree = result(1, 200, 4)
    posterior = tree["posterior"].to_dataset()
    tree["posterior"] = posterior.assign(beta=40 * posterior["beta"])
    return tree


def test_exponents_are_drawn_whole_and_not_against_equal_weights(results):
    axes = plot_weights(exponents()).iget_target(0, 0)
    assert axes.get_xlim()[1] > 20
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert not dotted
    weights = plot_weights(results).iget_target(0, 0)
    (equal,) = (line for line in weights.get_lines() if line.get_linestyle() == ":")
    np.testing.assert_allclose(equal.get_xdata(), 1 / 3)


def test_rows_are_labelled_by_the_kernel_they_show(results):
    # Bug: labels sorted, or the axis upside down against the labels.
    pc = plot_weights(results["VB"])
    axes = pc.iget_target(0, 0)
    rows = {
        text.get_text(): y
        for y, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    }
    offsets = pc.viz["point_estimate"]["beta"].sel(model="VB").item().get_offsets()
    means = results["VB"]["posterior"]["beta"].mean(("chain", "draw"))
    for kernel in KERNELS:
        (at,) = offsets[offsets[:, 1] == rows[kernel]]
        assert at[0] == pytest.approx(float(means.sel(kernel=kernel)))
    assert axes.yaxis_inverted()


def test_figure_says_what_the_intervals_are(results):
    chosen = {"stats.ci_prob": 0.8, "stats.ci_kind": "hdi", "stats.point_estimate": "mean"}
    with az.rc_context(chosen):
        pc = plot_weights(results)
    assert "mean, 50 % and 80 % highest-density intervals" in pc.iget_target(0, 0).get_xlabel()
    names = [text.get_text() for text in pc.viz["figure"].item().legends[0].get_texts()]
    assert [name.split("=")[-1].strip() for name in names] == list(results)


@pytest.fixture
def poor():
    """Results of which VB's is not to be believed."""
    return {"Gibbs": result(2, 50, 1), "VB": result(1, 50, 2, engine="VB", pareto_k=4.123)}


def shown_names(collection):
    legend = collection.viz["figure"].item().legends[0]
    return [" ".join(text.get_text().split()) for text in legend.get_texts()]


def test_engines_that_are_not_to_be_believed_are_marked(poor):
    marked = ["Gibbs", "VB (k-hat 4.1: do not read)"]
    assert shown_names(plot_engines(poor, var_names="beta")) == marked
    pc = plot_weights(poor)
    assert shown_names(pc) == marked
    # What is drawn is found by the names given.
    assert pc.viz["point_estimate"]["beta"].sel(model="VB").item()
    poor["VB"].attrs["pareto_k"] = 0.7
    assert shown_names(plot_engines(poor, var_names="beta")) == ["Gibbs", "VB"]


def test_chains_that_are_apart_are_marked(poor):
    gibbs = poor["Gibbs"]["posterior"].to_dataset()
    poor["Gibbs"]["posterior"] = xr.DataTree(gibbs)
    assert shown_names(plot_weights(poor))[0] == "Gibbs"
    apart = gibbs["beta"] * xr.where(gibbs["chain"] == 0, 0.3, 1.0)
    poor["Gibbs"]["posterior"] = xr.DataTree(gibbs.assign(beta=apart))
    name = shown_names(plot_weights(poor))[0]
    assert name.startswith("Gibbs (R-hat ")
    assert name.endswith(": chains have not mixed)")
    # Several completions have different posteriors, whose chains are rightly apart.
    pooled = poor["Gibbs"]["posterior"].to_dataset().assign_coords(completion=("chain", [0, 1]))
    poor["Gibbs"]["posterior"] = xr.DataTree(pooled)
    assert shown_names(plot_weights(poor))[0] == "Gibbs"


def test_labels_fit_into_a_column_of_a_journal(results):
    figure = plot_weights(results).viz["figure"].item()
    figure.set_size_inches(3.3, 2.2)
    figure.canvas.draw()
    label = figure.axes[0].xaxis.label.get_window_extent()
    assert label.x0 >= 0
    assert label.x1 <= figure.bbox.x1


def test_an_engine_alone_is_marked_in_the_title(poor):
    title = plot_weights(poor["VB"]).viz["figure"].item().get_suptitle()
    assert title == "Weights of the kernels, VB (k-hat 4.1: do not read)"
    assert plot_weights(poor["Gibbs"]).viz["figure"].item().get_suptitle().endswith(", Gibbs")


def test_triangles_are_marked(poor):
    axes = plot_weights(poor, kind="simplex").viz["figure"].item().axes
    titles = [" ".join(each.get_title().split()) for each in axes]
    assert titles[:2] == ["Gibbs", "VB (k-hat 4.1: do not read)"]


def test_engines_share_rows_without_hiding_each_other(results):
    pc = plot_engines(results, var_names=["beta"])
    heights = [
        pc.viz["point_estimate"]["beta"].sel(model=name).item().get_offsets()[:, 1]
        for name in results
    ]
    assert (np.diff(heights, axis=0) > 0).all()
    assert np.ptp(heights, axis=0).max() < 1


def test_default_selection_is_weights_then_whole_objects(results):
    # Bug: an object's classes torn apart, or the weights crowded out by the many contrasts.
    pc = plot_engines(results)
    assert list(pc.data.data_vars) == ["beta", "contrast"]
    shown = pc.data["contrast"]["contrast (obs, class)"].values.tolist()
    assert shown == [f"{obs}, {c}" for obs in (0, 1, 2, 3, 5) for c in "abc"]
    assert "18 of 21" in pc.viz["figure_title"].item().get_text()


def test_contrasts_are_those_of_their_objects_and_classes(results):
    pc = plot_engines(results, var_names="contrast")
    tree = results["VB"]
    posterior = tree["posterior"].isel(chain=0)
    stack = tree["constant_data"]["K"]
    f = xr.dot(posterior["W"], xr.dot(posterior["beta"], stack, dim="kernel"), dim="basis")
    contrast = (f - f.mean("class")).mean("draw").transpose("obs", "class")
    points = pc.viz["point_estimate"]["contrast"].sel(model="VB").item().get_offsets()
    np.testing.assert_allclose(points[:, 0], contrast.values.ravel())


def test_simplex_puts_each_kernel_at_its_own_corner(results):
    corners = np.eye(3)[:, None, None]  # one kernel has all the weight
    heights = {}
    for kernel, weights in zip(KERNELS, corners, strict=True):
        tree = result(1, 1, 0)
        tree["posterior"]["beta"] = tree["posterior"]["beta"].copy(data=weights)
        pc = plot_weights({"one": tree}, kind="simplex")
        at = pc.viz["mean"]["weights"].sel(model="one").item().get_offsets()[0]
        axes = pc.viz["plot"].sel(model="one").item()
        heights[kernel] = {
            t.get_text(): np.hypot(*(np.array(t.get_position()) - at)) for t in axes.texts
        }
        assert min(KERNELS, key=heights[kernel].get) == kernel
    pc = plot_weights(results, kind="simplex")
    drawn = pc.viz["draws"]["weights"].sel(model="VB").item().get_offsets()
    assert len(drawn) == 500
    assert not np.ma.is_masked(drawn)
    assert np.isfinite(np.asarray(drawn)).all()


def test_levels_of_the_simplex_are_written_outside_of_the_triangle(results):
    # Bug: numbers across the sides, where draws of favoured kernels lie.
    pc = plot_weights(results, kind="simplex")
    figure = pc.viz["figure"].item()
    figure.canvas.draw()
    for axes in figure.axes:
        triangle = next(line for line in axes.get_lines() if len(line.get_xdata()) == 4)
        path = triangle.get_path().transformed(axes.transData)
        levels = [text for text in axes.texts if text.get_text() in {"0.25", "0.5", "0.75"}]
        assert len(levels) == 9
        for level in levels:
            assert not path.intersects_bbox(level.get_window_extent(), filled=True)


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
    pc = plot_bound(trajectory(elbo, best=1))
    lines = {start: pc.viz["line"]["bound"].sel(start=start).item() for start in range(3)}
    for start, line in lines.items():
        np.testing.assert_array_equal(line.get_xdata(), t + 1)
        np.testing.assert_array_equal(line.get_ydata(), elbo[start])
    widths = {start: line.get_linewidth() for start, line in lines.items()}
    assert max(widths, key=widths.get) == 1
    assert lines[0].get_color() == lines[2].get_color() != lines[1].get_color()
    legend = pc.viz["figure"].item().legends[0].get_texts()[0].get_text()
    assert "start 1, the best of 3" in legend
    assert f"{elbo[1, 29]:,.2f}" in legend


def test_the_legend_of_the_bound_is_off_the_axes():
    # A start that is slow to rise crosses the middle of the picture.
    t = np.arange(100)
    slow = -58 + 6 / (1 + np.exp(-(t - 45) / 8))
    figure = plot_bound(trajectory([-52 - 6 * 0.7**t, slow], best=1)).viz["figure"].item()
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= box.y0
    for axes in figure.axes:
        assert axes.get_legend() is None
        assert not box.overlaps(axes.get_tightbbox())


def test_first_iterations_do_not_dwarf_the_bound():
    t = np.arange(100)
    pc = plot_bound(trajectory([-40 - 1e6 * 0.1**t], best=0))
    low, high = pc.get_target("bound", {}).get_ylim()
    assert high > -40
    assert low > -100
    assert "down to -1,000,040" in pc.get_target("bound", {}).get_xlabel()


def test_a_falling_bound_is_marked_where_it_falls():
    elbo = -10 * 0.9 ** np.arange(50)
    elbo[20] = elbo[19] - 0.5
    pc = plot_bound(trajectory([elbo], best=0))
    crosses = pc.viz["fall"]["change"].sel(start=0).item().get_xydata()
    np.testing.assert_allclose(crosses[np.isfinite(crosses[:, 1])], [[21, 0.5]])
    change = pc.viz["line"]["change"].sel(start=0).item()
    np.testing.assert_allclose(change.get_ydata()[1:], np.abs(np.diff(elbo)))
    assert pc.get_target("change", {}).get_yscale() == "log"
    noise = np.random.default_rng(0).normal(size=200)
    noisy = plot_bound(trajectory([noise], best=0))
    assert "fall" not in noisy.viz.children
    assert "noisy" in noisy.get_target("change", {}).get_title()


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
            "of the same kernels",
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
    pc = plot_bound(tree)
    assert pc.get_target("bound", {}).get_title() == "Objective"
    assert "density" in pc.get_target("bound", {}).get_ylabel()


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
    pc = plot_weights(named)
    for name, tree in named.items():
        found = kz.inclusion(tree)
        points = pc.viz["point_estimate"]["beta"].sel(model=name).item().get_offsets()
        np.testing.assert_allclose(points[:, 0], found["probability"])
        lines = ends(pc.viz["twig"]["beta"].sel(model=name).item())
        np.testing.assert_allclose(lines[:, 1] - lines[:, 0], 4 * found["mcse"], rtol=1e-6)
