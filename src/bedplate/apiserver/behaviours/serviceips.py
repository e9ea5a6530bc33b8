"""Services: cluster addresses and node ports, each given out once.

In: writes of Service objects, and every committed Service (so that after a restart nothing is given twice). Out:
clusterIP(s), nodePorts and family fields filled in, or the refusal Kubernetes gives. What is reserved for a write
that then fails is given back. One family (IPv4) is served, as by an API server with one service range.
"""

from __future__ import annotations

import ipaddress
import random
from typing import Any

from bedplate.apiserver import hooks, sharing, status
from bedplate.apiserver.state import bodies

__all__ = ["Pool", "ServiceBehaviour"]

NODE_PORTS = range(30000, 32768)
NONE = "None"
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


class Pool:
    """Numbers of a range, each with at most one owner."""

    def __init__(self, numbers: range, rng: random.Random) -> None:
        self._numbers = numbers
        self._rng = rng
        self._owners: dict[int, tuple[str, str]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def take(self, number: int, owner: tuple[str, str]) -> bool:
        """Reserve a certain number; False when it is taken."""
        return self._owners.setdefault(number, owner) == owner

    def give(self, number: int, owner: tuple[str, str]) -> None:
        """Note who has a number for certain; whoever had reserved it has lost it to another server."""
        self._owners[number] = owner

    def next(self, owner: tuple[str, str]) -> int | None:
        """Reserve any free number; None when the range is exhausted."""
        start = self._rng.randrange(len(self._numbers))
        for step in range(len(self._numbers)):
            number = self._numbers[(start + step) % len(self._numbers)]
            if number not in self._owners:
                self._owners[number] = owner
                return number
        return None

    def release(self, number: int, owner: tuple[str, str]) -> None:
        if self._owners.get(number) == owner:
            del self._owners[number]


class ServiceBehaviour(hooks.Behaviour):
    """What a Service does beyond being stored."""

    def __init__(self, service_range: ipaddress.IPv4Network, rng: random.Random) -> None:
        self._range = service_range
        first = int(service_range.network_address)
        self._addresses = Pool(range(first + 1, int(service_range.broadcast_address)), rng)
        self._ports = Pool(NODE_PORTS, rng)

    def prepare_create(self, write: hooks.Write) -> None:
        write.object["status"] = {"loadBalancer": {}}
        self._assign(write, {})

    def prepare_update(self, write: hooks.Write) -> None:
        old = write.old or {}
        if write.subresource == "status":
            return
        write.object["status"] = old.get("status", {"loadBalancer": {}})
        self._assign(write, old.get("spec") or {})

    def _assign(self, write: hooks.Write, old: dict[str, Any]) -> None:
        spec = write.object.setdefault("spec", {})
        if not isinstance(spec.get("ports", []), list):
            return
        kind = spec.get("type", "ClusterIP")
        if kind == "ExternalName":
            for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                spec.pop(name, None)
        else:
            self._assign_address(write, spec, old)
        self._assign_ports(write, spec, old, needed=_needs_ports(spec, kind))
        if kind in ("NodePort", "LoadBalancer") and not spec.get("externalTrafficPolicy"):
            spec["externalTrafficPolicy"] = "Cluster"
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        elif not old or old.get("type") != kind:
            spec.pop("allocateLoadBalancerNodePorts", None)

    def _assign_address(self, write: hooks.Write, spec: dict[str, Any], old: dict[str, Any]) -> None:
        if not spec.get("clusterIP") and spec.get("clusterIPs"):
            spec["clusterIP"] = spec["clusterIPs"][0]
        if not spec.get("clusterIP") and old.get("clusterIP"):
            spec["clusterIP"] = old["clusterIP"]
        address = spec.get("clusterIP") or ""
        if address != NONE and address != old.get("clusterIP"):
            spec["clusterIP"] = self._reserve_address(write, address)
        spec["clusterIPs"] = [spec["clusterIP"]]
        headless_without_selector = spec["clusterIP"] == NONE and not spec.get("selector")
        spec.setdefault("ipFamilyPolicy", "RequireDualStack" if headless_without_selector else "SingleStack")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if headless_without_selector else ["IPv4"])

    def _reserve_address(self, write: hooks.Write, address: str) -> str:
        owner = (write.namespace, write.name)
        if not address:
            number = self._addresses.next(owner)
            if number is None:
                raise status.StatusError(
                    500, "InternalError", f"failed to allocate a serviceIP: range {self._range} is full"
                )
        else:
            try:
                number = int(ipaddress.IPv4Address(address))
            except ValueError:
                return address  # `validate` words the refusal
            if number not in self._addresses:
                detail = f"failed to allocate IP {address}: the provided network does not match the current range"
                raise status.invalid(
                    write.resource, write.name, [status.FieldProblem.invalid("spec.clusterIPs", [address], detail)]
                )
            if not self._addresses.take(number, owner):
                detail = f"failed to allocate IP {address}: provided IP is already allocated"
                raise status.invalid(
                    write.resource, write.name, [status.FieldProblem.invalid("spec.clusterIPs", [address], detail)]
                )
        write.rollbacks.append(lambda: self._addresses.release(number, owner))
        write.also = sharing.allocation(write.services.registry)
        return str(ipaddress.IPv4Address(number))

    def _assign_ports(self, write: hooks.Write, spec: dict[str, Any], old: dict[str, Any], *, needed: bool) -> None:
        owner = (write.namespace, write.name)
        before = {_port_key(port): port.get("nodePort") for port in old.get("ports") or ()}
        reserved = {number for number in before.values() if number}
        mine: set[int] = set()
        for index, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort") or 0
            if not needed:
                if number and number in reserved:
                    port.pop("nodePort", None)
                continue
            number = number or before.get(_port_key(port)) or 0
            if number and (number in reserved or number in mine):
                port["nodePort"] = number
            else:
                port["nodePort"] = self._reserve_port(write, index, number, owner)
            mine.add(port["nodePort"])

    def _reserve_port(self, write: hooks.Write, index: int, requested: int, owner: tuple[str, str]) -> int:
        number = requested or self._ports.next(owner)
        if number is None:
            raise status.StatusError(500, "InternalError", "failed to allocate a nodePort: range is full")
        if requested:
            problem = ""
            if requested not in self._ports:
                span = f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
                problem = f"provided port is not in the valid range. The range of valid ports is {span}"
            elif not self._ports.take(requested, owner):
                problem = "provided port is already allocated"
            if problem:
                where = f"spec.ports[{index}].nodePort"
                raise status.invalid(
                    write.resource, write.name, [status.FieldProblem.invalid(where, requested, problem)]
                )
        write.rollbacks.append(lambda: self._ports.release(number, owner))
        write.also = sharing.allocation(write.services.registry)
        return number

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        spec, old = write.object.get("spec") or {}, (write.old or {}).get("spec") or {}
        problems: list[status.FieldProblem] = []
        if spec.get("type", "ClusterIP") not in TYPES:
            problems.append(status.FieldProblem.not_supported("spec.type", spec["type"], TYPES))
        if spec.get("ipFamilyPolicy") == "RequireDualStack" and spec.get("clusterIP") != NONE:
            detail = "this cluster is not configured for dual-stack services"
            problems.append(status.FieldProblem.invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], detail))
        ports = spec.get("ports") or []
        headless = spec.get("clusterIP") == NONE
        if not ports and not headless and spec.get("type") != "ExternalName":
            problems.append(status.FieldProblem.required("spec.ports"))
        if spec.get("type") == "ExternalName" and not spec.get("externalName"):
            problems.append(status.FieldProblem.required("spec.externalName"))
        problems += _port_problems(ports)
        if headless and spec.get("type") in ("NodePort", "LoadBalancer"):
            detail = f"may not be set to 'None' for {spec['type']} services"
            problems.append(status.FieldProblem.invalid("spec.clusterIPs[0]", NONE, detail))
        changed = old.get("clusterIP") and spec.get("clusterIP") != old["clusterIP"]
        if changed and spec.get("type") != "ExternalName":
            where, value = "spec.clusterIPs[0]", spec.get("clusterIPs")
            problems.append(status.FieldProblem.invalid(where, value, "may not change once set"))
        elif spec.get("clusterIP") not in (None, "", NONE) and not _is_address(spec["clusterIP"]):
            detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            problems.append(status.FieldProblem.invalid("spec.clusterIPs[0]", spec["clusterIP"], detail))
        return problems

    def after_commit(self, change: bodies.Change) -> None:
        owner = (change.namespace, change.name)
        old = change.previous if change.type == "MODIFIED" else change.object if change.type == "DELETED" else None
        new = change.object if change.type != "DELETED" else None
        kept = _numbers(new)
        for pool, number in _numbers(old) - kept:
            (self._addresses if pool == "ip" else self._ports).release(number, owner)
        for pool, number in kept:
            (self._addresses if pool == "ip" else self._ports).give(number, owner)


