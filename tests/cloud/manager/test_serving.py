"""What a manager shows of itself, to whom, what it never does, and which paths need no permission."""

from __future__ import annotations

import json
from typing import cast

import aiohttp
from prometheus_client import CollectorRegistry, Counter

from bedplate.api import resources
from bedplate.cloud.manager import options, serving
from bedplate.cloud.manager.access import Access, Caller, DelegatedGate, RequestGate
from bedplate.cloud.manager.certificates import ServingCertificates
from bedplate.cloud.manager.options_serving import Authorization, SecureServing
from bedplate.core import flags
from bedplate.core.clock import SystemClock
from bedplate.kube import Client
from bedplate.program.options import shown


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


async def test_metrics_are_for_those_whom_the_api_server_allows(client: Client, namespace: str) -> None:
    """Asked over HTTPS: TokenReview tells who, SubjectAccessReview whether."""
    await client.create(resources.SERVICE_ACCOUNTS.raw(), {"metadata": {"name": "scraper"}}, namespace)
    await client.create(resources.SERVICE_ACCOUNTS.raw(), {"metadata": {"name": "nobody"}}, namespace)
    role = resources.custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False).raw()
    binding = resources.custom(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ).raw()
    rules = [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]
    await client.create(role, {"metadata": {"name": namespace}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "scraper", "namespace": namespace}
    reference_ = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace}
    await client.create(binding, {"metadata": {"name": namespace}, "roleRef": reference_, "subjects": [subject]})

    async def token(name: str) -> str:
        answer = await client.subresource(
            "POST", resources.SERVICE_ACCOUNTS, name, "token", namespace, model=dict, body={"spec": {}}
        )
        text: str = answer["status"]["token"]
        return text

    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    secure = SecureServing(bind_address="127.0.0.1", secure_port=0)
    certificates = ServingCertificates(secure, SystemClock())
    gate = RequestGate(DelegatedGate(client))
    server = serving.ManagerServer(options.Options(secure_serving=secure), registry, gate, certificates)
    async with server, aiohttp.ClientSession(f"https://127.0.0.1:{server.port}") as session:

        async def ask(path: str, authorization: str = "") -> tuple[int, str]:
            headers = {"Authorization": authorization} if authorization else {}
            async with session.get(path, headers=headers, ssl=False) as answer:
                return answer.status, await answer.text()

        scraper, stranger = await token("scraper"), await token("nobody")
        assert await ask("/healthz") == (200, "ok")
        assert await ask("/metrics") == (403, 'forbidden: User "system:anonymous" cannot get path "/metrics"\n')
        assert await ask("/metrics", "Bearer junk") == (401, "Unauthorized\n")
        user = f"system:serviceaccount:{namespace}:nobody"
        assert await ask("/metrics", f"Bearer {stranger}") == (
            403,
            f'forbidden: User "{user}" cannot get path "/metrics"\n',
        )
        status, text = await ask("/metrics", f"Bearer {scraper}")
        assert status == 200 and "things_total 1.0" in text
        for authorization, expected in ((f"BEARER  {scraper}", 200), (f"Basic {scraper}", 403), (scraper, 403)):
            assert (await ask("/metrics", authorization))[0] == expected, authorization.partition(" ")[0]
        assert (await ask("/configz", f"Bearer {scraper}"))[0] == 403
