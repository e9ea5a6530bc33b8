"""Cloudlycke's configuration: which machines the cloud has, and what its load balancers may use.

In: the file given to `--cloud-config`, or nothing. Out: a `Config`; every problem of a file is reported at once. The
file is optional: without it, or without `instances` in it, the cloud has the two machines of the original.
Reading it again when it changes is the business of `inventory`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from bedplate.core import errors, yamls

__all__ = ["BUILT_IN", "SCHEME", "Config", "Instance", "LoadBalancer", "parse", "read"]

SCHEME = "cloudlycke"
ZONE = REGION = "virtualbox"
POOL = "192.168.20.200/29"

T = TypeVar("T")


class Instance(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A machine. `state` is what a demonstration changes; `apiError` makes every question about this one fail."""

    id: str
    name: str
    internal_ips: tuple[str, ...] = msgspec.field(default=(), name="internalIPs")
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")
    hostname: str = ""
    type: str = ""
    zone: str = ZONE
    region: str = REGION
    state: Literal["running", "stopped", "terminated"] = "running"
    api_error: bool = False

    @property
    def provider_id(self) -> str:
        return f"{SCHEME}://{self.id}"


class LoadBalancer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether Services of type LoadBalancer are served, and from which addresses."""

    enabled: bool = True
    pool: str = POOL

    @property
    def network(self) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network(self.pool)


BUILT_IN = (
    Instance(
        id="m-c2-1",
        name="master-c2-1",
        internal_ips=("192.168.20.10",),
        external_ips=("192.168.20.10",),
        hostname="master-c2-1",
        type="vbox.vm.512mb.1cpu",
    ),
    Instance(
        id="n-c2-1",
        name="node-c2-1",
        internal_ips=("192.168.20.11",),
        external_ips=("192.168.20.11",),
        hostname="node-c2-1",
        type="vbox.vm.1g.2cpu",
    ),
)


class Config(msgspec.Struct, frozen=True):
    """The whole file. `api_error` makes every question to the cloud fail; `interface` v1 offers the old interface."""

    instances: tuple[Instance, ...] = BUILT_IN
    interface: Literal["v1", "v2"] = "v2"
    api_error: bool = False
    load_balancer: LoadBalancer = LoadBalancer()


_KINDS: dict[str, tuple[str, Any]] = {
    "interface": ("interface", Literal["v1", "v2"]),
    "apiError": ("api_error", bool),
    "loadBalancer": ("load_balancer", LoadBalancer),
}


def read(path: Path | None) -> Config:
    """The configuration in a file; the defaults without one. Raises `Invalid`, also when it cannot be read."""
    if path is None:
        return Config()
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as err:
        raise errors.Invalid(f"the cloud configuration {path} cannot be read: {err}") from err
    except errors.Invalid as err:
        raise errors.Invalid(f"the cloud configuration {path} is not usable", problems=err.problems) from err


def parse(text: str) -> Config:
    """The configuration in a text, with all its problems at once."""
    try:
        content = yamls.load(text, strict=True)
    except yaml.YAMLError as err:
        raise errors.Invalid("not usable", problems=[f"is not YAML: {' '.join(str(err).split())}"]) from None
    if content is None:
        return Config()
    if not isinstance(content, dict):
        raise errors.Invalid("not usable", problems=["must be a mapping of settings"])
    problems: list[str] = []
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key == "instances":
            values["instances"] = _instances(value, problems)
        elif key in _KINDS:
            field, kind = _KINDS[key]
            values[field] = _convert(value, kind, key, problems)
        else:
            problems.append(f"{key}: no such setting (known: apiError, instances, interface, loadBalancer)")
    if not problems and "load_balancer" in values:
        problems += _pool_problems(values["load_balancer"])
    if problems:
        raise errors.Invalid("not usable", problems=problems)
    return Config(**values)


def _instances(value: Any, problems: list[str]) -> tuple[Instance, ...]:
    if value is None:
        value = []
    if not isinstance(value, list):
        problems.append("instances: must be a list")
        return ()
    instances = []
    for number, item in enumerate(value):
        instance = _convert(item, Instance, f"instances[{number}]", problems)
        if instance is not None:
            problems += [f"instances[{number}]: {problem}" for problem in _instance_problems(instance)]
            instances.append(instance)
    for field in ("id", "name"):
        problems += [
            f"instances: two have the {field} {text!r}" for text in _twice(getattr(i, field) for i in instances)
        ]
    return tuple(instances)


def _convert(value: Any, kind: type[T], where: str, problems: list[str]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        problems.append(f"{where}: {err}")
        return None


def _instance_problems(instance: Instance) -> list[str]:
    problems = []
    if not instance.id or "/" in instance.id:
        problems.append(f"id: {instance.id!r} cannot be part of a provider ID")
    if not instance.name:
        problems.append("name: must not be empty")
    for text in (*instance.internal_ips, *instance.external_ips):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            problems.append(f"{text!r} must be an IP address")
    return problems


def _pool_problems(balancer: LoadBalancer) -> list[str]:
    try:
        size = balancer.network.num_addresses
    except ValueError as err:
        return [f"loadBalancer.pool: must be an IPv4 network such as {POOL}: {err}"]
    return [f"loadBalancer.pool: {balancer.pool} is larger than a /16"] if size > 1 << 16 else []


def _twice(texts: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    repeated: list[str] = []
    for text in texts:
        if text in seen and text not in repeated:
            repeated.append(text)
        seen.add(text)
    return repeated
