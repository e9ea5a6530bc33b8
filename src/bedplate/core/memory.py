"""What stays in memory for good, told to the garbage collector.

A program that has loaded ten thousand objects it keeps would have them looked through again and again: measured, a list
of 10,000 devices took twice as long when a collection fell into it.
"""

from __future__ import annotations

import gc

__all__ = ["keep"]


def keep() -> None:
    """What is alive now stays: collections to come pass over it."""
    gc.collect()
    gc.freeze()
