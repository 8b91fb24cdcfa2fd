"""Timings compared with the necessary BLAS calls, memory, mixing, and held-out scores."""

from . import (
    cluster,
    cold,
    completion,
    composite_kernel,
    growing,
    held_out,
    kernel_features,
    many_objects,
    memory,
    missing,
    mixing,
    mutual_kernel,
    recommendation,
    scores,
    speed,
)

BENCHMARKS = {
    "cluster": cluster.run,
    "cold": cold.run,
    "speed": speed.run,
    "paper": speed.run_paper,
    "mixing": mixing.run,
    "scores": scores.run,
    "completion": completion.run,
    "memory": memory.run,
    "composite": composite_kernel.run,
    "many": many_objects.run,
    "growing": growing.run,
    "features": kernel_features.run,
    "heldout": held_out.run,
    "missing": missing.run,
    "mutual": mutual_kernel.run,
    "recommend": recommendation.run,
}
