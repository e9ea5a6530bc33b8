"""Which cluster a manager works for, and which client each of its parts gets."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from tests import servers

from bedplate.api import auth
from bedplate.cloud.manager import connection, options, wiring
from bedplate.cloud.manager.assembly import Assembly
from bedplate.cloud.manager.connection import AccountTokens
from bedplate.cloud.manager.options import Options
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.config import ClientConfig
from bedplate.kube.recording import Mode, RecordingClient
from bedplate.program.assembly import Parts
from bedplate.program.clients import Clients
from bedplate.runtime.leaderelection import FencedClient
from bedplate.runtime.manager import Manager


def read(*words: str) -> options.Options:
    found = options.read(["--cloud-provider=oxide", *words])
    assert not found.problems
    return found.options


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    (tmp_path / "ca").touch()
    return servers.write_kubeconfig(tmp_path / "config", "https://10.0.0.1:6443", tmp_path / "ca", {"token": "t"})


def test_the_kubeconfig_is_used_and_the_master_wins(kubeconfig: Path) -> None:
    found = connection.find(read(f"--kubeconfig={kubeconfig}", "--kube-api-qps=7", "--kube-api-burst=9"), {})
    assert (found.server, found.qps, found.burst) == ("https://10.0.0.1:6443", 7.0, 9)
    assert found.user_agent.startswith("cloud-controller-manager/")
    found = connection.find(read(f"--kubeconfig={kubeconfig}", "--master=https://10.0.0.2:6443/"), {})
    assert (found.server, found.auth.token) == ("https://10.0.0.2:6443", "t")
    assert connection.find(read("--master=http://10.0.0.3:8080"), {}).server == "http://10.0.0.3:8080"


def test_no_cluster_is_found_by_chance(kubeconfig: Path, tmp_path: Path) -> None:
    home = tmp_path / ".kube"
    home.mkdir()
    (home / "config").write_text(kubeconfig.read_text())
    with pytest.raises(errors.Invalid, match="no cluster to manage"):
        connection.find(read(), {"KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)})


def clients(options: Options) -> Clients:
    config = ClientConfig("https://10.0.0.1:6443")
    return Clients(config, lambda: None, options.generic.dry_run, ManualClock(), CollectorRegistry())


async def test_what_controllers_write_with_is_fenced() -> None:
    options = read()
    async with clients(options) as opened:
        assert isinstance(await connection.controller_client(opened, options, "node-controller"), FencedClient)


async def test_a_dry_run_sends_no_write_and_needs_no_account() -> None:
    options = read("--dry-run", "--use-service-account-credentials")
    async with clients(options) as opened:
        client = await connection.controller_client(opened, options, "node-controller")
        assert isinstance(client, RecordingClient)
        assert client.mode is Mode.LOCAL
        assert client.config.auth.token_source is None


async def test_controllers_write_as_their_service_account_when_told_so() -> None:
    options = read("--use-service-account-credentials")
    async with clients(options) as opened:
        client = await connection.controller_client(opened, options, "node-controller")
        assert client.config.auth.token_source is not None
        # Events, too: the manager's own account has no right to write them.
        events = await connection.event_client(opened, options, "node-controller")
        assert events.config.auth.token_source is not None and not events.config.tls.cert_data


@pytest.mark.parametrize(
    ("controllers", "account"),
    [
        ("*", "node-controller"),
        ("cloud-node-lifecycle-controller", "node-controller"),
        ("service-lb-controller,node-route-controller", "service-controller"),
        ("node-route-controller", "route-controller"),
    ],
)
def test_events_are_written_as_the_first_controller_that_runs(controllers: str, account: str) -> None:
    assert wiring.event_account(read(f"--controllers={controllers}")) == account


def test_the_lease_is_renewed_within_the_deadline_of_the_flag() -> None:
    lease = Assembly(read("--leader-elect-renew-deadline=8s"), {}).lease()
    assert lease is not None
    assert lease.timing.renew_s == 8.0


class RateAsked(Exception):
    """Ends an assembly where it asks for the client of events."""


class AskingClients(Clients):
    async def leading(self, config: ClientConfig | None = None) -> Client:
        assert config is not None
        raise RateAsked(config.qps, config.burst)


async def test_events_have_the_rate_of_the_flag() -> None:
    time, registry = ManualClock(), CollectorRegistry()
    clients = AskingClients(ClientConfig("https://10.0.0.1:6443"), lambda: None, False, time, registry)
    async with clients, contextlib.AsyncExitStack() as stack:
        reader = await clients.plain()
        parts = Parts(Manager(reader, time=time), clients, reader, stack)
        with pytest.raises(RateAsked) as caught:
            await Assembly(read("--event-qps=5"), {}, time=time).assemble(parts)
    assert caught.value.args == (5.0, 5)


class Server:
    """Issues numbered tokens; may lack the account, refuse, or be away."""

    def __init__(self, time: ManualClock) -> None:
        self.time = time
        self.issued = 0
        self.has_account = True
        self.failure: Exception | None = None
        self.created: list[str] = []

    async def subresource(self, *where: Any, body: Any, **more: Any) -> auth.TokenRequest:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if not self.has_account:
            raise kube_errors.NotFound(kube_errors.Target("POST", "/x"), kube_errors.meta.Status(code=404))
        self.issued += 1
        ends = self.time.now() + timedelta(seconds=body["spec"]["expirationSeconds"])
        return auth.TokenRequest(status=auth.TokenRequestStatus(token=f"t{self.issued}", expiration_timestamp=ends))

    async def create(self, ref: Any, body: Any) -> None:
        self.created.append(body["metadata"]["name"])
        self.has_account = True


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(time: ManualClock) -> Server:
    return Server(time)


@pytest.fixture
def tokens(server: Server, time: ManualClock) -> AccountTokens:
    return AccountTokens(cast(Client, server), "node-controller", time)


async def test_nothing_is_asked_for_before_it_is_needed_and_one_token_serves_all(
    server: Server, tokens: AccountTokens
) -> None:
    assert server.issued == 0
    assert set(await asyncio.gather(*(tokens.get("") for _ in range(20)))) == {"t1"}
    assert server.issued == 1


async def test_a_missing_account_is_made(server: Server, tokens: AccountTokens) -> None:
    server.has_account = False
    assert await tokens.get("") == "t1"
    assert server.created == ["node-controller"]


async def test_a_token_is_renewed_after_four_fifths_of_its_life(tokens: AccountTokens, time: ManualClock) -> None:
    await tokens.get("")
    await time.advance(2879)
    assert await tokens.get("") == "t1"
    await time.advance(2)
    assert await tokens.get("") == "t2"


async def test_a_refused_token_is_replaced_at_once(server: Server, tokens: AccountTokens) -> None:
    assert await tokens.get("") == "t1"
    assert await tokens.get("t1") == "t2"
    # Another request that was refused with the old one gets the new one, and no third is asked for.
    assert await tokens.get("t1") == "t2"
    assert server.issued == 2


async def test_an_old_token_is_used_while_it_lasts_when_no_new_one_is_to_be_had(
    server: Server, tokens: AccountTokens, time: ManualClock
) -> None:
    await tokens.get("")
    server.failure = errors.Unavailable("away")
    await time.advance(3000)
    assert await tokens.get("") == "t1"
    await time.advance(700)
    with pytest.raises(errors.Unavailable):
        await tokens.get("")
    server.failure = None
    assert await tokens.get("") == "t2"
