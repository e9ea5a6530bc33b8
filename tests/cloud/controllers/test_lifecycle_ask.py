"""What an answer of a cloud is taken for: absence is a plain no, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cloud.scripted import FAULTS, ScriptedProvider, node

from bedplate.cloud.controllers import lifecycle
from bedplate.cloud.controllers.lifecycle_plan import Answer, Question
from bedplate.cloud.errors import InstanceNotFound
from bedplate.cloud.interface import Instances
from bedplate.core import errors
from bedplate.core.clock import ManualClock

NODE = node("n1", provider_id="fake://n1")


class Says:
    """Instances that answer with one value, or raise it."""

    def __init__(self, exists: Any, is_shutdown: Any = False) -> None:
        self._exists, self._is_shutdown = exists, is_shutdown
        self.asked: list[bool] = []

    async def exists(self, node: Any, *, fresh: bool = False) -> Any:
        self.asked.append(fresh)
        return given(self._exists)

    async def is_shutdown(self, node: Any, *, fresh: bool = False) -> Any:
        return given(self._is_shutdown)

    async def metadata(self, node: Any) -> None:
        return None

    def was_absent(self, name: str, within_s: float) -> bool:
        return True

    async def listing(self, nodes: Any) -> Any:
        return given(self._exists)


def given(value: Any) -> Any:
    if isinstance(value, BaseException):
        raise value
    return value


async def ask(*instances: Instances, is_fresh: bool = False) -> Answer:
    return await lifecycle.ask(instances, Question(NODE, is_fresh), ManualClock())


@pytest.mark.parametrize("no", [False, InstanceNotFound("gone")])
async def test_a_plain_no_is_absence(no: Any) -> None:
    assert (await ask(Says(no))).exists is False


@pytest.mark.parametrize("kind", sorted(FAULTS))
async def test_no_failure_is_absence(kind: str) -> None:
    answer = await ask(Says(FAULTS[kind]()))
    assert answer.exists is None
    assert answer.error


@pytest.mark.parametrize("nonsense", [None, 0, "", "no", [], errors.NotFound("some other thing")])
async def test_no_nonsense_is_absence(nonsense: Any) -> None:
    assert (await ask(Says(nonsense))).exists is None


async def test_an_answer_that_never_comes_is_no_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "ASK_TIMEOUT_S", 0.01)
    cloud = ScriptedProvider()
    cloud.hold.clear()
    assert cloud.instances is not None
    assert (await ask(cloud.instances)).exists is None


@pytest.mark.parametrize("is_fresh", [True, False])
async def test_freshness_is_passed_on_and_remembered(is_fresh: bool) -> None:
    says = Says(False)
    assert (await ask(says, is_fresh=is_fresh)).is_fresh is is_fresh
    assert says.asked == [is_fresh]


async def test_shutdown_is_asked_of_those_who_are_there() -> None:
    assert (await ask(Says(True, True))).is_shutdown is True
    assert (await ask(Says(True, False))).is_shutdown is False
    assert (await ask(Says(False, True))).is_shutdown is None


@pytest.mark.parametrize("failure", [FAULTS["500"](), InstanceNotFound("gone")])
async def test_a_failure_to_find_out_about_shutdown_is_neither(failure: Exception) -> None:
    answer = await ask(Says(True, failure))
    assert (answer.exists, answer.is_shutdown) == (True, None)


async def test_of_several_clouds_one_yes_is_a_yes_and_only_all_noes_are_a_no() -> None:
    failure = FAULTS["503"]()
    assert (await ask(Says(False), Says(True, True), Says(failure))).is_shutdown is True
    assert (await ask(Says(False), Says(failure))).exists is None
    assert (await ask(Says(False), Says(InstanceNotFound("gone")))).exists is False
    assert (await ask()).exists is None
