"""What the plugin asks of the daemon for each command, and what it makes of the answer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from concurrent import futures
from typing import Any

import grpc
import pytest
from tests.crates.conftest import Bench
from tests.crates.fakedaemon import fake_daemon
from tests.waiting import wait_until

import bedplate
from bedplate.ipam.node.pb import bedplate_ipam_pb2 as own_pb
from bedplate.ipam.node.pb import nvidia_ipam_pb2 as pb

CODES = {
    "CANCELLED": 11,
    "UNKNOWN": 999,
    "INVALID_ARGUMENT": 7,
    "DEADLINE_EXCEEDED": 11,
    "NOT_FOUND": 999,
    "ALREADY_EXISTS": 999,
    "PERMISSION_DENIED": 999,
    "RESOURCE_EXHAUSTED": 999,
    "FAILED_PRECONDITION": 999,
    "ABORTED": 999,
    "OUT_OF_RANGE": 999,
    "UNIMPLEMENTED": 999,
    "INTERNAL": 999,
    "UNAVAILABLE": 11,
    "DATA_LOSS": 999,
    "UNAUTHENTICATED": 999,
}


def test_without_a_command_it_says_what_it_is(bench: Bench) -> None:
    answer = bench.call("", b"whatever")
    assert (answer.exit, answer.stdout) == (0, b"")
    assert f"nv-ipam CNI plugin v{bedplate.__version__}" in answer.stderr
    assert "0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0" in answer.stderr


def test_version_needs_nothing(bench: Bench) -> None:
    answer = bench.call("VERSION", b"{", CNI_CONTAINERID="", CNI_PATH="", CNI_NETNS="", CNI_IFNAME="")
    assert answer.exit == 0
    assert answer.document["supportedVersions"][-1] == answer.document["cniVersion"] == "1.1.0"


def test_add_sends_everything_it_knows(bench: Bench) -> None:
    network = bench.network(
        deviceID="0000:d8:00.1",
        ipam={"poolName": "ignored", "poolType": "ippool"},
        args={"cni": {"poolNames": ["a", "b"], "poolType": "CIDRPool", "allocateIPWithIndex": 0}},
    )
    answer = bench.call("ADD", network)
    assert answer.document == {
        "cniVersion": "1.1.0",
        "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
    }
    metadata = pb.IPAMMetadata(k8s_pod_name="pod", k8s_pod_namespace="ns", k8s_pod_uid="uid", device_id="0000:d8:00.1")
    assert bench.daemon.parameters() == pb.IPAMParameters(
        pools=["a", "b"],
        cni_containerid="c1",
        cni_ifname="net1",
        metadata=metadata,
        pool_type=pb.POOL_TYPE_CIDRPOOL,
        features=pb.IPAMFeatures(allocate_ip_with_index=0),
    )
    assert bench.daemon.parameters().features.HasField("allocate_ip_with_index")


def test_addresses_are_sent_in_one_form(bench: Bench) -> None:
    bench.call("ADD", bench.network(runtimeConfig={"ips": ["10.0.0.7/24", "FD00:0::7", "::ffff:10.0.0.8"]}))
    assert list(bench.daemon.parameters().requested_ips) == ["10.0.0.7", "fd00::7", "10.0.0.8"]


@pytest.mark.parametrize("command", ["ADD", "CHECK", "DEL"])
@pytest.mark.parametrize("name", CODES)
def test_a_refusal_has_a_code_that_tells_what_to_do(bench: Bench, command: str, name: str) -> None:
    method = {"ADD": "Allocate", "CHECK": "IsAllocated", "DEL": "Deallocate"}[command]
    bench.daemon.refusals[method] = (grpc.StatusCode[name], "so sorry: 100% € \n full")
    error = bench.call(command).error
    assert (error["code"], error["details"], error["cniVersion"]) == (CODES[name], f"gRPC code {name}", "1.1.0")
    assert error["msg"].startswith("so sorry: 100% € \n full")


@pytest.mark.parametrize("command", ["ADD", "CHECK", "DEL"])
def test_a_daemon_that_does_not_answer_is_worth_another_try(bench: Bench, command: str) -> None:
    bench.daemon.is_silent = True
    error = bench.call(command, bench.network(ipam={"daemonCallTimeoutSeconds": 1})).error
    assert (error["code"], error["details"]) == (11, "gRPC code DEADLINE_EXCEEDED")
    (deadline_s,) = bench.daemon.deadlines_s
    assert deadline_s is not None and deadline_s <= 1


@pytest.mark.parametrize("has_listener", [True, False])
def test_a_socket_without_a_daemon_is_worth_another_try(bench: Bench, has_listener: bool) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(bench.folder / "s"))
        if has_listener:
            listener.listen(0)
        ipam = {"daemonSocket": f"unix:{bench.folder}/s", "daemonCallTimeoutSeconds": 1}
        for command in ("ADD", "DEL", "CHECK"):
            error = bench.call(command, bench.network(ipam=ipam)).error
            assert (error["code"], "waited" in error["msg"]) == (11, not has_listener)
        error = bench.call("STATUS", bench.network(ipam=ipam)).error
        assert (error["code"], "waited" in error["msg"]) == (50, False)


@pytest.mark.parametrize(
    ("command", "is_left_behind"), [("ADD", False), ("ADD", True), ("CHECK", False), ("DEL", False)]
)
def test_a_daemon_that_is_being_replaced_is_waited_for(bench: Bench, command: str, is_left_behind: bool) -> None:
    path = bench.folder / "s"
    if is_left_behind:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    network = bench.network(ipam={"daemonSocket": f"unix:{path}", "daemonCallTimeoutSeconds": 60})
    with futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(bench.call, command, network)
        # The plugin is there before the daemon: its log says so before it looks for one.
        wait_until(lambda: bench.log.exists() and f"{command} call" in bench.log.read_text(), "it runs")
        time.sleep(0.1)
        with fake_daemon(f"unix:{path}") as daemon:
            answer = call.result(120)
    assert (answer.exit, len(daemon.calls)) == (0, 1), answer


def test_another_file_than_a_socket_is_not_waited_for(bench: Bench) -> None:
    (bench.folder / "file").touch()
    ipam = {"daemonSocket": f"unix:{bench.folder}/file", "daemonCallTimeoutSeconds": 60}
    error = bench.call("ADD", bench.network(ipam=ipam)).error
    assert (error["code"], "waited" in error["msg"]) == (11, False)


def test_every_form_of_a_socket_is_taken(bench: Bench) -> None:
    for form in (
        "unix:daemon.sock",
        f"unix:{bench.folder}/daemon.sock",
        f"unix:///{bench.folder}/daemon.sock",
        f"passthrough:///unix://{bench.folder}/daemon.sock",
        f"{bench.folder}/daemon.sock",
    ):
        assert bench.call("ADD", bench.network(ipam={"daemonSocket": form})).exit == 0, form
    for form in ("unix://no/such", "dns://8.8.8.8/x:1", "no such host:80x", "http://x/"):
        assert bench.call("ADD", bench.network(ipam={"daemonSocket": form})).error["code"] == 7, form


def test_a_daemon_is_reached_by_host_and_port(bench: Bench) -> None:
    with fake_daemon("127.0.0.1:0") as daemon:
        for form in (
            "127.0.0.1:%d",
            "tcp://127.0.0.1:%d",
            "dns:///localhost:%d",
            "localhost:%d",
            "passthrough:///[::ffff:127.0.0.1]:%d",
        ):
            answer = bench.call("ADD", bench.network(ipam={"daemonSocket": form % daemon.port}))
            assert answer.exit == 0, (form, answer)
        assert len(daemon.calls) == 5
    ipam = {"daemonSocket": f"tcp://127.0.0.1:{daemon.port}", "daemonCallTimeoutSeconds": 1}
    gone = bench.call("ADD", bench.network(ipam=ipam)).error
    assert (gone["code"], "waited" in gone["msg"]) == (11, True)


def test_the_plugins_own_namespace_gives_one_error_and_the_address_back(bench: Bench) -> None:
    answer = bench.call("ADD", CNI_NETNS="/proc/self/ns/net")
    assert answer.error["code"] == 8
    assert bench.daemon.names() == ["Allocate", "Deallocate"]
    assert bench.daemon.calls[0][1].parameters == bench.daemon.calls[1][1].parameters
    assert bench.call("DEL", CNI_NETNS="/proc/self/ns/net").error["code"] == 8
    assert bench.call("ADD", CNI_NETNS="/proc/self/ns/net", CNI_NETNS_OVERRIDE="true").exit == 0


def test_an_address_that_nobody_reads_goes_back(bench: Bench) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [bench.plugin]
        stdin = json.dumps(bench.network()).encode()
        ran = subprocess.run(command, input=stdin, stdout=writer, stderr=-1, env=bench.environment("ADD"), check=False)
    finally:
        os.close(writer)
    assert ran.returncode == 1
    assert bench.daemon.names() == ["Allocate", "Deallocate"]


def test_an_answer_that_makes_no_sense_is_an_error_and_goes_back(bench: Bench) -> None:
    for wrong in (b"\xff", b"", pb.AllocateResponse(allocations=[pb.AllocationInfo(ip="x")]).SerializeToString()):
        bench.daemon.answers["Allocate"] = wrong
        assert bench.call("ADD").error["code"] == 999
        assert bench.daemon.names()[-2:] == ["Allocate", "Deallocate"]


def test_the_result_has_the_form_of_the_configurations_version(bench: Bench) -> None:
    bench.daemon.answers["Allocate"] = pb.AllocateResponse(
        allocations=[pb.AllocationInfo(ip="10.0.0.5/24"), pb.AllocationInfo(ip="fd00::5/64", gateway="fd00::1")]
    ).SerializeToString()
    for version in ("0.3.0", "0.3.1", "0.4.0"):
        ips = bench.call("ADD", bench.network(cniVersion=version)).document["ips"]
        assert [each["version"] for each in ips] == ["4", "6"]
    for version in ("0.1.0", "0.2.0"):
        document = bench.call("ADD", bench.network(cniVersion=version)).document
        assert document == {
            "cniVersion": version,
            "ip4": {"ip": "10.0.0.5/24"},
            "ip6": {"ip": "fd00::5/64", "gateway": "fd00::1"},
        }


DEL_ANYWAY: list[tuple[dict[str, Any], dict[str, str], list[str]]] = [
    ({}, {"CNI_ARGS": ""}, ["net"]),
    ({}, {"CNI_ARGS": "K8S_POD_NAME=a=b;;X"}, ["net"]),
    ({"ipam": {"forcePoolName": True}}, {}, []),
    ({"ipam": {"poolName": "a,b,c"}}, {}, []),
    ({"ipam": {"poolType": "nonsense"}}, {}, []),
    ({"ipam": {"poolName": 7}}, {}, ["net"]),
    ({"args": {"cni": {"ips": ["nonsense"]}}}, {}, ["net"]),
    ({"args": {"cni": {"allocateDefaultGateway": True, "allocateIPWithIndex": -3}}}, {}, ["net"]),
    ({"ipam": {"daemonCallTimeoutSeconds": -1}}, {}, ["net"]),
]


@pytest.mark.parametrize(("config", "env", "pools"), DEL_ANYWAY, ids=lambda value: json.dumps(value)[:40])
def test_del_sends_what_it_has(bench: Bench, config: dict[str, Any], env: dict[str, str], pools: list[str]) -> None:
    network = bench.network(**config)
    assert (bench.call("DEL", network, **env).exit, bench.daemon.names()) == (0, ["Deallocate"])
    found = bench.daemon.parameters()
    assert (found.cni_containerid, found.cni_ifname, list(found.pools)) == ("c1", "net1", pools)
    assert bench.call("ADD", network, **env).exit == 1
    assert bench.daemon.names() == ["Deallocate"]


def test_del_goes_on_with_a_broken_file(bench: Bench) -> None:
    (bench.folder / "other").mkdir()
    (bench.folder / "other" / "nv-ipam.conf").write_text("{")
    network = bench.network(ipam={"confDir": f"{bench.folder}/other"})
    network["ipam"]["daemonSocket"] = f"unix://{bench.folder}/daemon.sock"
    assert bench.call("DEL", network).exit == 0
    assert bench.call("ADD", network).error["code"] == 7
    assert bench.daemon.names() == ["Deallocate"]


def test_del_names_a_pod_only_where_the_daemon_insists(bench: Bench) -> None:
    bench.daemon.refusals["Deallocate"] = (grpc.StatusCode.INVALID_ARGUMENT, "a pod's name is required")
    assert bench.call("DEL", CNI_ARGS="").exit == 1
    pods = [message.parameters.metadata.k8s_pod_name for _, message in bench.daemon.calls]
    assert pods == ["", "unknown"]
    bench.daemon.calls.clear()
    assert bench.call("DEL").error["code"] == 7
    assert len(bench.daemon.calls) == 1


def test_gc_tells_the_daemon_what_lives(bench: Bench) -> None:
    bench.daemon.answers["Collect"] = own_pb.CollectResponse(released=3, kept=1).SerializeToString()
    valid = [{"containerID": "c1", "ifname": "net1"}, {"containerID": "c2", "ifname": "net2"}]
    answer = bench.call("GC", bench.network(**{"cni.dev/valid-attachments": valid, "ipam": {"poolName": "a,b"}}))
    assert (answer.exit, answer.stdout) == (0, b"")
    attachments = [
        own_pb.Attachment(container_id="c1", ifname="net1"),
        own_pb.Attachment(container_id="c2", ifname="net2"),
    ]
    wanted = own_pb.CollectRequest(
        network="net", pools=["a", "b"], pool_type=own_pb.POOL_TYPE_IPPOOL, valid=attachments
    )
    assert bench.daemon.calls == [("Collect", wanted)]
    assert "3 released, 1 kept" in bench.log.read_text()


def test_gc_of_many_attachments_fits_through(bench: Bench) -> None:
    valid = [{"containerID": f"{number:064x}", "ifname": "net1"} for number in range(20_000)]
    assert bench.call("GC", bench.network(**{"cni.dev/valid-attachments": valid})).exit == 0
    ((_, request),) = bench.daemon.calls
    assert [each.container_id for each in request.valid] == [each["containerID"] for each in valid]


def test_gc_frees_nothing_where_nothing_is_listed(bench: Bench) -> None:
    assert bench.call("GC").exit == 0
    assert bench.daemon.calls == []
    assert "nothing is released" in bench.log.read_text()
    for wrong in ("all", [{"containerID": 1}], ["c1"]):
        assert bench.call("GC", bench.network(**{"cni.dev/valid-attachments": wrong})).error["code"] == 7
    assert bench.daemon.calls == []
    assert bench.call("GC", bench.network(**{"cni.dev/valid-attachments": None})).exit == 0
    assert bench.daemon.names() == ["Collect"]


def test_gc_and_status_are_fine_with_a_daemon_that_knows_neither(bench: Bench) -> None:
    bench.daemon.has_own_service = False
    many = [{"containerID": f"{number:064x}", "ifname": "net1"} for number in range(5_000)]
    for command, more in (("GC", {"cni.dev/valid-attachments": many}), ("STATUS", {})):
        answer = bench.call(command, bench.network(**more))
        assert (answer.exit, answer.stdout) == (0, b""), answer


@pytest.mark.parametrize("name", ["UNAVAILABLE", "NOT_FOUND", "RESOURCE_EXHAUSTED", "INTERNAL", "DEADLINE_EXCEEDED"])
def test_status_says_that_no_pod_can_be_served(bench: Bench, name: str) -> None:
    assert bench.call("STATUS", bench.network(ipam={"poolName": "a,b"})).exit == 0
    assert bench.daemon.calls == [("Status", own_pb.StatusRequest(pools=["a", "b"], pool_type=own_pb.POOL_TYPE_IPPOOL))]
    bench.daemon.refusals["Status"] = (grpc.StatusCode[name], "why")
    error = bench.call("STATUS").error
    assert (error["code"], error["details"]) == (50, f"gRPC code {name}")


def test_it_starts_without_python_and_libraries(bench: Bench) -> None:
    kind = subprocess.run(["ldd", bench.plugin], capture_output=True, text=True, check=False)
    assert "statically linked" in kind.stdout or "not a dynamic" in kind.stderr
