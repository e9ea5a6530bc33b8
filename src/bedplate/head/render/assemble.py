"""All that holds on a node, put together from its roles, its overlays' files and what resolution found.

In: a tree and a resolved node. Out: `Rendered`; the same as facts for `explain` and `plan`, with nothing of a file's
content, and of a secret file not even its digest as text; one rendered file. Where two would write the same file, an
overlay's customization beats a role, and the role that comes first by name beats the other; who lost is named.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from bedplate.api.desired import Check, File, Flag, Service, Taint
from bedplate.core import errors
from bedplate.head import resolve
from bedplate.head.entities.nodes import Customization, PhysicalNode
from bedplate.head.entities.nodes import Service as ServiceEntity
from bedplate.head.entities.site import CHECK_ROLES, HealthCheck
from bedplate.head.explain import Fact, Place, Renderer
from bedplate.head.objects import Obj
from bedplate.head.render import docker, etcd, firewall, generic, kubelet, presence, proxy
from bedplate.head.render.values import Held, Part, Rendered
from bedplate.head.resolve import Exclude, Given, Resolved, RoleGiven, Source
from bedplate.head.tree import Tree

__all__ = ["ENVIRONMENT", "RENDERERS", "render", "rendered_file"]

ENVIRONMENT = "/etc/profile.d/bedplate.sh"
_KEPT_IN = ("sync", "update")

RoleRenderer = Callable[[Tree, Resolved, RoleGiven], Part]

_ROLES: Mapping[str, RoleRenderer] = {
    "DockerHostRole": docker.render,
    "EtcdHostRole": etcd.render,
    "FirewallRole": firewall.render,
    "GenericRole": generic.render,
    "KubeletRole": kubelet.render,
    "KubernetesApiServerProxyRole": proxy.render,
}


def render(tree: Tree, resolved: Resolved) -> Rendered:
    """What a node's roles, overlays and cluster mean for it."""
    parts = [
        (given, _ROLES[given.role.type](tree, resolved, given))
        for given in resolved.roles.values()
        if given.role.type in _ROLES
    ]
    files, unmanaged = _files(resolved, parts)
    flags: dict[str, Held[Flag]] = {}
    taints: dict[str, Held[Taint]] = {}
    packages: dict[str, Source] = {}
    provided = presence.provided(tree, resolved)
    for given, part in parts:
        flags.update((flag.name, Held(flag, given.source)) for flag in part.flags)
        taints.update((taint.text, Held(taint, given.source)) for taint in part.taints)
        for package in part.packages if given.role.key not in provided else ():
            packages.setdefault(package, given.source)
    return Rendered(
        files=files,
        unmanaged=unmanaged,
        packages=dict(sorted(packages.items())),
        services=_services(resolved, parts),
        environment=resolved.environment,
        labels=_labels(resolved, parts),
        taints=dict(sorted(taints.items())),
        flags=dict(sorted(flags.items())),
        excludes=_excludes(resolved, parts),
        checks=_checks_of(tree, resolved),
        data_node=_data_node(resolved, parts),
        warnings={warning: given.source for given, part in parts for warning in part.warnings},
    )


_Parts = Iterable[tuple[RoleGiven, Part]]


def _files(resolved: Resolved, parts: _Parts) -> tuple[dict[str, Held[File]], dict[str, Source]]:
    """What is written, and what is left alone: who comes first decides."""
    files: dict[str, Held[File]] = {}
    unmanaged: dict[str, Source] = {}
    for file, path, source in [*_customizations(resolved), *_of_roles(parts), *_environment(resolved)]:
        if path in files:
            first = files[path]
            if file is not None and not first.next_best:
                files[path] = first._replace(next_best=str(source))
        elif path not in unmanaged:
            if file is None:
                unmanaged[path] = source
            else:
                files[path] = Held(file, source)
    return dict(sorted(files.items())), dict(sorted(unmanaged.items()))


_Offer = tuple[File | None, str, Source]
"""A file, or None for one that is left alone, its path, and who offers it."""


