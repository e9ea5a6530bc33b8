"""The shipped roles against what programs ask for, as a real API server's audit log has it: both ways the same.

Each program does all of its work with the account and the roles of its chart or manifest. Nothing is refused, nothing
is asked for beyond the roles, and every verb in the roles is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import programs, servers
from tests.apps import managers
from tests.cloud.providers.cloudlycke.test_agent import Network
from tests.deploy.conftest import ROOT, Program, chart_folder, documents, unique
from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import daemon
from tests.waiting import until, wait_until

from bedplate.api.resources import EVENTS, NAMESPACES, NODES, SERVICE_ACCOUNTS, SERVICES
from bedplate.cloud.providers.cloudlycke import agent as agents
from bedplate.cloud.providers.cloudlycke import config as cloudlycke
from bedplate.kube import Client, config
from bedplate.kube import errors as kube_errors
from bedplate.kube.subresources import request_token
from bedplate.sim.clouds import BmmCloud, OxideCloud

pytestmark = pytest.mark.real

POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
# verb, group/resource[/subresource], namespace ("" for all of them), name that the right is limited to
Right = tuple[str, str, str, str]
# From Kubernetes' own roles for those who let the API server judge their callers.
DELEGATED: set[Right] = {
    ("create", "authentication.k8s.io/tokenreviews", "", ""),
    ("create", "authorization.k8s.io/subjectaccessreviews", "", ""),
    *((verb, "/configmaps", "kube-system", "") for verb in ("get", "list", "watch")),
}


@dataclass(frozen=True)
class Audited:
    """A server and its audit log."""

    server: servers.Server
    log: Path

    def entries(self, user: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if f'"{user}"' in line]
        return [line for line in lines if line["user"]["username"] == user and "resource" in line.get("objectRef", {})]

    def asked(self, user: str, shipped: set[Right]) -> set[Right]:
        """What a user has asked for, as far as the shipped rights go: of a namespace, and of a name, if those do."""
        return {_narrowest(entry["verb"], entry["objectRef"], shipped) for entry in self.entries(user)}

    def refused(self, user: str) -> list[str]:
        return [
            f"{one['verb']} {one['requestURI']}" for one in self.entries(user) if one["responseStatus"]["code"] == 403
        ]


def _narrowest(verb: str, ref: dict[str, str], shipped: set[Right]) -> Right:
    resource = "/".join(filter(None, (ref["resource"], ref.get("subresource", ""))))
    what = f"{ref.get('apiGroup', '')}/{resource}"
    namespace, name = ref.get("namespace", ""), ref.get("name", "")
    forms = [(verb, what, *place) for place in ((namespace, name), (namespace, ""), ("", name), ("", ""))]
    return next((form for form in forms if form in shipped), forms[0])


def rights_of(objects: list[dict[str, Any]]) -> set[Right]:
    """What the roles among these objects give."""
    return {
        (verb, f"{group}/{resource}", role["metadata"].get("namespace", ""), name)
        for role in objects
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("audit")
    policy, log = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(yaml.safe_dump({**POLICY, "rules": [{"level": "Metadata"}]}))
    arguments = (f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-maxsize=1000")
    with programs.own_server("real", api_arguments=arguments) as running:
        yield Audited(running, log)


@pytest.fixture
def server(audited: Audited) -> servers.Server:
    return audited.server


async def kubeconfig_of(client: Client, server: servers.Server, user: str, folder: Path) -> Path:
    """A kubeconfig of a service account, given by its user name."""
    _, _, namespace, name = user.split(":")
    token = (await request_token(client, name, namespace)).token
    return servers.write_kubeconfig(folder / f"{name}.kubeconfig", server.url, server.ca_file, {"token": token})


@contextlib.contextmanager
def applied(kubectl: Program, objects: list[dict[str, Any]]) -> Iterator[None]:
    manifest = yaml.safe_dump_all(objects)
    kubectl("apply", "-f", "-", stdin=manifest)
    try:
        yield
    finally:
        kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=manifest)


def rbac(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in objects if "Role" in one["kind"] or one["kind"] == "ServiceAccount"]


# Managers


class Cloud:
    """A cloud with one machine, which can go."""

    def __init__(self, flags: list[str], environ: dict[str, str], remove: Any) -> None:
        self.flags, self.environ, self.remove = flags, environ, remove


@contextlib.asynccontextmanager
async def cloud_of(provider: str, machine: str, folder: Path) -> AsyncIterator[Cloud]:
    if provider == "nvidia-bmm":
        async with BmmCloud() as bmm:
            bmm.add(machine)
            flags = [f"--cloud-config={managers.bmm_config(bmm, folder)}"]
            yield Cloud(flags, {}, lambda: bmm.remove(machine))
    elif provider == "oxide":
        async with OxideCloud() as oxide:
            oxide.add(machine)
            yield Cloud([], managers.oxide_environment(oxide), lambda: oxide.remove(machine))
    else:
        file = folder / "cloud-config.yaml"
        instances = [{"id": "m-1", "name": machine, "internalIPs": ["10.11.12.13"], "type": "t"}]
        file.write_text(yaml.safe_dump({"instances": instances}))
        gone = yaml.safe_dump({"instances": [{**instances[0], "name": "other", "id": "m-2"}]})
        yield Cloud([f"--cloud-config={file}"], {}, lambda: file.write_text(gone))


# As each chart is shipped.
@pytest.mark.parametrize(("provider", "controllers"), [
    ("cloudlycke", ("node", "service")), ("oxide", ()), ("nvidia-bmm", ("node",)),
])  # fmt: skip
async def test_a_manager_asks_for_what_its_chart_gives_and_for_nothing_else(
    audited: Audited,
    client: Client,
    kubectl: Program,
    helm: Program,
    tmp_path: Path,
    provider: str,
    controllers: tuple[str, ...],
) -> None:
    release, machine = unique("rec"), unique("machine")
    chosen = ["serviceAccount.name=" + release, f"leaderElection.resourceName={release}"]
    chosen += ["rbac.name="] if provider == "nvidia-bmm" else []
    objects = documents(
        helm("template", release, chart_folder(provider), "-n", "kube-system", "--set", ",".join(chosen))
    )
    (container,) = next(one for one in objects if one["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"]
    words = [*container["command"][1:], *container.get("args", [])]
    user = f"system:serviceaccount:kube-system:{release}"
    accounts = [f"system:serviceaccount:kube-system:{name}-controller" for name in controllers]
    assert any("--use-service-account-credentials=true" in word for word in words) == bool(accounts)
    shipped = rights_of(rbac(objects))
    for name in controllers:
        # The manager makes those that are missing.
        with contextlib.suppress(kube_errors.NotFound):
            await client.delete(SERVICE_ACCOUNTS, f"{name}-controller", "kube-system")
    with applied(kubectl, rbac(objects)):
        kubeconfig = await kubeconfig_of(client, audited.server, user, tmp_path)
        async with cloud_of(provider, machine, tmp_path) as cloud:
            port = servers.free_port()
            own = [f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}"]
            own += ["--node-monitor-period=300ms", "--node-startup-grace-period=0s", "--max-node-deletions-percent=100"]
            words = [word for word in words if not word.startswith(("--cloud-config=", "--cloud-provider="))]
            async with managers.in_process([*words, *own, *cloud.flags], provider, cloud.environ):
                await _work(audited, client, provider, machine, cloud, port)
                missing: set[Right] = set()

                async def are_used() -> bool:
                    missing.clear()
                    missing.update(shipped - audited.asked(user, shipped))
                    return not missing

                await until(are_used, f"{provider} uses all that its chart gives", describe=lambda: missing)
    assert audited.asked(user, shipped | DELEGATED) - shipped <= DELEGATED
    assert {who: audited.refused(who) for who in (user, *accounts)} == {who: [] for who in (user, *accounts)}
    if accounts:
        everywhere = {verb for verb, _, namespace, name in shipped if not namespace and not name}
        assert everywhere == {"list", "watch"}
        assert all(audited.entries(who) for who in accounts)


async def _work(audited: Audited, client: Client, provider: str, machine: str, cloud: Cloud, port: int) -> None:
    """All that a manager does: a node comes, a Service is served, a stranger is reported, the node's machine goes."""
    stranger = unique("stranger")
    async with managers.joined(client, machine), managers.joined(client, stranger):

        async def is_initialised() -> bool:
            node = await client.get(NODES.raw(), machine)
            return bool(node["spec"].get("providerID")) and not node["spec"].get("taints")

        await until(is_initialised, "the node is initialised")
        if provider != "nvidia-bmm":
            await _serve(client)
        await until(lambda: _is_answered(port), "callers are reviewed")
        await managers.set_ready(client, machine, ready=False)
        cloud.remove()

        async def is_gone() -> bool:
            try:
                await client.get(NODES, machine)
            except kube_errors.NotFound:
                return True
            return False

        await until(is_gone, "the node goes with its machine")


