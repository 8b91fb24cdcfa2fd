"""What an engine is, and what all engines share.

A fit: `fit` checks its arguments and calls ``Engine.run``. Beside this folder, ``paper_engines``
(Exact, Gibbs, VB, EM, MAP) look up the model's function in the table of `paper` and call it, and
``generic`` engines serve any PyMC model. For kernels with missing rows, `completions` fits once per
draw of the kernels. What a paper's function returns (`result`) becomes draws in `independent` or
chains in `chains`; `convergence` judges them, and `provenance` says of which model they are.
"""

from .independent import lean_tree
from .progress import track
from .result import with_group
from .shared_settings import quiet_sampler
from .tasks import records

__all__ = ["lean_tree", "quiet_sampler", "records", "track", "with_group"]
