"""Timings beside the BLAS calls an engine needs, mixing, and held-out scores."""

from . import completion, mixing, scores, speed

BENCHMARKS = {
    "speed": speed.run,
    "mixing": mixing.run,
    "scores": scores.run,
    "completion": completion.run,
}
