"""Power and reboots: what machines are asked to do once, through their agents or management controllers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bedplate.api.headapi import ErrandKind
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, command
from bedplate.ui.cmsh.commands.enrolments import on_devices
from bedplate.ui.cmsh.commands.look import CATEGORY, NODES, chosen
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__: list[str] = []

_WORDS = {
    "status": "whether devices are on, and what they were asked to do",
    "on": "only for machines with a management controller",
    "off": "stop everything and switch off",
    "reset": "start again at once, without stopping anything first",
}
_KINDS: Mapping[str, ErrandKind] = {"on": "on", "off": "off", "reset": "reset"}
_POWER = {"UP": "ON", "DOWN": "OFF", "UNKNOWN": "UNKNOWN"}


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, ("device",)) if args.words else list(_WORDS.items())


def _devices(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, ("device",))


def _named(desk: Desk, args: Arguments, words: Iterable[str]) -> list[str]:
    """The devices that are named, chosen by an option, or selected; none is an error where something happens to it."""
    paths = chosen(desk, args)
    listed = [path for word in words for path in desk.several(("device",), word)]
    if listed:
        paths = listed
    if paths is None and len(desk.place) > 1:
        paths = [desk.place[:2]]
    return [path[1] for path in paths or ()]


@command(
    "power",
    "Show whether devices are on, switch them on or off, or reset them",
    "power [OPTIONS] status [<device> ...]",
    "power [OPTIONS] on|off|reset [<device> ...]",
    options=[VERBOSE, DELIMITER, NODES, CATEGORY],
    examples=[
        ("device power status", "All devices, and what they were last asked to do"),
        ("power -n node00[1-3] off", "Three devices; their agents switch them off"),
        ("power reset node001", "Start again at once"),
    ],
    where=on_devices,
    words=_words,
    least=1,
    most=None,
)
async def _power(desk: Desk, args: Arguments) -> None:
    action, *words = args.words
    if action not in _WORDS:
        raise Usage(f"power: {action!r} must be one of {', '.join(_WORDS)}", hint="help power shows how")
    names = _named(desk, args, words)
    if action == "status":
        await _status(desk, args, names)
        return
    if not names:
        raise Usage(f"power {action} needs devices", hint="name them, or choose them with -n or -c")
    await _ask(desk, names, _KINDS[action])


async def _status(desk: Desk, args: Arguments, names: list[str]) -> None:
    chosen_names = names or list(desk.session.children(("device",)))
    latest = {errand.node: errand for errand in await desk.backend.fleet.errands(names)}
    rows: list[list[Cell]] = []
    for state in await desk.backend.states(chosen_names):
        errand = latest.get(state.node)
        asked = [errand.kind, errand.state, errand.by, errand.asked, errand.text] if errand is not None else [""] * 5
        rows.append([state.node, _POWER[state.state], *asked])
    headers = ["Hostname (key)", "Power", "Asked for", "State", "By", "Asked", "Why"]
    desk.table(Table(headers, rows, times=frozenset({5})), args)


@command(
    "reboot",
    "Reboot devices, through their agents",
    "reboot [OPTIONS] [<device> ...]",
    options=[NODES, CATEGORY],
    examples=[
        ("device reboot node001", "One device; events and power status show what became of it"),
        ("device reboot -n node00[1-3]", "Several"),
    ],
    where=on_devices,
    words=_devices,
    most=None,
)
async def _reboot(desk: Desk, args: Arguments) -> None:
    names = _named(desk, args, args.words)
    if not names:
        raise Usage("reboot needs devices", hint="name them, or choose them with -n or -c")
    await _ask(desk, names, "reboot")


async def _ask(desk: Desk, names: list[str], kind: ErrandKind) -> None:
    for errand in await desk.backend.fleet.ask_errand(names, kind):
        if errand.kind == "on":
            desk.say(f"{errand.node}: {'is switched on' if errand.state == 'done' else errand.text or errand.state}")
        else:
            desk.say(f"{errand.node}: {errand.kind} asked for, good until {errand.until}")
