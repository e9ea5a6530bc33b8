"""The repositories that nodes and their software images take packages from.

In: answers (a copy of the repositories, its key, a repository of Helm) and how the agent of each node installs
packages. Out: one overlay `kube-<cluster>-repos-<family>` for each family of package managers, with the nodes of that
family and the files of `head/images/repositories.py`; the same files in the images of the nodes that the head has trees
of. A node whose agent uses no package manager, or of which nothing is known, gets nothing, and the stage says so. The
overlay comes with the revision of the roles, which is waited for later: agents write such files before they install.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import Tree
from bedplate.head.images.repositories import KEYRING, Family, Mirror, files, raised
from bedplate.head.schema.ranges import compress
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import images, nodes
from bedplate.setup.kubernetes.settings import Settings

__all__ = ["bumped", "mirror_of", "overlay", "overlays_of", "restore", "update", "withdraw", "write"]

FAMILIES: tuple[Family, ...] = get_args(Family)[:3]
_PRIORITY = 500
_LONGEST = 1 << 16


def overlays_of(tree: Tree, cluster: str) -> list[str]:
    """The overlays with repositories that a cluster has, by name."""
    names = [_name(cluster, family) for family in FAMILIES]
    return [name for name in names if tree.find("configurationoverlay", name) is not None]


def _name(cluster: str, family: str) -> str:
    return f"kube-{cluster}-repos-{family}"


def mirror_of(answers: Mapping[str, Any]) -> Mirror:
    """What a site has of its own, with the key read from its file. Raises `Invalid`."""
    chosen = answers["kubernetes"]["repositories"]
    key = ""
    if chosen["key"]:
        try:
            key = Path(chosen["key"]).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as err:
            why = err.strerror if isinstance(err, OSError) else "it is not ASCII-armored"
            raise errors.Invalid(f"the key {chosen['key']} cannot be read: {why}", hint="gpg --armor --export") from err
        if not key.startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----") or len(key) > _LONGEST:
            raise errors.Invalid(f"{chosen['key']} is not an ASCII-armored public key", hint="gpg --armor --export")
    return Mirror(chosen["base"], key, chosen["helm"])


def overlay(family: Family, version: str, mirror: Mirror, members: Sequence[str]) -> dict[str, Any] | None:
    """The overlay of the nodes of a family; None where there is no repository for it. Pure."""
    content = files(family, version, mirror)
    if not content:
        return None
    customizations = {
        path.rpartition("/")[2]: {"type": "Customization", "values": {"filename": path, "content": text}}
        for path, text in content.items()
    }
    return {
        "type": "ConfigurationOverlay",
        "values": {"priority": _PRIORITY, "nodes": list(members)},
        "children": {"customizations": customizations},
    }


async def write(context: Context, settings: Settings) -> None:
    """Write the overlays, and the files into images."""
    mirror = mirror_of(context.answers)
    present = await nodes.systems(context, settings.kubernetes_nodes)
    places: dict[tuple[str, str], Mapping[str, Any]] = {}
    served: set[str] = set()
    for family in FAMILIES:
        members = [name for name, system in present.items() if system is not None and system.packages == family]
        obj = overlay(family, settings.version, mirror, members) if members else None
        if obj is None:
            continue
        served |= set(members)
        places["configurationoverlay", _name(settings.name, family)] = obj
        context.say(f"{family}: {compress(members)}")
        if family == "apt" and not mirror.key:
            context.say(f"Packages of apt are verified with {KEYRING}, which nodes must have")
    others = [name for name in present if name not in served]
    if others:
        context.say(f"{compress(others)}: no apt, dnf or zypper is known there; nothing is written")
    if not mirror.helm:
        context.say("No repository of Helm: kubernetes.repositories.helm names none")
    if places:
        message = f"package repositories of the Kubernetes cluster {settings.name}"
        await nodes.create(context, places, message, is_awaited=False)
    await images.write_repositories(context, settings.kubernetes_nodes, settings.version, mirror)


async def withdraw(context: Context, settings: Settings) -> None:
    """Take the overlays back; what images have stays, and is told."""
    places = [("configurationoverlay", _name(settings.name, family)) for family in FAMILIES]
    message = f"no package repositories of the Kubernetes cluster {settings.name}"
    await nodes.withdraw(context, places, message)
    images.tell_what_stays(context)


# An upgrade


def bumped(obj: headapi.Object, version: str) -> dict[str, Any]:
    """An overlay with the repositories of a version. Pure."""
    customizations = {}
    for name, each in obj.children.get("customizations", {}).items():
        values = each.get("values", {})
        content = raised(str(values.get("content", "")), version) if name.startswith("kubernetes.") else None
        customizations[name] = each if content is None else {**each, "values": {**values, "content": content}}
    return {**nodes.whole(obj), "children": {**obj.children, "customizations": customizations}}


async def update(context: Context, cluster: str, version: str) -> None:
    """Bring the repositories of a cluster's nodes to a version, and wait for the nodes."""
    head, places = nodes.head_of(context), {}
    for name in overlays_of(context.services.backend.tree, cluster):
        obj = await head.get("configurationoverlay", name)
        places["configurationoverlay", name] = bumped(obj, version)
        context.say(f"{name}: {'.'.join(version.split('.')[:2])}")
    await nodes.adopt(context, places, f"package repositories of {version} for the Kubernetes cluster {cluster}")


async def restore(context: Context, cluster: str) -> None:
    """Give the nodes back the repositories that they had."""
    places = [("configurationoverlay", _name(cluster, family)) for family in FAMILIES]
    await nodes.withdraw(context, places, f"former package repositories of the Kubernetes cluster {cluster}")
