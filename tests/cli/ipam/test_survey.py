"""Reading a cluster for the views: page by page, and only what is shown of pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cli.ipam.makers import attached, node, pod

from bedplate.api import core, meta
from bedplate.api.resources import ResourceRef
from bedplate.cli.ipam import holders, survey
from bedplate.kube import errors
from bedplate.kube.codec import ListResult

PODS = [pod(f"web-{number}", "host-a", status=attached(f"10.0.0.{number}")) for number in range(6)]


class Cluster:
    """Two pods a page. `expires_after`: pages, and then the server has forgotten the rest."""

    def __init__(self, expires_after: int | None = None) -> None:
        self._expires_after = expires_after
        self.asked: list[ResourceRef[Any]] = []

    async def list(self, ref: ResourceRef[Any], namespace: str | None = None) -> ListResult[Any]:
        return ListResult(PODS if ref.plural == "pods" else [], "1")

    async def list_pages(self, ref: ResourceRef[Any]) -> AsyncIterator[ListResult[Any]]:
        self.asked.append(ref)
        if ref.plural == "nodes":
            yield ListResult([node("host-a")], "1")
            return
        for number in range(3):
            if number == self._expires_after:
                raise errors.Expired(errors.Target("GET", "/api/v1/pods"), meta.Status(code=410))
            yield ListResult(PODS[2 * number : 2 * number + 2], "1")


async def read(cluster: Cluster, *, keeps_pods: bool = False) -> tuple[survey.Survey, list[str]]:
    told: list[str] = []
    seen = await survey.read(cluster, "kube-system", told.append, keeps_pods=keeps_pods)  # type: ignore[arg-type]
    return seen, told


@pytest.mark.parametrize("expires_after", [None, 1, 2])
async def test_the_addresses_of_all_pages_are_kept_each_once(expires_after: int | None) -> None:
    seen, told = await read(Cluster(expires_after))
    assert [str(holding.address) for holding in seen.holdings] == [f"10.0.0.{number}" for number in range(6)]
    assert told[:2] == ["read 1 nodes", "read 2 pods"]


async def test_of_pods_only_what_is_shown_is_decoded_and_only_addresses_are_kept() -> None:
    cluster = Cluster()
    seen, _ = await read(cluster)
    assert cluster.asked[-1] is holders.LEAN_PODS and seen.pods == ()


async def test_who_wants_the_pods_gets_them_whole() -> None:
    cluster = Cluster()
    seen, _ = await read(cluster, keeps_pods=True)
    assert cluster.asked[-1].model is core.Pod and len(seen.pods) == len(seen.holdings) == 6
