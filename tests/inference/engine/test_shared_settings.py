"""Blocks that overlap in threads leave the settings of the process as they were."""

import logging
import warnings
from contextlib import ExitStack
from functools import partial
from threading import Event, Thread

import pytensor
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.inference.engine.shared_settings import (
    BlasLimits,
    quiet_libraries,
    quiet_sampler,
    settings_kept,
)
from kernelzoo.models.initial_point import QUICK


def overlap(one, other):
    """Enter one, in a thread the other, leave one, and then the other."""
    opened, closed = Event(), Event()

    def second():
        with ExitStack() as blocks:
            for block in other:
                blocks.enter_context(block())
            opened.set()
            assert closed.wait(60)

    thread = Thread(target=second)
    with ExitStack() as blocks:
        for block in one:
            blocks.enter_context(block())
        thread.start()
        assert opened.wait(60)
    closed.set()
    thread.join(60)
    assert not thread.is_alive()


def blas():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_compilations_that_overlap_leave_pytensors_settings():
    """Bug: PyTensor puts back what it finds, for the second thread the value of the first."""
    names = ("mode", "cxx", "traceback__limit", "optdb__max_use_ratio")
    before = {name: getattr(pytensor.config, name) for name in names}
    overlap(
        (
            settings_kept,
            lambda: pytensor.config.change_flags(mode=python_mode(), traceback__limit=1),
        ),
        (settings_kept, lambda: pytensor.config.change_flags(mode=QUICK, traceback__limit=2)),
    )
    assert {name: getattr(pytensor.config, name) for name in names} == before


def in_a_thread(call, *arguments):
    """threadpoolctl lets the first thread that sets limits do so while it is alive."""
    thread = Thread(target=call, args=arguments)
    thread.start()
    thread.join(60)


@pytest.fixture
def two_blas_threads():
    before = threadpool_info()
    in_a_thread(threadpool_limits, 2, "blas")
    yield
    in_a_thread(threadpool_limits, before)


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("limits", [(1, 1), (1, 3), (3, 1), (None, 1), (1, None)])
def test_limits_that_overlap_leave_the_number_of_blas_threads(limits):
    """Bug: BLAS had one thread for good."""
    overlap(*[(partial(BlasLimits, number),) for number in limits])
    assert set(blas()) == {2}
    # The last thread does not keep others from setting limits.
    with BlasLimits(1):
        assert set(blas()) == {1}
    assert set(blas()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_limits_within_limits():
    with BlasLimits(1):
        with BlasLimits(3):
            assert set(blas()) == {3}
        assert set(blas()) == {1}
        with BlasLimits(None):
            assert set(blas()) == {1}
    assert set(blas()) == {2}


def test_blocks_that_overlap_leave_the_filters_of_warnings():
    """Bug: the second put back the filters of the first, which stayed for good."""
    before = [*warnings.filters]
    overlap((quiet_libraries,), (quiet_libraries,))
    assert warnings.filters == before


def test_blocks_that_overlap_leave_the_level_of_the_logger():
    logger = logging.getLogger("pymc")
    before = logger.level
    with quiet_sampler():
        assert logger.level == logging.ERROR
    overlap((quiet_sampler,), (quiet_sampler,))
    assert logger.level == before
