"""Every refusal of a commit through every front end: page, REST, `cmsh` with and without a daemon, import and undo.

Each case names who tries what, and the words of the refusal. A refused commit changes nothing, whichever door it came
through.
"""

from __future__ import annotations

import asyncio
import pathlib
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.head.committing import commit_session
from tests.ui import commit_doors as doors
from tests.ui.commit_doors import DOORS, NORMAL, Door, Refused, Step, World

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.head.policy import Identity
from bedplate.head.schema import codec
from bedplate.head.session import Session
from bedplate.ui.local import LocalBackend

NOTES = Step("category", "default", "notes", "words")


class Case(NamedTuple):
    """`excludes`: doors to which the case does not apply, for the reason that stands beside it."""

    steps: tuple[Step, ...]
    refusal: str
    user: str = "admin"
    admins: tuple[str, ...] = ("admin",)
    excludes: Callable[[type[Door]], bool] = lambda door: False


def _is_local(door: type[Door]) -> bool:
    """Whoever opens the data folder is an administrator, and has that access from the folder, not from a user."""
    return door.is_local


LOSES = r"would lose their own access|role admin would be left"
CASES = {
    "an operator edits users": Case(
        (Step("user", "arno", "enabled", "no"),), "may not edit user objects", "olga", excludes=_is_local
    ),
    "an operator sets a secret": Case(
        (Step("kubernetes", "default", "kube_ca_key", "other"),), "may not edit secrets", "olga", excludes=_is_local
    ),
    "an operator edits a head node": Case(
        (Step("device", "basecm10", "notes", "x"),), "basecm10.*reaches head nodes", "olga", excludes=_is_local
    ),
    "an operator gives an overlay to head nodes": Case(
        (Step("configurationoverlay", "tools", "all_head_nodes", "yes"),),
        "tools.*reaches head nodes",
        "olga",
        excludes=_is_local,
    ),
    "an operator edits a cluster of head nodes": Case(
        (Step("kubernetes", "heads", "notes", "x"),), "heads.*reaches head nodes", "olga", excludes=_is_local
    ),
    "an auditor edits anything": Case((NOTES,), "may not edit|has read-only access", "arno", excludes=_is_local),
    "the last administrator is removed": Case((Step("user", "admin"),), LOSES),
    "the last administrator is disabled": Case((Step("user", "admin", "enabled", "no"),), LOSES),
    "the last administrator is demoted": Case((Step("user", "admin", "role", "operator"),), LOSES),
    "all administrators are disabled": Case(
        (Step("user", "admin", "enabled", "no"), Step("user", "anna", "enabled", "no")),
        LOSES,
        admins=("admin", "anna"),
        # Each object is a commit of its own there.
        excludes=lambda door: door is doors.RestObjectDoor,
    ),
    "an administrator gives up their own access": Case(
        (Step("user", "admin", "role", "auditor"),),
        "admin would lose their own access",
        admins=("admin", "anna"),
        excludes=_is_local,
    ),
}


def _table() -> list[object]:
    return [
        pytest.param(case, door, id=f"{name} - {door.__name__}")
        for name, case in CASES.items()
        for door in DOORS
        if not case.excludes(door)
    ]


async def refused(world: World, door: Door, steps: tuple[Step, ...]) -> str:
    """What the door says; nothing may have changed."""
    before, revision = world.head.tree, world.head.revision
    with pytest.raises(Refused) as refusal:
        await door.attempt(steps)
    assert (world.head.tree, world.head.revision) == (before, revision)
    return " ".join(str(refusal.value).split())


@pytest.mark.parametrize(("case", "door"), _table())
async def test_a_commit_against_the_rules_is_refused(case: Case, door: type[Door], tmp_path: pathlib.Path) -> None:
    async with doors.world(tmp_path, case.steps, case.admins) as world:
        said = await refused(world, door(world, case.user), case.steps)
        assert re.search(case.refusal, said), said


@pytest.mark.parametrize("door", DOORS)
async def test_a_passive_head_refuses_every_commit(door: type[Door], tmp_path: pathlib.Path) -> None:
    async with doors.world(tmp_path, (NOTES,)) as world:
        world.head.standing = doors.Passive()
        said = await refused(world, door(world, "admin"), (NOTES,))
        assert "passive" in said


