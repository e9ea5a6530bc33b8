"""FNV-1a (32 bits): the checksum of a store file.

In: bytes, and the sum of what came before them. Out: the sum. The work is done by `libstoresum.so` (crates/storesum),
which lies beside this module or in the environment's `lib`; without it by Python, a hundred times slower, and the log
says so once. The native call does not hold the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from pathlib import Path

from bedplate.core.logging import get_logger

__all__ = ["BASIS", "LIBRARY", "fnv1a32", "is_native"]

BASIS = 0x811C9DC5
LIBRARY = "libstoresum.so"
_PRIME, _MASK = 0x01000193, 0xFFFFFFFF

log = get_logger("ipam.node.checksum")


def slow(data: bytes, start: int = BASIS) -> int:
    """The same in Python."""
    total = start
    for byte in data:
        total = ((total ^ byte) * _PRIME) & _MASK
    return total


@functools.cache
def _native() -> Callable[[bytes, int, int], int] | None:
    for folder in (Path(__file__).parent, Path(sys.prefix) / "lib"):
        path = folder / LIBRARY
        if not path.exists():
            continue
        try:
            function = ctypes.CDLL(str(path)).storesum_fnv1a32
        except (OSError, AttributeError) as error:
            log.warning("checksum.library_unusable", path=str(path), reason=str(error))
            continue
        function.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32)
        function.restype = ctypes.c_uint32
        checksum: Callable[[bytes, int, int], int] = function
        return checksum
    log.warning("checksum.slow", reason=f"{LIBRARY} was not found", hint="`make` builds it")
    return None


def is_native() -> bool:
    """Whether the library does the work."""
    return _native() is not None


def fnv1a32(data: bytes, start: int = BASIS) -> int:
    """The sum of `data`, going on from `start`."""
    native = _native()
    return slow(data, start) if native is None else native(data, len(data), start)
