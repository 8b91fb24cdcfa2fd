"""Which compiler a graph is worth.

numba takes seconds to a minute to compile a graph, and evaluates it ten times as fast as Python
does node by node, through NumPy. So a graph that is evaluated some thousand times is left to
Python, and one that a sampler follows to numba, PyTensor's default.
"""

from pytensor.compile.mode import Mode

__all__ = ["python_mode"]


def python_mode() -> Mode:
    """Make the mode that compiles nothing: NumPy evaluates the graph node by node.

    Without fusion: what is fused is a loop over elements, slow where no compiler takes it.
    """
    return Mode(linker="py", optimizer="fast_run").excluding("fusion")
