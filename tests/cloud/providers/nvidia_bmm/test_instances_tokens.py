"""Tokens of BMM: read again from their file, or from an identity provider, when they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cloud.providers.nvidia_bmm.world import World, instances_of, node, simulated

from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.providers.nvidia_bmm.provider import NvidiaBmm
from bedplate.core.clock import ManualClock


async def test_a_token_in_the_configuration_file_is_read_again_after_a_401(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        file = tmp_path / "cloud-config"

        def write(token: str) -> None:
            file.write_text(
                f"endpoint: {world.proxy.url}\norgName: {world.cloud.org}\ntoken: {token}\n"
                f"siteId: {world.cloud.site_id}\ntenantId: {world.cloud.tenant_id}\n"
            )

        write(world.cloud.token)
        await rotate(world, world.provider(environ={}, config=file), write)


async def test_a_token_file_is_read_again_after_a_401(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        file = tmp_path / "token"
        file.write_text(world.cloud.token + "\n")
        environ = world.environ(NVIDIA_BMM_TOKEN="", NVIDIA_BMM_TOKEN_FILE=str(file))
        await rotate(world, world.provider(environ=environ), lambda token: file.write_text(token + "\n"))


async def rotate(world: World, provider: NvidiaBmm, write: Any) -> None:
    """Tokens expire; a new one is written before the next call, then while a call is under way, then never."""
    machine = world.cloud.all()[0]
    instances = instances_of(provider)
    ours = node(machine.name, machine.provider_id)
    assert await instances.exists(ours, fresh=True)
    world.cloud.expire_tokens()
    write(world.cloud.new_token())
    assert await instances.exists(ours, fresh=True)
    assert world.cloud.journal.by_status[401] == 0, "the change was seen before the call"
    refusal = world.cloud.faults.add("401", times=1)
    with pytest.raises(http_errors.Unauthorized):
        await instances.exists(ours, fresh=True)
    assert refusal.hits == 1, "the file holds the same token: it was refused for good"
    world.cloud.expire_tokens()
    for _ in range(2):
        with pytest.raises(http_errors.Unauthorized):
            await instances.exists(ours, fresh=True)
    write(world.cloud.new_token())
    assert await instances.exists(ours, fresh=True)
    assert world.sample("ccm_credentials_reloads_total", result="changed") == 2
    assert world.sample("ccm_credentials_reloads_total", result="unchanged") == 3


async def test_tokens_come_from_an_identity_provider_and_are_renewed(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        environ = world.environ(
            NVIDIA_BMM_TOKEN="",
            NVIDIA_BMM_OIDC_TOKEN_URL=world.cloud.token_url,
            NVIDIA_BMM_OIDC_CLIENT_ID=world.cloud.client_id,
            NVIDIA_BMM_OIDC_CLIENT_SECRET=world.cloud.client_secret,
            NVIDIA_BMM_OIDC_SCOPES="a,b",
        )
        world.cloud.conditions.token_life_s = 3600.0
        time = ManualClock()
        instances = instances_of(world.provider(environ=environ, time=time))
        machine = world.cloud.all()[0]
        ours = node(machine.name, machine.provider_id)
        for _ in range(3):
            assert await instances.exists(ours, fresh=True)
        assert world.sample("ccm_credentials_reloads_total", result="changed") == 0
        world.cloud.expire_tokens()
        assert await instances.exists(ours, fresh=True), "renewed after a 401"
        await time.advance(3000)
        assert await instances.exists(ours, fresh=True), "renewed before it expires"
        assert world.sample("ccm_credentials_reloads_total", result="changed") == 2
        assert world.cloud.journal.by_status[401] == 1
