"""The embedded API server on a real etcd: conformant, with TLS, and several servers on one etcd as one cluster."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from tests import programs, servers
from tests.endurance import running
from tests.endurance.test_kill import assert_unique, service
from tests.store import etcd_cluster
from tests.store.test_etcd_cluster import make_certificates
from tests.waiting import wait_until

pytestmark = pytest.mark.external

SERVICES = "/api/v1/namespaces/default/services"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
TOPICS = ("apply", "crud", "leases", "pagination", "services", "watch_expired", "watch_resume")


@contextlib.contextmanager
def etcd(folder: pathlib.Path, tls: etcd_cluster.Tls | None = None) -> Iterator[etcd_cluster.Cluster]:
    with programs.etcd(folder, members=1, tls=tls) as cluster:
        yield cluster


@pytest.fixture
def pair(tmp_path: pathlib.Path) -> Iterator[tuple[running.Embedded, running.Embedded]]:
    """Two servers, started at the same moment on an empty etcd, with nothing in common but its address."""
    with etcd(tmp_path / "etcd") as cluster, contextlib.ExitStack() as stack:
        arguments = ("--store", "etcd", "--etcd-endpoints", ",".join(cluster.endpoints))
        both = (running.Embedded(tmp_path / "a", *arguments), running.Embedded(tmp_path / "b", *arguments))
        for one in both:
            one.launch()
            stack.callback(end, one)
        for one in both:
            one.wait_ready()
        yield both


def end(server: running.Embedded) -> None:
    if server.is_alive:
        server.kill()


def test_the_api_behaves_on_etcd_as_elsewhere(tmp_path: pathlib.Path) -> None:
    """A share of the conformance suite with the server on etcd; all of it with CONFORMANCE_SERVER=embedded-etcd."""
    programs.built("etcd", servers.ETCD)
    here = pathlib.Path(__file__).parents[1] / "conformance"
    files = [str(here / f"test_{topic}.py") for topic in TOPICS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", *files],
        cwd=here.parents[1], env={**os.environ, "CONFORMANCE_SERVER": "embedded-etcd"}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_etcd_with_certificates_is_used_and_state_survives_a_kill(tmp_path: pathlib.Path) -> None:
    tls = make_certificates(tmp_path)
    with etcd(tmp_path / "etcd", tls) as cluster:
        arguments = ["--store", "etcd", "--etcd-endpoints", ",".join(cluster.endpoints)]
        files = ["--etcd-cafile", str(tls.ca), "--etcd-certfile", str(tls.client_cert)]
        files += ["--etcd-keyfile", str(tls.client_key)]
        with running.Embedded(tmp_path / "server", *arguments, *files).running() as server:
            assert server.request("POST", CONFIGMAPS, {"metadata": {"name": "kept"}})[0] == 201
            server.kill()
            server.start()
            assert server.get(f"{CONFIGMAPS}/kept")["metadata"]["name"] == "kept"
            assert server.faults == []


def test_a_write_through_one_server_is_seen_at_once_through_the_other(
    pair: tuple[running.Embedded, running.Embedded],
) -> None:
    for number, (writer, reader) in enumerate(itertools.islice(itertools.cycle([pair, pair[::-1]]), 20)):
        path = f"{CONFIGMAPS}/n-{number}"
        assert writer.request("POST", CONFIGMAPS, {"metadata": {"name": f"n-{number}"}})[0] == 201
        assert reader.request("PUT", path, {"metadata": {"name": f"n-{number}"}, "data": {"a": "b"}})[0] == 200
        assert writer.get(path)["data"] == {"a": "b"}
        assert reader.request("DELETE", path)[0] == 200
        assert writer.request("GET", path)[0] == 404


async def test_a_watch_sees_what_others_write_in_order(pair: tuple[running.Embedded, running.Embedded]) -> None:
    a, b = pair
    async with running.session(a.server) as first, running.session(b.server) as second:
        async with first.get(CONFIGMAPS) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        for number in range(40):
            body = {"metadata": {"name": f"w-{number}"}}
            async with (first, second)[number % 2].post(CONFIGMAPS, json=body) as answer:
                assert answer.status == 201
        for session in (first, second):
            names: list[str] = []
            parameters = {"watch": "1", "resourceVersion": version}
            async with asyncio.timeout(60), session.get(CONFIGMAPS, params=parameters) as watch:
                async for line in watch.content:
                    name = json.loads(line)["object"]["metadata"]["name"]
                    names += [name] if name.startswith("w-") else []
                    if len(names) == 40:
                        break
            assert names == [f"w-{number}" for number in range(40)]


async def test_two_servers_never_give_out_the_same_address(pair: tuple[running.Embedded, running.Embedded]) -> None:
    async def make(session: aiohttp.ClientSession, name: str) -> None:
        async with session.post(SERVICES, json=service(name)) as answer:
            assert answer.status == 201, await answer.text()

    async with running.session(pair[0].server) as first, running.session(pair[1].server) as second:
        makers = [make((first, second)[number % 2], f"s-{number}") for number in range(60)]
        await asyncio.gather(*makers)
        async with first.get(SERVICES) as answer:
            services = (await answer.json())["items"]
    assert len(services) == 61
    assert_unique(services)


async def test_one_address_asked_for_at_both_servers_is_given_to_one(
    pair: tuple[running.Embedded, running.Embedded],
) -> None:
    async with running.session(pair[0].server) as first, running.session(pair[1].server) as second:

        async def ask(session: aiohttp.ClientSession, name: str, last: int) -> int:
            body: dict[str, Any] = service(name)
            body["spec"]["clusterIP"] = f"10.96.77.{last}"
            async with session.post(SERVICES, json=body) as answer:
                await answer.read()
                return answer.status

        for last in range(1, 11):
            codes = await asyncio.gather(ask(first, f"a-{last}", last), ask(second, f"b-{last}", last))
            assert sorted(codes) == [201, 422]


def test_tokens_and_certificates_of_one_server_are_good_at_the_other(
    pair: tuple[running.Embedded, running.Embedded],
) -> None:
    a, b = pair
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_until(lambda: a.request("GET", account)[0] == 200, "a default account")
    token = json.loads(a.request("POST", f"{account}/token", {"spec": {}})[1])["status"]["token"]
    head = f"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    assert running.status_of(b.say(head.encode(), as_admin=False)) == 200
    assert a.server.ca_file.read_text() == b.server.ca_file.read_text()


def test_controllers_run_in_one_server_and_move_when_it_dies(pair: tuple[running.Embedded, running.Embedded]) -> None:
    def versions(server: running.Embedded, *paths: str) -> list[str]:
        return [item["metadata"]["resourceVersion"] for path in paths for item in server.get(path)["items"]]

    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 5, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    path = "/apis/apps/v1/namespaces/default/deployments"
    wait_until(
        lambda: pair[0].request("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200, "an account"
    )
    assert pair[0].request("POST", path, {"metadata": {"name": "d"}, "spec": spec})[0] == 201

    def pods(server: running.Embedded) -> int:
        return len(server.get("/api/v1/namespaces/default/pods")["items"])

    wait_until(lambda: pods(pair[0]) == 5, "there are five pods")
    kinds = ("apps/v1/deployments", "apps/v1/replicasets", "discovery.k8s.io/v1/endpointslices")
    made = [f"/apis/{kind}" for kind in kinds] + [
        f"/api/v1/{kind}" for kind in ("pods", "namespaces", "serviceaccounts")
    ]
    wait_until(lambda: pair[0].get(f"{path}/d")["status"].get("replicas") == 5, "the deployment counts its pods")
    before = versions(pair[0], *made)
    # What goes on without anybody asking is the renewal of one Lease, not two servers correcting each other.
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    for _ in range(3):
        last = versions(pair[0], leases)
        wait_until(lambda last=last: versions(pair[0], leases) != last, "the leader renews its lease")
    assert pods(pair[1]) == 5
    assert versions(pair[1], *made) == before
    leading = next(one for one in pair if "sharing.leading" in one.log)
    other = next(one for one in pair if one is not leading)
    leading.kill()
    assert other.request("POST", "/api/v1/namespaces", {"metadata": {"name": "later"}})[0] == 201
    account = "/api/v1/namespaces/later/serviceaccounts/default"
    wait_until(lambda: other.request("GET", account)[0] == 200, "a default account made by the other server")
    assert other.faults == []


def test_a_server_outlives_its_etcd(tmp_path: pathlib.Path) -> None:
    """etcd is killed and comes back: reads wait or fail cleanly, writes go on afterwards, controllers too."""
    with etcd(tmp_path / "etcd") as cluster:
        arguments = ("--store", "etcd", "--etcd-endpoints", ",".join(cluster.endpoints))
        with running.Embedded(tmp_path / "server", *arguments).running() as server:
            cluster.kill(0)
            code, body = server.request("POST", CONFIGMAPS, {"metadata": {"name": "lost"}})
            assert code >= 500, body
            assert json.loads(body)["kind"] == "Status"
            cluster.start(0)
            cluster.wait(0)
            wait_until(
                lambda: server.request("POST", CONFIGMAPS, {"metadata": {"name": "again"}})[0] in (201, 409),
                "a write after etcd came back",
            )
            assert server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "later"}})[0] == 201
            account = "/api/v1/namespaces/later/serviceaccounts/default"
            wait_until(lambda: server.request("GET", account)[0] == 200, "a default account")
            assert server.is_alive
            assert server.faults == []
