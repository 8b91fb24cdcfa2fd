"""Check of Laplace: the standard deviations are those of the inverse Hessian at the mode."""

from dataclasses import dataclass

import numpy as np

from .case import Case, silent
from .findings import Finding, passed_if
from .modes import peak_of

__all__ = ["Curvature"]

# Largest relative error of standard deviations that differences explain.
_SAME = 1e-3


@dataclass(frozen=True)
class Curvature:
    """Standard deviations of the Gaussian against a Hessian by other differences."""

    name = "curvature"
    measures = "largest relative error of the Gaussian's standard deviations"

    def __call__(self, case: Case) -> Finding:
        """Difference the gradient at four points a coordinate."""
        assert case.engine is not None
        with silent():
            peak = peak_of(case.engine, case)
            sd = case.fit(draws=25)["variational"]["sd"].to_numpy()
        step = 1e-3
        hessian = np.empty((len(peak.x), len(peak.x)))
        for i, unit in enumerate(np.eye(len(peak.x))):
            near, far = (
                (peak.density(peak.x + h * unit)[1] - peak.density(peak.x - h * unit)[1]) / (2 * h)
                for h in (step, 2 * step)
            )
            hessian[i] = (4 * near - far) / 3
        precision = -(hessian + hessian.T) / 2
        own = np.sqrt(np.diagonal(np.linalg.inv(precision)))
        worst = float(np.max(np.abs(sd / own - 1)))
        outcome = passed_if(worst <= _SAME)
        message = f"{len(sd)} coordinates"
        return Finding(self.name, self.measures, outcome, message, worst, _SAME, decisive=False)
