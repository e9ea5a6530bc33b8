"""What holds for a node: its roles, services, labels and the rest, each with the object that gave it.

In: a tree and a node's name. Out: `Resolved`, a value. A role of the node itself beats one of an overlay, the overlay
of higher priority beats the lower (the first by name among equals), an overlay beats the category; the winner counts
whole. The cost is that of the node's own roles and label sets; other nodes are not looked at. What nodes of one
category have in common is worked out once per tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bedplate.head.entities.base import EXCLUDE_MODES, ExcludeListSnippet, Role
from bedplate.head.entities.kubernetes import AppGroup, Application, ApplicationEnvironment, LabelSet
from bedplate.head.entities.nodes import ConfigurationOverlay, PhysicalNode
from bedplate.head.entities.roles import GenericRoleEnvironment, KubeletRole
from bedplate.head.objects import Obj, Value
from bedplate.head.schema.entity import Field
from bedplate.head.tree import Tree

__all__ = ["Exclude", "Given", "Resolved", "RoleGiven", "Source", "inherited", "resolve", "roles_of"]


class Source(NamedTuple):
    """The object that gave something; `part` is the role, label set or application in it."""

    mode: str
    key: str
    part: str = ""

    def __str__(self) -> str:
        mode = "overlay" if self.mode == "configurationoverlay" else self.mode
        return f"{mode}:{self.key}"


class RoleGiven(NamedTuple):
    """A role that holds, who gave it, and who would have, best first."""

    role: Obj
    source: Source
    beaten: tuple[Source, ...] = ()


class Given(NamedTuple):
    """A label, a variable or a value that holds, who gave it, and what was beaten."""

    value: str
    source: Source
    beaten: tuple[tuple[str, Source], ...] = ()


class Exclude(NamedTuple):
    """A path pattern in one of the exclude lists."""

    mode: str
    pattern: str
    source: Source


@dataclass(frozen=True, slots=True)
class Resolved:
    """All that holds for a node. `settings` are its own and inherited values by attribute. Nodes of one `group` have
    the same roles, services, environment, excludes and overlays; None: the node has roles or services of its own."""

    node: Obj
    roles: Mapping[str, RoleGiven]
    services: Mapping[str, tuple[Obj, Source]]
    labels: Mapping[str, Given]
    environment: Mapping[str, Given]
    excludes: Sequence[Exclude]
    settings: Mapping[str, Given]
    overlays: Sequence[Obj]
    group: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Common:
    """What nodes of one category in the same overlays have in common, as long as they have nothing of their own."""

    roles: Mapping[str, RoleGiven]
    cluster: Obj | None
    services: Mapping[str, tuple[Obj, Source]]
    environment: Mapping[str, Given]
    excludes: Sequence[Exclude]
    overlays: Sequence[Obj]
    group: tuple[object, ...] | None


def resolve(tree: Tree, name: str) -> Resolved:
    """What holds for a node. Raises `NotFound`."""
    node = tree.get(("device", name))
    common = _common(tree, node)
    return Resolved(
        node=node,
        roles=common.roles,
        services=common.services,
        labels=_labels(tree, node, common.cluster),
        environment=common.environment,
        excludes=common.excludes,
        settings=_settings(tree, node),
        overlays=common.overlays,
        group=common.group,
    )


def roles_of(tree: Tree, node: Obj) -> Mapping[str, RoleGiven]:
    """The roles that hold, by name."""
    return _common(tree, node).roles


def _common(tree: Tree, node: Obj) -> _Common:
    """Worked out once per tree where nodes are alike: nothing is assigned to them, and the same overlays name them."""
    category = node.values.get("category")
    if node.children and (node.below("roles") or node.below("services")):
        return _found(tree, node, _overlays(tree, node), None)
    naming = tree.referrers("device", node.key, _OVERLAY)
    # Who has many nodes has them in categories; names of overlays are looked at only where there are some.
    place: tuple[object, ...] = ("common", node.type, category)
    if naming:
        place += tuple(sorted(name for name, ways in naming.items() if "nodes" in ways))
    common: _Common | None = tree.derived.get(place)
    if common is None:
        common = tree.derived[place] = _found(tree, node, _overlays(tree, node), place)
    return common


def _found(tree: Tree, node: Obj, overlays: Sequence[Obj], group: tuple[object, ...] | None) -> _Common:
    roles = _roles(tree, node, overlays)
    cluster = _cluster(tree, roles)
    services = _services(tree, node, roles)
    return _Common(
        roles, cluster, services, _environment(roles, cluster), _excludes(tree, node, roles, cluster), overlays, group
    )


def _overlays(tree: Tree, node: Obj) -> list[Obj]:
    """The overlays a node is a member of, the winner first."""
    names = {name for name, ways in tree.referrers("device", node.key, _OVERLAY).items() if "nodes" in ways}
    category = str(node.values.get("category", ""))
    if category:
        referrers = tree.referrers("category", category, _OVERLAY)
        names.update(name for name, ways in referrers.items() if "categories" in ways)
    if node.type == "HeadNode":
        every = tree.mode(_OVERLAY).items()
        names.update(name for name, overlay in every if ConfigurationOverlay.all_head_nodes.value(overlay))
    overlays = [overlay for name in names if (overlay := tree.find(_OVERLAY, name)) is not None]
    return sorted(overlays, key=lambda overlay: (-_priority(overlay), overlay.key))


_OVERLAY = "configurationoverlay"


def _priority(overlay: Obj) -> int:
    priority = ConfigurationOverlay.priority.value(overlay)
    assert isinstance(priority, int)
    return priority


def _roles(tree: Tree, node: Obj, overlays: Sequence[Obj]) -> dict[str, RoleGiven]:
    givers = [("device", node), *((_OVERLAY, overlay) for overlay in overlays)]
    category = tree.find("category", str(node.values.get("category", "")))
    if category is not None:
        givers.append(("category", category))
    offers: dict[str, list[tuple[Obj, Source]]] = {}
    for mode, giver in givers:
        for name, role in giver.below("roles").items():
            offers.setdefault(name, []).append((role, Source(mode, giver.key, name)))
    return {
        name: RoleGiven(candidates[0][0], candidates[0][1], tuple(source for _, source in candidates[1:]))
        for name, candidates in sorted(offers.items())
    }


def inherited(tree: Tree, obj: Obj, field: Field) -> tuple[Value | None, Source | None]:
    """A field's value and, when another object gave it, that object."""
    if field.attribute in obj.values or not field.inherits:
        return field.value(obj), None
    through = tree.schema.of(obj).attributes[field.inherits]
    assert isinstance(through, Field)
    mode, key = through.kind.target_mode, str(through.value(obj) or "")
    target = tree.find(mode, key)
    if target is None:
        return field.value(obj), None
    row = tree.schema.of(target).attributes[field.attribute]
    assert isinstance(row, Field)
    return row.value(target), Source(mode, key)


