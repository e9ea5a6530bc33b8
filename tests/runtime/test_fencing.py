"""Fencing: a write that waited is judged when it is sent, not when it was asked for."""

import pytest
from tests.kube.scripted import Answer, FastClock, node, serving

from bedplate.api.resources import NODES
from bedplate.kube.config import ClientConfig
from bedplate.runtime.leaderelection import FencedClient, LeadershipLost


class Leadership:
    """Leads until told otherwise."""

    def __init__(self) -> None:
        self.is_over = False

    def guard(self) -> None:
        if self.is_over:
            raise LeadershipLost("not the leader")


class Fading(FastClock):
    """Every sleep is one too long: when it is over, so is leadership."""

    def __init__(self, leadership: Leadership) -> None:
        super().__init__()
        self._leadership = leadership

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self._leadership.is_over = True


async def test_a_write_that_waited_for_the_rate_limit_is_not_sent_after_leadership_is_lost() -> None:
    leadership = Leadership()
    async with serving([Answer(body=node("a"))]) as server:
        config = ClientConfig(server.url).with_rate(1, 1)
        async with FencedClient(config, leadership.guard, time=Fading(leadership)) as client:
            await client.patch(NODES, "a", {})
            with pytest.raises(LeadershipLost):
                await client.patch(NODES, "a", {})
            await client.get(NODES, "a")
        assert [asked.method for asked in server.asked] == ["PATCH", "GET"]


async def test_a_write_that_the_server_postponed_is_not_repeated_after_leadership_is_lost() -> None:
    leadership = Leadership()
    async with serving([Answer(429, headers={"Retry-After": "1"}), Answer(body=node("a"))]) as server:
        config = ClientConfig(server.url).with_rate(-1, 1)
        async with FencedClient(config, leadership.guard, time=Fading(leadership)) as client:
            with pytest.raises(LeadershipLost):
                await client.patch(NODES, "a", {})
        assert len(server.asked) == 1
