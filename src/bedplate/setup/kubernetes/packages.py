"""Packages of the cluster's roles: waiting until nodes have them, or seeing that they are there.

In: the revision that gave nodes their roles, of which agents install the packages. Out: `install` waits until every
node has applied it. With `--skip-packages` roles bring no packages: `check` then asks each node which programs it
lacks, and names node and program before a role is assigned and kubeadm runs.
"""

from __future__ import annotations

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.schema.ranges import compress
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes
from bedplate.setup.kubernetes.caring import care
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["REVISION", "check", "install", "missing", "needed"]

REVISION = "revision of the roles"
_KUBELET = ("conntrack", "containerd", "kubeadm", "kubectl", "kubelet")


def needed(settings: Settings) -> dict[str, tuple[str, ...]]:
    """The programs that each node must have. nginx is not among them: agents have a balancer of their own
    (`agent/services/proxied.py`). Pure."""
    own = (*_KUBELET, *(("nft",) if settings.cni == "bridge" else ()))
    members = settings.members
    return {
        name: (
            *(own if name in settings.kubernetes_nodes else ()),
            *(("etcd",) if name in members.etcd else ()),
        )
        for name in members.nodes
    }


def missing(settings: Settings, told: dict[str, list[str]]) -> list[str]:
    """What nodes lack, as they say with lines `missing PROGRAM`. Pure."""
    problems = []
    for node, programs in needed(settings).items():
        absent = {line.removeprefix("missing ") for line in told.get(node, []) if line.startswith("missing ")}
        problems += [f"{node}: there is no program {name}" for name in programs if name in absent]
    return problems


async def check(context: Context, settings: Settings) -> None:
    """Raises `Invalid` with every node and program that is missing."""
    request = headapi.Care(action="inspect", cluster=settings.name)
    states = await care(nodes.head_of(context), context.clock, settings.members.nodes, request)
    problems = missing(settings, {state.node: list(state.lines) for state in states})
    if problems:
        raise errors.Invalid(
            "packages are not installed by this run, and programs are missing",
            problems=problems,
            hint="install them, then resume; or undo, and leave out --skip-packages",
        )
    context.say("Packages are there; none is installed")


async def install(context: Context, settings: Settings) -> None:
    """Wait until nodes have the packages of their roles, and are what these say."""
    await nodes.applied(context, context.notes[REVISION])
    alike: dict[tuple[bool, ...], list[str]] = {}
    for name in settings.members.nodes:
        alike.setdefault(tuple(name in part for part in _parts(settings)), []).append(name)
    for members in alike.values():
        # The head renders: only its tree has the secrets that other parts of a state need.
        answer = await nodes.head_of(context).desired(members[0])
        if answer is not None:
            context.say(f"{compress(members)}: {', '.join(answer.state.packages) or 'no packages'}")


def _parts(settings: Settings) -> tuple[tuple[str, ...], ...]:
    return settings.members.masters, settings.members.workers, settings.members.etcd
