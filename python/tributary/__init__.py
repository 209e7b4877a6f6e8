"""Tributary sums tensors inside the network."""

from tributary._core import __version__

__all__ = ["__version__"]
