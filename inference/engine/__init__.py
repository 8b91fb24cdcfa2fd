"""What an engine is, and what all engines share."""

from .engine import Engine, Run
from .independent import lean_tree
from .ledger import Ledger
from .progress import quiet_sampler, track
from .result import with_group

__all__ = [
    "Engine",
    "Ledger",
    "Run",
    "lean_tree",
    "quiet_sampler",
    "track",
    "with_group",
]
