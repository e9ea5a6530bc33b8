"""The role `Docker::Host`: the daemon's `daemon.json`, and the unit's drop-in for what that file cannot hold.

In: a tree, a resolved node and the role. Out: both files. What is not set is not written, so that the daemon's own
default holds. The sockets are in `daemon.json`; the drop-in therefore starts the daemon without any, because it refuses
to be told twice.
"""

from __future__ import annotations

import json
import re

from bedplate.api.desired import File
from bedplate.head.entities.docker import DeviceMapper, DockerHostRole
from bedplate.head.objects import Obj
from bedplate.head.render.text import command_word, filled, unit_word
from bedplate.head.render.values import Part
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.schema.entity import Field
from bedplate.head.tree import Tree

__all__ = ["CONF", "UNIT", "daemon_json", "render"]

CONF = "/etc/docker/daemon.json"
UNIT = "/etc/systemd/system/docker.service.d/20-bedplate.conf"
_BINARY = "/usr/bin/dockerd"
_ULIMIT = re.compile(r"(?P<name>[a-z]+)=(?P<soft>-?\d+)(?::(?P<hard>-?\d+))?")
_DRIVERS = ("overlay2", "devicemapper", "aufs")
_ALWAYS = {"selinux-enabled", "debug", "iptables"}
"""Yes-or-no keys that are written either way. The daemon turns TLS on as soon as `tlsverify` is mentioned."""

_KEYS: dict[str, Field] = {
    "data-root": DockerHostRole.spool,
    "selinux-enabled": DockerHostRole.enable_selinux,
    "debug": DockerHostRole.debug,
    "log-level": DockerHostRole.log_level,
    "bip": DockerHostRole.bridge_ip,
    "bridge": DockerHostRole.bridge,
    "mtu": DockerHostRole.mtu,
    "hosts": DockerHostRole.api_sockets,
    "iptables": DockerHostRole.iptables,
    "userns-remap": DockerHostRole.user_namespace_remap,
    "insecure-registries": DockerHostRole.insecure_registries,
    "tls": DockerHostRole.enable_tls,
    "tlsverify": DockerHostRole.verify_tls,
    "tlscacert": DockerHostRole.tls_ca,
    "tlscert": DockerHostRole.tls_certificate,
    "tlskey": DockerHostRole.tls_key,
    "containerd": DockerHostRole.containerd_socket,
    "default-runtime": DockerHostRole.runtime,
}
_DEVICE_MAPPER: dict[str, Field] = {
    "dm.blkdiscard": DeviceMapper.blk_discard,
    "dm.blocksize": DeviceMapper.block_size,
    "dm.fs": DeviceMapper.filesystem,
    "dm.loopdatasize": DeviceMapper.loop_data_size,
    "dm.basesize": DeviceMapper.loop_device_size,
    "dm.loopmetadatasize": DeviceMapper.loop_metadata_size,
    "dm.mkfsarg": DeviceMapper.mkfs_arguments,
    "dm.mountopt": DeviceMapper.mount_options,
    "dm.thinpooldev": DeviceMapper.pool_device,
}


def render(tree: Tree, resolved: Resolved, given: RoleGiven) -> Part:
    """What the role means for a node: the same for all that got it from the same object."""
    place = ("docker", given.source)
    if place not in tree.derived:
        tree.derived[place] = _part(given.role)
    part: Part = tree.derived[place]
    return part


def _part(role: Obj) -> Part:
    content = json.dumps(daemon_json(role), indent=2, sort_keys=True) + "\n"
    restarted = ("docker",)
    return Part(
        files=[
            File(
                path=CONF,
                content=content,
                services=restarted,
                action="RESTART",
                test=("dockerd", "--validate", "--config-file", "{}"),
            ),
            File(path=UNIT, content=_unit(role), services=restarted, action="RESTART"),
        ],
        packages=["cm-docker"],
        kept=[str(DockerHostRole.spool.value(role))],
        warnings=[f"Docker::Host: {warning}" for warning in _warnings(role)],
    )


