"""--update-addons: the manifests of this release for the applications of a cluster that is there.

In: the flags. Out: one commit with the newer texts, and a line for each change; the exit code. Whether an application
is on, its variables, and manifests that the site brought itself stay as they are. The head applies the new texts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from bedplate.api import headapi
from bedplate.core.clock import Clock, SystemClock
from bedplate.head.applications import defaults
from bedplate.setup.tool import heads

__all__ = ["perform"]

_APPLIED_S, _POLL_S = 120.0, 0.5


async def perform(values: Mapping[str, Any], clock: Clock | None = None) -> int:
    """Update the add-ons of a cluster; 1 when the head could not apply them."""
    clock = clock or SystemClock()
    async with heads.reach(values) as reached:
        await heads.check_standing(reached.backend, is_allowed=False)
        name = heads.cluster_of(values, reached.backend)
        head: Any = reached.backend.fleet
        obj = await head.get("kubernetes", name)
        present = obj.children.get("app_groups", {})
        domains = obj.values.get("trusted_domains") or [""]
        groups, changes = defaults.updated(present, defaults.shipped(present, domains[0]))
        if changes:
            children = {**obj.children, "app_groups": groups}
            whole = {"type": obj.type, "values": obj.values, "extras": obj.extras, "children": children}
            edit = headapi.Edit(mode="kubernetes", key=name, base=obj.revision, object=whole)
            await head.commit([edit], f"add-ons of the Kubernetes cluster {name} as this release has them")
        _say(values, name, changes or ("every application is as this release has it",))
        state = await _settled(head, name, clock)
        if not state.reached:
            _say(values, name, (f"not applied yet: {state.trouble or 'the head does not reach the cluster'}",))
            return 1
        failed = [each for each in state.applications if each.state in ("failed", "pending")]
        _say(values, name, tuple(_told(each) for each in state.applications if each.state != "disabled"))
        return 1 if failed else 0


async def _settled(head: Any, name: str, clock: Clock) -> headapi.ClusterState:
    end_s = clock.monotonic() + _APPLIED_S
    while True:
        state: headapi.ClusterState = await head.cluster(name)
        is_done = state.reached and all(each.state not in ("pending", "failed") for each in state.applications)
        if is_done or not state.reached or clock.monotonic() > end_s:
            return state
        await clock.sleep(_POLL_S)


def _told(state: headapi.ApplicationState) -> str:
    why = f": {state.failures[0].object}: {state.failures[0].reason}" if state.failures else ""
    return f"{state.group}/{state.name}: {state.state}{why}"


def _say(values: Mapping[str, Any], cluster: str, lines: tuple[str, ...]) -> None:
    for line in lines:
        text = msgspec.json.encode({"cluster": cluster, "text": line}).decode() if values["json"] else line
        sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