@pytest.mark.parametrize("door", DOORS)
async def test_a_dangling_reference_is_refused(door: type[Door], tmp_path: pathlib.Path) -> None:
    step = Step("category", "default", "software_image", "old-image")
    async with doors.world(tmp_path, (step,)) as world:
        session = world.head.session()
        session.remove(("softwareimage", "old-image"))
        await commit_session(world.head, session)
        said = await refused(world, door(world, "admin"), (step,))
        assert "old-image" in said


@pytest.mark.parametrize("door", [door for door in DOORS if not door.replaces])
async def test_a_commit_over_another_ones_is_refused(door: type[Door], tmp_path: pathlib.Path) -> None:
    async with doors.world(tmp_path, (NOTES,)) as world:
        seat = door(world, "admin")
        is_later = not door.is_undo
        if is_later:
            await seat.stage((NOTES,))
        session = world.head.session()
        session.set(("category", "default"), "notes", "theirs")
        await commit_session(world.head, session, "bob")
        revision = world.head.revision
        with pytest.raises(Refused) as refusal:
            if not is_later:
                await seat.stage((NOTES,))
            await seat.commit()
        assert "bob" in str(refusal.value)
        assert world.head.revision == revision


@pytest.mark.parametrize("door", DOORS)
async def test_what_the_rules_allow_is_committed(door: type[Door], tmp_path: pathlib.Path) -> None:
    """Else a door that refuses everything would pass for a good one."""
    async with doors.world(tmp_path, (NOTES,)) as world:
        await door(world, "admin" if door.is_local else "olga").attempt((NOTES,))
        assert world.head.revision == NORMAL + 1
        assert world.head.tree.get(("category", "default")).values["notes"] == "words"


@pytest.mark.parametrize("door", [door for door in DOORS if door.is_local])
async def test_the_local_shell_may_disable_an_administrator_while_another_stays(
    door: type[Door], tmp_path: pathlib.Path
) -> None:
    step = Step("user", "admin", "enabled", "no")
    async with doors.world(tmp_path, (step,), ("admin", "anna")) as world:
        await door(world, "admin").attempt((step,))
        assert world.head.revision == NORMAL + 1


@pytest.mark.parametrize("door", [doors.ShellDoor, doors.RemoteShellDoor])
async def test_force_lets_no_last_administrator_go(door: type[doors.ShellDoor], tmp_path: pathlib.Path) -> None:
    step = Step("user", "admin", "enabled", "no")
    async with doors.world(tmp_path, (step,)) as world:
        backend = await door(world, "admin")._backend()
        session = Session(backend.tree)
        step.stage(session)
        with pytest.raises(errors.Invalid, match=LOSES):
            await backend.commit(session.edits(), force=True)
        assert world.head.revision == NORMAL


AT_ONCE = (
    *(doors.PageDoor, doors.RestDoor, doors.RestObjectDoor, doors.RestImportDoor),
    *(doors.RemoteShellDoor, doors.ShellDoor),
)


@pytest.mark.parametrize("door", AT_ONCE)
async def test_of_two_administrators_who_disable_each_other_at_once_one_stays(
    door: type[Door], tmp_path: pathlib.Path
) -> None:
    async with doors.world(tmp_path, (NOTES,), ("admin", "anna")) as world:
        seats = [(door(world, "admin"), "anna"), (door(world, "anna"), "admin")]
        for seat, other in seats:
            await seat.stage((Step("user", other, "enabled", "no"),))
        results = await asyncio.gather(*(seat.commit() for seat, _ in seats), return_exceptions=True)
        assert [type(result) for result in results].count(Refused) == 1, results
        enabled = [
            name
            for name, user in world.head.tree.mode("user").items()
            if user.values.get("role") == "admin" and user.values.get("enabled", True)
        ]
        assert len(enabled) == 1
        assert world.head.revision == NORMAL + 1


FRONTS = {
    "page": (doors.PageDoor, doors.PageUndoDoor),
    "REST": (doors.RestDoor, doors.RestObjectDoor, doors.RestImportDoor, doors.RestUndoDoor),
    "cmsh": (doors.ShellDoor, doors.ShellImportDoor, doors.ShellUndoDoor),
    "cmsh over a daemon": (doors.RemoteShellDoor, doors.RemoteShellImportDoor, doors.RemoteShellUndoDoor),
}
WAYS = (
    "the last administrator is removed",
    "the last administrator is disabled",
    "the last administrator is demoted",
    "all administrators are disabled",
    "two disable each other at once",
)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("way", WAYS)
def test_the_table_of_lockouts_has_no_hole(front: str, way: str) -> None:
    """Four doors, five ways, each with what is typed, imported and undone there: see the tests above."""
    tried = AT_ONCE if way not in CASES else tuple(door for door in DOORS if not CASES[way].excludes(door))
    assert set(FRONTS[front]) & set(tried)
    if way in CASES and len(CASES[way].steps) == 1:
        assert set(FRONTS[front]) <= set(tried)
    assert {door for group in FRONTS.values() for door in group} == set(DOORS)


