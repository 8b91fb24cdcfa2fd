"""Gibbs moves of a 0/1 selection of kernels, with the regression weights integrated out.

These must be redrawn right after the move, because it ignores their values.
"""

from collections.abc import Callable

import numpy as np


def update_selection(
    beta: np.ndarray,
    log_evidence: Callable[[np.ndarray], float],
    log_odds: np.ndarray,
    rng: np.random.Generator,
    block: int,
    empty: bool = True,
    moves: int = 1,
) -> tuple[np.ndarray, int]:
    """Redraw a 0/1 selection (S,), `block` kernels at a time; also count the evidences computed.

    The kernels are shuffled and split into blocks; each block is drawn from all its 2^block states
    given the others, `moves` times. A block of 0 keeps the selection. One evidence for each of
    about 2^block S / block states per move, but none twice.
    """
    known: dict[bytes, float] = {}

    def log_density(state: np.ndarray) -> float:
        key = state.tobytes()
        if key not in known:
            possible = empty or state.any()
            known[key] = (
                float(log_odds @ state) + log_evidence(state.astype(float)) if possible else -np.inf
            )
        return known[key]

    beta = np.array(beta, dtype=np.int64)
    for _ in range(moves if block else 0):
        order = rng.permutation(len(beta))
        for start in range(0, len(beta), block):
            chosen = order[start : start + block]
            codes = np.arange(2 ** len(chosen))
            states = np.tile(beta, (len(codes), 1))
            states[:, chosen] = codes[:, None] >> np.arange(len(chosen)) & 1
            log_p = np.array([log_density(state) for state in states])
            beta = states[np.argmax(log_p + rng.gumbel(size=len(codes)))]
    return beta, len(known)
