"""What health checks say on simulated nodes: values that move, and a fault now and then, on a schedule.

In: a node's number, a check's name, the time. Out: PASS or FAIL, a value where the check measures one, and a word on
it. Pure: the same question has the same answer, so that a history can be made for the past as well.
"""

from __future__ import annotations

import math
import zlib
from typing import Literal, NamedTuple

__all__ = ["DISK", "GPU", "LOAD", "NTP", "Reading", "read"]

DISK, LOAD, GPU, NTP = "disk-space", "load", "gpu-temperature", "ntp"
MINUTE_S = 60.0


class Reading(NamedTuple):
    """What a check said."""

    status: Literal["PASS", "FAIL"]
    value: float | None = None
    info: str = ""


def read(node: int, check: str, now_s: float) -> Reading:
    """What a check says on a node at a time. Checks that are not known here pass or fail without a value."""
    measure = _MEASURES.get(check)
    return measure(node, now_s) if measure is not None else _service(node, check, now_s)


def _disk(node: int, now_s: float) -> Reading:
    """Fills slowly; on every fifth node until the check fails, and the disk is cleaned up."""
    fill = _phase(now_s, 20 * MINUTE_S, node)
    full = 94.0 if node % 5 == 3 else 70.0
    used = round(45.0 + (full - 45.0) * min(1.0, fill * 1.2) + _noise(node, DISK, now_s, 0.3), 1)
    return _judged(used, 90.0, "%", "of the fullest file system is used")


def _load(node: int, now_s: float) -> Reading:
    wave = 0.5 + 0.5 * math.sin(2 * math.pi * _phase(now_s, 15 * MINUTE_S, node))
    return _judged(round(8 + 50 * wave + _noise(node, LOAD, now_s, 6.0), 1), 128.0, "", "processes want to run")


def _gpu(node: int, now_s: float) -> Reading:
    """A fan stands still for one minute and a half of every ten, on every third node."""
    wave = math.sin(2 * math.pi * _phase(now_s, 7 * MINUTE_S, node))
    is_hot = node % 3 == 2 and _phase(now_s, 10 * MINUTE_S, node) > 0.85
    degrees = round(62 + 8 * wave + (28 if is_hot else 0) + _noise(node, GPU, now_s, 1.5), 1)
    return _judged(degrees, 85.0, " degrees", "on the hottest GPU")


def _ntp(node: int, now_s: float) -> Reading:
    return _judged(round(abs(3 + _noise(node, NTP, now_s, 6.0)), 2), 100.0, " ms", "off")


_MEASURES = {DISK: _disk, LOAD: _load, GPU: _gpu, NTP: _ntp}


def _service(node: int, check: str, now_s: float) -> Reading:
    """Something does not answer for two minutes of every half hour, on every tenth node."""
    if _share(check, node // 10) < 0.3 and node % 10 == 7 and _phase(now_s, 30 * MINUTE_S, node) > 0.93:
        return Reading("FAIL", info="no answer")
    return Reading("PASS")


def _judged(value: float, limit: float, unit: str, about: str) -> Reading:
    if value < limit:
        return Reading("PASS", value)
    return Reading("FAIL", value, f"{value:g}{unit} {about}, {limit:g} is the limit")


def _phase(now_s: float, period_s: float, node: int) -> float:
    """Where in its period a node is, from 0 to 1; each node begins elsewhere."""
    return (now_s / period_s + _share("phase", node)) % 1.0


def _noise(node: int, check: str, now_s: float, most: float) -> float:
    return (2 * _share(f"{check} {now_s:.0f}", node) - 1) * most


def _share(word: str, number: int) -> float:
    """A number from 0 to 1 that looks like chance."""
    return zlib.crc32(f"{word} {number}".encode()) / 2**32
