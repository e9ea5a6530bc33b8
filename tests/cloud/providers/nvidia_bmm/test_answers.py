"""Answers that the simulated BMM does not give: other instances than asked for, loose filters, things read long ago."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cloud.http.leaping import LeapingClock
from tests.cloud.providers.nvidia_bmm.world import node
from tests.kube.scripted import Answer, Asked, Script, serving

from bedplate.cloud.errors import CloudError
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.interface import Instances
from bedplate.cloud.providers.nvidia_bmm.provider import create
from bedplate.cloud.providers.nvidia_bmm.source import Shelf
from bedplate.cloud.registry import Setting

ID, OTHER = "497f6eca-6276-4993-bfeb-53cbbbba6f08", "f61fbc1b-ba32-4476-aab5-5ac7c64c3f26"
SITE, TENANT = "550e8400-e29b-41d4-a716-446655440000", "660e8400-e29b-41d4-a716-446655440001"


def instance(
    identifier: Any = ID, name: str = "n", ips: tuple[str, ...] = ("10.0.0.1",), **more: Any
) -> dict[str, Any]:
    interfaces = [{"isPhysical": True, "status": "Ready", "ipAddresses": list(ips)}]
    owner = {"siteId": SITE, "tenantId": TENANT}
    return {"id": identifier, "name": name, "status": "Ready", "interfaces": interfaces, **owner, **more}


@contextlib.asynccontextmanager
async def answering(answers: list[Answer] | Script) -> AsyncIterator[Instances]:
    async with serving(answers) as server:
        environ = {
            "NVIDIA_BMM_ENDPOINT": server.url,
            "NVIDIA_BMM_ORG_NAME": "org",
            "NVIDIA_BMM_TOKEN": "token-of-the-test",
            "NVIDIA_BMM_SITE_ID": SITE,
            "NVIDIA_BMM_TENANT_ID": TENANT,
        }
        provider = create(Setting(None, environ, time=LeapingClock()))
        assert provider.instances is not None
        try:
            yield provider.instances
        finally:
            await provider.close()


@pytest.mark.parametrize(
    "content",
    [
        instance(OTHER),
        instance(None),
        instance(7),
        {"name": "n"},
        {},
        {"source": "carbide", "message": "Could not find Instance with specified ID"},
        [instance()],
        None,
        "n",
    ],
)
async def test_a_success_that_is_not_the_asked_instance_is_a_protocol_error(content: Any) -> None:
    async with answering([Answer(200, content)]) as instances:
        for ask in (instances.exists, instances.is_shutdown, instances.metadata):
            with pytest.raises(http_errors.Protocol):
                await ask(node("n", f"nvidia-bmm://org/{TENANT}/{SITE}/{ID}"))


async def test_the_asked_instance_in_other_letters_is_the_same() -> None:
    async with answering([Answer(200, instance(ID.upper()))]) as instances:
        assert await instances.exists(node("n", f"nvidia-bmm://org/{TENANT}/{SITE}/{ID}"))


async def test_a_filter_that_is_loose_is_made_exact_here() -> None:
    def answer(asked: Asked) -> Answer:
        if "name" in asked.query:
            return Answer(200, [instance(OTHER, "node-10"), instance(ID, "node-1"), instance(OTHER, "NODE-1")])
        if "ipAddress" in asked.query:
            return Answer(200, [instance(OTHER, "x", ("10.0.0.11",)), instance(ID, "y", ("10.0.0.1",))])
        return Answer(200, instance())

    async with answering(answer) as instances:
        found = await instances.metadata(node("node-1"))
        assert found is not None and found.provider_id.endswith(ID)
        found = await instances.metadata(node("worker", internal_ips=["10.0.0.1"]))
        assert found is not None and found.provider_id.endswith(ID)


async def test_a_proxy_that_repeats_one_page_for_ever_is_noticed() -> None:
    pagination = '{"pageNumber": 1, "pageSize": 100, "total": 250}'
    page = [instance(f"00000000-0000-4000-8000-{number:012d}") for number in range(100)]
    async with answering([Answer(200, page, {"X-Pagination": pagination})]) as instances:
        with pytest.raises(CloudError, match="page 1 was returned when page 2 was asked for"):
            await instances.metadata(node("n"))


async def test_what_was_read_once_is_used_on_when_it_cannot_be_read_again() -> None:
    time, is_up, asked = LeapingClock(), True, 0

    async def read(key: str) -> str:
        nonlocal asked
        asked += 1
        if not is_up:
            raise CloudError("down")
        return f"{key}-{asked}"

    shelf = Shelf(read, keep_s=60.0, time=time)
    assert [await shelf.get("a"), await shelf.get("a")] == ["a-1", "a-1"]
    time.leap(61)
    is_up = False
    assert await shelf.get("a") == "a-1"
    with pytest.raises(CloudError):
        await shelf.get("b")
    is_up = True
    assert await shelf.get("a") == "a-4"
