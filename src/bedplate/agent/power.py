"""Requests to a machine that are carried out once: restart it, reset it, switch it off.

In: the kind of a request, and the services that run. Out: the command of the machine, which ends the agent as well; in
a sandbox its services are stopped, and started again unless it is switched off. `boot_id` tells one run of the machine
from the next: a restart that was asked for is done when it is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bedplate.agent.commands import Run, run
from bedplate.agent.files import Root
from bedplate.agent.services import Services
from bedplate.agent.services.systemd import is_pid_1

__all__ = ["Power", "boot_id"]

_COMMANDS: Mapping[str, tuple[str, ...]] = {"reboot": ("reboot",), "reset": ("reboot", "-f"), "off": ("poweroff",)}
_SYSTEMD: Mapping[str, tuple[str, ...]] = {
    "reboot": ("systemctl", "--no-block", "reboot"),
    "reset": ("systemctl", "reboot", "--force", "--force"),
    "off": ("systemctl", "--no-block", "poweroff"),
}
_TIMEOUT_S = 60.0
_WITH_THE_KERNEL = 3000
"""Ticks: a first process that started within half a minute is the one that the kernel started."""


class Power:
    """Of the machine, or of a sandbox that counts as one."""

    def __init__(self, root: Root, services: Services, run: Run = run, *, has_systemd: bool | None = None) -> None:
        self._root = root
        self._services = services
        self._run = run
        self._has_systemd = is_pid_1() if has_systemd is None else has_systemd

    async def use(self, kind: str, services: Sequence[str]) -> str | None:
        """Carry a request out; None, or why it failed. On a machine there may be nobody left to hear it."""
        if self._root.is_machine:
            commands = _SYSTEMD if self._has_systemd else _COMMANDS
            return (await self._run(commands[kind], timeout_s=_TIMEOUT_S)).reason or None
        failures = [await self._services.stop(name) for name in reversed(services)]
        if kind != "off":
            failures += [await self._services.start(name) for name in services]
        return "; ".join(why for why in failures if why) or None


def boot_id(path: str = "/proc/sys/kernel/random/boot_id", first: str = "/proc/1/stat") -> str:
    """The name of this run of the machine: the kernel's, and where that has been running for longer than the first
    process (a container, a node of a lab), with the start of that one."""
    try:
        with open(path) as stream:
            name = stream.read().strip()
        with open(first) as stream:
            start = stream.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return name if int(start) < _WITH_THE_KERNEL else f"{name}.{start}"
