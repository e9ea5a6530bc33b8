"""Kubernetes clusters: how their applications and users stand, and what their checks say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from bedplate.api.headapi import ApplicationState, ClusterState
from bedplate.api.states import APPLICATIONS, PEOPLE
from bedplate.core import errors
from bedplate.head import Obj
from bedplate.head.entities.people import KubernetesUser
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__ = ["in_clusters", "selected", "show_checks", "users_table"]


def in_clusters(desk: Desk) -> bool:
    """Whether one is somewhere in the mode of Kubernetes clusters."""
    return desk.place[:1] == ("kubernetes",)


def selected(desk: Desk, words: Iterable[str] = ()) -> list[str]:
    """The clusters that are named, or the selected one, or all."""
    names = [path[1] for word in words for path in desk.several(("kubernetes",), word)]
    if not names and len(desk.place) > 1:
        names = [desk.place[1]]
    return names or list(desk.session.children(("kubernetes",)))


async def show_checks(desk: Desk, args: Arguments, names: Iterable[str], status: str) -> None:
    """The newest results of the checks of clusters."""
    rows: list[list[Cell]] = []
    for name in names:
        state = await desk.backend.fleet.cluster(name)
        rows += [
            [name, check.check, check.status, check.value, check.since, check.time, check.info, check.remedy]
            for check in state.checks
            if status in ("", check.status)
        ]
        _tell(desk, args, state)
    headers = ["Cluster (key)", "Check", "Result", "Value", "Since", "Time", "Info", "Remedy"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 1}), times=frozenset({4, 5})), args)


def _where(desk: Desk) -> str:
    return "" if in_clusters(desk) else "it works in kubernetes mode: kubernetes appstatus"


@command(
    "appstatus",
    "Show how the applications of a Kubernetes cluster stand: applied, failed and why, since when",
    "appstatus [OPTIONS] [<cluster> ...]",
    options=[
        VERBOSE,
        DELIMITER,
        Option("-s", "--state", f"Show only applications in this state: {', '.join(APPLICATIONS)}", value="state"),
    ],
    examples=[
        ("kubernetes appstatus", "Of the selected cluster, or of all"),
        ("kubernetes use default; appstatus -s failed", "What could not be applied, with the object and the reason"),
    ],
    where=_where,
    words=lambda desk, args: completion.objects(desk, ("kubernetes",)),
    most=None,
)
async def _appstatus(desk: Desk, args: Arguments) -> None:
    only = args.value("state").lower()
    if only and only not in APPLICATIONS:
        raise Usage(f"there is no state {only!r}", hint=f"one of {', '.join(APPLICATIONS)}")
    states = [await desk.backend.fleet.cluster(name) for name in selected(desk, args.words)]
    shown = [application for state in states for application in state.applications if only in ("", application.state)]
    rows = [row for application in shown for row in _rows(application)]
    headers = ["Cluster (key)", "Group", "Application", "State", "Since", "Objects", "Object", "Reason"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 1, 2, 6, 7}), times=frozenset({4})), args)
    for state in states:
        _tell(desk, args, state)
    if not args.flag("delimiter") and shown:
        counts = Counter(application.state for application in shown)
        desk.say(f"{len(shown)} applications: {', '.join(f'{counts[word]} {word}' for word in APPLICATIONS)}")


@command(
    "userstatus",
    "Show who may do what in a Kubernetes cluster, until when certificates hold, and what was not made and why",
    "userstatus [OPTIONS] [<cluster> ...]",
    options=[
        VERBOSE,
        DELIMITER,
        Option("-s", "--state", f"Show only users in this state: {', '.join(PEOPLE)}", value="state"),
    ],
    examples=[
        ("kubernetes userstatus", "Of the selected cluster, or of all"),
        ("kubernetes use default; userstatus -s conflict", "Users whom another program made, with other values"),
    ],
    where=lambda desk: "" if in_clusters(desk) else "it works in kubernetes mode: kubernetes userstatus",
    words=lambda desk, args: completion.objects(desk, ("kubernetes",)),
    most=None,
)
async def _userstatus(desk: Desk, args: Arguments) -> None:
    only = args.value("state").lower()
    if only and only not in PEOPLE:
        raise Usage(f"there is no state {only!r}", hint=f"one of {', '.join(PEOPLE)}")
    states = [await desk.backend.fleet.people(name) for name in selected(desk, args.words)]
    rows: list[list[Cell]] = [
        [
            row.cluster,
            row.user,
            row.namespace,
            row.role,
            row.state,
            row.expires[:10],
            row.owner,
            row.since,
            "; ".join(text for text in (row.reason, row.access) if text),
        ]
        for state in states
        for row in state.people
        if only in ("", row.state)
    ]
    headers = ["Cluster (key)", "User", "Namespace", "Role", "State", "Certificate", "Kept by", "Since", "Reason"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 1, 2, 8}), times=frozenset({7})), args)
    for state in states:
        if not state.reached and not args.flag("delimiter"):
            desk.note(f"note: the users of {state.cluster} cannot be read: {state.trouble}")


@command(
    "adoptuser",
    "Stage users of the selected cluster as users of the tree, with the rights that they have",
    "adoptuser <user> ...",
    examples=[("kubernetes use default; adoptuser john; commit", "The head keeps john from now on")],
    where=lambda desk: (
        "" if in_clusters(desk) and len(desk.place) > 1 else "select a cluster first: kubernetes use default"
    ),
    least=1,
    most=None,
)
async def _adoptuser(desk: Desk, args: Arguments) -> None:
    from bedplate.head.people.adopting import as_object  # few shells need it

    cluster = desk.place[1]
    state = await desk.backend.fleet.people(cluster)
    adopted = [as_object(user, state.people) for user in args.words]
    for obj in adopted:
        desk.session.put(("kubernetes", cluster, "kubernetes_users", obj.key), obj)


async def users_table(desk: Desk, cluster: str, objects: Mapping[str, Obj]) -> Table | None:
    """The users of the tree as `list` shows them, with what became of them; None where no daemon can be asked."""
    try:
        state = await desk.backend.fleet.people(cluster)
    except errors.BedplateError:
        return None
    if not state.reached:
        return None
    rows: list[list[Cell]] = []
    for name, obj in sorted(objects.items()):
        own = [row for row in state.people if row.user == name]
        spaces = [KubernetesUser.own_namespace(obj), *sorted(obj.below("more_namespaces"))]
        places = "*" if KubernetesUser.is_cluster_wide(obj) else ",".join(spaces)
        worst = next((row for word in reversed(PEOPLE) for row in own if row.state == word), None)
        rows.append(
            [
                name,
                str(KubernetesUser.role.value(obj)),
                places,
                own[0].expires[:10] if own else "",
                worst.state if worst is not None else "",
                "; ".join(dict.fromkeys(text for row in own for text in (row.reason, row.access) if text)),
            ]
        )
    return Table(["Name (key)", "Role", "Namespace", "Certificate", "State", "Reason"], rows, uncut=frozenset({0, 2}))


def _rows(application: ApplicationState) -> list[list[Cell]]:
    """A row for each failure and each warning, or one."""
    reasons = [(failure.object, failure.reason) for failure in application.failures]
    reasons += [("", f"warning: {text}") for text in application.warnings]
    first: list[Cell] = [
        application.cluster,
        application.group,
        application.name,
        application.state,
        application.since,
        application.objects,
    ]
    return [[*first, what, why] for what, why in reasons or [("", "")]]


def _tell(desk: Desk, args: Arguments, state: ClusterState) -> None:
    if not state.reached and not args.flag("delimiter"):
        desk.note(f"note: the head does not reach {state.cluster}: {state.trouble}")
