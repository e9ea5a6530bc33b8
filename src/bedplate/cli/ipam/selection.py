"""Why a node selector does not match a node: the requirement that fails, term by term.

In: a selector, a node. Out: a sentence, or nothing when the node matches. Pure; what matches is decided by
`ipam.selectors`, the words alone are made here.
"""

from __future__ import annotations

from bedplate.api import core
from bedplate.ipam import selectors
from bedplate.ipam.pools import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

__all__ = ["why_not", "written"]


def why_not(selector: NodeSelector | None, node: core.Node) -> str:
    """Why the node is not selected; empty when it is."""
    if selectors.matcher(selector)(node.name, node.metadata.labels) or selector is None:
        return ""
    reasons = [_why_not(term, node) for term in selector.node_selector_terms]
    if not reasons:
        return "spec.nodeSelector has no terms, so it matches no node"
    if len(reasons) == 1:
        return reasons[0]
    return "; ".join(f"term {number}: {reason}" for number, reason in enumerate(reasons, start=1))


def written(requirement: NodeSelectorRequirement) -> str:
    """A requirement as people write it in a sentence."""
    values = ",".join(requirement.values)
    match requirement.operator:
        case "Exists" | "DoesNotExist":
            return f"{requirement.key} {requirement.operator}"
        case "Gt" | "Lt":
            return f"{requirement.key} {'>' if requirement.operator == 'Gt' else '<'} {values}"
        case _:
            return f"{requirement.key} {requirement.operator} ({values})"


def _why_not(term: NodeSelectorTerm, node: core.Node) -> str:
    if not term.match_expressions and not term.match_fields:
        return "the term is empty, and matches no node"
    failing = [
        f"{written(requirement)} fails: {_labelled(requirement, node)}"
        for requirement in term.match_expressions
        if not _holds(NodeSelectorTerm(match_expressions=(requirement,)), node)
    ]
    failing += [
        f"{written(requirement)} fails: the node's name is {node.name}"
        for requirement in term.match_fields
        if not _holds(NodeSelectorTerm(match_fields=(requirement,)), node)
    ]
    return ", and ".join(failing)


def _holds(term: NodeSelectorTerm, node: core.Node) -> bool:
    return selectors.matcher(NodeSelector((term,)))(node.name, node.metadata.labels)


def _labelled(requirement: NodeSelectorRequirement, node: core.Node) -> str:
    value = node.metadata.labels.get(requirement.key)
    return f"the node has no label {requirement.key}" if value is None else f"the node's label has the value {value!r}"
