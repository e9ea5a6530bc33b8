"""What nodes tell: status, what is pending, their machines, health and its history, events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from bedplate.api.headapi import CheckHistory, CheckState, NodeState, System
from bedplate.api.states import RESULTS, STATES
from bedplate.core import errors
from bedplate.core.clock import parse_rfc3339
from bedplate.head import Path
from bedplate.head.schema import ranges
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command
from bedplate.ui.cmsh.commands.clusters import in_clusters, selected, show_checks
from bedplate.ui.cmsh.commands.look import CATEGORY, NODES, chosen
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__: list[str] = []

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _on_devices(desk: Desk) -> str:
    return "" if desk.place[:1] == ("device",) else "it works in device mode: device status"


def _on_checked(desk: Desk) -> str:
    is_there = desk.place[:1] == ("device",) or in_clusters(desk)
    return "" if is_there else "it works in device and kubernetes mode: device health, kubernetes health"


def _devices(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, ("device",))


def _asked(desk: Desk, args: Arguments) -> list[str]:
    """The devices that are named, chosen by an option, selected, or all of them."""
    paths: list[Path] | None = chosen(desk, args)
    if args.words:
        paths = [path for word in args.words for path in desk.several(("device",), word)]
    if paths is None and len(desk.place) > 1:
        paths = [desk.place[:2]]
    return [path[1] for path in paths] if paths is not None else list(desk.session.children(("device",)))


def _wanted(args: Arguments, known: tuple[str, ...]) -> str:
    word = args.value("state").upper()
    if word and word not in known:
        raise Usage(f"there is no state {word!r}", hint=f"one of {', '.join(known)}")
    return word


def _failing(state: NodeState) -> list[CheckState]:
    return [check for check in state.checks if check.status == "FAIL"]


@command(
    "status",
    "Show which devices report, whether their checks pass, and the revision they have applied",
    "status [OPTIONS] [<device> ...]",
    options=[
        VERBOSE,
        DELIMITER,
        NODES,
        CATEGORY,
        Option("-s", "--state", f"Show only devices in this state: {_either(STATES)}", value="state"),
    ],
    examples=[
        ("device status", "All devices"),
        ("status", "The selected device, or in device mode all"),
        ("status node00[1-3]", "Some of them"),
        ("status -s DOWN", "Devices that have stopped reporting"),
    ],
    where=_on_devices,
    words=_devices,
    most=None,
)
async def _status(desk: Desk, args: Arguments) -> None:
    names, status = set(_asked(desk, args)), _wanted(args, STATES)
    known = [state for state in await desk.backend.states(sorted(names)) if state.node in names]
    states = [state for state in known if status in ("", state.state)]
    rows: list[list[Cell]] = [
        [
            state.node,
            state.state,
            state.health,
            state.applied or "",
            _pending(state),
            state.heard,
            ", ".join(f"{check.check}: {check.info}" if check.info else check.check for check in _failing(state)),
            "; ".join(state.failures),
            state.image,
            state.version,
        ]
        for state in states
    ]
    headers = ["Hostname (key)", "Status", "Health", "Revision", "Pending", "Last report"]
    headers += ["Failing checks", "Failures", "Image", "Agent"]
    desk.table(Table(headers, rows, times=frozenset({5})), args)
    _tell_silent(desk, [state.node for state in states if state.state == "DOWN"])
    if not args.flag("delimiter") and len(known) > 1:
        counts: Counter[str] = Counter(state.state for state in known)
        desk.say(f"{len(known)} devices: {', '.join(f'{counts[state]} {state}' for state in STATES)}")


def _tell_silent(desk: Desk, names: list[str]) -> None:
    """What to do about devices that do not report any more."""
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        desk.note(
            f"note: {', '.join(names[:3])}{more} stopped reporting: see that the machine runs, that it reaches this "
            "head, and that bedplate-agent status on it says that the agent does"
        )


def _pending(state: NodeState) -> Cell:
    """The revision that a node has not applied yet, or that it waits for its batch."""
    return "held" if state.is_held else state.pending or ""


@command(
    "pending",
    "Show what a device has still to change: what it should be now against what it has applied",
    "pending [OPTIONS] [<device> ...]",
    options=[VERBOSE, DELIMITER, NODES, CATEGORY],
    examples=[
        ("device pending", "All devices that are behind"),
        ("pending node001", "The files, services, flags and labels of one"),
    ],
    where=_on_devices,
    words=_devices,
    most=None,
)
async def _pending_command(desk: Desk, args: Arguments) -> None:
    rows: list[list[Cell]] = []
    for state in await desk.backend.states(_asked(desk, args)):
        if not state.heard or not (state.pending or args.words or len(desk.place) > 1):
            continue
        for action in (await desk.backend.fleet.pending(state.node)).actions:
            what = [action.verb, action.old, action.new, action.effect, action.source]
            rows.append([state.node, action.kind, action.name, *what])
    headers = ["Hostname (key)", "Kind", "Name", "Action", "Old", "New", "Effect", "Source"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 2})), args)


def _checks(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    if in_clusters(desk) and not args.words:
        return completion.objects(desk, ("kubernetes",))
    if len(desk.place) == 1 and not args.words:
        return completion.objects(desk, ("device",))
    return [(name, "health check") for name in desk.session.children(("healthcheck",))]


@command(
    "health",
    "Show the latest result of each check of a device or a cluster, or the history of one check",
    "health [OPTIONS] [<check>]",
    "health [OPTIONS] <device or cluster> [<check>]",
    options=[
        VERBOSE,
        DELIMITER,
        Option("-s", "--state", f"Show only checks with this result: {_either(RESULTS)}", value="state"),
    ],
    examples=[
        ("health", "The checks of the selected device, or in device mode of all"),
        ("device health node001", "The checks of a device"),
        ("device health -s FAIL", "What fails anywhere"),
        ("health node001 Docker", "The results of one check that are still known, oldest first"),
        ("kubernetes health default", "The checks of a Kubernetes cluster"),
    ],
    where=_on_checked,
    words=_checks,
    most=2,
)
async def _health_command(desk: Desk, args: Arguments) -> None:
    words, status = list(args.words), _wanted(args, RESULTS)
    if in_clusters(desk):
        await _cluster_health(desk, args, words, status)
        return
    names = [desk.place[1]] if len(desk.place) > 1 else list(desk.session.children(("device",)))
    if words and (len(words) == 2 or len(desk.place) == 1 or desk.named(("device",), words[0]) is not None):
        names = [path[1] for path in desk.several(("device",), words.pop(0))]
    if words:
        await _history(desk, args, names, words[0], status)
        return
    states = await desk.backend.states(names)
    rows: list[list[Cell]] = [
        [state.node, check.check, check.status, check.value, check.since, check.time, check.info, check.remedy]
        for state in states
        for check in state.checks
        if status in ("", check.status)
    ]
    headers = ["Hostname (key)", "Check", "Result", "Value", "Since", "Time", "Info", "Remedy"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 1}), times=frozenset({4, 5})), args)
    if not any(state.checks for state in states) and not args.flag("delimiter"):
        who = "this device has" if len(names) == 1 else "these devices have"
        desk.note(f"note: {who} reported no result of a check")


async def _cluster_health(desk: Desk, args: Arguments, words: list[str], status: str) -> None:
    """Of the named cluster, the selected one, or all."""
    named = []
    if words and (len(words) == 2 or desk.named(("kubernetes",), words[0]) is not None):
        named.append(words.pop(0))
    names = selected(desk, named)
    if words:
        await _history(desk, args, names, words[0], status)
    else:
        await show_checks(desk, args, names, status)


async def _kept(desk: Desk, name: str, check: str) -> list[CheckHistory]:
    """The kept results of a check, of a device or a cluster."""
    if in_clusters(desk):
        return (await desk.backend.fleet.cluster_health(name, check)).history
    return (await desk.backend.health(name, check)).history


async def _history(desk: Desk, args: Arguments, names: Iterable[str], check: str, status: str) -> None:
    rows: list[list[Cell]] = []
    for name in names:
        for kept in await _kept(desk, name, check):
            rows += [
                [name, sample.time, sample.status, sample.value, sample.info, sample.remedy]
                for sample in kept.samples
                if status in ("", sample.status)
            ]
    if not rows and desk.session.tree.find("healthcheck", check) is None:
        raise errors.NotFound(f"there is no check {check!r}", hint="healthcheck list shows them")
    first = "Cluster (key)" if in_clusters(desk) else "Hostname (key)"
    headers = [first, "Timestamp", "Result", "Value", "Info", "Remedy"]
    desk.table(Table(headers, rows, times=frozenset({1})), args)


@command(
    "sysinfo",
    "Show what a device says of its machine",
    "sysinfo [OPTIONS] [<device> ...]",
    options=[VERBOSE, DELIMITER, NODES, CATEGORY],
    examples=[
        ("device use node001; sysinfo", "The selected device"),
        ("device sysinfo node00[1-3]", "Some of them, one after the other"),
        ("device use node001; sysinfo | grep Memory", "One line of it"),
    ],
    where=_on_devices,
    words=_devices,
    most=None,
)
async def _sysinfo(desk: Desk, args: Arguments) -> None:
    names = set(_asked(desk, args))
    states = [state for state in await desk.backend.states(sorted(names)) if state.node in names]
    rows: list[list[Cell]] = [row for state in states if state.system is not None for row in _machine(state)]
    desk.table(Table(["Parameter", "Value"], rows, uncut=frozenset({0, 1})), args)
    silent = [state.node for state in states if state.system is None]
    if silent and not args.flag("delimiter"):
        desk.note(f"note: {ranges.compress(silent)}: no agent has told what this machine is")


def _machine(state: NodeState) -> list[list[Cell]]:
    """What an agent has told; what it could not find out is left out."""
    system = state.system or System()
    told: list[list[Cell]] = [
        ["Distribution", f"{system.id} {system.version}".strip()],
        ["Package manager", system.packages],
        ["Number of cores", system.cores or ""],
        ["Memory", _size(system.memory)],
        ["Disk", _size(system.disk)],
        ["Agent", state.version],
    ]
    known = [row for row in told if row[1] != ""]
    return [["Hostname", state.node], *known, ["Reboot required", "yes" if system.reboot else "no"]]


def _size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size else ""


@command(
    "dumpmonitoringdata",
    "Print what a check of a device or a cluster said between two times",
    "dumpmonitoringdata [OPTIONS] <from> <to> <check>",
    options=[VERBOSE, DELIMITER, NODES],
    examples=[
        ("device use node001; dumpmonitoringdata -1h now Docker", "The results of the last hour"),
        ("device dumpmonitoringdata -n node001 -7d -1d Docker", "Those of a week but for the last day"),
        ("kubernetes use default; dumpmonitoringdata -1h now KubernetesNodesStatus", "Of a cluster"),
    ],
    where=_on_checked,
    words=lambda desk, args: (
        [("-1h", "an hour ago"), ("now", "now")]
        if len(args.words) < 2
        else [(name, "health check") for name in desk.session.children(("healthcheck",))]
    ),
    least=3,
    most=3,
)
async def _dump(desk: Desk, args: Arguments) -> None:
    start, end = (_moment(word, desk.clock.now()) for word in args.words[:2])
    check, paths = args.words[2], chosen(desk, args)
    names = [path[1] for path in paths] if paths is not None else [desk.here()[1]]
    samples = []
    for name in names:
        for kept in await _kept(desk, name, check):
            samples += [sample for sample in kept.samples if start <= parse_rfc3339(sample.time) <= end]
    if not samples and desk.session.tree.find("healthcheck", check) is None:
        raise errors.NotFound(f"there is no check {check!r}", hint="healthcheck list shows them")
    is_data = args.value("delimiter").startswith("{")
    rows: list[list[Cell]] = [
        [sample.time if is_data else _shown(sample.time), sample.status, sample.info]
        for sample in sorted(samples, key=lambda sample: sample.time)
    ]
    desk.table(Table(["Timestamp", "Value", "Info"], rows, uncut=frozenset({0, 1, 2})), args)


def _moment(word: str, now: datetime) -> datetime:
    """`now`, some time ago (`-1h`, `-30m`, `-7d`), or a date and a time. Raises `Usage`."""
    if word == "now":
        return now
    ago = re.fullmatch(r"-([0-9]{1,6})([smhdw])", word)
    if ago is not None:
        return now - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
    try:
        date = datetime.fromisoformat(word.replace("/", "-"))
    except ValueError:
        raise Usage(f"{word!r} is not a time", hint="now, -1h, -30m, -7d, or '2026/01/31 15:00:00'") from None
    return date if date.tzinfo is not None else date.astimezone()


def _shown(time: str) -> str:
    """A time as the manual prints it, in local time."""
    return parse_rfc3339(time).astimezone().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]


@command(
    "events",
    "List the latest notices of the head and of devices, or say whether they are shown here as they come",
    "events [OPTIONS] [<host>]",
    "events on|off",
    options=[Option("-n", "--number", "How many at most (20)", value="count"), VERBOSE, DELIMITER],
    examples=[
        ("events", "The latest 20, oldest first"),
        ("events -n 100 node001", "Those of a device"),
        ("events off", "Show none above the prompt; events on shows them again"),
    ],
    words=lambda desk, args: [*completion.objects(desk, ("device",)), ("on", "show them"), ("off", "show none")],
    most=1,
)
async def _events(desk: Desk, args: Arguments) -> None:
    word = args.words[0] if args.words else ""
    if word in ("on", "off"):
        desk.shows_events = word == "on"
        return
    host = desk.find(("device",), word)[1] if word and desk.named(("device",), word) is not None else word
    notices = list(await desk.backend.notices(args.number("number", 20), host=host))[::-1]
    if word and not notices:
        desk.find(("device",), word)
    rows = [[notice.time, notice.severity, notice.host, notice.text] for notice in notices]
    desk.table(Table(["Time", "Severity", "Host", "Text"], rows, uncut=frozenset({0, 3}), times=frozenset({0})), args)
