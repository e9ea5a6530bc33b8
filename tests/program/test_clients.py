"""The clients of a program: which of them are fenced, at which rate, and what a dry run sends."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from bedplate.core.clock import ManualClock
from bedplate.kube.config import ClientConfig
from bedplate.kube.recording import Mode, RecordingClient
from bedplate.program.clients import Clients
from bedplate.runtime.leaderelection import FencedClient


def clients(*, is_dry_run: bool = False) -> Clients:
    config = ClientConfig("https://10.0.0.1:6443").with_rate(50, 100)
    return Clients(config, lambda: None, is_dry_run, ManualClock(), CollectorRegistry())


async def test_what_a_leader_writes_with_is_fenced_and_events_have_their_own_rate() -> None:
    async with clients() as opened:
        assert isinstance(await opened.leading(), FencedClient)
        events = await opened.events(5.0, 7)
        assert isinstance(events, FencedClient)
        assert (events.config.qps, events.config.burst) == (5.0, 7)
        assert not isinstance(await opened.plain(), FencedClient)


async def test_renewing_the_lease_has_the_leaders_deadline_and_no_rate_limit() -> None:
    async with clients() as opened:
        config = (await opened.election(8.0)).config
        assert (config.timeout_s, config.connect_timeout_s) == (8.0, 8.0)
        assert config.qps < 0


async def test_a_dry_run_only_records() -> None:
    async with clients(is_dry_run=True) as opened:
        for client in (await opened.leading(), await opened.events(5.0, 5)):
            assert isinstance(client, RecordingClient)
            assert client.mode is Mode.LOCAL