def _customizations(resolved: Resolved) -> Iterable[_Offer]:
    for overlay in resolved.overlays:
        for name, obj in sorted(overlay.below("customizations").items()):
            path = str(Customization.filename.value(obj))
            source = Source("configurationoverlay", overlay.key, name)
            if path and Customization.disabled.value(obj):
                yield None, path, source
            elif path:
                mode = (str(Customization.filemask.value(obj)) or "0644").zfill(4)
                yield File(path=path, content=str(Customization.content.value(obj)), mode=mode), path, source


def _of_roles(parts: _Parts) -> Iterable[_Offer]:
    for given, part in parts:
        for file in part.files:
            yield file, file.path, given.source
        for path in part.unmanaged:
            yield None, path, given.source


def _environment(resolved: Resolved) -> Iterable[_Offer]:
    """The variables of applications and roles that are meant for nodes, for every shell on the node."""
    if resolved.environment:
        lines = [f"export {name}={shlex.quote(given.value)}\n" for name, given in resolved.environment.items()]
        source = next(iter(resolved.environment.values())).source
        yield File(path=ENVIRONMENT, content="".join(lines)), ENVIRONMENT, source


def _services(resolved: Resolved, parts: _Parts) -> dict[str, Held[Service]]:
    serial = {name: group for _, part in parts for name, group in part.serial.items()}
    return {
        name: Held(_service(name, obj, serial.get(name, "")), source)
        for name, (obj, source) in resolved.services.items()
    }


def _service(name: str, obj: Obj, serial: str) -> Service:
    if not obj.values or set(obj.values) == {"belongs_to_role"}:
        return Service(name=name, serial=serial)
    timeout, script_timeout, interval = (
        field.value(obj)
        for field in (
            ServiceEntity.timeout,
            ServiceEntity.sickness_check_script_timeout,
            ServiceEntity.sickness_check_interval,
        )
    )
    assert isinstance(timeout, int)
    assert isinstance(script_timeout, int)
    assert isinstance(interval, int)
    return Service(
        name=name,
        run_if=str(ServiceEntity.run_if.value(obj)),
        monitored=bool(ServiceEntity.monitored.value(obj)),
        autostart=bool(ServiceEntity.autostart.value(obj)),
        timeout=timeout,
        sickness_script=str(ServiceEntity.sickness_check_script.value(obj)),
        sickness_timeout=script_timeout,
        sickness_interval=interval,
        serial=serial,
    )


def _labels(resolved: Resolved, parts: _Parts) -> dict[str, Given]:
    """Labels of label sets, and those by which Kubernetes tells what a node is for."""
    labels = {name: Given(value, given.source) for given, part in parts for name, value in part.labels.items()}
    return dict(sorted({**labels, **resolved.labels}.items()))


def _excludes(resolved: Resolved, parts: _Parts) -> list[Exclude]:
    """Patterns of snippets, and where roles keep their data: an image knows nothing about it."""
    excludes = {(exclude.mode, exclude.pattern): exclude for exclude in resolved.excludes}
    for given, part in parts:
        for mode in _KEPT_IN:
            for folder in part.kept:
                excludes.setdefault((mode, folder), Exclude(mode, folder, given.source))
    return [excludes[place] for place in sorted(excludes)]


def _data_node(resolved: Resolved, parts: _Parts) -> Source | None:
    if resolved.node.type == "PhysicalNode" and PhysicalNode.data_node.value(resolved.node):
        return Source("device", resolved.node.key)
    return next((given.source for given, part in parts if part.data_node), None)


def _checks_of(tree: Tree, resolved: Resolved) -> dict[str, Held[Check]]:
    """The checks of a node."""
    return {
        name: check
        for name, check in _enabled(tree).items()
        if CHECK_ROLES.get(name) is None or CHECK_ROLES[name] in resolved.roles
    }


