"""What an engine is, and what all engines share.

A fit: `fit` checks its arguments and calls ``Engine.run``. The `paper_engines` (Exact, Gibbs, VB,
EM, MAP) look up the model's function in the table of `paper` and call it; for kernels with missing
rows, `completions` does this once per draw of the kernels. What the function returns (`result`)
becomes draws in `independent` or chains in `chains`. `convergence` judges them, and `provenance`
says of which model they are. Engines for any PyMC model are in ``inference/generic.py``.
"""

from .independent import lean_tree
from .progress import quiet_sampler, track
from .result import with_group
from .tasks import records

__all__ = ["lean_tree", "quiet_sampler", "records", "track", "with_group"]
