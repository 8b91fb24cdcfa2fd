"""Name under which the variational algorithms know their answer."""

from ..answers import VariationalAnswer

__all__ = ["VariationalAnswer"]