def daemon_json(role: Obj) -> dict[str, object]:
    """The daemon's settings by key."""
    settings: dict[str, object] = {}
    for key, field in _KEYS.items():
        value = field.value(role)
        if value or key in _ALWAYS:
            settings[key] = list(value) if isinstance(value, tuple) else value
    ulimits = _ulimits(role)
    if ulimits:
        settings["default-ulimits"] = ulimits
    driver, options = _storage(role)
    settings["storage-driver"] = driver
    if options:
        settings["storage-opts"] = options
    return settings


def _ulimits(role: Obj) -> dict[str, dict[str, object]]:
    """`nofile=1024:2048` is a soft and a hard limit, `nofile=1024` both."""
    given = DockerHostRole.default_ulimits.value(role)
    assert isinstance(given, tuple)
    ulimits: dict[str, dict[str, object]] = {}
    for ulimit in given:
        match = _ULIMIT.fullmatch(ulimit.strip())
        if match:
            soft, hard = int(match["soft"]), int(match["hard"] or match["soft"])
            ulimits[match["name"]] = {"Name": match["name"], "Soft": soft, "Hard": hard}
    return ulimits


def _backends(role: Obj) -> list[Obj]:
    """Storage backends, the one to prefer first: the daemon has a single driver."""
    backends = role.below("storage_backends").values()
    return sorted(backends, key=lambda backend: (_DRIVERS.index(backend.type), backend.key))


def _storage(role: Obj) -> tuple[str, list[str]]:
    backends = _backends(role)
    if not backends:
        return "overlay2", []
    backend = backends[0]
    if backend.type == "devicemapper":
        return backend.type, _device_mapper(backend)
    options = backend.values.get("options", ())
    assert isinstance(options, tuple)
    return backend.type, list(options)


def _device_mapper(backend: Obj) -> list[str]:
    options = []
    for option, field in _DEVICE_MAPPER.items():
        value = field.value(backend)
        text = str(value).lower() if isinstance(value, bool) else str(value or "")
        if text:
            options.append(f"{option}={text}")
    return options


def _unit(role: Obj) -> str:
    spool = str(DockerHostRole.spool.value(role))
    tmp = filled(str(DockerHostRole.tmp_dir.value(role)), {"spool": spool})
    environment = [("DOCKER_TMPDIR", tmp), ("DOCKER_CERT_PATH", str(DockerHostRole.certificates_path.value(role)))]
    lines = [f"Environment={unit_word(f'{name}={value}')}" for name, value in environment if value]
    return "\n".join(["[Service]", *lines, "ExecStart=", " ".join([f"ExecStart={_BINARY}", *_arguments(role)]), ""])


def _arguments(role: Obj) -> list[str]:
    """The row `Options`; whether the dashes in front are written or not is the same."""
    options = DockerHostRole.options.value(role)
    assert isinstance(options, tuple)
    written = [option.strip() for option in options if option.strip()]
    return [command_word(option if option.startswith("-") else f"--{option}") for option in written]


def _warnings(role: Obj) -> list[str]:
    """What the daemon would refuse, or what it needs besides."""
    warnings = []
    driver = _storage(role)[0]
    given = DockerHostRole.default_ulimits.value(role)
    assert isinstance(given, tuple)
    bad = [ulimit for ulimit in given if not _ULIMIT.fullmatch(ulimit.strip())]
    if bad:
        warnings.append(f"{', '.join(bad)} is ignored: write a default ulimit as name=soft or name=soft:hard")
    if DockerHostRole.bridge.value(role) and DockerHostRole.bridge_ip.value(role):
        warnings.append("Bridge and Bridge IP are mutually exclusive")
    if DockerHostRole.user_namespace_remap.value(role):
        warnings.append("User Namespace Remap needs the kernel option user_namespace.enable=1 and a reboot")
    if driver != "overlay2":
        warnings.append(f"{driver} is deprecated, and was removed in release 25 of the engine")
    if len(role.below("storage_backends")) > 1:
        warnings.append(f"the daemon has one storage driver; of several backends {_backends(role)[0].key} is used")
    return warnings