def _enabled(tree: Tree) -> dict[str, Held[Check]]:
    if "checks" not in tree.derived:
        checks = {}
        for name, obj in sorted(tree.mode("healthcheck").items()):
            if HealthCheck.enabled.value(obj):
                interval = HealthCheck.interval.value(obj)
                assert isinstance(interval, float | int)
                checks[name] = Held(Check(name=name, interval_s=float(interval)), Source("healthcheck", name))
        tree.derived["checks"] = checks
    enabled: dict[str, Held[Check]] = tree.derived["checks"]
    return enabled


def _facts_of(tree: Tree, resolved: Resolved) -> Iterable[Fact]:
    """The facts that rendering adds to those of resolution."""
    rendered = render(tree, resolved)
    for file, source, next_best in rendered.files.values():
        yield _file_fact(file, source, next_best)
    for path, origin in rendered.unmanaged.items():
        yield Fact("unmanaged", path, "left unchanged", origin)
    for name, origin in rendered.packages.items():
        yield Fact("package", name, "", origin)
    for name, (flag, source, _) in rendered.flags.items():
        yield Fact("flag", name, flag.argument, source)
    for name, (_, source, _) in rendered.taints.items():
        yield Fact("taint", name, "", source)
    for name, (check, source, _) in rendered.checks.items():
        yield Fact("check", name, f"every {check.interval_s:g} s", source)
    for text, origin in rendered.warnings.items():
        yield Fact("warning", text, "", origin)
    for exclude in rendered.excludes:
        yield Fact("exclude", f"{exclude.mode}:{exclude.pattern}", exclude.pattern, exclude.source)
    for name, given in rendered.labels.items():
        if name not in resolved.labels:
            yield Fact("label", name, given.value, given.source)


def _file_fact(file: File, source: Source, next_best: str) -> Fact:
    owner = "" if (file.owner, file.group) == ("root", "root") else f" {file.owner}:{file.group}"
    digest = file.digest
    value = f"{file.mode}{owner} {'secret' if file.secret else f'sha256:{digest[:16]}'}"
    return Fact("file", file.path, value, source, next_best, (digest, file.block), _effects(file))


_ABOUT_THE_NODE = frozenset({"EtcdHostRole", "FirewallRole", "KubeletRole"})
"""Roles whose part knows the node; that of the others is the same for all nodes of a group."""


def _own_facts_of(
    tree: Tree, resolved: Resolved, first: Resolved, common: Mapping[Place, Fact]
) -> Iterable[Fact] | None:
    """The files that differ from those of the node that speaks for the group; None when more differs."""
    facts: list[Fact] = []
    if resolved.node is first.node:
        return facts
    for name, given in resolved.roles.items():
        if given.role.type not in _ABOUT_THE_NODE:
            continue
        part = _ROLES[given.role.type](tree, resolved, given)
        place = ("part", first.node.key, name)
        other: Part | None = tree.derived.get(place)
        if other is None:
            other = tree.derived[place] = _ROLES[given.role.type](tree, first, given)
        if not part.is_like(other):
            return None
        for file, same in zip(part.files, other.files, strict=True):
            if file is same or file == same:
                continue
            fact = common.get(("file", file.path))
            if fact is not None and fact.source == given.source:
                facts.append(_file_fact(file, given.source, fact.next_best))
    return facts


def _effects(file: File) -> tuple[tuple[str, str], ...]:
    tested = (("test", file.path),) if file.test else ()
    acts = tuple((file.action.lower(), service) for service in file.services) if file.action != "NONE" else ()
    return (*tested, *acts)


RENDERERS: Sequence[Renderer] = (Renderer(_facts_of, _own_facts_of),)
"""What `explain` and `plan` are given so that rendered files take part."""


def rendered_file(tree: Tree, node: str, path: str) -> File:
    """One file of a node as it may be shown: a secret one without its content. Raises `NotFound`."""
    file = render(tree, resolve.resolve(tree, node)).files.get(path)
    if file is None:
        raise errors.NotFound(
            f"no file {path} is managed on {node}", hint=f"explain on device {node} lists the managed files"
        )
    return file.value.masked()
