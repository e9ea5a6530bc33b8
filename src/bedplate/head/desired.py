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
    resolved = resolve.resolve(tree, node)
    rendered = render(tree, resolved)
    return Desired(
        node=node,
        revision=revision,
        files=tuple(file.value for file in rendered.files.values()),
        unmanaged=tuple(rendered.unmanaged),
        packages=tuple(rendered.packages),
        services=tuple(service.value for service in rendered.services.values()),
        environment={name: given.value for name, given in rendered.environment.items()},
        labels={name: given.value for name, given in rendered.labels.items()},
        taints=tuple(taint.value for taint in rendered.taints.values()),
        flags=tuple(flag.value for flag in rendered.flags.values()),
        excludes=_excludes(rendered.excludes),
        checks=tuple(check.value for check in rendered.checks.values()),
        settings={name: given.value for name, given in resolved.settings.items()},
        data_node=rendered.data_node is not None,
        warnings=tuple(rendered.warnings),
    )


def _excludes(excludes: Sequence[Exclude]) -> dict[str, tuple[str, ...]]:
    lists: dict[str, list[str]] = {}
    for exclude in excludes:
        lists.setdefault(exclude.mode, []).append(exclude.pattern)
    return {mode: tuple(patterns) for mode, patterns in sorted(lists.items())}
