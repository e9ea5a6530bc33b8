"""Machines that become nodes: tokens for them, who asks, approve and deny."""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.core.duration import parse_duration
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__ = ["on_devices"]

_HEADERS = ["Node", "State", "Asked", "MAC addresses", "Host name", "Serial", "Key", "Decided by", "Why"]


def on_devices(desk: Desk) -> str:
    """Where commands about machines are offered."""
    return "" if desk.place[:1] == ("device",) else "it works in device mode: enter device first"


def _devices(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, ("device",))


@command(
    "enrolments",
    "List the machines that asked to be enrolled as nodes; those that wait need approve or deny",
    "enrolments [OPTIONS]",
    options=[VERBOSE, DELIMITER, Option("-p", "--pending", "Only those that wait for approve or deny")],
    examples=[("device enrolments", "All of the last days"), ("enrolments -p", "Those that wait")],
    where=on_devices,
)
async def _enrolments(desk: Desk, args: Arguments) -> None:
    rows: list[list[Cell]] = []
    for item in await desk.backend.fleet.enrolments():
        if args.flag("pending") and item.state != "pending":
            continue
        facts, why = item.facts, "; ".join(item.reasons) if item.state == "pending" else item.text
        macs = ", ".join(facts.macs)
        rows.append(
            [item.node, item.state, item.asked, macs, facts.hostname, facts.serial, item.key[:16], item.by, why]
        )
    desk.table(Table(_HEADERS, rows, uncut=frozenset({0, 8}), times=frozenset({2})), args)


_REASON = Option("-m", "--message", "Why, for the machine and for the list", value="text")


@command(
    "approve",
    "Let machines that asked for it be nodes: their agents get a certificate",
    "approve [OPTIONS] <node> ...",
    options=[_REASON],
    examples=[
        ("device approve node001", "The machine that waits to be node001; enrolments shows what it says of itself"),
        ("approve node00[1-3]", "Several"),
    ],
    where=on_devices,
    words=_devices,
    least=1,
    most=None,
)
async def _approve(desk: Desk, args: Arguments) -> None:
    await _decide(desk, args, approve=True)


@command(
    "deny",
    "Refuse machines that asked to be nodes",
    "deny [OPTIONS] <node> ...",
    options=[_REASON],
    examples=[("device deny node001", "The machine that waits to be node001 gets no certificate")],
    where=on_devices,
    words=_devices,
    least=1,
    most=None,
)
async def _deny(desk: Desk, args: Arguments) -> None:
    await _decide(desk, args, approve=False)


async def _decide(desk: Desk, args: Arguments, *, approve: bool) -> None:
    from bedplate.head.schema import ranges

    for word in args.words:
        try:
            names = list(ranges.expand(word)) if any(mark in word for mark in ("[", "..", ",")) else [word]
        except ValueError as wrong:
            raise Usage(str(wrong), hint="separate names with commas; ranges look like node00[4-6]") from None
        for name in names:
            decided = await desk.backend.fleet.decide_enrolment(name, approve=approve, text=args.value("message"))
            until = f", its certificate is good until {decided.ends}" if decided.ends else ""
            desk.say(f"{decided.node}: {decided.state}{until}")


@command(
    "enroltoken",
    "Make a token with which the agent of a device, or new nodes of a category, can enrol",
    "enroltoken [OPTIONS] [<device>]",
    "enroltoken [OPTIONS] --category <category>",
    options=[
        Option("-c", "--category", "For new nodes of this category", value="category"),
        Option("-u", "--uses", "With --category: how many nodes it enrols (1)", value="count"),
        Option("-l", "--lasts", "How long it enrols, such as 30m or 24h (1h)", value="duration"),
        Option("", "--replace", "Also a device that has a certificate, which then no longer counts"),
    ],
    examples=[
        ("device enroltoken node001", "For the agent of node001, once within an hour"),
        ("enroltoken -c default -u 20 -l 24h", "For 20 new nodes of a category within a day"),
    ],
    where=on_devices,
    words=_devices,
    most=1,
)
async def _enroltoken(desk: Desk, args: Arguments) -> None:
    category = args.value("category")
    if category and args.words:
        raise Usage("a token is for a device or for a category, not for both", hint="help enroltoken shows how")
    if not category and args.flag("uses"):
        raise Usage("--uses is for --category: the token of a device works once", hint="help enroltoken shows how")
    if category:
        kind, subject = "enrol-category", desk.find(("category",), category)[1]
    else:
        kind, subject = "enrol", (desk.find(("device",), args.words[0]) if args.words else desk.here()[:2])[1]
    uses = args.number("uses", 1)
    if not 1 <= uses <= 100_000:
        raise Usage("--uses must be from 1 to 100000", hint="make several tokens")
    token = await desk.backend.fleet.create_token(
        subject,
        kind=kind,
        uses=uses,
        lasts_s=_seconds(args.value("lasts", "1h")),
        replace=args.flag("replace"),
    )
    desk.say(token.token)
    desk.note(f"good until {token.about.expires}; shown only once")


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as wrong:
        raise Usage(f"--lasts: {wrong}", hint="for example 30m or 24h") from None
    if not 1 <= seconds <= 31 * 86400:
        raise Usage(f"--lasts {text} must be from 1s to 744h", hint="make another token later")
    return seconds
