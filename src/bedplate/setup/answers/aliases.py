"""Head nodes and the default category by alias, so that a file fits a site whose head has another name. Pure.

`master` is the active head node, `passive` the other one, `defaultcategory` the default category.
"""

from __future__ import annotations

from typing import Any

from bedplate.setup.answers.site import Site

__all__ = ["CATEGORY", "MASTER", "PASSIVE", "aliased", "resolved"]

MASTER = "master"
PASSIVE = "passive"
CATEGORY = "defaultcategory"


def aliased(answers: dict[str, Any], site: Site) -> dict[str, Any]:
    """With aliases in place of the names that they stand for, and without the name of the head in the FQDN."""
    names = {site.head: MASTER, **({site.passive: PASSIVE} if site.passive else {})}
    categories = {site.default_category: CATEGORY} if site.default_category else {}
    new = _renamed(answers, names, categories)
    if new["kubernetes"]["fqdn"] == site.fqdn:
        new["kubernetes"]["fqdn"] = ""  # Filled in with the other head's.
    return new


def resolved(answers: dict[str, Any], site: Site) -> dict[str, Any]:
    """With names in place of aliases; one that stands for nothing here is left, to be told as unknown."""
    names = {MASTER: site.head, **({PASSIVE: site.passive} if site.passive else {})}
    names = {alias: name for alias, name in names.items() if alias not in site.nodes}
    categories = {CATEGORY: site.default_category} if site.default_category else {}
    categories = {alias: name for alias, name in categories.items() if alias not in site.categories}
    return _renamed(answers, names, categories)


def _renamed(answers: dict[str, Any], names: dict[str, str], categories: dict[str, str]) -> dict[str, Any]:
    nodes = {}
    for role, chosen in answers["kubernetes"]["nodes"].items():
        nodes[role] = {
            **chosen,
            "head_nodes": [names.get(name, name) for name in chosen["head_nodes"]],
            "categories": [categories.get(name, name) for name in chosen["categories"]],
        }
    return {**answers, "kubernetes": {**answers["kubernetes"], "nodes": nodes}}
