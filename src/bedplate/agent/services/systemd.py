"""Services of a machine whose PID 1 is systemd.

In: names. Out: `systemctl` is run; None, or what it said. A unit that the agent enabled is disabled again when the head
does not want it any more; `apply` remembers which.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from bedplate.agent.commands import Ended, Run, run
from bedplate.agent.services import Condition, Status

__all__ = ["Systemd", "is_pid_1"]

_SHOWN = ("Id", "LoadState", "ActiveState", "SubState", "MainPID", "InvocationID", "NRestarts", "Result")
_CONDITIONS: Mapping[str, Condition] = {
    "active": "running",
    "reloading": "running",
    "activating": "starting",
    "deactivating": "running",
    "inactive": "stopped",
    "failed": "failed",
}


def is_pid_1(folder: str = "/run/systemd/system") -> bool:
    """Whether systemd runs this machine: as its own `sd_booted` finds out."""
    return os.path.isdir(folder)


class Systemd:
    """`run` runs commands."""

    def __init__(self, run: Run = run) -> None:
        self._run = run

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        # A unit that failed too often is refused until somebody says that it was repaired.
        await self._ctl("reset-failed", name, timeout_s=timeout_s)
        return await self._told("start", name, timeout_s)

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._told("stop", name, timeout_s, absent_is_good=True)

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self.stop(name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        await self._ctl("reset-failed", name, timeout_s=timeout_s)
        return await self._told("restart", name, timeout_s)

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._told("reload-or-restart", name, timeout_s)

    async def enable(self, name: str) -> str | None:
        return await self._told("enable", name, 30.0)

    async def disable(self, name: str) -> str | None:
        return await self._told("disable", name, 30.0, absent_is_good=True)

    async def is_enabled(self, name: str) -> bool:
        return (await self._ctl("is-enabled", name, timeout_s=30.0)).is_good

    async def reload_units(self) -> str | None:
        ended = await self._run(["systemctl", "daemon-reload"], timeout_s=90.0)
        return ended.reason or None

    async def status(self, names: Iterable[str]) -> Mapping[str, Status]:
        services = list(names)
        if not services:
            return {}
        units = [f"{name}.service" for name in services]
        ended = await self._run(["systemctl", "show", f"--property={','.join(_SHOWN)}", "--", *units], timeout_s=30.0)
        if not ended.is_good:
            return {name: Status(name, "unknown", why=ended.reason) for name in services}
        blocks = [_facts(block) for block in ended.text.strip().split("\n\n")]
        if len(blocks) != len(services):
            return {name: Status(name, "unknown", why="systemctl show gave no result") for name in services}
        return {name: _status(name, facts) for name, facts in zip(services, blocks, strict=True)}

    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        """systemd orders by itself."""
        return names

    async def _told(self, verb: str, name: str, timeout_s: float, *, absent_is_good: bool = False) -> str | None:
        ended = await self._ctl(verb, name, timeout_s=timeout_s)
        if ended.is_good or (absent_is_good and _is_absent(ended)):
            return None
        return ended.reason

    async def _ctl(self, verb: str, name: str, *, timeout_s: float) -> Ended:
        return await self._run(["systemctl", "--no-ask-password", verb, "--", f"{name}.service"], timeout_s=timeout_s)


def _is_absent(ended: Ended) -> bool:
    return any(word in ended.why for word in ("not loaded", "does not exist", "not found"))


def _facts(block: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in block.splitlines())
    return {key: value for key, _, value in pairs}


def _status(name: str, facts: Mapping[str, str]) -> Status:
    if facts.get("LoadState") in ("not-found", "bad-setting", "error", "masked"):
        return Status(name, "missing", why=f"the unit {name}.service is {facts['LoadState']}")
    condition = _CONDITIONS.get(facts.get("ActiveState", ""), "unknown")
    result = facts.get("Result", "")
    return Status(
        name,
        condition,
        int(facts.get("MainPID") or 0),
        facts.get("InvocationID", ""),
        int(facts.get("NRestarts") or 0),
        "" if result in ("", "success") else result,
    )
