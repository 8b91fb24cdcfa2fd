"""What an engine is, and what all engines share.

A fit: `fit` checks its arguments and calls ``Engine.run``. The engines of papers (Exact, VB, EM,
MAP in `paper`, Gibbs in `mcmc`) look up the model's function in the table `PAPERS` and call it; for
kernels with missing rows, `completions` does this once per draw of the kernels. What the function
returns (`outputs`) becomes draws in `independent`, chains in `chains`, or a point in `result`;
`k_hat` and `convergence` judge them, `provenance` says of which model they are. NUTS is in `mcmc`,
Laplace in `mode`; ADVI, Pathfinder and SMC are in ``inference/generic``.
"""

from .independent import lean_tree
from .progress import quiet_sampler, track
from .result import with_group
from .tasks import records

__all__ = ["lean_tree", "quiet_sampler", "records", "track", "with_group"]
