"""Memory that kernels need, and that there is: errors before the work starts."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...validation import argument_error

__all__ = ["check_fits", "check_workers", "memory_limit"]

#: Dask ends a worker that takes more than this part of its limit.
TERMINATE = 0.95
#: Files of containers' limits: cgroup v2, v1.
_CGROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_limit() -> float:
    """Bytes that this process can have: of the machine, its container and its address space."""
    limits = [float("inf")]
    # Windows has neither.
    with suppress(ImportError, AttributeError, ValueError):
        import resource

        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        limits.append(soft if soft != resource.RLIM_INFINITY else float("inf"))
    for file in _CGROUPS:
        with suppress(OSError, ValueError):
            limits.append(float(file.read_text()))
    return min(limits)


def check_fits(shape: tuple[int, int, int], argument: str, owner: str) -> None:
    """Raise unless kernels (kernel, obs, basis) of 8 bytes a number fit into memory.

    Raises
    ------
    ValueError
        With the number of gigabytes that are needed.
    """
    needed, limit = 8.0 * shape[0] * shape[1] * shape[2], memory_limit()
    if needed > limit:
        raise argument_error(
            argument,
            owner,
            f"of kernels that fit into memory ({limit / 1e9:.3g} GB); landmarks and features, or "
            "fewer of them, are smaller, and blocks by in_blocks and to_dask need no more than one",
            f"kernels of shape {shape}, which need {needed / 1e9:.3g} GB",
        )


def check_workers(block_bytes: float, argument: str, owner: str) -> None:
    """Raise unless the workers of an active Dask client can hold a block twice, as reading does.

    Raises
    ------
    ValueError
        With the number of megabytes that a worker needs.
    """
    distributed: Any = sys.modules.get("distributed")
    if distributed is None:
        return
    try:
        client = distributed.default_client()
    except ValueError:
        return
    for name, worker in client.scheduler_info()["workers"].items():
        limit = worker["memory_limit"]
        used = worker["metrics"]
        # Blocks that are held go to disk when there is need.
        held = used.get("managed_bytes", 0)
        needed = (max(used["memory"] - held, 0) + 2 * block_bytes) / TERMINATE
        if limit and needed > limit:
            raise argument_error(
                argument,
                owner,
                f"of blocks that Dask's workers can hold (memory_limit={limit / 1e6:,.1f} MB at "
                f"{name}): give workers more memory, or make smaller blocks",
                f"blocks of {block_bytes / 1e6:,.1f} MB, which need {needed / 1e6:,.1f} MB",
            )
