"""nginx, and on machines that have none the agent's own balancer, which takes the same file (`services/balancer`).

In: steps for the service `nginx`, its package, and the test of its file; everything else goes to the back ends behind.
Out: where there is no program nginx, a unit of that name that runs the balancer, below `/run`: it is written by the
agent before each start, and the package's unit counts again as soon as there is one. A package that cannot be
installed is tried again by every look at packages; when it has come, nginx takes over. In a sandbox nothing of this is
done: the machine's ports are not the sandbox's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bedplate.agent.commands import Ended, Run, run
from bedplate.agent.files import Root
from bedplate.agent.packages import Packages
from bedplate.agent.placement import own_home
from bedplate.agent.services import Services, Status, unit
from bedplate.agent.services.passing import Passing
from bedplate.core.logging import get_logger

__all__ = ["NGINX", "Proxied", "StandIn", "WithBalancer", "trials"]

_LOG = get_logger("agent.balancer")
NGINX = "nginx"
_CONF = "/etc/nginx/nginx.conf"
_UNIT = "nginx.service"
_BALANCER = str(Path(__file__).with_name("balancer.py"))
_TEXT = """\
# Of the Bedplate agent: this machine has no nginx.
[Unit]
Description=Balancer of the Bedplate agent, in the place of nginx
After=network-online.target

[Service]
Type=notify
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
LimitNOFILE=65536
"""


class StandIn:
    """Whether the balancer stands in for nginx on a machine. `which` finds programs."""

    def __init__(self, root: Root, which: Callable[[str], str | None] = shutil.which) -> None:
        self._root = root
        self._which = which
        self.why = ""
        """Why the package could not be installed, as far as this agent has tried."""

    @property
    def is_needed(self) -> bool:
        return self._root.is_machine and self._which(NGINX) is None

    @property
    def has_unit(self) -> bool:
        return self._root.is_machine and os.path.exists(self._place)

    @property
    def _place(self) -> str:
        return self._root.place(f"{unit.transient(self._root)}/{_UNIT}")

    def write(self) -> bool:
        """Write the unit; whether it was another one before."""
        place, text = self._place, _TEXT.format(command=" ".join(self.command(self._root.place(_CONF))))
        with contextlib.suppress(OSError), open(place) as stream:
            if stream.read() == text:
                return False
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(f"{place}.new", "w") as stream:
            stream.write(text)
        os.rename(f"{place}.new", place)
        return True

    def remove(self) -> bool:
        """Take the unit away; whether there was one."""
        if not self.has_unit:
            return False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._place)
        return True

    def command(self, *words: str) -> list[str]:
        """The balancer with these words."""
        return [_lasting(sys.executable), "-I", "-S", _lasting(_BALANCER), *words]


def _lasting(path: str) -> str:
    """A path by which a file is also found once the agent has replaced itself by another version."""
    home = own_home()
    if home is None or not path.startswith(f"{home}/"):
        return path
    return os.path.join(os.path.dirname(home), "current", os.path.relpath(path, home))


class Proxied(Passing):
    """The services of a node, nginx or what stands in for it among them."""

    def __init__(self, services: Services, stand_in: StandIn) -> None:
        super().__init__(services)
        self._stand_in = stand_in

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        if name == NGINX:
            why, _ = await self._prepared(timeout_s)
            if why:
                return why
        return await super().start(name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        if name == NGINX:
            why, _ = await self._prepared(timeout_s)
            if why:
                return why
        return await super().restart(name, timeout_s)

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        if name == NGINX:
            why, is_other = await self._prepared(timeout_s)
            if why or is_other:
                return why or await super().start(name, timeout_s)
        return await super().reload(name, timeout_s)

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        why = await super().retire(name, timeout_s)
        if name == NGINX and not why:
            self._stand_in.why = ""
            if self._stand_in.remove():
                await super().reload_units()
        return why

    async def enable(self, name: str) -> str | None:
        """The agent starts the balancer with the machine."""
        return None if self._is_own(name) else await super().enable(name)

    async def is_enabled(self, name: str) -> bool:
        return self._is_own(name) or await super().is_enabled(name)

    async def status(self, names: Iterable[str]) -> Mapping[str, Status]:
        statuses = dict(await super().status(names))
        if NGINX not in statuses or not self._stand_in.has_unit:
            return statuses
        present = statuses[NGINX]
        if not self._stand_in.is_needed:
            # What is not as it should be is started again, by the next look.
            why = "nginx is installed now, and takes over from the agent's balancer"
            statuses[NGINX] = present._replace(condition="stopped", instance="", why=why)
        elif present.is_up:
            statuses[NGINX] = present._replace(why=_words(self._stand_in.why))
        return statuses

    def _is_own(self, name: str) -> bool:
        return name == NGINX and self._stand_in.is_needed

    async def _prepared(self, timeout_s: float) -> tuple[str | None, bool]:
        """See that the unit is of what runs now: why not, and whether another program ran before."""
        if self._stand_in.is_needed:
            is_other = not self._stand_in.has_unit
            try:
                is_new = self._stand_in.write()
            except OSError as err:
                return f"the unit of the balancer cannot be written: {(err.strerror or str(err)).lower()}", False
            if is_other:
                _LOG.warning("agent.balancer.stands_in", service=NGINX, error=self._stand_in.why or "there is no nginx")
            return (await super().reload_units() if is_new else None), False
        if not self._stand_in.has_unit:
            return None, False
        why = await super().stop(NGINX, timeout_s)
        if why:
            return why, False
        self._stand_in.remove()
        return await super().reload_units(), True


def _words(why: str) -> str:
    return f"the agent's own balancer, in the place of nginx: {why or 'it is not installed'}"


class WithBalancer:
    """Packages of a node: without nginx a machine does with the balancer."""

    def __init__(self, packages: Packages, stand_in: StandIn) -> None:
        self._packages = packages
        self._stand_in = stand_in

    @property
    def family(self) -> str:
        """Which kind of repository it reads."""
        return str(getattr(self._packages, "family", ""))

    async def installed(self, names: Iterable[str]) -> set[str]:
        """With nginx while the balancer stands in for it."""
        asked = set(names)
        present = await self._packages.installed(asked)
        return present | {NGINX} if NGINX in asked and self._stands_in else present

    async def install(self, name: str) -> str | None:
        why = await self._packages.install(name)
        if not why or name != NGINX or not self._stand_in.is_needed:
            return why
        self._stand_in.why = why
        return None

    async def again(self) -> None:
        """Try once more what could not be installed. Services find out by themselves that it has come."""
        if self._stands_in:
            self._stand_in.why = await self._packages.install(NGINX) or ""

    @property
    def _stands_in(self) -> bool:
        return self._stand_in.is_needed and self._stand_in.has_unit

    async def remove(self, name: str) -> str | None:
        return await self._packages.remove(name)

    async def upgrade(self, name: str, version: str, *, only_fetch: bool = False) -> str | None:
        return await self._packages.upgrade(name, version, only_fetch=only_fetch)


def trials(stand_in: StandIn, run: Run = run) -> Run:
    """Commands, of which `nginx -t` is the balancer's own test where that stands in."""

    async def ran(
        command: Sequence[str], *, timeout_s: float = 60.0, environ: Mapping[str, str] | None = None
    ) -> Ended:
        if command[0] == NGINX and stand_in.is_needed:
            command = stand_in.command("--test", command[-1])
        return await run(command, timeout_s=timeout_s, environ=environ)

    return ran
