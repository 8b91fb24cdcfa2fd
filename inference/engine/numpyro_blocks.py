"""NumPyro's chains in blocks of draws, which a clock can end between two blocks."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine import Run

__all__ = ["ChainsInBlocks"]

# Draws that one call of compiled code makes: what it costs to call is then a few microseconds each.
SIZE = 10


class ChainsInBlocks:
    """A ``chain_method`` of `numpyro.infer.MCMC` that looks at the clock after every few draws.

    NumPyro compiles a chain as a whole, and nothing ends compiled code. Here the chains go on by
    turns, a block of draws each: they have the same draws as otherwise, and when the time is over
    all have equally many, but for one block.

    Parameters
    ----------
    run : Run
        Its clock ends the chains; draws, tune and chains are those of the sampler.

    Notes
    -----
    NumPyro calls it where there are several chains. More than the run has are left out.
    """

    def __init__(self, run: Run):
        self._run = run

    def __call__(self, single_chain: partial) -> Callable[[Any], tuple[dict[str, Any], None]]:
        """Make the function that runs all chains; NumPyro gives the one that runs a single one."""
        sampler = single_chain.func.__self__.sampler  # type: ignore[attr-defined]
        return partial(self._chains, sampler, single_chain.keywords["collect_fields"])

    def _chains(
        self, sampler: Any, fields: tuple[str, ...], arguments: Any
    ) -> tuple[dict[str, Any], None]:
        import jax

        keys, _, starts = arguments
        tune, draws, chains = self._run.tune, self._run.draws, range(self._run.chains)
        states = [
            sampler.init(keys[chain], tune, jax.tree.map(lambda x, i=chain: x[i], starts))
            for chain in chains
        ]

        def draw(state: Any, _: None) -> tuple[Any, dict[str, Any]]:
            state = sampler.sample(state, (), {})
            return state, {field: attrgetter(field)(state) for field in fields}

        block = jax.jit(partial(jax.lax.scan, draw, xs=None, length=SIZE))
        made: list[list[Any]] = [[] for _ in chains]
        blocks = -(-(tune + draws) // SIZE)
        with (
            self._run.track(blocks * SIZE * len(chains), "NUTS") as bar,
            suppress(KeyboardInterrupt),
        ):
            for _ in range(blocks):
                for chain in chains:
                    states[chain], values = block(states[chain])
                    made[chain].append(jax.tree.map(np.asarray, values))
                    bar.advance(SIZE)
        whole = min(map(len, made))
        if whole * SIZE <= tune:
            raise ValueError("The chains have no draw after tuning.")

        def together(*parts: NDArray) -> Any:
            # Blocks of one chain after the other.
            rows = np.stack(parts).reshape(len(chains), whole * SIZE, *np.shape(parts[0])[1:])
            return jax.numpy.asarray(rows[:, tune : tune + draws])

        return jax.tree.map(together, *(part for parts in made for part in parts[:whole])), None
