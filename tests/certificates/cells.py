"""Cells: every variant of every model by every engine that applies to it."""

import zlib
from dataclasses import dataclass
from functools import cache

from kernelzoo import engines
from kernelzoo.models import MODELS
from kernelzoo.models.declaration import Declaration

from .variants import VARIANTS, Variant

__all__ = [
    "DECLARATION",
    "Cell",
    "all_cells",
    "problem_of",
    "references",
    "with_reference",
]

#: Name, in place of an engine's, of the cell of a declaration itself.
DECLARATION = "declaration"
#: Engines whose draws are a reference for the others, the best first.
_REFERENCES = ("Exact", "Gibbs", "NUTS")


@dataclass(frozen=True)
class Cell:
    """A variant of a model and an engine, or the declaration of the variant.

    Attributes
    ----------
    variant : Variant
    engine : str
        Name of an engine, or `DECLARATION`.
    """

    variant: Variant
    engine: str

    @property
    def slug(self) -> str:
        """Name of the cell, and of its file."""
        return f"{self.variant.slug}-{self.engine.lower()}"

    def seed(self, base: int) -> int:
        """Seed of the cell, which does not depend on other cells."""
        return zlib.crc32(f"{base} {self.slug}".encode())


@cache
def problem_of(variant: Variant) -> Declaration:
    """Problem of a variant, made once; no check changes it."""
    return variant.problem()


@cache
def applying(variant: Variant) -> tuple[str, ...]:
    """Names of the engines that apply to a variant's problem."""
    return tuple(engines(problem_of(variant)).frame.query("applies != 'no'").index)


def references(variant: Variant) -> str:
    """Name of the engine whose draws are the reference of a variant."""
    return next(name for name in _REFERENCES if name in applying(variant))


def with_reference(variant: Variant) -> Variant:
    """Variant whose reference serves this one: itself or its twin."""
    return next(v for v in VARIANTS if v.slug == (variant.twin or variant.slug))


@cache
def all_cells() -> tuple[Cell, ...]:
    """All cells, by model and variant.

    Raises
    ------
    ValueError
        When a model of `kz.MODELS` has no variant.
    """
    cells = []
    for model in MODELS:
        variants = [variant for variant in VARIANTS if variant.model is model]
        if not variants:
            raise ValueError(f"{model.__name__} has no entry in VARIANTS, so no cell proves it.")
        for variant in variants:
            names = (DECLARATION, *applying(variant))
            cells += [Cell(variant, name) for name in names]
    return tuple(cells)
