"""Parts that results of all engines are put together from."""

import numpy as np

from kernelzoo.inference.engine.result import trajectory


def test_a_trajectory_has_a_row_for_each_start_and_names_the_best():
    found = trajectory("elbo", [np.array([-3.0, -2.0, -1.5]), np.array([-2.5, -1.0])], best=1)
    np.testing.assert_array_equal(found["elbo"], [[-3.0, -2.0, -1.5], [-2.5, -1.0, np.nan]])
    assert found["iteration"].values.tolist() == [1, 2, 3]
    assert found.attrs["best_start"] == 1
