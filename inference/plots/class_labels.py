"""Class names beside the rows and columns of kernel pictures, without collisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

__all__ = ["name_classes"]

type Side = Literal["x", "y"]

#: Font size of names that are moved away from their classes, and distance from the picture
#: (points).
FONT_SIZE, DISTANCE = 8, 14
#: Largest and smallest width (points) of a line between classes, and its share of a class's height.
WIDEST, THINNEST, SHARE = 0.7, 0.2, 0.1
#: Distance between neighbouring names, in heights of a name.
SPACING = 1.15
#: Distance of the axis's label from the names, points.
LABEL_PAD = 3
#: Layout rounds: names shrink the picture, and a smaller picture leaves less room for names.
ROUNDS = 2


@dataclass(frozen=True, eq=False)
class Classes:
    """Names (n,), middle positions and sizes of the classes, in the order of the objects."""

    names: Sequence[str]
    middles: NDArray
    sizes: NDArray


def name_classes(
    pictures: Sequence[Axes], starts: Mapping[str, int], n_objects: int, *, columns: bool
) -> None:
    """Draw lines between classes and name each class at the middle of its objects.

    Names that would collide are moved apart and joined to their classes by lines. If there is no
    room for all names, the largest classes are named.

    Parameters
    ----------
    pictures : sequence of Axes
        Axes of one figure, with the objects as rows in the same order.
    starts : mapping of str to int
        First object of each class, in the order of the objects.
    n_objects : int
        Number of objects.
    columns : bool
        Whether the columns are the same objects.
    """
    names = list(starts)
    edges = np.array([*starts.values(), n_objects])
    middles = (edges[:-1] + edges[1:] - 1) / 2
    sides: tuple[Side, ...] = ("x", "y") if columns else ("y",)
    figure = pictures[0].get_figure(root=True)
    assert figure is not None
    height = 72 / figure.dpi * pictures[0].get_window_extent().height / len(names)
    linewidth = float(np.clip(SHARE * height, THINNEST, WIDEST))
    for axes in pictures:
        for edge in edges[1:-1] - 0.5:
            axes.axhline(edge, color="black", linewidth=linewidth)
            if columns:
                axes.axvline(edge, color="black", linewidth=linewidth)
        axes.set_yticks(middles, names)
        axes.set_ylabel("objects by class")
        if columns:
            axes.set_xticks(middles, names)
            axes.set_xlabel("")
        axes.tick_params(length=0)
    figure.draw_without_rendering()
    if columns and any(_collide(axes.get_xticklabels(), "x") for axes in pictures):
        for axes in pictures:
            axes.tick_params(axis="x", labelrotation=90)
        figure.draw_without_rendering()
    _set_apart(
        figure,
        pictures,
        [side for side in sides if any(_collide(_ticks(axes, side), side) for axes in pictures)],
        Classes(names, middles, np.diff(edges)),
    )


def _ticks(axes: Axes, side: Side) -> list[Text]:
    return axes.get_xticklabels() if side == "x" else axes.get_yticklabels()


def _collide(texts: Sequence[Text], side: Side) -> bool:
    """Whether neighbouring texts overlap along the side."""
    extents = [text.get_window_extent() for text in texts]
    ends = sorted((box.x0, box.x1) if side == "x" else (box.y0, box.y1) for box in extents)
    return any(second[0] < first[1] for first, second in pairwise(ends))


def _set_apart(
    figure: Figure, pictures: Sequence[Axes], sides: Sequence[Side], classes: Classes
) -> None:
    """Replace tick labels by names at least a line's height apart."""
    for axes in pictures:
        for side in sides:
            (axes.set_xticks if side == "x" else axes.set_yticks)([])
    drawn: list[Artist] = []
    for _ in range(ROUNDS if sides else 0):
        for artist in drawn:
            artist.remove()
        drawn = []
        for axes in pictures:
            for side in sides:
                artists = _write(figure, axes, side, classes)
                drawn += artists
                if side == "y":
                    _make_room(figure, axes, artists[1:], len(classes.names))
        figure.draw_without_rendering()


def _write(figure: Figure, axes: Axes, side: Side, classes: Classes) -> list[Artist]:
    """Draw the lines to the classes that are named, then their names."""
    box = axes.get_window_extent()
    low, high = sorted(axes.get_xlim() if side == "x" else axes.get_ylim())
    pixels = box.width if side == "x" else box.height
    gap = SPACING * FONT_SIZE * figure.dpi / 72 * (high - low) / pixels
    middles = classes.middles
    if len(middles) * gap <= high - low:
        kept, places = np.arange(len(middles)), spread(middles, gap, low + gap / 2, high - gap / 2)
    else:
        kept = thin(middles, classes.sizes, gap)
        places = middles[kept]
    vertical = side == "y"
    along = axes.get_yaxis_transform() if vertical else axes.get_xaxis_transform()
    across = box.width if vertical else box.height
    inner, outer = (-points * figure.dpi / 72 / across for points in (DISTANCE - 2, DISTANCE))

    def point(place: float, distance: float) -> tuple[float, float]:
        return (distance, place) if vertical else (place, distance)

    lines = LineCollection(
        [[point(middles[i], 0.0), point(to, inner)] for i, to in zip(kept, places, strict=True)],
        transform=along,
        colors="black",
        linewidths=0.6,
        clip_on=False,
    )
    axes.add_collection(lines, autolim=False)
    align = (
        {"ha": "right", "va": "center"}
        if vertical
        else {"ha": "center", "va": "top", "rotation": 90}
    )
    texts = [
        axes.text(
            *point(place, outer),
            classes.names[int(i)],
            transform=along,
            fontsize=FONT_SIZE,
            **align,
        )
        for i, place in zip(kept, places, strict=True)
    ]
    return [lines, *texts]


def _make_room(figure: Figure, axes: Axes, names: Sequence[Artist], n_classes: int) -> None:
    """Move the label of the rows away from their names."""
    widest = max(name.get_window_extent().width for name in names)
    left_out = "" if len(names) == n_classes else "\n(not all named)"
    pad = DISTANCE + 72 / figure.dpi * widest + LABEL_PAD
    axes.set_ylabel(f"objects by class{left_out}", labelpad=pad)


def thin(places: NDArray, sizes: NDArray, gap: float) -> NDArray:
    """Greedily choose the largest classes that are at least `gap` apart.

    Parameters
    ----------
    places, sizes : array (n,)
        Increasing places, and sizes; among equal sizes the first place is kept.
    gap : float
        Least distance of neighbours.

    Returns
    -------
    ndarray of int
        Indices in increasing order.
    """
    kept: list[int] = []
    for i in np.argsort(-sizes, kind="stable"):
        if all(abs(places[i] - places[j]) >= gap for j in kept):
            kept.append(int(i))
    return np.sort(kept)


def spread(places: NDArray, gap: float, low: float, high: float) -> NDArray:
    """Least-squares places that are at least `gap` apart and between `low` and `high`.

    Parameters
    ----------
    places : array (n,)
        Increasing.
    gap : float
        Least distance of neighbours; (n - 1) gap is at most high - low.
    low, high : float
        Ends of the range.

    Returns
    -------
    ndarray (n,)
    """
    steps = gap * np.arange(len(places))
    # Without the gaps, this is isotonic regression.
    bare = isotonic_regression(places - steps).x
    return np.clip(bare, low, high - steps[-1]) + steps
