"""NumPyro's chains in blocks of draws, so that a clock can end them between two blocks."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine import Run

__all__ = ["ChainsInBlocks"]

# Draws in one call of compiled code; the overhead of the call is then a few microseconds a draw.
SIZE = 10


class ChainsInBlocks:
    """A ``chain_method`` of `numpyro.infer.MCMC` that checks the clock after every few draws.

    NumPyro compiles a chain as a whole, and compiled code cannot be interrupted. Here the chains
    take turns, a block of draws each. The draws are the same, and when the time is over, the
    chains' lengths differ by one block at most.

    Parameters
    ----------
    run : Run
        Its clock ends the chains; draws, tune and chains are those of the sampler.

    Notes
    -----
    NumPyro calls it for several chains only. Chains beyond those of the run are left out.
    """

    def __init__(self, run: Run):
        self._run = run

    def __call__(self, single_chain: partial) -> Callable[[Any], tuple[dict[str, Any], None]]:
        """Turn NumPyro's function for a single chain into one that runs all chains."""
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
            # The parts are ordered by chain, then by block.
            rows = np.stack(parts).reshape(len(chains), whole * SIZE, *np.shape(parts[0])[1:])
            return jax.numpy.asarray(rows[:, tune : tune + draws])

        return jax.tree.map(together, *(part for parts in made for part in parts[:whole])), None
