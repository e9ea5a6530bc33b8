"""Tokens of the controllers' service accounts: asked for when needed, renewed in time, kept while they last."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from bedplate.api import auth
from bedplate.cloud.manager.accounts import AccountTokens
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client


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
