"""Software images: copying them to nodes and back, and the trees that they are on the head node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from bedplate.api.headapi import ErrandKind, ErrandState, ImageAction, Transfer
from bedplate.core import errors
from bedplate.head.schema.ranges import expand, natural
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, FAILED, OK, VERBOSE, Arguments, Option, command
from bedplate.ui.cmsh.commands.enrolments import on_devices
from bedplate.ui.cmsh.commands.look import CATEGORY, NODES, chosen
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__: list[str] = []

_POLL_S = 0.1
_SLOWEST_S = 1.0
_EACH = 5
"""Up to so many nodes are shown one by one; of more only how many are how far."""
_SHOWN = 20
_TOLD_S = 2.0
"""How often it is told how far many nodes are."""
_PERCENT = re.compile(r"(\d{1,3})%")
_OVER = ("done", "failed", "expired")

_WRITE = Option("-w", "--write", "Do it; without this it is a trial that tells what would change")
_WAIT = Option("", "--wait", "Wait, and show how far it is, until it is over on every node")
_TIMEOUT = Option("", "--timeout", "With --wait: how many seconds at most (86400)", value="seconds")
_LASTS = Option("", "--lasts", "Seconds after which a node that does not answer is given up (600)", value="seconds")


def _devices(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, ("device",))


def _nodes(desk: Desk, args: Arguments, word: str) -> list[str]:
    paths = chosen(desk, args)
    if args.words:
        paths = [path for name in args.words for path in desk.several(("device",), name)]
    if paths is None and len(desk.place) > 1:
        paths = [desk.place[:2]]
    if not paths:
        raise Usage(f"{word} needs devices", hint="select or name them, or choose them with -n or -c")
    return list(dict.fromkeys(path[1] for path in paths))


@command(
    "imageupdate",
    "Copy their software image to running devices; without -w only tell what would change",
    "imageupdate [OPTIONS] [<device> ...]",
    options=[
        _WRITE,
        _WAIT,
        NODES,
        CATEGORY,
        Option("", "--full", "Wipe what the image does not have, but for the machine's identity; needs --confirm"),
        Option(
            "",
            "--confirm",
            "The devices, by name, that may be wiped (--full), or that are data nodes and may lose files",
            value="list",
        ),
        _TIMEOUT,
        _LASTS,
        Option("-v", "--verbose", "With --wait: list every file"),
    ],
    examples=[
        ("device use node001; imageupdate --wait", "What would change on a device"),
        ("imageupdate -w --wait", "Change it"),
        ("device imageupdate -n node00[4-6] -w --wait", "Several"),
        ("device imageupdate -c default -w --wait", "All of a category, as many at once as the head allows"),
        ("imageupdate --full --confirm node001 -w --wait", "Wipe what the image does not have"),
    ],
    where=on_devices,
    words=_devices,
    most=None,
)
async def _imageupdate(desk: Desk, args: Arguments) -> int | None:
    transfer = Transfer(write=args.flag("write"), full=args.flag("full"), confirm=_confirmed(args))
    return await _ask(desk, args, "imageupdate", transfer)


@command(
    "grabimage",
    "Make the tree of a device the software image; without -w only tell what would change",
    "grabimage [OPTIONS] [<device>]",
    options=[
        _WRITE,
        _WAIT,
        NODES,
        Option("-i", "--image", "Grab into this image (the device's own)", value="image"),
        _TIMEOUT,
        _LASTS,
        Option("-v", "--verbose", "With --wait: list every file"),
    ],
    examples=[
        ("device use node001; grabimage --wait", "What would change in the image"),
        ("device grabimage node001 -w --wait", "Replace the image, in one step, when all of it has arrived"),
        ("device grabimage -i new-image -w --wait node001", "Into another image, which may be new"),
    ],
    where=on_devices,
    words=_devices,
    most=1,
)
async def _grabimage(desk: Desk, args: Arguments) -> int | None:
    return await _ask(desk, args, "grabimage", Transfer(write=args.flag("write"), image=args.value("image") or None))


def _confirmed(args: Arguments) -> list[str]:
    try:
        return list(expand(args.value("confirm"))) if args.flag("confirm") else []
    except ValueError as wrong:
        raise Usage(f"--confirm: {wrong}", hint="names separated by commas, ranges such as node00[1-4]") from None


async def _ask(desk: Desk, args: Arguments, kind: ErrandKind, transfer: Transfer) -> int | None:
    names = _nodes(desk, args, kind)
    timeout_s, lasts_s = args.number("timeout", 86400), args.number("lasts", 600)
    asked = await desk.backend.fleet.ask_errand(names, kind, transfer=transfer, lasts_s=max(1, min(lasts_s, 86400)))
    what = "" if transfer.write else ", as a trial (-w writes)"
    if not args.flag("wait"):
        for errand in asked:
            desk.say(f"{errand.node}: {kind} of {errand.image} asked for{what}")
        desk.note("note: events and device status tell what becomes of it; --wait waits")
        return None
    if not transfer.write:
        desk.note("note: this is a trial, nothing is written; -w writes")
    return await _wait(desk, args, {errand.id for errand in asked}, names, timeout_s)


async def _wait(desk: Desk, args: Arguments, ids: set[str], names: Sequence[str], timeout_s: int) -> int:
    started, told, pause_s = desk.clock.monotonic(), dict[str, str](), _POLL_S
    told_s = -_TOLD_S
    while True:
        errands = [errand for errand in await desk.backend.fleet.errands(names) if errand.id in ids]
        now_s = desk.clock.monotonic()
        for line in _news(errands, told, is_due=now_s - told_s >= _TOLD_S):
            desk.say(line)
            told_s = now_s
        if len(errands) < len(ids) or all(errand.state in _OVER for errand in errands):
            break
        if desk.clock.monotonic() - started > timeout_s:
            left = [errand.node for errand in errands if errand.state not in _OVER]
            raise errors.Unavailable(
                f"it goes on, but is not over yet on {', '.join(left[:_EACH])}", hint="events tell the end"
            )
        await desk.clock.sleep(pause_s)
        pause_s = min(pause_s * 1.2, _SLOWEST_S)
    failed = sorted((errand for errand in errands if errand.state != "done"), key=lambda errand: natural(errand.node))
    for errand in sorted(errands, key=lambda errand: natural(errand.node)):
        _show_lines(desk, args, errand)
    if len(errands) > _EACH:
        for errand in failed:
            desk.say(f"{errand.node}: {errand.state}: {errand.text}")
        desk.say(f"{len(errands) - len(failed)} of {len(errands)} nodes done")
    return FAILED if failed or len(errands) < len(ids) else OK


def _news(errands: Sequence[ErrandState], told: dict[str, str], *, is_due: bool) -> list[str]:
    """What is new since the last look: a line for each node, or one for all where they are many. How far those are is
    told now and then, how many are done at once."""
    if len(errands) > _EACH:
        counts = Counter[str](errand.state for errand in errands)
        words = {"waiting": "waiting", "accepted": "under way", "done": "done", "failed": "failed", "expired": "silent"}
        how_many = ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state])
        how_far = _how_far(errands)
        line = how_many.replace("under way", f"under way ({how_far}%)") if how_far is not None else how_many
        if told.get("counts") == how_many and (told.get("") == line or not is_due):
            return []
        told["counts"], told[""] = how_many, line
        return [line]
    lines = []
    for errand in errands:
        text = {"waiting": "is asked", "expired": "did not answer in time"}.get(errand.state, errand.text)
        line = f"{errand.node}: {errand.state}{f': {text}' if text else ''}"
        if errand.state == "accepted":
            line = f"{errand.node}: {text or 'begins'}"
        if told.get(errand.id) != line:
            told[errand.id] = line
            lines.append(line)
    return lines


def _how_far(errands: Sequence[ErrandState]) -> int | None:
    """The mean percentage of those that are under way and have said one."""
    told = [match[1] for errand in errands if errand.state == "accepted" and (match := _PERCENT.match(errand.text))]
    return sum(min(int(text), 100) for text in told) // len(told) if told else None


def _show_lines(desk: Desk, args: Arguments, errand: ErrandState) -> None:
    """The files of a trial, or all of them where somebody asks."""
    if not errand.lines or (errand.write and not args.flag("verbose")):
        return
    most = len(errand.lines) if args.flag("verbose") else _SHOWN
    for line in errand.lines[:most]:
        desk.say(f"  {errand.node}  {line}")
    if len(errand.lines) > most:
        desk.say(f"  {errand.node}  … (-v shows more)")


# Trees on the head node


def _on_images(desk: Desk) -> str:
    if desk.place[:1] == ("softwareimage",):
        return ""
    return "it works in softwareimage mode: enter softwareimage first"


def _images(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, ("softwareimage",)) if not args.words else ()


def _image(desk: Desk, words: Sequence[str]) -> str:
    if words:
        return desk.find(("softwareimage",), words[0])[1]
    return desk.here()[1]


@command(
    "trees",
    "Show the trees of software images on the head node: whether they can be used, and who has them",
    "trees [OPTIONS]",
    options=[VERBOSE, DELIMITER],
    examples=[("softwareimage trees", "All of them")],
    where=_on_images,
)
async def _trees(desk: Desk, args: Arguments) -> None:
    known = await desk.backend.fleet.images()
    rows: list[list[Cell]] = [
        [item.name, item.path, item.state, item.nodes, item.generation or "", item.changed, item.busy, item.origin]
        for item in known.items
    ]
    headers = ["Name (key)", "Path", "Tree", "Nodes", "Generation", "Changed", "Busy", "Origin"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 1, 2, 6}), times=frozenset({5})), args)


async def _act(desk: Desk, name: str, action: ImageAction) -> None:
    desk.say((await desk.backend.fleet.act_on_image(name, action)).text)


@command(
    "adopt",
    "Make the folder at an image's path an image: mark it, so that it may be copied to devices",
    "adopt [<image>]",
    examples=[("softwareimage adopt default-image", "After its tree was made with debootstrap, dnf or tar")],
    where=_on_images,
    words=_images,
    most=1,
)
async def _adopt(desk: Desk, args: Arguments) -> None:
    await _act(desk, _image(desk, args.words), ImageAction(action="adopt"))


@command(
    "copytree",
    "Copy the tree of another image to the one that is selected or named; it must not have one yet",
    "copytree <from> [<to>]",
    examples=[
        ("softwareimage copytree default-image gpu-image", "After clone default-image gpu-image; set path; commit"),
    ],
    where=_on_images,
    words=lambda desk, args: completion.objects(desk, ("softwareimage",)),
    least=1,
    most=2,
)
async def _copytree(desk: Desk, args: Arguments) -> None:
    source = _image(desk, args.words)
    await _act(desk, _image(desk, args.words[1:]), ImageAction(action="copy", source=source))


@command(
    "removetree",
    "Remove the tree of an image that no device has",
    "removetree <image> --confirm",
    options=[Option("", "--confirm", "The tree cannot be brought back")],
    examples=[("softwareimage removetree old-image --confirm", "The object stays until it is removed, too")],
    where=_on_images,
    words=_images,
    least=1,
    most=1,
)
async def _removetree(desk: Desk, args: Arguments) -> None:
    if not args.flag("confirm"):
        raise Usage("removetree removes every file of the image", hint="add --confirm")
    await _act(desk, _image(desk, args.words), ImageAction(action="remove"))


@command(
    "repository",
    "Bring the repository of Kubernetes packages in an image to a version; without -w only show its file",
    "repository [OPTIONS] <image> <version>",
    options=[Option("-w", "--write", "Write the file; without this it is shown")],
    examples=[
        ("softwareimage repository default-image 1.29", "What the file would be, and what to run in the image then"),
        ("softwareimage repository -w default-image 1.29.4", "Write it; one minor version up, none is skipped"),
    ],
    where=_on_images,
    words=_images,
    least=2,
    most=2,
)
async def _repository(desk: Desk, args: Arguments) -> None:
    name = _image(desk, args.words[:1])
    action = ImageAction(action="repository", version=args.words[1], write=args.flag("write"))
    result = await desk.backend.fleet.act_on_image(name, action)
    desk.say(result.text)
    if result.output and not action.write:
        desk.write(result.output)
    desk.say("then:")
    for line in result.commands:
        desk.say(f"  softwareimage chroot {name} {line}")


@command(
    "chroot",
    "Run a command in the tree of an image, as root on the head node",
    "chroot <image> <command> ...",
    "chroot -t <seconds> <image> <command> ...",
    options=[Option("-t", "--timeout", "How many seconds it may take (3600)", value="seconds")],
    examples=[
        ("softwareimage chroot default-image apt-get install -y kubeadm", "Then device imageupdate -w"),
        ("softwareimage chroot default-image cat /etc/os-release", "Look at something"),
    ],
    where=_on_images,
    words=_images,
    least=2,
    most=None,
    leading=True,
)
async def _chroot(desk: Desk, args: Arguments) -> int:
    name, *words = args.words
    action: Literal["run"] = "run"
    timeout_s = max(1, min(args.number("timeout", 3600), 86400))
    result = await desk.backend.fleet.act_on_image(
        _image(desk, [name]), ImageAction(action=action, command=words, timeout=timeout_s)
    )
    if result.output:
        desk.write(result.output if result.output.endswith("\n") else f"{result.output}\n")
    if result.code:
        desk.note(f"the command ended with {result.code}")
    return FAILED if result.code else OK
