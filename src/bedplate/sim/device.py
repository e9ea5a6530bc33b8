"""One simulated machine: what `api.steps` orders, done in memory.

In: steps, and the desired state they come from. Out: files in a dictionary, services that run or do not, and what the
checks say. A configuration test, or any other step, fails where the test that made the machine says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bedplate.api import headapi
from bedplate.api.desired import Desired, File, merged
from bedplate.api.steps import Failed, Step
from bedplate.sim import checks

__all__ = ["Device", "Refusal", "nothing_fails"]

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
            if check.name == checks.GPU and not self.has_gpus:
                continue
            reading = checks.read(self.number, check.name, now_s)
            readings.append(
                headapi.Result(check=check.name, status=reading.status, value=reading.value, info=reading.info)
            )
        return readings
