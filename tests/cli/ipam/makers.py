"""Pools, nodes and pods for the tests of the views, as short as they can be written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from bedplate.api import core
from bedplate.cli.ipam import holders, landscape, survey
from bedplate.cli.ipam.holders import NETWORK_STATUS, Holding
from bedplate.ipam import pools, quarantine

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _made(kind: Any, name: str, spec: dict[str, Any], allocations: list[dict[str, str]], annotations: Any) -> Any:
    meta = {"name": name, "namespace": "kube-system", "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"allocations": allocations}}, kind)


def ippool(name: str, blocks: dict[str, str] | None = None, *, held: dict[str, Any] | None = None, **spec: Any) -> Any:
    """`blocks`: node → first-last."""
    parts = [(node, *text.split("-")) for node, text in (blocks or {}).items()]
    entries = [{"nodeName": node, "startIP": first, "endIP": last} for node, first, last in parts]
    notes = {quarantine.ANNOTATION: json.dumps(held)} if held else {}
    return _made(pools.IPPool, name, spec, entries, notes)


def cidrpool(name: str, blocks: dict[str, tuple[str, str]] | None = None, **spec: Any) -> Any:
    """`blocks`: node → prefix and gateway."""
    parts = (blocks or {}).items()
    entries = [{"nodeName": node, "prefix": prefix, "gateway": gateway} for node, (prefix, gateway) in parts]
    return _made(pools.CIDRPool, name, spec, entries, {})


def node(name: str, **labels: str) -> core.Node:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, core.Node)


def pod(name: str, on: str, *ips: str, status: Any = None, phase: str = "Running", **spec: Any) -> core.Pod:
    notes = {NETWORK_STATUS: status if isinstance(status, str) else json.dumps(status)} if status is not None else {}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes},
        "spec": {"nodeName": on, **spec},
        "status": {
            "phase": phase,
            "podIPs": [{"ip": ip} for ip in ips],
            "startTime": "2026-01-02T03:00:05Z",
        },
    }
    return msgspec.convert(body, core.Pod, strict=False)


def attached(*ips: str, interface: str = "net1") -> list[dict[str, Any]]:
    return [{"name": "kube-system/net", "interface": interface, "ips": list(ips)}]


def land(
    *those: Any, nodes: tuple[core.Node, ...] = (), pods: tuple[core.Pod, ...] = (), stored: list[Holding] | None = None
) -> landscape.Landscape:
    ippools = tuple(one for one in those if isinstance(one, pools.IPPool))
    cidrpools = tuple(one for one in those if isinstance(one, pools.CIDRPool))
    holdings = tuple(holders.of_pods(pods))
    return landscape.see(survey.Survey("kube-system", ippools, cidrpools, nodes, holdings), NOW, stored)
