"""Services: addresses and node ports are given out once, kept, and given back."""

from __future__ import annotations

import asyncio
import ipaddress

from tests.conformance.http import Api, Json
from tests.conformance.objects import core, service


async def make(api: Api, ns: str, name: str, **spec: Json) -> Json:
    return (await api.create(core(ns, "services"), service(name, **spec)))["spec"]


async def test_a_cluster_ip_and_defaults_are_filled_in(api: Api, ns: str) -> None:
    spec = await make(api, ns, "s")
    assert ipaddress.ip_address(spec["clusterIP"]).version == 4
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["type"] == "ClusterIP"
    assert spec["sessionAffinity"] == "None"
    assert spec["ipFamilies"] == ["IPv4"]
    assert spec["ipFamilyPolicy"] == "SingleStack"
    assert spec["internalTrafficPolicy"] == "Cluster"
    assert spec["ports"] == [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 80}]


async def test_addresses_are_unique(api: Api, ns: str) -> None:
    specs = await asyncio.gather(*(make(api, ns, f"s{number}") for number in range(15)))
    assert len({spec["clusterIP"] for spec in specs}) == 15


async def test_a_taken_address_is_refused_and_free_again_after_deletion(api: Api, ns: str) -> None:
    address = (await make(api, ns, "a"))["clusterIP"]
    status = (await api.post(core(ns, "services"), service("b", clusterIP=address))).fails(422, "Invalid")
    (cause,) = status["details"]["causes"]
    assert cause["field"] == "spec.clusterIPs"
    assert "provided IP is already allocated" in cause["message"]
    (await api.delete(core(ns, "services", "a"))).expect(200)
    assert (await make(api, ns, "b", clusterIP=address))["clusterIP"] == address


async def test_an_address_outside_the_range_is_refused(api: Api, ns: str) -> None:
    (await api.post(core(ns, "services"), service("s", clusterIP="203.0.113.7"))).fails(422, "Invalid")
    (await api.post(core(ns, "services"), service("s", clusterIP="not-an-ip"))).fails(422, "Invalid")


async def test_headless(api: Api, ns: str) -> None:
    spec = await make(api, ns, "s", clusterIP="None")
    assert spec["clusterIP"] == "None"
    assert spec["clusterIPs"] == ["None"]
    assert spec["ports"][0]["targetPort"] == 80


async def test_external_names_have_no_address(api: Api, ns: str) -> None:
    body = {**service("s"), "spec": {"type": "ExternalName", "externalName": "db.example.com"}}
    spec = (await api.create(core(ns, "services"), body))["spec"]
    assert "clusterIP" not in spec
    assert "ipFamilies" not in spec
    (await api.post(core(ns, "services"), {**service("t"), "spec": {"type": "ExternalName"}})).fails(422, "Invalid")


async def test_node_ports_are_given_out_and_unique(api: Api, ns: str) -> None:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    first = await make(api, ns, "a", type="NodePort", ports=ports)
    second = await make(api, ns, "b", type="NodePort", ports=ports)
    given = [port["nodePort"] for spec in (first, second) for port in spec["ports"]]
    assert len(set(given)) == 4
    assert all(30000 <= port <= 32767 for port in given)
    assert first["externalTrafficPolicy"] == "Cluster"


async def test_a_taken_node_port_is_refused_and_free_after_a_change_of_type(api: Api, ns: str) -> None:
    port = (await make(api, ns, "a", type="NodePort"))["ports"][0]["nodePort"]
    wanted = [{"name": "http", "port": 80, "nodePort": port}]
    status = (await api.post(core(ns, "services"), service("b", type="NodePort", ports=wanted))).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.ports[0].nodePort"
    assert "provided port is already allocated" in status["message"]
    changed = (await api.patch(core(ns, "services", "a"), {"spec": {"type": "ClusterIP"}})).expect(200)
    assert "nodePort" not in changed["spec"]["ports"][0]
    assert (await make(api, ns, "b", type="NodePort", ports=wanted))["ports"][0]["nodePort"] == port


async def test_a_node_port_outside_the_range_is_refused(api: Api, ns: str) -> None:
    wanted = [{"name": "http", "port": 80, "nodePort": 80}]
    status = (await api.post(core(ns, "services"), service("s", type="NodePort", ports=wanted))).fails(422, "Invalid")
    assert "provided port is not in the valid range" in status["message"]


async def test_an_update_keeps_the_address(api: Api, ns: str) -> None:
    before = await make(api, ns, "s")
    body = service("s", ports=[{"name": "http", "port": 8080}])
    after = (await api.put(core(ns, "services", "s"), body)).expect(200)["spec"]
    assert after["clusterIP"] == before["clusterIP"]
    assert after["ports"][0]["port"] == 8080
    (await api.patch(core(ns, "services", "s"), {"spec": {"clusterIP": "10.96.77.77"}})).fails(422, "Invalid")


async def test_node_ports_are_kept_by_an_update_that_does_not_name_them(api: Api, ns: str) -> None:
    before = await make(api, ns, "s", type="NodePort")
    after = (await api.put(core(ns, "services", "s"), service("s", type="NodePort"))).expect(200)["spec"]
    assert after["ports"][0]["nodePort"] == before["ports"][0]["nodePort"]


async def test_load_balancers_have_node_ports_unless_refused(api: Api, ns: str) -> None:
    spec = await make(api, ns, "a", type="LoadBalancer")
    assert spec["ports"][0]["nodePort"]
    assert spec["allocateLoadBalancerNodePorts"] is True
    spec = await make(api, ns, "b", type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    assert "nodePort" not in spec["ports"][0]
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    changed = (await api.patch(core(ns, "services", "a", "status"), ingress)).expect(200)
    assert changed["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"


async def test_dual_stack_is_refused_where_the_server_has_one_family(api: Api, ns: str) -> None:
    (await api.post(core(ns, "services"), service("s", ipFamilyPolicy="RequireDualStack"))).fails(422, "Invalid")
    spec = await make(api, ns, "t", ipFamilyPolicy="PreferDualStack")
    assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == ("PreferDualStack", ["IPv4"])


async def test_ports_are_checked(api: Api, ns: str) -> None:
    unnamed = [{"port": 80}, {"port": 81}]
    status = (await api.post(core(ns, "services"), service("s", ports=unnamed))).fails(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"spec.ports[0].name", "spec.ports[1].name"}
    twice = [{"name": "a", "port": 80}, {"name": "b", "port": 80}]
    (await api.post(core(ns, "services"), service("s", ports=twice))).fails(422, "Invalid")
    (await api.post(core(ns, "services"), service("s", ports=[{"port": 70000}]))).fails(422, "Invalid")


async def test_the_server_is_a_service_itself(api: Api) -> None:
    held = await api.read(core("default", "services", "kubernetes"))
    assert held["spec"]["clusterIP"]
    assert held["spec"]["ports"][0]["name"] == "https"
