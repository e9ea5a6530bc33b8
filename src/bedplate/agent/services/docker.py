"""Docker's bridge goes with Docker: the daemon makes `docker0` when it starts, and leaves it behind when it ends.

In: steps for the service `docker`; every other service goes to the back end behind it. Out: where the link was not
there before the agent first started the daemon, it is removed when the service is not wanted on this node any more.
`memory` is a file that remembers it over restarts. A link that was there, that something is attached to, or that is not
a bridge, stays. In a sandbox nothing is done: the machine's links are not the sandbox's.
"""

from __future__ import annotations

import contextlib
import os

from bedplate.agent.commands import Run, run
from bedplate.agent.files import Root
from bedplate.agent.services import Services
from bedplate.agent.services.passing import Passing
from bedplate.core.logging import get_logger

__all__ = ["Bridged"]

_LOG = get_logger("agent.docker")
_DOCKER = "docker"
_LINK = "docker0"
_LINKS = "/sys/class/net"
_IP_S = 30.0


class Bridged(Passing):
    """The services of a node, with the link of Docker looked after."""

    def __init__(self, services: Services, root: Root, memory: str, run: Run = run, links: str = _LINKS) -> None:
        super().__init__(services)
        self._root, self._memory, self._run = root, memory, run
        self._place = os.path.join(links, _LINK)

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        if name == _DOCKER:
            self._remember()
        return await super().start(name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        if name == _DOCKER:
            self._remember()
        return await super().restart(name, timeout_s)

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        why = await super().retire(name, timeout_s)
        if name != _DOCKER or why or not self._is_ours():
            return why
        if self._is_idle():
            ended = await self._run(["ip", "link", "delete", _LINK, "type", "bridge"], timeout_s=_IP_S)
            if not ended.is_good:
                # The daemon is gone, which is what was asked for; the next time the role goes it is tried again.
                _LOG.warning("agent.docker.link_stays", link=_LINK, error=ended.reason)
                return None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._memory)
        return None

    def _remember(self) -> None:
        """Note, before the daemon starts, that its link is not there yet."""
        if self._root.is_machine and not os.path.exists(self._place):
            # A full disk must not keep the daemon from starting.
            with contextlib.suppress(OSError), open(self._memory, "w"):
                pass

    def _is_ours(self) -> bool:
        return os.path.exists(self._memory)

    def _is_idle(self) -> bool:
        """Whether the link is a bridge that nothing is attached to."""
        try:
            return os.listdir(os.path.join(self._place, "brif")) == []
        except OSError:
            return False
