"""What a manager shows of its configuration, what it never does, and which paths need no permission."""

from __future__ import annotations

import json
from typing import cast

import aiohttp
from prometheus_client import CollectorRegistry

from bedplate.cloud.manager import options, serving
from bedplate.cloud.manager.access import Caller, RequestGate
from bedplate.cloud.manager.certificates import ServingCertificates
from bedplate.cloud.manager.options_serving import Authorization, SecureServing
from bedplate.core import flags
from bedplate.core.clock import SystemClock
from bedplate.program.options import shown
from bedplate.runtime.delegation import Access, DelegatedGate


def test_every_flag_is_shown_by_group_in_camel_case() -> None:
    read = options.read(["--cloud-provider=oxide,nvidia-bmm", "--node-monitor-period=1m30s", "--v=3"])
    found = json.loads(json.dumps(serving.configz(read.options)))[serving.KEY]
    assert found["generic"]["cloudProvider"] == ["oxide", "nvidia-bmm"]
    assert found["generic"]["nodeMonitorPeriod"] == "1m30s"
    assert found["secureServing"]["securePort"] == 10258
    assert found["globals"]["v"] == 3
    assert sum(len(group) for group in found.values()) == len(flags.all_flags(options.GROUPS)) - 2


def test_what_stands_before_an_at_sign_in_an_address_is_not_shown() -> None:
    read = options.read(["--master=https://user:planted-secret@10.0.0.1:6443"])
    assert "planted-secret" not in json.dumps(serving.configz(read.options))
    assert dict(shown(read.options))["master"] == "https://…@10.0.0.1:6443"


class ClosedGate(RequestGate):
    """Admits nobody. An API server grants everybody the health paths, which hides whether the manager asks it."""

    def __init__(self) -> None:
        super().__init__(cast(DelegatedGate, None))

    async def admit(self, method: str, path: str, caller: Caller) -> Access:
        return Access(401, "Unauthorized")


def not_yet() -> None:
    raise RuntimeError("caches are not synced")


async def statuses(*paths: str, always: tuple[str, ...] | None = None, is_ready: bool = True) -> list[int]:
    port = SecureServing(bind_address="127.0.0.1", secure_port=0)
    authorization = Authorization() if always is None else Authorization(authorization_always_allow_paths=always)
    chosen = options.Options(secure_serving=port, authorization=authorization)
    certificates = ServingCertificates(port, SystemClock())
    server = serving.ManagerServer(chosen, CollectorRegistry(), ClosedGate(), certificates)
    if not is_ready:
        server.add_ready("caches", not_yet)
    async with server, aiohttp.ClientSession(f"https://127.0.0.1:{server.port}") as session:
        found = []
        for path in paths:
            async with session.get(path, ssl=False) as answer:
                found.append(answer.status)
        return found


async def test_health_needs_no_permission_and_all_other_paths_do() -> None:
    assert await statuses("/healthz", "/livez", "/readyz") == [200, 200, 200]
    assert await statuses("/metrics", "/configz", "/debug/flags/v", "/readyz/ping") == [401, 401, 401, 401]


async def test_the_flag_replaces_the_paths_that_need_no_permission() -> None:
    assert await statuses("/metrics", "/metrics/slis", "/healthz", always=("/metrics*",)) == [200, 200, 401]
    assert await statuses("/metrics", "/metrics/slis", always=("/metrics",)) == [200, 401]


async def test_a_manager_that_is_not_ready_is_alive() -> None:
    assert await statuses("/healthz", "/livez", "/readyz", is_ready=False) == [200, 200, 500]
