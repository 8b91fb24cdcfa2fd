"""What ``import kernelzoo`` loads beside what PyMC and ArviZ load anyway."""

import subprocess
import sys

import pytest

# What a session that only declares and fits a model does without, and what takes long to import.
NOT_BY_ITSELF = (
    *("sklearn", "joblib", "pooch", "requests", "piqp", "h5netcdf", "h5py", "zarr", "numba"),
    # ArviZ registers these two without loading them; their inner modules tell.
    *("jax._src", "numpyro.infer"),
    *("nutpie", "pymc_extras"),
    *("kernelzoo.estimators", "studies", "benchmarks"),
    "kernelzoo.__main__",
    *("kernelzoo.models.operations.linker_jax", "kernelzoo.models.operations.linker_numba"),
)
SCRIPT = "import sys, pymc, arviz; print(*sys.modules); import kernelzoo; print(*sys.modules)"


@pytest.fixture(scope="module")
def loaded() -> list[set[str]]:
    """Modules after PyMC and ArviZ, and after kernelzoo, which imports both anyway."""
    command = [sys.executable, "-P", "-c", SCRIPT]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [set(line.split()) for line in printed.stdout.splitlines()]


@pytest.mark.parametrize("module", NOT_BY_ITSELF)
def test_import_leaves_alone_what_few_need(module, loaded):
    _, of_kernelzoo = loaded
    assert "kernelzoo.inference" in of_kernelzoo
    assert module not in of_kernelzoo


def test_import_adds_few_packages_to_those_of_pymc_and_arviz(loaded):
    before, of_kernelzoo = loaded
    added = {name.partition(".")[0] for name in of_kernelzoo - before}
    libraries = added - sys.stdlib_module_names - {"kernelzoo"}
    public = {name for name in libraries if not name.startswith("_")}
    assert public <= {"narwhals", "wrapt"}