def _needs_ports(spec: dict[str, Any], kind: str) -> bool:
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True))


def _port_key(port: dict[str, Any]) -> tuple[Any, Any]:
    return port.get("port"), port.get("protocol", "TCP")


def _is_address(text: object) -> bool:
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return False
    return True


def _port_problems(ports: list[dict[str, Any]]) -> list[status.FieldProblem]:
    problems: list[status.FieldProblem] = []
    names: set[str] = set()
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        where = f"spec.ports[{index}]"
        name = port.get("name", "")
        if len(ports) > 1 and not name:
            problems.append(status.FieldProblem.required(f"{where}.name"))
        elif name and name in names:
            problems.append(status.FieldProblem.duplicate(f"{where}.name", name))
        names.add(name)
        if not 1 <= (port.get("port") or 0) <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            problems.append(status.FieldProblem.invalid(f"{where}.port", port.get("port") or 0, detail))
        if _port_key(port) in seen:
            value = {"port": port.get("port"), "protocol": port.get("protocol", "TCP")}
            problems.append(status.FieldProblem.duplicate(where, value))
        seen.add(_port_key(port))
    return problems


def _numbers(service: hooks.Object | None) -> set[tuple[str, int]]:
    """Everything a service holds: ("ip", address) and ("port", node port)."""
    spec = (service or {}).get("spec") or {}
    numbers: set[tuple[str, int]] = {
        ("port", port["nodePort"]) for port in spec.get("ports") or () if port.get("nodePort")
    }
    address = spec.get("clusterIP")
    if address and address != NONE and _is_address(address):
        numbers.add(("ip", int(ipaddress.ip_address(address))))
    return numbers
