"""Import every module of the installed package, which must lie outside the current checkout."""

import pkgutil
import sys
from importlib import import_module
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
# `__main__` is run by the command line, not imported.
for name in names:
    if name != "kernelzoo.__main__":
        import_module(name)
print(f"{len(names)} modules of kernelzoo imported outside the checkout")
