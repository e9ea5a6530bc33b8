"""The pages that only read: overview, lists, objects, health, roles, search.

In: visits. Out: pages. Where an address has `?at=REVISION` the tree of that revision answers, and nothing can be
edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from bedplate.api.headapi import CheckHistory, Sample
from bedplate.core import errors
from bedplate.head import Obj, Path, Tree, explain, may, resolve
from bedplate.head.render import rendered_file
from bedplate.head.schema import ranges
from bedplate.head.schema.entity import Submode
from bedplate.ui.web import credentials, events, links, machines, plots, progress, views
from bedplate.ui.web.links import plural
from bedplate.ui.web.views import Cell, Column, Listed
from bedplate.ui.web.visit import Visit

__all__ = ["app_groups", "file", "health", "overview", "roles", "search", "show", "states_column"]

_DRAWN = 5000
_NAMED = 100
"""More machines than this are small squares in the overview, without their names."""
_TROUBLED = 12
_MACHINES = 100
_WORST_FIRST = ("down", "bad", "unknown", "good")


async def overview(visit: Visit) -> web.StreamResponse:
    """How the site is: what is in trouble, what was changed and happened, then all machines by category, clusters."""
    fleet = machines.machines(visit.tree, visit.service.health)
    troubled = sorted(
        (machine for machine in fleet if machine.tone in ("bad", "down")),
        key=lambda machine: _WORST_FIRST.index(machine.tone),
    )
    drawn = fleet if len(fleet) <= _DRAWN else [machine for machine in fleet if machine.tone != "good"][:_DRAWN]
    return visit.page(
        "overview.html",
        "Overview",
        groups=machines.by_category(visit.tree, drawn),
        is_dense=len(drawn) > _NAMED,
        drawn=len(drawn),
        total=len(fleet),
        troubled_total=len(troubled),
        tally=machines.tally(fleet),
        ending=credentials.ending(visit.service) if may(visit.person, "read", "tokens") else 0,
        troubled=troubled[:_TROUBLED],
        troubled_more=max(len(troubled) - _TROUBLED, 0),
        rollout=await progress.current(visit),
        behind=await progress.behind(visit),
        clusters=machines.clusters(visit.tree, visit.service.health),
        modes=[_counted(visit.tree, mode) for mode in visit.tree.schema.modes],
        revisions=await visit.service.head.log(6),
        notices=events.together(visit.service.notices.latest(200))[:6],
    )


def _counted(tree: Tree, mode: str) -> tuple[str, str, int]:
    """What a mode holds, in words that fit the number, its name, and the number."""
    count = len(tree.mode(mode))
    return links.counted(tree.schema, mode, count), mode, count


async def show(visit: Visit) -> web.StreamResponse:
    """An object, or a list of them."""
    path = visit.path()
    tree, at = await _tree(visit)
    return await _object(visit, tree, at, path) if len(path) % 2 == 0 else _list(visit, tree, at, path)


async def _tree(visit: Visit) -> tuple[Tree, int | None]:
    number = visit.request.query.get("at", "")
    if not number:
        return visit.tree, None
    if not number.isdecimal():
        raise errors.Invalid(f"{number!r} is not a revision", hint="history lists them")
    return await visit.service.head.tree_at(int(number)), int(number)


def _list(visit: Visit, tree: Tree, at: int | None, place: Path) -> web.StreamResponse:
    query = visit.request.query
    asked = Listed(
        query.get("q", "").strip(), _number(query.get("sort")), query.get("order") == "down", _number(query.get("page"))
    )
    submode, _ = views.submode_at(tree, place)
    place = (*place[:-1], submode.shell if len(place) == 1 else submode.attribute)
    second = states_column(visit) if place == ("device",) and at is None else None
    table = views.listing(tree, place, asked, visit.session.is_changed if at is None else _never, second)
    title = plural(tree.schema, place[0]) if len(place) == 1 else submode.label
    return visit.page(
        "list.html",
        title,
        place=place,
        submode=submode,
        table=table,
        columns=list(enumerate(table.headers)),
        is_choosable=visit.may_edit
        and at is None
        and len(place) == 1
        and may(visit.person, "edit", f"mode/{place[0]}"),
        asked=asked,
        at=at,
        crumbs=_crumbs(tree, place),
    )


def _never(path: Path) -> bool:
    return False


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 7 else 0


def states_column(visit: Visit) -> Column:
    """The list of devices says how each one is; one that is only staged has no state yet."""
    present, health = visit.service.head.tree.mode("device"), visit.service.health

    def cell(obj: Obj) -> Cell:
        if obj.key not in present:
            return Cell("new")
        machine = machines.machine(obj, health)
        words = (machine.state, *([machine.health] if machine.failing else []))
        return Cell(" ".join(words), states=words)

    return Column("State", cell)


def _crumbs(tree: Tree, path: Path) -> list[tuple[str, str]]:
    """The way down to an object or a list, with the page of each step."""
    crumbs = [(plural(tree.schema, path[0]), links.show(path[:1]))]
    for depth in range(2, len(path) + 1):
        label = path[depth - 1]
        if depth % 2:
            label = tree.schema.submode(tree.get(path[: depth - 1]), label).label
        crumbs.append((label, links.show(path[:depth])))
    return crumbs


async def _object(visit: Visit, tree: Tree, at: int | None, path: Path) -> web.StreamResponse:
    obj = tree.get(path)
    entity = tree.schema.of(obj)
    values: dict[str, Any] = {
        "path": path,
        "obj": obj,
        "noun": entity.noun,
        "doc": (entity.__doc__ or "").strip().splitlines()[0],
        "parameters": views.parameters(tree, obj, path),
        "submodes": _submodes(visit, tree, obj, path),
        "crumbs": _crumbs(tree, path),
        "at": at,
        "is_staged": at is None and visit.session.is_changed(path),
        "is_indexed": len(path) > 2 and views.submode_at(tree, path[:-1])[0].indexed,
        "revisions": await visit.service.head.log(6, path),
        "users": _users(tree, path) if len(path) == 2 else [],
    }
    if path[0] == "device" and len(path) == 2:
        return await _device(visit, tree, obj, values)
    if path[0] == "kubernetes" and len(path) == 2:
        return await _cluster(visit, obj.key, values)
    return visit.page("object.html", obj.key, **values)


def _submodes(visit: Visit, tree: Tree, obj: Obj, path: Path) -> list[tuple[Submode, Path, views.Table]]:
    """The lists below an object, each with its first lines."""
    tables = []
    for submode in tree.schema.of(obj).submodes:
        place = (*path, submode.attribute)
        is_staged = visit.session.is_changed if tree is visit.tree else _never
        tables.append((submode, place, views.listing(tree, place, Listed(size=25), is_staged)))
    return tables


def _users(tree: Tree, path: Path) -> list[tuple[str, str, str]]:
    """Who refers to an object: in words, its page, and through which fields."""
    return [
        (links.title((by, name)), links.show((by, name)), ", ".join(sorted(ways)))
        for by in tree.schema.modes
        for name, ways in sorted(
            tree.referrers(path[0], path[1], by).items(), key=lambda entry: ranges.natural(entry[0])
        )
    ]


async def _cluster(visit: Visit, name: str, values: dict[str, Any]) -> web.StreamResponse:
    """A cluster, with its checks and how its applications stand; of one that is only staged nothing is known."""
    clusters = visit.service.clusters
    state, histories = None, list[CheckHistory]()
    if clusters is not None and visit.service.head.tree.find("kubernetes", name) is not None:
        known = await clusters.health(name)
        state, histories = known.state, known.history
    drawn = {kept.check: _plotted(kept.check, kept.samples) for kept in histories}
    return visit.page("cluster.html", name, state=state, plots=drawn, **values)


async def _device(visit: Visit, tree: Tree, obj: Obj, values: dict[str, Any]) -> web.StreamResponse:
    name = obj.key
    resolved = resolve.resolve(tree, name)
    history = await visit.service.health.history(name)
    return visit.page(
        "device.html",
        name,
        machine=machines.machines(tree, visit.service.health, [name])[0],
        roles=[
            (given.role, given.source, links.cause(tree, given.source), [str(source) for source in given.beaten])
            for given in resolved.roles.values()
        ],
        plots={check: _plotted(check, samples) for check, samples in history.items()},
        facts=[
            (fact, revision, links.cause(tree, fact.source))
            for fact, revision in explain.explain(tree, name, renderers=visit.service.renderers)
        ],
        notices=visit.service.notices.latest(15, host=name),
        standing_now=(await progress.states(visit, [name])).get(name) if values["at"] is None else None,
        pending=await progress.pending(visit, name) if values["at"] is None else None,
        tree=tree,
        **values,
    )


async def file(visit: Visit) -> web.StreamResponse:
    """A managed file of a node as it is rendered; a secret one without its content."""
    tree, at = await _tree(visit)
    node, path = visit.request.query.get("node", ""), visit.request.query.get("path", "")
    tree.get(("device", node))
    rendered = rendered_file(tree, node, path)
    return visit.page("file.html", path, node=node, file=rendered, lines=None, at=at, back=links.show(("device", node)))


async def health(visit: Visit) -> web.StreamResponse:
    """Every machine with what its checks say now, those in trouble first; `?check=` gives one with its history."""
    fleet = machines.machines(visit.tree, visit.service.health)
    fleet.sort(key=lambda machine: _WORST_FIRST.index(machine.tone))
    check = visit.request.query.get("check", "")
    if check:
        fleet = [machine for machine in fleet if check in machine.checks]
    pages = max(-(-len(fleet) // _MACHINES), 1)
    page = min(max(_number(visit.request.query.get("page")), 1), pages)
    shown = fleet[(page - 1) * _MACHINES : page * _MACHINES]
    return visit.page(
        "health.html",
        check or "Health",
        machines=shown,
        states=await progress.states(visit, [machine.name for machine in shown]),
        check=check,
        plots={machine.name: await _plot(visit, machine.name, check) for machine in shown} if check else {},
        tally=machines.tally(fleet),
        total=len(fleet),
        page=page,
        pages=pages,
    )


async def _plot(visit: Visit, node: str, check: str) -> plots.Plot:
    return _plotted(check, (await visit.service.health.history(node, check)).get(check, ()))


def _plotted(check: str, samples: Sequence[Sample]) -> plots.Plot:
    return plots.plot(
        check, [plots.Reading(sample.time, sample.status, sample.value, sample.info) for sample in samples]
    )


async def roles(visit: Visit) -> web.StreamResponse:
    """Every role with who gives it and to which nodes."""
    givers = machines.givers(visit.tree)
    members = {(giver.mode, giver.key): ranges.compress(giver.nodes) for giver in givers}
    rows = [
        (
            giver,
            links.show((giver.mode, giver.key, "roles", giver.role.key)),
            links.show((giver.mode, giver.key)),
            members[giver.mode, giver.key],
        )
        for giver in givers
    ]
    return visit.page("roles.html", "Roles", givers=rows)


async def app_groups(visit: Visit) -> web.StreamResponse:
    """The app groups of all clusters, with their applications."""
    rows = [
        (cluster, group, ("kubernetes", cluster, "app_groups", group.key))
        for cluster, obj in sorted(visit.tree.mode("kubernetes").items())
        for _, group in sorted(obj.below("app_groups").items())
    ]
    return visit.page("appgroups.html", "App groups", groups=rows, applied=_standing(visit), schema=visit.tree.schema)


def _standing(visit: Visit) -> dict[tuple[str, str, str], str]:
    """How the applications of all clusters stand, by cluster, group and name."""
    clusters, present = visit.service.clusters, visit.service.head.tree.mode("kubernetes")
    if clusters is None:
        return {}
    states = [application for name in present for application in clusters.applications.states(name)]
    return {(application.cluster, application.group, application.name): application.state for application in states}


async def search(visit: Visit) -> web.StreamResponse:
    """Objects by what they are called and what they hold."""
    query = visit.request.query.get("q", "").strip()[:200]
    results = views.search(visit.tree, query)
    return visit.page("search.html", "Search", query=query, results=results)
