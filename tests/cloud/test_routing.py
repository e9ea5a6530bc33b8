"""Which cloud a node belongs to."""

from __future__ import annotations

import asyncio

import pytest
from tests.cloud.scripted import FAULTS, ScriptedProvider, node

from bedplate.cloud import routing
from bedplate.cloud.errors import AmbiguousInstance, CloudError
from bedplate.cloud.routing import Claimed, Clouds, Contested, Foreign, Owned, Unclaimed, Unplaced, Waiting
from bedplate.core import errors
from bedplate.core.clock import ManualClock


@pytest.fixture
async def pair() -> tuple[ScriptedProvider, ScriptedProvider]:
    return ScriptedProvider("one", ("one", "old-one")), ScriptedProvider("two")


async def test_the_scheme_decides_and_old_schemes_count(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    clouds = Clouds(pair)
    assert clouds.place(node(provider_id="one://a")) == Owned(pair[0])
    assert clouds.place(node(provider_id="old-one://a")) == Owned(pair[0])
    assert clouds.place(node(provider_id="two://a/b://c")) == Owned(pair[1])
    assert clouds.place(node()) == Unplaced()


@pytest.mark.parametrize("provider_id", ["aws:///eu-1a/i-1", "onex://a", "one", "ONE://a", "://a", "xone://a"])
async def test_other_schemes_are_foreign(pair: tuple[ScriptedProvider, ScriptedProvider], provider_id: str) -> None:
    place = Clouds(pair).place(node(provider_id=provider_id))
    assert isinstance(place, Foreign)
    assert provider_id in place.reason


async def test_a_provider_may_call_its_own_scheme_foreign(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    pair[0].foreign["one://theirs"] = "another organisation"
    assert Clouds(pair).place(node(provider_id="one://theirs")) == Foreign("another organisation", "one")


async def test_an_id_its_own_provider_cannot_read_is_nobodys(
    pair: tuple[ScriptedProvider, ScriptedProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(provider_id: str) -> str:
        raise ValueError("no UUID")

    monkeypatch.setattr(pair[0], "is_foreign", stumble)
    place = Clouds(pair).place(node(provider_id="one://nonsense"))
    assert isinstance(place, Foreign)
    assert "no UUID" in place.reason


async def test_two_providers_of_one_scheme_are_refused() -> None:
    with pytest.raises(errors.Invalid, match="both handle"):
        Clouds([ScriptedProvider("a", ("same",)), ScriptedProvider("b", ("same",))])


async def test_foreign_nodes_are_listed_with_reasons(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    nodes = [node("a", provider_id="one://1"), node("b", provider_id="aws://1"), node("c")]
    assert list(Clouds(pair).foreign(nodes)) == ["b"]


async def test_one_claim_settles_it(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    pair[1].add("i-1", "n1")
    settled = await Clouds(pair).claim(node("n1"))
    assert isinstance(settled, Claimed)
    assert (settled.provider, settled.metadata.provider_id) == (pair[1], "two://i-1")


async def test_two_claims_are_contested(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    for cloud in pair:
        cloud.add("i-1", "n1")
    settled = await Clouds(pair).claim(node("n1"))
    assert isinstance(settled, Contested)
    assert "one, two" in settled.reason


async def test_two_machines_in_one_cloud_are_contested(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    pair[0].fault = lambda operation, node: AmbiguousInstance("i-1 and i-2")
    settled = await Clouds(pair).claim(node("n1"))
    assert isinstance(settled, Contested)
    assert "i-1 and i-2" in settled.reason


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - {"ambiguous"}))
async def test_a_claim_waits_for_a_cloud_that_cannot_be_asked(
    pair: tuple[ScriptedProvider, ScriptedProvider], kind: str
) -> None:
    pair[0].add("i-1", "n1")
    pair[1].fault = lambda operation, node: FAULTS[kind]()
    settled = await Clouds(pair).claim(node("n1"))
    assert isinstance(settled, Waiting)
    assert settled.claimant == "one"
    assert "two" in settled.reason


async def test_a_recent_list_speaks_for_a_cloud_that_cannot_be_asked(
    pair: tuple[ScriptedProvider, ScriptedProvider],
) -> None:
    pair[0].add("i-1", "n1")
    pair[1].fault = lambda operation, node: CloudError("down")
    pair[1].listed_without.add("n1")
    assert isinstance(await Clouds(pair).claim(node("n1")), Claimed)


async def test_a_silent_cloud_holds_a_claim_up_for_a_moment_only(
    pair: tuple[ScriptedProvider, ScriptedProvider],
) -> None:
    time = ManualClock()
    pair[0].add("i-1", "n1")
    pair[1].hold.clear()
    pair[1].listed_without.add("n1")
    claiming = asyncio.ensure_future(Clouds(pair, time=time).claim(node("n1")))
    await time.advance(routing.PATIENCE_S - 1)
    assert not claiming.done()
    await time.advance(2)
    assert isinstance(await claiming, Claimed)


async def test_a_cloud_that_hangs_is_waited_for_once_in_a_while(
    pair: tuple[ScriptedProvider, ScriptedProvider],
) -> None:
    time = ManualClock()
    clouds = Clouds(pair, time=time)
    pair[0].add("i-1", "n1")
    pair[1].hold.clear()
    pair[1].listed_without.add("n1")

    async def is_settled_within(seconds: float) -> bool:
        claiming = asyncio.ensure_future(clouds.claim(node("n1")))
        await time.advance(seconds)
        is_settled = claiming.done()
        await time.advance(routing.PATIENCE_S)
        assert isinstance(await claiming, Claimed)
        return is_settled

    assert not await is_settled_within(1)
    assert await is_settled_within(0.1)
    assert await is_settled_within(0.1)
    await time.advance(routing.SILENCE_S)
    assert not await is_settled_within(1)
    assert await is_settled_within(0.1)
    pair[1].hold.set()
    await clouds.claim(node("n1"))
    pair[1].hold.clear()
    assert not await is_settled_within(1), "it has answered in between"


async def test_without_a_claim_every_answer_is_awaited(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    time = ManualClock()
    pair[1].add("i-1", "n1")
    pair[1].hold.clear()
    claiming = asyncio.ensure_future(Clouds(pair, time=time).claim(node("n1")))
    await time.advance(3600)
    assert not claiming.done()
    pair[1].hold.set()
    assert isinstance(await claiming, Claimed)


async def test_nobody_knows_it(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    settled = await Clouds(pair).claim(node("n1"))
    assert isinstance(settled, Unclaimed)
    assert settled.is_unknown


async def test_nobody_has_anything_to_do(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    for cloud in pair:
        cloud.add("i-1", "n1")
        cloud.gives_none = True
    settled = await Clouds(pair).claim(node("n1"))
    assert isinstance(settled, Unclaimed)
    assert not settled.is_unknown


async def test_no_claim_and_a_failure_waits(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    pair[1].fault = lambda operation, node: CloudError("down")
    settled = await Clouds(pair).claim(node("n1"))
    assert isinstance(settled, Waiting)
    assert settled.claimant == ""


async def test_giving_up_a_claim_leaves_no_question_behind(pair: tuple[ScriptedProvider, ScriptedProvider]) -> None:
    pair[0].hold.clear()
    claiming = asyncio.ensure_future(Clouds(pair).claim(node("n1")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    before = asyncio.all_tasks()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    assert len(asyncio.all_tasks()) < len(before)
    assert asyncio.all_tasks() == {asyncio.current_task()}
