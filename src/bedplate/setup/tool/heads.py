"""Reaching the head, and where the journals of runs are.

In: the flags. Out: an open backend (as `cmsh` opens one), the state folder, and a refusal on the wrong head node.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from bedplate.core import errors, extras
from bedplate.ui.backend import Backend
from bedplate.ui.cmsh import targets, usersettings

__all__ = ["Reached", "check_standing", "cluster_of", "reach", "sole", "state_folder"]

_SYSTEM = pathlib.Path("/var/lib/bedplate-setup")
_FOLDER = "setup"
_ELSEWHERE = "name another head with --data or --url"


class Reached(NamedTuple):
    """An open backend, and the data folder of its head, where that is on this machine."""

    backend: Backend
    data: pathlib.Path | None


def target(values: Mapping[str, Any]) -> usersettings.Target:
    """Which head the flags, the environment and the user's settings name. Raises `Invalid`."""
    identity = usersettings.Identity(values["token_file"], values["cert"], values["key"], values["cacert"])
    flags = usersettings.Flags(tuple(values["url"]), values["data"], identity)
    return usersettings.choose(flags, os.environ, pathlib.Path.home())


@contextlib.asynccontextmanager
async def reach(values: Mapping[str, Any]) -> AsyncIterator[Reached]:
    """Open the head that the flags name. Raises `Unavailable`, `Invalid`, `Denied`."""
    extras.require("cm-kubernetes-setup", "head")

    def say(text: str) -> None:
        sys.stderr.write(f"cm-kubernetes-setup: {text}\n")

    chosen = target(values)
    async with targets.reach(chosen, say, is_served=bool(values.get("served"))) as reached:
        await reached.backend.catch_up()
        yield Reached(reached.backend, chosen.data)


def cluster_of(values: Mapping[str, Any], backend: Backend, hint: str = "name one with --cluster") -> str:
    """The cluster of the head that --cluster names, or the only one. Raises `Invalid`."""
    return sole(values["cluster"], sorted(backend.tree.mode("kubernetes")), hint=hint)


def sole(given: str | None, names: Sequence[str], action: str = "", hint: str = "name one with --cluster") -> str:
    """The cluster that is meant: the given one, or the only one there is. Raises `Invalid`: a name of no cluster is
    wrong usage, as two clusters without a name are."""
    purpose = f" to {action}" if action else ""
    if given and given not in names:
        raise errors.Invalid(
            f"there is no cluster {given!r}{purpose}; nothing was changed",
            hint=f"clusters: {', '.join(names) or 'none'}",
        )
    if not given and not names:
        raise errors.Invalid(f"there is no cluster{purpose}", hint=f"deploy one with -c FILE, or {_ELSEWHERE}")
    if not given and len(names) > 1:
        raise errors.Invalid(f"there are several clusters{purpose}: {', '.join(names)}; nothing was changed", hint=hint)
    return given or names[0]


def state_folder(given: pathlib.Path | None, data: pathlib.Path | None) -> pathlib.Path:
    """Where journals are: what was given, `setup` in the data folder, the system's, or the user's state folder."""
    if given is not None:
        return given
    if data is not None and os.access(data, os.W_OK):
        return data / _FOLDER
    if os.geteuid() == 0:
        return _SYSTEM
    home = os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local" / "state"
    return pathlib.Path(home) / "bedplate-setup"


async def check_standing(backend: Backend, *, is_allowed: bool) -> None:
    """Refuse to run against a head that is not the active one, unless that is allowed and an active one is known."""
    who = await backend.whoami()
    if who.is_active:
        return
    if not is_allowed:
        raise errors.Denied(
            f"{who.head} is not the active head node",
            hint=f"run on the active one{f' ({who.active})' if who.active else ''}, "
            "or give --allow-running-from-secondary",
        )
    if not who.active:
        raise errors.Unavailable(f"{who.head} is not the active head node, and does not know which one is")