async def test_a_nonce_of_another_user_is_another_nonce(tmp_path: pathlib.Path) -> None:
    async with doors.world(tmp_path, (NOTES,)) as world:
        admin, olga = await world.client("admin"), await world.client("olga")
        base = world.head.tree.get(("category", "default")).revision
        edit = headapi.Edit(mode="category", key="default", base=base, object={"values": {"notes": "admin's"}})
        first = await admin.commit([edit], nonce="n1")
        assert first is not None
        again = await admin.commit([edit], nonce="n1")
        assert again is not None
        assert again.number == first.number
        with pytest.raises(errors.Conflict, match="admin"):
            await olga.commit([edit], nonce="n1")
        undone = await admin.undo(first.number, nonce="u1")
        assert undone is not None
        again = await admin.undo(first.number, nonce="u1")
        assert again is not None
        assert again.number == undone.number == world.head.revision
        with pytest.raises(errors.Conflict, match="undone"):
            await olga.undo(first.number, nonce="u1")


@pytest.mark.parametrize("is_local", [True, False], ids=["local", "remote"])
async def test_a_commit_is_marked_as_an_undo_only_if_it_is_exactly_that(is_local: bool, tmp_path: pathlib.Path) -> None:
    async with doors.world(tmp_path, (NOTES,)) as world:
        seat: Door = doors.ShellDoor(world, "admin") if is_local else doors.RemoteShellDoor(world, "admin")
        backend = await seat._backend()  # type: ignore[attr-defined]
        session = Session(backend.tree)
        session.set(("category", "default"), "notes", "not what it was")
        revision = await backend.commit(session.edits(), undoes=NORMAL)
        assert (revision.number, revision.undoes) == (NORMAL + 1, 0)
        session = Session(backend.tree)
        session.stage(await backend.undo_changes(NORMAL + 1), backend.unseal)
        revision = await backend.commit(session.edits(), undoes=NORMAL + 1)
        assert (revision.number, revision.undoes) == (NORMAL + 2, NORMAL + 1)


async def test_an_identity_that_was_disabled_after_it_was_admitted_is_refused(tmp_path: pathlib.Path) -> None:
    async with doors.world(tmp_path, (NOTES,)) as world:
        olga = Identity("olga", "operator", "token")
        backend = LocalBackend(world.head, name="basecm10", identity=olga)
        staged = Session(backend.tree)
        NOTES.stage(staged)
        session = world.head.session()
        session.set(("user", "olga"), "enabled", "no")
        await commit_session(world.head, session)
        revision = world.head.revision
        for attempt in (backend.commit, backend.check):
            with pytest.raises(errors.Denied, match="olga was disabled"):
                await attempt(staged.edits())
        assert world.head.revision == revision


@pytest.mark.parametrize("door", [doors.ShellDoor, doors.RemoteShellDoor, doors.ShellImportDoor, doors.RestImportDoor])
async def test_an_object_has_one_limit_of_size_at_every_door(door: type[Door], tmp_path: pathlib.Path) -> None:
    largest = SCHEMA.largest_bytes
    async with doors.world(tmp_path, (NOTES,)) as world:
        for letters, is_taken in ((largest - 500, True), (largest + 1, False)):
            step = Step("category", "default", "notes", "é" * (letters // 2))
            if is_taken:
                await door(world, "admin").attempt((step,))
                assert world.head.revision == NORMAL + 1
            else:
                said = await refused(world, door(world, "admin"), (step,))
                assert "500KiB" in said, said[-300:]


async def test_the_size_of_a_small_object_is_not_measured_and_of_a_large_one_is_its_json() -> None:
    small = Obj("Category", "x", {"notes": "n"})
    assert codec.size(SCHEMA, small) == 0
    for letter, factor in (("x", 1), ("\x01", 6), ("é", 2)):
        large = Obj("Category", "x", {"notes": letter * SCHEMA.largest_bytes})
        assert codec.size(SCHEMA, large) >= factor * SCHEMA.largest_bytes
