"""Import every module of the installed package, which must lie outside the current checkout."""

import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import kernelzoo

home = Path(kernelzoo.__file__).resolve()
assert home.is_relative_to(Path(sys.prefix).resolve()), f"kernelzoo is imported from {home.parent}"


def fail(name: str) -> None:
    """Let no package that cannot be imported go unnoticed."""
    raise ImportError(f"{name} cannot be imported")


names = [
    module.name for module in pkgutil.walk_packages(kernelzoo.__path__, "kernelzoo.", onerror=fail)
]
# `__main__` is run by the command line, not imported; the others are imported with a package that
# comes with an extra.
left_out = {"kernelzoo.__main__"}
if find_spec("jax") is None:
    left_out |= {name for name in names if name.endswith("_jax")}
assert left_out <= set(names), left_out
for name in names:
    if name not in left_out:
        import_module(name)
print(f"{len(names)} modules of kernelzoo imported outside the checkout")
