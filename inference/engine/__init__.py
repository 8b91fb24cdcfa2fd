"""What an engine is, and what all engines share.

A fit: `fit` -> ``Engine.run`` -> the paper's function, which ``PaperEngine.implement`` finds in
`PAPERS`; for kernels with missing rows, `completed_kernels` does this once per completion. The
function's output becomes draws in `independent`, chains in `chains`, or a point in `result`;
`convergence` judges them. Engines written for papers are in `paper_engines` (Exact, VB, EM, MAP)
and `mcmc` (Gibbs); NUTS is in `mcmc`, Laplace in `mode`; ADVI, Pathfinder and SMC are in
``inference/generic``.
"""

from .engine import Engine, Run
from .independent import lean_tree
from .progress import quiet_sampler, track
from .result import versions, with_group
from .tasks import records

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
