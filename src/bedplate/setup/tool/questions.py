"""The questions of "Configure Ingress", at a terminal.

In: the flags, the tree of the head. Out: the flags with the answers in them.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import click

from bedplate.core import errors
from bedplate.head import Tree
from bedplate.head.entities.kubernetes import KubeCluster

__all__ = ["QUESTION", "answered"]

QUESTION = "Do you want to configure an existing, properly signed Server certificate pair?"


def answered(values: Mapping[str, Any], tree: Tree) -> dict[str, Any]:
    """Ask which cluster, whether there is a pair, and for its files or for names. Raises `NotFound`, `Invalid`."""
    names = sorted(tree.mode("kubernetes"))
    if not names:
        raise errors.NotFound("there is no cluster whose ingress could be configured")
    cluster = values["cluster"] or names[0]
    if not values["cluster"] and len(names) > 1:
        cluster = click.prompt("Cluster", type=click.Choice(names))
    answers = {**values, "cluster": cluster}
    if click.confirm(QUESTION, default=False):
        for flag, name in (("certificate", "server.crt"), ("certificate_key", "server.key")):
            kind = click.Path(exists=True, dir_okay=False, path_type=pathlib.Path)
            answers[flag] = click.prompt(f"Path of {name}", type=kind)
        return answers
    known = KubeCluster.trusted_domains.value(tree.get(("kubernetes", cluster)))
    assert isinstance(known, tuple)
    answers["trusted_domains"] = click.prompt("Trusted domains, with commas", default=",".join(map(str, known)))
    return answers
