"""Generic roles: files with variables, and the services that read them; containerd's main file besides.

In: a tree, a resolved node and the role. Out: the role's configurations, their variables replaced by the role's
environment; a file with a secret one is secret. What is disabled is left unchanged. `generic::containerd` also gets the
file that makes containerd read its drop-ins, and with the runtime of NVIDIA its container toolkit.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from bedplate.api.desired import ChangeAction, File
from bedplate.head.entities.roles import (
    CONTAINERD_DROPINS,
    NVIDIA_CRI,
    GenericRole,
    GenericRoleConfiguration,
    GenericRoleEnvironment,
)
from bedplate.head.objects import Obj, Secret
from bedplate.head.render.text import filled, unknown
from bedplate.head.render.values import Part
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.tree import Tree

__all__ = ["CONTAINERD_CONF", "CONTAINERD_DROPINS", "render"]

CONTAINERD_CONF = "/cm/local/apps/containerd/var/etc/config.toml"
_CONTAINERD_TEXT = f"""\
# Settings are in the drop-ins, one file for each configuration of the role generic::containerd.
version = 2
imports = ["{CONTAINERD_DROPINS}/*.toml"]
"""
_PACKAGES = {"generic::containerd": ("cm-containerd",)}
_TOOLKIT = "cm-nvidia-container-toolkit"
_KEPT = {"generic::containerd": ("/var/lib/containerd",)}
_ACTIONS: Mapping[str, ChangeAction] = {"NONE": "NONE", "RESTART": "RESTART", "RELOAD": "RELOAD"}


def render(tree: Tree, resolved: Resolved, given: RoleGiven) -> Part:
    """What the role means for a node: the same for all that got it from the same object."""
    place = ("generic", given.source)
    if place not in tree.derived:
        tree.derived[place] = _part(given.role)
    part: Part = tree.derived[place]
    return part


def _part(role: Obj) -> Part:
    services = tuple(GenericRole.services(role))
    variables = {
        name: str(GenericRoleEnvironment.value.value(entry)) for name, entry in role.below("environments").items()
    }
    secrets = {
        name: secret.reveal()
        for name, entry in role.below("environments").items()
        if isinstance(secret := GenericRoleEnvironment.secret_value.value(entry), Secret)
    }
    variables |= secrets
    files = [_containerd(services)] if role.key == "generic::containerd" else []
    unmanaged, warnings = [], []
    dropins: dict[str, str] = {}
    for name, configuration in sorted(role.below("configurations").items()):
        path = str(GenericRoleConfiguration.filename.value(configuration))
        if GenericRoleConfiguration.disabled.value(configuration):
            unmanaged.append(path)
            continue
        content = str(GenericRoleConfiguration.content.value(configuration))
        is_secret = not secrets.keys().isdisjoint(unknown(content, {}))
        files.append(_file(configuration, path, filled(content, variables), services, is_secret=is_secret))
        missing = unknown(content, variables)
        if missing:
            warnings.append(f"{role.key} {name}: no value for {', '.join(missing)}; left unchanged")
        if role.key == "generic::containerd" and path.startswith(f"{CONTAINERD_DROPINS}/"):
            dropins[name] = files[-1].content
    warnings += _misread(dropins)
    has_nvidia = role.key == "generic::containerd" and NVIDIA_CRI in dropins
    return Part(
        files=files,
        unmanaged=unmanaged,
        packages=(*_PACKAGES.get(role.key, ()), *((_TOOLKIT,) if has_nvidia else ())),
        warnings=warnings,
        kept=_KEPT.get(role.key, ()),
        data_node=bool(GenericRole.data_node.value(role)),
    )


def _containerd(services: Sequence[str]) -> File:
    return File(path=CONTAINERD_CONF, content=_CONTAINERD_TEXT, services=tuple(services), action="RESTART")


def _file(configuration: Obj, path: str, content: str, services: tuple[str, ...], *, is_secret: bool) -> File:
    action = str(GenericRoleConfiguration.service_action_on_write.value(configuration))
    return File(
        path=path,
        content=content,
        mode=(str(GenericRoleConfiguration.filemask.value(configuration)) or "0644").zfill(4),
        owner=str(GenericRoleConfiguration.user_name.value(configuration)) or "root",
        group=str(GenericRoleConfiguration.group_name.value(configuration)) or "root",
        folder_mode=_folder_mode(configuration),
        services=services,
        action=_ACTIONS[action],
        stop_on_failure=bool(GenericRoleConfiguration.service_stop_on_failure.value(configuration)),
        secret=is_secret,
    )


def _folder_mode(configuration: Obj) -> str:
    """The mode of a created folder; whoever may read it may enter it, or it would be of no use."""
    if not GenericRoleConfiguration.create_directory.value(configuration):
        return ""
    mode = int(str(GenericRoleConfiguration.filemask_directory.value(configuration)) or "0755", 8)
    return f"{mode | (mode & 0o444) >> 2:04o}"


def _misread(dropins: Mapping[str, str]) -> list[str]:
    """Drop-ins that are not TOML, and plugins set in two: before release 2 containerd uses only the last one, which
    does no harm where that one repeats the others."""
    warnings = []
    owners: dict[str, tuple[str, Any]] = {}
    for name, content in dropins.items():
        plugins = _plugins(content)
        if plugins is None:
            warnings.append(f"generic::containerd {name}: it is not TOML, and containerd would not start")
        for plugin, settings in (plugins or {}).items():
            first, former = owners.setdefault(plugin, (name, settings))
            if first != name and not _repeats(settings, former):
                warnings.append(
                    f"generic::containerd {first} and {name} both set {plugin}: containerd uses only the last one"
                )
    return warnings


def _repeats(settings: Any, former: Any) -> bool:
    """Whether settings have all that former ones have."""
    if isinstance(former, dict) and isinstance(settings, dict):
        return all(key in settings and _repeats(settings[key], value) for key, value in former.items())
    return bool(settings == former)


@functools.lru_cache(maxsize=512)
def _plugins(content: str) -> Mapping[str, Any] | None:
    """The plugins a drop-in sets; None when it cannot be read. Many nodes have the same one."""
    try:
        plugins = tomllib.loads(content).get("plugins", {})
    except tomllib.TOMLDecodeError:
        return None
    return dict(sorted(plugins.items())) if isinstance(plugins, dict) else {}