def _settings(tree: Tree, node: Obj) -> Mapping[str, Given]:
    """Worked out once per tree for nodes of one category that set none of them."""
    fields = [field for field in tree.schema.of(node).fields if field.inherits]
    if any(field.attribute in node.values for field in fields):
        return _found_settings(tree, node, fields)
    place = ("settings", node.type, *(node.values.get(field.inherits) for field in fields))
    settings: Mapping[str, Given] | None = tree.derived.get(place)
    if settings is None:
        settings = tree.derived[place] = _found_settings(tree, node, fields)
    return settings


def _found_settings(tree: Tree, node: Obj, fields: Iterable[Field]) -> dict[str, Given]:
    settings = {}
    for field in fields:
        value, source = inherited(tree, node, field)
        if value not in (None, "", ()):
            assert value is not None
            settings[field.attribute] = Given(field.kind.show(value), source or Source("device", node.key))
    return settings


def _cluster(tree: Tree, roles: Mapping[str, RoleGiven]) -> Obj | None:
    given = roles.get("kubelet")
    return tree.find("kubernetes", str(KubeletRole.kubernetes_cluster.value(given.role))) if given else None


_BY_A_ROLE: Mapping[str, Value] = {"belongs_to_role": True}


def _services(tree: Tree, node: Obj, roles: Mapping[str, RoleGiven]) -> dict[str, tuple[Obj, Source]]:
    services: dict[str, tuple[Obj, Source]] = {}
    category = tree.find("category", str(node.values.get("category", "")))
    if category is not None:
        services.update(
            (name, (service, Source("category", category.key))) for name, service in category.below("services").items()
        )
    services.update((name, (service, Source("device", node.key))) for name, service in node.below("services").items())
    for given in roles.values():
        entity = tree.schema.of(given.role)
        assert issubclass(entity, Role)
        if entity.add_services.value(given.role):
            for name in entity.services(given.role):
                if name in services:
                    service, source = services[name]
                    services[name] = (service.with_value("belongs_to_role", True), source)
                else:
                    services[name] = (Obj("Service", name, _BY_A_ROLE), given.source)
    return dict(sorted(services.items()))


