"""Engines of `MultinomialProbit`, and predictions."""

from functools import partial

from ...models.multinomial_probit import MultinomialProbit
from ..engine.paper import Algorithm, Paper
from ..new_objects import predict_classes
from .gibbs import multinomial_probit_steps, unknown_rule
from .held_out import held_out
from .predict import identified_quantities, predicted_probabilities, probabilities_of
from .vb import fit_multinomial_probit, unsupported
from .vb_schemes import variational_probit

__all__ = ["PROBIT", "fit_multinomial_probit"]


PROBIT = Paper(
    MultinomialProbit,
    gibbs=Algorithm(multinomial_probit_steps, unless=unknown_rule),
    vb=Algorithm(variational_probit, unless=unsupported),
    predict=partial(predict_classes, probabilities_of),
    identified=identified_quantities,
    identified_reads=["W"],
    predicted=predicted_probabilities,
    scale="upsilon",
    held_out=held_out,
)
