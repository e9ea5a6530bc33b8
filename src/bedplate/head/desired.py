"""The desired state of one node, as data for its agent.

In: a tree and a node's name. Out: `api.desired.Desired`, which has a digest that only changes when something is to be
done on the node. It holds secret files whole: whoever shows it to people masks it first.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.api.desired import Desired
from bedplate.head import resolve
from bedplate.head.render import render
from bedplate.head.resolve import Exclude
from bedplate.head.tree import Tree

__all__ = ["Desired", "desired"]


def desired(tree: Tree, node: str, revision: int = 0) -> Desired:
    """What a node should be; `revision` is the tree's, for the agent to report back. Raises `NotFound`."""
    held = resolve.resolve(tree, node)
    found = render(tree, held)
    return Desired(
        node=node,
        revision=revision,
        files=tuple(file.value for file in found.files.values()),
        unmanaged=tuple(found.unmanaged),
        packages=tuple(found.packages),
        services=tuple(service.value for service in found.services.values()),
        environment={name: given.value for name, given in found.environment.items()},
        labels={name: given.value for name, given in found.labels.items()},
        taints=tuple(taint.value for taint in found.taints.values()),
        flags=tuple(flag.value for flag in found.flags.values()),
        excludes=_excludes(found.excludes),
        checks=tuple(check.value for check in found.checks.values()),
        settings={name: given.value for name, given in held.settings.items()},
        data_node=found.data_node is not None,
        warnings=tuple(found.warnings),
    )


def _excludes(found: Sequence[Exclude]) -> dict[str, tuple[str, ...]]:
    lists: dict[str, list[str]] = {}
    for exclude in found:
        lists.setdefault(exclude.mode, []).append(exclude.pattern)
    return {mode: tuple(patterns) for mode, patterns in sorted(lists.items())}
