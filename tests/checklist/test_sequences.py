"""Whatever two people type, the tree is that of a simple model: the steps of `tests/head/treemodel`, as lines."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.head.treemodel import FIREWALL, Play, flat, script, settle
from tests.ui.transcripts.driving import Desk, Said, opened

from bedplate.core import errors
from bedplate.head.service import Head
from bedplate.head.session import Session


class ShellHand:
    """The hand of people at shells; a third one undoes."""

    def __init__(self, head: Head) -> None:
        self.desks = [Desk(head, user="person0"), Desk(head, user="person1")]
        self.undoer = Desk(head, user="undoer")

    def session(self, who: int) -> Session:
        self.desks[who].shell.prompt()
        return self.desks[who].shell.desk.session

    async def edit(self, who: int, verb: str, place: str, *words: Any) -> None:
        mode, _, name = place.partition("/")
        for line in [mode, *lines_of(verb, name, *words)]:
            refuse(await self.desks[who].type(line))

    async def refresh(self, who: int, place: str) -> None:
        mode, _, name = place.partition("/")
        await self.desks[who].do(mode, f"use {name}", "refresh")

    async def revert(self, who: int) -> None:
        await self.desks[who].do("revert")

    async def commit(self, who: int) -> None:
        await self.desks[who].do("/")
        refuse(await self.desks[who].type("commit"))

    async def undo(self, number: int) -> None:
        self.undoer.leave()
        refuse(await self.undoer.type(f"undo {number}"))
        await self.undoer.do("commit")


def refuse(said: Said) -> None:
    """An error in words as the error it was."""
    if said.code == 0:
        assert said.err == ""
        return
    assert said.code == 1 and said.err.startswith("error: ") and said.err.count("error") == 1, said
    if "since you started editing" in said.err or "after revision" in said.err or "undo" in said.err:
        raise errors.Conflict(said.err)
    if "already" in said.err:
        raise errors.AlreadyExists(said.err)
    raise errors.NotFound(said.err)


def lines_of(verb: str, name: str, *words: Any) -> list[str]:
    """The lines of a step, typed at the list of the mode."""
    if verb in ("add", "remove"):
        return [f"{verb} {name}"]
    if verb == "port":
        port, has_overlay, has_role = words
        way = f"use {name}" if has_overlay else f"add {name}"
        return [
            way,
            "roles",
            f"{'use' if has_role else 'assign'} {FIREWALL}",
            "openports",
            f"add ACCEPT net {port} tcp fw",
        ]
    if verb == "unport":
        return [f"use {name}", "roles", f"use {FIREWALL}", "openports", f"remove {words[0]}"]
    if verb == "clone":
        return [f"use {name}", f"clone {words[0]}"]
    if verb == "user":
        is_there = len(words) > 1 and words[1]
        return [f"use {name}", "kubernetesusers", f"{'remove' if is_there else 'add'} {words[0]}"]
    if verb == "extra":
        return [f"use {name}", f"set -e {words[0]} {words[-1]}"]
    if verb == "clear":
        return [f"clear {name} {words[0].replace('_', '')}"]
    if verb in ("append", "takeout"):
        command = {"append": "append", "takeout": "removefrom"}[verb]
        return [f"use {name}", f"{command} trusteddomains {words[0]}"]
    parameter = {"notes": "notes", "secret": "kubecakey", "domains": "trusteddomains"}[verb]
    value = ",".join(words[0]) if verb == "domains" else words[0]
    return [f"set {name} {parameter} '{value}'"]


def played(steps: list[tuple[int, Any]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with opened(Path(folder) / "store.db") as head:
                await settle(head)
                hand = ShellHand(head)
                game = Play(head, hand)
                await game.run(steps)
                await exchanged(head, Path(folder))
                for number in range(head.revision, game.model.first, -1):
                    await hand.undo(number)
                    assert flat(head.tree) == game.model.state(number - 1), "undone as far as that"

    asyncio.run(run())


async def exchanged(head: Head, folder: Path) -> None:
    """What one shell exports and another one imports and commits is exported alike."""
    first, second = folder / "first.yaml", folder / "second.yaml"
    await Desk(head).do(f"export --with-secrets --yes {first}")
    async with opened(folder / "other.db") as other:
        desk = Desk(other)
        await desk.do(f"import {first}", "commit", f"export --with-secrets --yes {second}")
        assert flat(other.tree) == flat(head.tree)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    "back", [("notes", "one", ""), ("clear", "one", "notes"), ("domains", "one", []), ("takeout", "one", "a.example")]
)
def test_a_change_is_taken_back_also_where_another_person_removed_the_object(back: tuple[Any, ...]) -> None:
    change = ("notes", "one", "x") if back[-1] in ("", "notes") else ("append", "one", "a.example")
    played([(0, ("remove", "one")), (1, change), (0, ("commit",)), (1, back)])


@settings(max_examples=35, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script)
def test_two_shells_give_the_tree_of_the_model(steps: list[tuple[int, Any]]) -> None:
    played(steps)


@pytest.mark.soak
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(script)
def test_two_shells_give_the_tree_of_the_model_many_times(steps: list[tuple[int, Any]]) -> None:
    played(steps)
