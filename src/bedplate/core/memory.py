"""What a program with ten thousand objects asks of the garbage collector and of the C library's memory.

In: nothing. Out: nothing but time. Measured: a list of 10,000 devices took twice as long when a collection fell into
it; a fifth of its time went by while pages came from the machine that the list before had given back; a quarter of the
time of a commit of all of them went into collections that found nothing.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["keep", "undisturbed"]

_KEPT_BYTES = 16 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep() -> None:
    """What is alive now stays: collections to come pass over it. What is freed from now on stays too, up to a limit: it
    is soon wanted again."""
    import ctypes  # not where a single line of a script is all that runs

    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """No collection during a piece of work that makes many objects, none of them garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
