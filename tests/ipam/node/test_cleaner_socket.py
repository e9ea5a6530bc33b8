"""The cleaner where nothing is at the path of `--cri-socket`: a node with another runtime, or one that is down."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ipam.node.test_cleaner import A, B, FakeRuntime, Ground, ground, sandbox
from tests.ipam.node.test_proofs import pod

from bedplate.core import errors
from bedplate.ipam.node.cri import NoSocket, Runtime, Sandbox

__all__ = ["ground"]


class Socketless(FakeRuntime):
    """Its socket is missing while a test has set nothing."""

    async def sandboxes(self) -> list[Sandbox]:
        if FakeRuntime.listed is None:
            raise NoSocket("no such socket")
        return FakeRuntime.listed


async def test_a_missing_socket_is_told_apart_from_a_runtime_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(NoSocket):
        await Runtime(str(tmp_path / "absent.sock")).sandboxes()
    (tmp_path / "dead.sock").touch()
    with pytest.raises(errors.Unavailable) as caught:
        await Runtime(str(tmp_path / "dead.sock")).sandboxes()
    assert not isinstance(caught.value, NoSocket)


async def test_a_node_with_another_runtime_loses_no_addresses_to_pods_that_are_gone(ground: Ground) -> None:
    await ground.hold(A)
    await ground.time.advance(600)
    cleaner = ground.make(runtime=Socketless("/none"))
    assert await ground.passes(5, cleaner) == [0, 0, 0, 1, 0], "by the pod, on as many looks as without a socket"
    await ground.hold(B)
    ground.run(pod())
    assert await ground.passes(6, cleaner) == [0] * 6, "a pod that exists keeps its address"


async def test_a_runtime_that_once_answered_is_waited_for(ground: Ground) -> None:
    await ground.hold(A)
    await ground.time.advance(600)
    cleaner = ground.make(runtime=Socketless("/none"))
    FakeRuntime.listed = [sandbox(A, "u1")]
    assert await ground.passes(1, cleaner) == [0]
    FakeRuntime.listed = None
    assert await ground.passes(8, cleaner) == [0] * 8


async def test_the_runtime_is_believed_once_its_socket_is_there(ground: Ground) -> None:
    await ground.hold(A)
    await ground.time.advance(600)
    ground.run(pod())
    cleaner = ground.make(runtime=Socketless("/none"))
    assert await ground.passes(3, cleaner) == [0] * 3
    FakeRuntime.listed = [sandbox(B, "u1")]
    assert await ground.passes(2, cleaner) == [0, 1]
