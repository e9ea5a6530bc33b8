"""One simulated machine: what `api.steps` orders, done in memory, and what its health checks say.

In: steps, and the desired state they come from; a check's name and the time. Out: files in a dictionary, services that
run or do not, and for each check PASS or FAIL, with a value that moves where it measures one, and a fault now and then.
`read_check` is pure: the same question has the same answer, so that a history can be made for the past as well. A
configuration test, or any other step, fails where the test that made the machine says so.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from bedplate.api import headapi
from bedplate.api.desired import Desired, File, merged
from bedplate.api.steps import Failed, Step

__all__ = ["DISK", "GPU", "LOAD", "NTP", "Device", "Reading", "Refusal", "nothing_fails", "read_check"]

DISK, LOAD, GPU, NTP = "disk-space", "load", "gpu-temperature", "ntp"
MINUTE_S = 60.0
_GPU_LABEL = "nvidia.com/gpu.present"

Refusal = Callable[[str, Step, File | None], str | None]
"""Why a step fails on a node, or None: how tests and demonstrations let a disk be full or a configuration be wrong."""


def nothing_fails(node: str, step: Step, file: File | None) -> str | None:
    return None


@dataclass(slots=True)
class Device:
    """One machine: its files by path, its services by name, and the state it holds."""

    name: str
    number: int
    files: dict[str, str] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)
    held: Desired | None = None
    etag: str = ""
    applied: int = 0
    failed: tuple[Failed, ...] = ()
    measured_s: dict[str, float] = field(default_factory=dict)

    @property
    def has_gpus(self) -> bool:
        return self.held is not None and _GPU_LABEL in self.held.labels

    def do(self, step: Step, desired: Desired, refuse: Refusal) -> str | None:
        """Carry out one step; None, or why it failed."""
        file = (
            next((file_ for file_ in desired.files if file_.path == step.name), None) if step.kind == "file" else None
        )
        why = refuse(self.name, step, file)
        if why is None and step.kind == "file":
            self._touch(step, file)
        elif why is None and step.kind == "service":
            self.services[step.name] = "stopped" if step.verb == "stop" else "running"
        return why

    def _touch(self, step: Step, file: File | None) -> None:
        present = self.files.get(step.name, "")
        if step.verb == "write":
            assert file is not None, "the step was made of it"
            self.files[step.name] = merged(present, file.content) if file.block else file.content
        elif step.verb == "remove":
            # What others wrote around a block stays.
            rest = merged(present, None) if self._has_block(step.name) else ""
            self.files.pop(step.name, None)
            if rest:
                self.files[step.name] = rest

    def _has_block(self, path: str) -> bool:
        return self.held is not None and any(file.path == path and file.block for file in self.held.files)

    def readings(self, now_s: float) -> list[headapi.Result]:
        """What the checks that are due say."""
        readings = []
        for check in self.held.checks if self.held is not None else ():
            if now_s - self.measured_s.get(check.name, -check.interval_s) < check.interval_s:
                continue
            self.measured_s[check.name] = now_s
            if check.name == GPU and not self.has_gpus:
                continue
            reading = read_check(self.number, check.name, now_s)
            readings.append(
                headapi.Result(check=check.name, status=reading.status, value=reading.value, info=reading.info)
            )
        return readings


class Reading(NamedTuple):
    """What a check said."""

    status: Literal["PASS", "FAIL"]
    value: float | None = None
    info: str = ""


def read_check(node: int, check: str, now_s: float) -> Reading:
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
    return _judged(round(8 + 50 * wave + _noise(node, LOAD, now_s, 6.0), 1), 128.0, "", "runnable processes")


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
