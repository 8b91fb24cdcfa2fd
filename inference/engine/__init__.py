"""What an engine is, and what all engines share."""

from .engine import Engine, Run
from .independent import lean_tree
from .ledger import Ledger
from .progress import quiet_sampler, track
from .provenance import versions
from .replicate import key_of, records
from .result import with_group

__all__ = [
    "Engine",
    "Ledger",
    "Run",
    "key_of",
    "lean_tree",
    "quiet_sampler",
    "records",
    "track",
    "versions",
    "with_group",
]
