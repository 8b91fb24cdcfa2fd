"""Engines that work on any PyMC model."""

from . import approximations, map, smc

__all__ = ["approximations", "map", "smc"]
