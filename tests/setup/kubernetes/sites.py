"""Settings of a cluster for tests of its parts."""

from __future__ import annotations

from typing import Any

from tests.setup import places

from bedplate.head import Obj, Tree
from bedplate.head.entities import SCHEMA
from bedplate.setup.answers import fitting, site
from bedplate.setup.kubernetes.settings import Settings, of_answers


def tree(nodes: int = 6) -> Tree:
    """A head with an internal network and a few nodes."""
    objects = [
        ("network", Obj("Network", "internalnet", {"base_address": "10.141.0.0", "netmask_bits": 16})),
        ("category", Obj("Category", "default", {})),
        ("device", Obj("HeadNode", "basecm10", {"ip": "10.141.255.254", "network": "internalnet"})),
    ]
    for number in range(1, nodes + 1):
        values = {"ip": f"10.141.0.{number}", "network": "internalnet", "category": "default"}
        objects.append(("device", Obj("PhysicalNode", f"node{number:03}", values)))
    return Tree(SCHEMA).with_objects((mode, obj.key, obj) for mode, obj in objects)


def settings(**changes: Any) -> Settings:
    """Those of the answers in `tests/setup/places.py`, changed."""
    there = tree()
    answers = fitting.complete(places.answers(**changes), site.of_tree(there, "basecm10"))
    return of_answers(answers, there, "basecm10")
