"""Measurements in processes of their own."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

__all__ = ["in_own_process"]


def in_own_process[**P, T](function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Value of a function in a fresh process, whose peak memory is that of the function."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *args, **kwargs).result()