def _labels(tree: Tree, node: Obj, cluster: Obj | None) -> dict[str, Given]:
    """Labels of the node's cluster; where two sets disagree the last by name wins, and the other is reported."""
    if cluster is None or not cluster.below("label_sets"):
        return {}
    named = tree.referrers("device", node.key, "kubernetes").get(cluster.key, frozenset())
    category = str(PhysicalNode.category.value(node)) if node.type == "PhysicalNode" else ""
    table: dict[str, Given] = {}
    for name, label_set in sorted(cluster.below("label_sets").items()):
        categories = LabelSet.categories.value(label_set)
        assert isinstance(categories, tuple)
        if f"label_sets[{name}].nodes" not in named and category not in categories:
            continue
        labels = LabelSet.labels.value(label_set)
        assert isinstance(labels, tuple)
        for label in labels:
            key, _, value = label.partition("=")
            _give(table, key, value, Source("kubernetes", cluster.key, name))
    return dict(sorted(table.items()))


def _give(table: dict[str, Given], name: str, value: str, source: Source) -> None:
    before = table.get(name)
    beaten = ((before.value, before.source), *before.beaten) if before is not None else ()
    table[name] = Given(value, source, beaten)


def _environment(roles: Mapping[str, RoleGiven], cluster: Obj | None) -> dict[str, Given]:
    """Variables exported to the node: of enabled applications, then of roles."""
    variables: dict[str, Given] = {}
    for application, source in _applications(cluster):
        for name, variable in sorted(application.below("environment").items()):
            if ApplicationEnvironment.nodes_environment.value(variable):
                _give(variables, name, str(ApplicationEnvironment.value.value(variable)), source)
    for given in roles.values():
        for name, variable in sorted(given.role.below("environments").items()):
            if GenericRoleEnvironment.node_environment.value(variable):
                _give(variables, name, str(GenericRoleEnvironment.value.value(variable)), given.source)
    return dict(sorted(variables.items()))


def _applications(cluster: Obj | None) -> list[tuple[Obj, Source]]:
    """The applications of a cluster that are enabled, as is their group."""
    if cluster is None:
        return []
    return [
        (application, Source("kubernetes", cluster.key, name))
        for _, group in sorted(cluster.below("app_groups").items())
        if AppGroup.enabled.value(group)
        for name, application in sorted(group.below("applications").items())
        if Application.enabled.value(application)
    ]


def _excludes(tree: Tree, node: Obj, roles: Mapping[str, RoleGiven], cluster: Obj | None) -> list[Exclude]:
    """The lists of the node's category in their order, then the snippets of applications and roles."""
    givers = [*_applications(cluster), *((given.role, given.source) for given in roles.values())]
    own: dict[tuple[str, str], Exclude] = {}
    category = tree.find("category", str(node.values.get("category", "")))
    if category is not None:
        for mode in EXCLUDE_MODES:
            lines = category.values.get(f"exclude_list_{mode}", ())
            assert isinstance(lines, tuple)
            for line in lines:
                own.setdefault((mode, line), Exclude(mode, line, Source("category", category.key)))
    excludes: dict[tuple[str, str], Exclude] = {}
    for giver, source in givers:
        for snippet in giver.below("exclude_list_snippets").values():
            patterns = ExcludeListSnippet.exclude_list.value(snippet)
            assert isinstance(patterns, tuple)
            for mode in ExcludeListSnippet.modes(snippet):
                for pattern in patterns:
                    excludes.setdefault((mode, pattern), Exclude(mode, pattern, source))
    return [*own.values(), *(excludes[place] for place in sorted(excludes) if place not in own)]
