"""Setups for front ends: who may start a run, and that everybody sees who did.

In: the service, who asks, a form or a run. Out: the run that was started or ended, and a notice. Reading a run is for
everybody who may read the tree; a form and whatever it starts are an administrator's alone, for a run changes head
nodes and hands out the keys of a cluster.
"""

from __future__ import annotations

from bedplate.api.setups import SetupActionName, SetupForm, SetupRun
from bedplate.core import errors
from bedplate.head import Identity, demand, may
from bedplate.head.daemon import Service
from bedplate.head.setups import Setups

__all__ = ["act", "demand_start", "deploy", "is_known", "may_start", "setups_of"]

RESOURCE = "setups"
_TOLD = {
    "resume": "resumed the run for the cluster",
    "undo": "takes back the run for the cluster",
    "abort": "aborted the run for the cluster",
    "remove": "removes the cluster",
}


def setups_of(service: Service) -> Setups:
    """The setup tool of a head. Raises `Unavailable` where there is none."""
    if service.setups is None:
        raise errors.Unavailable("this head has no setup tool", hint="serve it with bedplate head serve")
    return service.setups


def may_start(service: Service, who: Identity) -> bool:
    """Whether runs are offered: to administrators, by the head that writes."""
    return service.setups is not None and may(who, "edit", RESOURCE) and service.head.standing.is_active


def demand_start(service: Service, who: Identity) -> Setups:
    """The tool, for somebody who may start runs. Raises `Denied`, `Unavailable`."""
    demand(who, "edit", RESOURCE)
    service.head.standing.refuse_writes()
    return setups_of(service)


async def deploy(service: Service, who: Identity, form: SetupForm) -> SetupRun:
    """Start a deployment. Raises `Denied`, `Invalid`, `Busy`."""
    setups = demand_start(service, who)
    if form.problems:
        told = [f"{problem.path}: {problem.text}" for problem in form.problems]
        raise errors.Invalid("the answers do not fit this site", problems=told, hint="nothing was changed")
    run = await setups.deploy(form, who.name)
    await service.notices.add(service.name, f"{who.name} deploys the cluster {form.cluster}")
    return run


async def act(service: Service, who: Identity, cluster: str, action: SetupActionName, confirm: str = "") -> SetupRun:
    """Go on with a run, end it, or remove a cluster, whose name must be given once more. Raises `Denied`, `Invalid`,
    `NotFound`, `Busy`."""
    setups = demand_start(service, who)
    if action == "remove":
        if not is_known(service, cluster):
            raise errors.NotFound(f"there is no cluster {cluster!r} to remove")
        if confirm != cluster:
            raise errors.Invalid(
                f"removing a cluster destroys everything in it: the name {cluster} must be typed; nothing was changed",
                hint="type the name of the cluster",
            )
    else:
        setups.run(cluster)
    run = await setups.act(cluster, action, who.name)
    await service.notices.add(service.name, f"{who.name} {_TOLD[action]} {cluster}")
    return run


def is_known(service: Service, cluster: str) -> bool:
    """Whether there is something to remove: a cluster in the tree, or what a run that is not over has left of one."""
    if service.head.tree.find("kubernetes", cluster) is not None:
        return True
    try:
        return bool({"resume", "undo"} & set(setups_of(service).run(cluster).actions))
    except errors.NotFound:
        return False
