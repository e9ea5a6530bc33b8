"""Certificates that a real cluster signs itself."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests import programs
from tests.setup.people.worlds import People, World, install, real_cluster, stand_in

from bedplate.core import errors
from bedplate.kube import Client, config
from bedplate.people import certificates
from bedplate.setup.people.request import Action

pytestmark = pytest.mark.real


@pytest.fixture
async def signing_world(tmp_path: Path) -> AsyncIterator[World]:
    with real_cluster(tmp_path) as server:
        async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
            await install(client)
            async with stand_in(client):
                yield World(server, client, People(tmp_path))


async def test_the_cluster_signs_for_the_user_and_keeps_no_request(signing_world: World) -> None:
    await signing_world.run(Action.ADD, "john")
    assert (await signing_world.client.list(certificates.REQUESTS)).items == []
    account = signing_world.people.find("john")
    assert account is not None
    command = [str(programs.built("kubectl")), "--kubeconfig", str(account.home / ".kube/config")]
    question = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]
    who = subprocess.run([*command, *question], capture_output=True, text=True, check=True)
    assert who.stdout == "john"


async def test_an_authority_that_was_given_is_checked_against_the_server(signing_world: World) -> None:
    absent = signing_world.people.folder / "absent"
    with pytest.raises(errors.Terminal, match="cannot be used"):
        await signing_world.run(Action.ADD, "john", ca_certificate=absent, ca_key=absent)
    await signing_world.run(Action.RENEW, "john")
