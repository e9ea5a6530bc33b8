"""C1-C4 with the manager's own program, on an embedded and a real API server."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.apps import managers
from tests.apps.managers import Running, initialised, joined
from tests.waiting import until

from bedplate.api import names
from bedplate.api.resources import EVENTS, NAMESPACES, NODES, SERVICES
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors

from .builders import write

PROGRAM = managers.program(managers.PROGRAMS["cloudlycke"])
SIX = {
    "beta.kubernetes.io/instance-type": "vbox.vm.1g.2cpu",
    "node.kubernetes.io/instance-type": "vbox.vm.1g.2cpu",
    "failure-domain.beta.kubernetes.io/region": "virtualbox",
    "failure-domain.beta.kubernetes.io/zone": "virtualbox",
    "topology.kubernetes.io/region": "virtualbox",
    "topology.kubernetes.io/zone": "virtualbox",
}


@dataclass
class Cloud:
    """A demonstration cloud of this test's own: its file, and a manager that sees this test's nodes and Services."""

    server: servers.Server
    client: Client
    folder: Path
    name: str = field(default_factory=lambda: f"lycke-{uuid.uuid4().hex[:8]}")
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        return {"lycke-test": self.name}

    @property
    def load_balancer_class(self) -> str:
        return f"example.org/{self.name}"

    def machine(self, **more: Any) -> dict[str, Any]:
        known = {"id": self.name, "name": self.name, "internalIPs": ["192.168.20.11"], "type": "vbox.vm.1g.2cpu"}
        return known | more

    def set(self, **settings: Any) -> None:
        """Change the file; the manager reloads it automatically."""
        self.settings |= settings
        write(self.folder / "cloud.yaml", json.dumps(self.settings))

    @contextlib.asynccontextmanager
    async def manager(self, *flags: str) -> AsyncIterator[Running]:
        own = managers.arguments(self.server, self.name, f"lycke-test={self.name}")
        classes = [f"--load-balancer-class={self.load_balancer_class}", "--load-balancer-default-class=false"]
        config = f"--cloud-config={self.folder / 'cloud.yaml'}"
        async with managers.running(PROGRAM, *own, *classes, config, "-v=5", *flags, folder=self.folder) as manager:
            yield manager


@pytest.fixture
def cloud(server: servers.Server, client: Client, tmp_path: Path) -> Cloud:
    made = Cloud(server, client, tmp_path)
    made.set(instances=[made.machine()])
    return made


async def _check_initialised(cloud: Cloud, provider_id: str, *calls: str) -> None:
    labels = cloud.labels | {"mine": "kept"}
    async with cloud.manager() as manager, joined(cloud.client, cloud.name, provider_id=provider_id, labels=labels):
        before = (await cloud.client.get(NODES.raw(), cloud.name))["metadata"]["labels"]
        node = await initialised(cloud.client, cloud.name, manager)
        after = node["metadata"]["labels"]
        assert {key: value for key, value in after.items() if before.get(key) != value} == SIX
        assert labels.items() <= after.items()
        assert node["spec"]["providerID"] == f"cloudlycke://{cloud.name}"

        async def has_addresses() -> bool:
            found = (await cloud.client.get(NODES.raw(), cloud.name))["status"].get("addresses", [])
            told = [(each["type"], each["address"]) for each in found]
            return told == [("InternalIP", "192.168.20.11"), ("Hostname", cloud.name)]

        await until(has_addresses, "the cloud's addresses", describe=manager.log)
        for call in calls:
            assert f"argument={provider_id or cloud.name} method={call}" in manager.log(), call


@pytest.mark.parametrize("has_id", [True, False], ids=["by ID", "by name"])
async def test_a_node_gets_exactly_the_six_labels(cloud: Cloud, has_id: bool) -> None:
    await _check_initialised(cloud, f"cloudlycke://{cloud.name}" if has_id else "")


@pytest.mark.parametrize("has_id", [True, False], ids=["by ID", "by name"])
async def test_the_old_interface_leads_to_the_same_node(cloud: Cloud, has_id: bool) -> None:
    cloud.set(interface="v1")
    if has_id:
        calls = ("node_addresses_by_provider_id", "instance_type_by_provider_id", "get_zone_by_provider_id")
        await _check_initialised(cloud, f"cloudlycke://{cloud.name}", *calls)
    else:
        await _check_initialised(cloud, "", "instance_id")


async def _exists(cloud: Cloud) -> bool:
    try:
        await cloud.client.get(NODES.raw(), cloud.name)
    except kube_errors.NotFound:
        return False
    return True


async def _is_marked_shutdown(cloud: Cloud) -> bool:
    node = await cloud.client.get(NODES.raw(), cloud.name)
    return any(taint["key"] == names.TAINT_SHUTDOWN for taint in node["spec"].get("taints") or ())


@pytest.mark.parametrize("interface", ["v1", "v2"])
async def test_an_outage_deletes_nothing_and_a_terminated_machine_is_deleted(cloud: Cloud, interface: str) -> None:
    cloud.set(interface=interface)
    quick = ("--node-monitor-period=200ms", "--node-startup-grace-period=0s")
    async with cloud.manager(*quick) as manager, joined(cloud.client, cloud.name, labels=cloud.labels):
        await initialised(cloud.client, cloud.name, manager)
        cloud.set(apiError=True)
        await managers.set_ready(cloud.client, cloud.name, False)

        def questions() -> int:
            return manager.log().count("method=instance_exists")

        async def asked_often() -> bool:
            return questions() >= 15

        await until(asked_often, "fifteen questions without an answer", describe=manager.log)
        assert await _exists(cloud) and not await _is_marked_shutdown(cloud)

        cloud.set(apiError=False, instances=[cloud.machine(state="stopped")])
        await until(lambda: _is_marked_shutdown(cloud), "the shutdown taint", describe=manager.log)
        cloud.set(instances=[cloud.machine()])
        await managers.set_ready(cloud.client, cloud.name, True)

        async def is_clean() -> bool:
            return not await _is_marked_shutdown(cloud)

        await until(is_clean, "no shutdown taint", describe=manager.log)
        assert await _exists(cloud)

        cloud.set(instances=[cloud.machine(state="terminated")])
        await managers.set_ready(cloud.client, cloud.name, False)

        async def is_gone() -> bool:
            return not await _exists(cloud)

        await until(is_gone, "the node is deleted", describe=manager.log)


@pytest.fixture
async def namespace(cloud: Cloud) -> AsyncIterator[str]:
    await cloud.client.create(NAMESPACES, {"metadata": {"name": cloud.name}})
    yield cloud.name
    for item in (await cloud.client.list(SERVICES, cloud.name)).items:
        await cloud.client.patch(SERVICES, item.name, {"metadata": {"finalizers": None}}, cloud.name)
    await cloud.client.delete(NAMESPACES, cloud.name)


async def _make_service(cloud: Cloud, name: str) -> None:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": cloud.load_balancer_class}
    await cloud.client.create(SERVICES, {"metadata": {"name": name}, "spec": spec}, cloud.name)


async def _address(cloud: Cloud, name: str) -> str:
    service = await cloud.client.get(SERVICES, name, cloud.name)
    return next((each.ip for each in service.status.load_balancer.ingress), "")


async def _until_address(cloud: Cloud, name: str, manager: Running) -> str:
    async def has_one() -> bool:
        return bool(await _address(cloud, name))

    await until(has_one, f"Service {name} has an address", describe=manager.log)
    return await _address(cloud, name)


async def test_addresses_are_given_kept_over_a_restart_and_freed(cloud: Cloud, namespace: str) -> None:
    digest = uuid.UUID(int=int(cloud.name.removeprefix("lycke-"), 16)).int
    pool = [f"10.{digest % 251}.{digest // 251 % 251}.{last}" for last in (6, 7)]
    cloud.set(loadBalancer={"pool": f"{pool[0]}/31"})
    async with cloud.manager() as manager:
        for name in ("one", "two"):
            await _make_service(cloud, name)
        given = {name: await _until_address(cloud, name, manager) for name in ("one", "two")}
        assert sorted(given.values()) == pool
        await _make_service(cloud, "three")

        async def is_refused() -> bool:
            found = await cloud.client.list(EVENTS, namespace, field_selector="involvedObject.name=three")
            return any(
                event.reason == "SyncLoadBalancerFailed" and "all 2 addresses of the pool" in event.message
                for event in found.items
            )

        await until(is_refused, "an event says that the pool is empty", describe=manager.log)
        assert await _address(cloud, "three") == ""
    # Killed, not stopped; another one finds in the statuses who has what.
    async with cloud.manager() as manager:
        await manager.logged("controller.started")
        await cloud.client.delete(SERVICES, "one", namespace)
        assert await _until_address(cloud, "three", manager) == given["one"]
        assert await _address(cloud, "two") == given["two"]
        with pytest.raises(kube_errors.NotFound):
            await cloud.client.get(SERVICES, "one", namespace)
