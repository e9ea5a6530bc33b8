"""Brings container images to this node, as the head asks for it: into the image store that the kubelet uses.

In: an errand with names of images and, where registries ask for one, logins. Out: a line for each image, and why it is
not there. containerd's own client pulls, with the hosts that containerd is configured for. A password is typed into its
prompt: it is in no file, and in no command line that others on the node could read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
from collections.abc import Awaitable, Callable, Sequence

from bedplate.agent.apply import Effects
from bedplate.agent.images import Done
from bedplate.agent.news import cut
from bedplate.api.desired import Errand, Login
from bedplate.api.references import DOCKER_HUB, full_name, registry_of

__all__ = ["Pulls", "command", "login_for", "why_of"]

Tell = Callable[[str], Awaitable[None]]

_HOSTS = "/etc/containerd/certs.d"
_PULL_S = 1800.0
_LONGEST = 64 * 1024


def command(image: str, login: Login | None) -> tuple[str, ...]:
    """What pulls an image; containerd asks for the password of a user who is named without one. Pure."""
    who = ("--user", login.username) if login is not None else ()
    return ("ctr", "-n", "k8s.io", "images", "pull", "--hosts-dir", _HOSTS, *who, full_name(image))


def login_for(image: str, logins: Sequence[Login]) -> Login | None:
    """The login of an image's registry. Pure."""
    registry = registry_of(image)
    names = {registry, "registry-1.docker.io", "index.docker.io"} if registry == DOCKER_HUB else {registry}
    return next((login for login in logins if login.server in names), None)


def why_of(code: int, output: str, login: Login | None) -> str:
    """Why a pull failed, by what it wrote; the password is not repeated. Pure."""
    if code == 0:
        return ""
    if login is not None:
        output = output.replace(login.password, "********")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reasons = [line for line in lines if line.startswith("ctr: ")] or lines
    return reasons[-1].removeprefix("ctr: ") if reasons else f"ctr ended with code {code}"


class Pulls:
    """On the machine that the agent is on."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    async def run(self, work: Errand, tell: Tell) -> Done:
        """Pull every image, one after the other: one that fails does not keep the others away."""
        if not self._effects.root.is_machine:
            return Done(why="a sandbox has no container runtime")
        lines, failed = [], []
        for number, image in enumerate(work.images, start=1):
            await tell(f"pulling {image} ({number}/{len(work.images)})")
            why = await _pull(image, login_for(image, work.logins))
            lines.append(cut(f"{image}: {why or 'pulled'}"))
            failed += [cut(f"{image}: {why}")] if why else []
        if failed:
            return Done(why="; ".join(failed), lines=tuple(lines))
        return Done(text=f"{len(lines)} image{'s' * (len(lines) != 1)} pulled", lines=tuple(lines))


async def _pull(image: str, login: Login | None) -> str:
    """Why the image is not there; empty when it is."""
    # ctr reads a password from a terminal alone, and from the first of its three streams that is one.
    master, slave = pty.openpty()
    try:
        try:
            child = await asyncio.create_subprocess_exec(
                *command(image, login), stdin=slave, stdout=slave, stderr=slave, start_new_session=True
            )
        except OSError as err:
            return f"ctr: {(err.strerror or str(err)).lower()}"
        finally:
            os.close(slave)
        try:
            async with asyncio.timeout(_PULL_S):
                output = await _follow(master, login)
                code = await child.wait()
        except TimeoutError:
            return f"not pulled within {_PULL_S:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if child.returncode is None:
                await child.wait()
    finally:
        os.close(master)
    return why_of(code, output, login)


async def _follow(master: int, login: Login | None) -> str:
    """The end of what the program writes until it closes the terminal; its question for a password is answered."""
    output, is_asked = "", login is None
    while True:
        try:
            chunk = await asyncio.to_thread(os.read, master, 4096)
        except OSError:  # how the end of a terminal shows itself
            return output
        if not chunk:
            return output
        output = (output + chunk.decode(errors="replace"))[-_LONGEST:]
        if not is_asked and login is not None and "Password:" in output:
            is_asked = True
            os.write(master, f"{login.password}\n".encode())
