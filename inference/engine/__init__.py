"""What an engine is, and what all engines share."""

from .engine import Engine, Run
from .independent import lean_tree
from .progress import quiet_sampler, track
from .provenance import versions
from .replicate import records
from .result import with_group

__all__ = [
    "Engine",
    "Run",
    "lean_tree",
    "quiet_sampler",
    "records",
    "track",
    "versions",
    "with_group",
]
