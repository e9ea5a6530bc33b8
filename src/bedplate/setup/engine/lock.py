"""One run of a setup tool at a time.

In: the state folder. Out: a lock of the kernel on `<state>/lock`, which goes with the process that has it, however that
one ends. The file says who has it, for the one that is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bedplate.core import errors

__all__ = ["Holder", "hold", "holder", "refuse_another"]

FILE = "lock"
_ATTEMPTS = 10
_APART_S = 0.02
"""Whoever asks for the holder has the lock for a moment: that must not keep a run from beginning."""


class Holder(msgspec.Struct, frozen=True):
    """Who runs: the process, since when (local time), and what it does."""

    pid: int
    since: str
    what: str
    cluster: str = ""


def holder(state: Path) -> Holder | None:
    """Who runs now; None: nobody. Raises `Invalid` where that cannot be seen."""
    try:
        descriptor = os.open(state / FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise errors.Invalid(f"the lock {state / FILE} cannot be read: {err.strerror}", hint="run as root") from err
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            return msgspec.json.decode(os.pread(descriptor, 65536, 0), type=Holder)
        except (msgspec.MsgspecError, OSError):
            return Holder(0, "", "a run that is just beginning")
    else:
        return None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold(state: Path, holder: Holder) -> Iterator[None]:
    """Hold the state folder. Raises `Unavailable` with its holder while another run has it."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not inherited: a shell that a stage starts must not keep the lock after this process.
        descriptor = os.open(state / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as err:
        raise errors.Invalid(
            f"the state folder {state} cannot be written: {err.strerror}", hint="run as root, or give --state DIR"
        ) from err
    try:
        if not _is_taken(descriptor):
            raise _running(_described(descriptor))
        _replace(descriptor, msgspec.json.encode(holder))
        yield
        _replace(descriptor, b"")
    finally:
        os.close(descriptor)


def refuse_another(state: Path, cluster: str) -> None:
    """Raises `Unavailable` with its holder while another process is at that cluster."""
    present = holder(state)
    if present is not None and present.cluster in ("", cluster):
        raise _running(_told(present))


def _running(who: str) -> errors.Unavailable:
    return errors.Unavailable(f"another setup is running: {who}", hint="wait until it has ended")


def _is_taken(descriptor: int) -> bool:
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_APART_S if attempt + 1 < _ATTEMPTS else 0)
        else:
            return True
    return False


def _described(descriptor: int) -> str:
    try:
        holder = msgspec.json.decode(os.pread(descriptor, 65536, 0), type=Holder)
    except (msgspec.MsgspecError, OSError):
        return "its holder has not said who it is yet"
    return _told(holder)


def _told(holder: Holder) -> str:
    return f"{holder.what}, process {holder.pid}, since {holder.since}" if holder.pid else holder.what


def _replace(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)