async def _is_answered(port: int) -> bool:
    return (await managers.get(port, "/metrics", "not-a-token"))[0] in (401, 403)


async def _serve(client: Client) -> None:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]}
    name = unique("web")
    await client.create(SERVICES.raw(), {"metadata": {"name": name}, "spec": spec}, "default")

    async def is_served() -> bool:
        found = await client.get(SERVICES.raw(), name, "default")
        return bool(found["status"].get("loadBalancer", {}).get("ingress"))

    await until(is_served, "the Service has an address")
    # What was told before is told again, and counted.
    ports = [{"name": "web", "port": 80}, {"name": "more", "port": 81}]
    await client.patch(SERVICES.raw(), name, {"spec": {"ports": ports}}, "default")

    async def is_counted() -> bool:
        chosen = f"involvedObject.name={name},reason=EnsuringLoadBalancer"
        events = (await client.list(EVENTS.raw(), "default", field_selector=chosen)).items
        return any(event.get("count", 1) > 1 for event in events)

    await until(is_counted, "the Service is looked at again")
    await client.delete(SERVICES, name, "default")


# The agents of Cloudlycke's load balancers


async def test_the_agent_asks_for_what_its_manifest_gives_and_for_nothing_else(
    audited: Audited, client: Client, kubectl: Program, tmp_path: Path
) -> None:
    objects = documents((ROOT / "manifests" / "cloudlycke-ccm.yaml").read_text())
    own = [one for one in rbac(objects) if one["metadata"]["name"].endswith("cloudlycke-lb-agent")]
    user = "system:serviceaccount:kube-system:cloudlycke-lb-agent"
    shipped, node = rights_of(own), unique("carrier")
    with contextlib.suppress(kube_errors.AlreadyExists):
        await client.create(NAMESPACES, {"metadata": {"name": "cloudlycke-lb"}})
    with applied(kubectl, own):
        settings = config.load(await kubeconfig_of(client, audited.server, user, tmp_path), environ={})
        async with managers.joined(client, node, provider_id="cloudlycke://m-9"), Client(settings) as acting:
            await client.patch(NODES.raw(), node, {"spec": {"taints": None}})
            name, address = unique("web"), "192.168.20.202"
            spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
            metadata = {"name": name, "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}
            await client.create(SERVICES.raw(), {"metadata": metadata, "spec": spec}, "default")
            status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
            await client.patch(SERVICES.raw(), name, status, "default", subresource="status")
            network = Network()
            agent = agents.assemble(acting, node, cloudlycke.Config(), network.of(node), "cloudlycke-lb")
            running = asyncio.create_task(agent.run())
            try:
                await until(lambda: shipped <= audited.asked(user, shipped), "the agent uses all it was given")
                await until(lambda: network.carriers(ipaddress.IPv4Address(address)) == [node], "it is carried")
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await client.patch(SERVICES.raw(), name, {"metadata": {"finalizers": None}}, "default")
                await client.delete(SERVICES, name, "default")
    assert audited.asked(user, shipped) == shipped
    assert audited.refused(user) == []


# The daemon of address management; its controller is in tests/ipam/controller/test_rights_live.py.


async def test_the_daemon_asks_for_what_its_overlay_gives_and_for_nothing_else(
    audited: Audited, client: Client, kubectl: Program, tmp_path: Path
) -> None:
    async with World(audited.server, client) as world:
        text = kubectl("kustomize", ROOT / "deploy" / "overlays" / "no-webhook").replace("kube-system", world.namespace)
        own = [one for one in rbac(documents(text)) if one["metadata"]["name"].startswith("nv-ipam-node")]
        user = f"system:serviceaccount:{world.namespace}:nv-ipam-node"
        shipped = rights_of(own)
        spec = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 2}
        block = {"nodeName": "a", "startIP": "192.168.0.1", "endIP": "192.168.0.2"}
        await world.pool("IPPool", "p", spec)
        await world.damage("IPPool", "p", [block])

        def play(kubeconfig: Path) -> None:
            flags = ("--cleaner-interval=200ms", "--cleaner-misses=2")
            with daemon(tmp_path, kubeconfig, world.node("a"), world.namespace, *flags) as one:
                one.ready()
                with one.caller() as caller:

                    def is_all_used() -> bool:
                        # A pod that never was: its address is given, taken again by the cleaner, and so on.
                        for number in range(3):
                            with contextlib.suppress(Exception):
                                caller.allocate("p", container=f"c-{number}")
                        return shipped <= audited.asked(user, shipped)

                    wait_until(
                        is_all_used,
                        "the daemon uses all it was given",
                        step_s=0.2,
                        describe=lambda: shipped - audited.asked(user, shipped),
                    )
                assert one.stop() == 0

        with applied(kubectl, own):
            await asyncio.to_thread(play, await kubeconfig_of(client, audited.server, user, tmp_path))
    assert audited.asked(user, shipped) == shipped
    assert audited.refused(user) == []
