"""A node's address daemon that tests may kill, stop and start again, called through the real CNI plugin.

In: an API server, a folder for the store. Out: `Site` (a namespace with one pool that has a block for one node),
`NodeDaemon` (a process on one store and one socket for all its lives) and the answers of the plugin. What a store holds
is read here as plain JSON, with a checksum of our own: nothing is shared with the program under test.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import yaml
from tests import programs, servers
from tests.waiting import DEADLINE_S, wait_until

__all__ = ["Answer", "NodeDaemon", "Site", "checksum", "entries_of", "prefilled", "site"]

ROOT = pathlib.Path(__file__).parents[2]
SUBNET, FIRST, LAST, GATEWAY = "10.99.0.0/16", "10.99.0.1", "10.99.16.0", "10.99.0.1"
GROUP = "/apis/nv-ipam.nvidia.com/v1alpha1"
TRY_AGAIN = 11


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a daemon finds its pool."""

    server: servers.Server
    namespace: str
    node: str
    pool: str = "endurance"

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        if self.server.token:
            headers["Authorization"] = f"Bearer {self.server.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.server.ssl_context()) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as err:
            return err.code, json.loads(err.read() or b"{}")

    def make(self) -> None:
        for file in sorted((ROOT / "deploy" / "crds").glob("nv-ipam*.yaml")):
            kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            code, answer = self.request("POST", kinds, yaml.safe_load(file.read_text()))
            assert code in (201, 409), answer
        code, answer = self.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        assert code == 201, answer
        spec = {"subnet": SUBNET, "perNodeBlockSize": 4096, "gateway": GATEWAY}
        pool = {
            "apiVersion": "nv-ipam.nvidia.com/v1alpha1", "kind": "IPPool", "metadata": {"name": self.pool},
            "spec": {**spec, "nodeSelector": _nodes_of_nobody()},
        }  # fmt: skip
        path = f"{GROUP}/namespaces/{self.namespace}/ippools"

        def created() -> Any:
            code, answer = self.request("POST", path, pool)
            # The kind is not served at once.
            assert code in (201, 404), answer
            return answer if code == 201 else None

        made = wait_until(created, "the pool is created", step_s=0.1)
        made["status"] = {"allocations": [{"nodeName": self.node, "startIP": FIRST, "endIP": LAST}]}
        code, answer = self.request("PUT", f"{path}/{self.pool}/status", made)
        assert code == 200, answer

    def remove(self) -> None:
        self.request("DELETE", f"{GROUP}/namespaces/{self.namespace}/ippools/{self.pool}")
        self.request("DELETE", f"/api/v1/namespaces/{self.namespace}")


def _nodes_of_nobody() -> dict[str, Any]:
    """Should some controller see the pool, it gives no other node a block of it."""
    expression = {"key": "bedplate-endurance", "operator": "In", "values": ["nobody"]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


@contextlib.contextmanager
def site(server: servers.Server) -> Iterator[Site]:
    """A namespace and a node's name of its own."""
    unique = secrets.token_hex(4)
    made = Site(server, f"endurance-{unique}", f"node-{unique}")
    made.make()
    try:
        yield made
    finally:
        made.remove()


@dataclasses.dataclass(frozen=True)
class Answer:
    """How the plugin ended. Every failure has to be one JSON document with a code and a message."""

    code: int
    document: dict[str, Any]

    @property
    def is_ok(self) -> bool:
        return self.code == 0

    @property
    def is_away(self) -> bool:
        """The daemon was not there, or not yet: try again later."""
        return self.code != 0 and self.document.get("code") == TRY_AGAIN

    @property
    def address(self) -> str:
        text: str = self.document["ips"][0]["address"]
        return text.partition("/")[0]

    def __str__(self) -> str:
        return f"exit {self.code}: {json.dumps(self.document)}"


class NodeDaemon:
    """A daemon on a folder that outlives it."""

    def __init__(self, folder: pathlib.Path, site: Site, *, disk: pathlib.Path | None = None) -> None:
        self.folder, self.site = folder, site
        self.disk = disk or folder / "disk"
        self.store = self.disk / "store"
        # A socket's path must not be long, and the folder's may be.
        self._short = tempfile.TemporaryDirectory(prefix="ipam-")
        self.socket = pathlib.Path(self._short.name, "sock")
        self.log_file = folder / "log"
        for one in (self.disk, folder / "bin", folder / "conf"):
            one.mkdir(parents=True, exist_ok=True)
        self.network = folder / "network.json"
        ipam = {"type": "nv-ipam", "poolName": site.pool, "confDir": str(folder / "conf")}
        self.network.write_text(
            json.dumps({"cniVersion": "1.0.0", "name": "endurance", "type": "macvlan", "ipam": ipam})
        )
        self.plugin = programs.nv_ipam()
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self, *more: str, program: pathlib.Path | None = None) -> None:
        """Start the process without waiting for it."""
        assert not self.is_alive, "it runs already"
        words = [str(program)] if program else [sys.executable, "-m", "bedplate.apps.ipamnode"]
        address = f"unix://{self.socket}"
        words += [
            f"--kubeconfig={self.site.server.kubeconfig}", f"--node-name={self.site.node}",
            f"--ippools-namespace={self.site.namespace}", f"--store-file={self.store}",
            f"--bind-address={address}", f"--cni-daemon-socket={address}",
            f"--cni-bin-dir={self.folder / 'bin'}", f"--cni-nv-ipam-bin-file={self.plugin}",
            f"--cni-conf-dir={self.folder / 'conf'}", f"--cni-log-file={self.folder / 'cni.log'}",
            "--metrics-bind-address=0", "--health-probe-bind-address=0", "--v=1", *more,
        ]  # fmt: skip
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=servers._die_with_parent
            )

    def start(self, *more: str, program: pathlib.Path | None = None) -> None:
        """Start it and wait until it takes calls."""
        self.launch(*more, program=program)
        self.wait_listening()

    def wait_listening(self) -> None:
        def is_listening() -> bool:
            assert self.is_alive, f"the daemon ended:\n{self.log[-4000:]}"
            with socket.socket(socket.AF_UNIX) as probe:
                return probe.connect_ex(str(self.socket)) == 0

        wait_until(is_listening, "the daemon listens", describe=lambda: self.log[-4000:])

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @property
    def faults(self) -> list[str]:
        """Lines of the log that tell of a bug."""
        return [line for line in self.log.splitlines() if "Traceback" in line or "grpc.bug" in line]

    def call(self, command: str, container: str, interface: str = "net0") -> Answer:
        """One call of the plugin, as a container runtime makes it."""
        arguments = f"IgnoreUnknown=1;K8S_POD_NAMESPACE=endurance;K8S_POD_NAME={container};K8S_POD_UID=uid-{container}"
        env = {
            "CNI_COMMAND": command, "CNI_CONTAINERID": container, "CNI_IFNAME": interface, "CNI_ARGS": arguments,
            "CNI_NETNS": "/var/run/netns/of-nobody", "CNI_PATH": str(self.plugin.parent),
        }  # fmt: skip
        with self.network.open("rb") as config:
            done = subprocess.run(
                [str(self.plugin)], stdin=config, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
                timeout=DEADLINE_S, check=False, close_fds=False,
            )  # fmt: skip
        assert done.stdout or done.returncode == 0, f"{command} failed without a word ({done.returncode})"
        return Answer(done.returncode, json.loads(done.stdout) if done.stdout else {})

    def must(self, command: str, container: str, interface: str = "net0") -> Answer:
        """A call that has to succeed."""
        answer = self.call(command, container, interface)
        assert answer.is_ok, f"{command} {container}: {answer}\n{self.log[-2000:]}"
        return answer

    def entries(self) -> dict[str, str]:
        """What the store file says: addresses by reservation."""
        return entries_of(self.store.read_bytes(), self.site.pool)

    @contextlib.contextmanager
    def running(self) -> Iterator[NodeDaemon]:
        self.start()
        with self.ended():
            yield self

    @contextlib.contextmanager
    def ended(self) -> Iterator[NodeDaemon]:
        """Whatever runs ends with the block."""
        try:
            yield self
        finally:
            if self.is_alive:
                self.kill()
            self._short.cleanup()


def checksum(content: bytes) -> int:
    """FNV-1a over a store with 0 in place of its checksum."""
    document = json.loads(content)
    written = f'"checksum":{document["checksum"]},'.encode()
    total = 0x811C9DC5
    for byte in content.replace(written, b'"checksum":0,', 1):
        total = ((total ^ byte) * 0x01000193) & 0xFFFFFFFF
    return total


def entries_of(content: bytes, pool: str) -> dict[str, str]:
    if not content:
        return {}
    document = json.loads(content)
    found = document["pools"].get(pool, {}).get("entries") or {}
    return {key: entry["ip_address"] for key, entry in found.items()}


def prefilled(pool: str, count: int) -> tuple[bytes, dict[str, str]]:
    """A store, as the original writes it, with as many reservations; and these, by key."""
    snapshot = json.dumps(
        {
            "subnet": SUBNET, "startIP": FIRST, "endIP": LAST, "gateway": GATEWAY,
            "exclusions": [], "routes": [], "defaultGateway": False,
        }, separators=(",", ":"),
    )  # fmt: skip
    entries, held = {}, {}
    for number in range(count):
        container, address = f"old{number:05d}", str(ipaddress.ip_address(FIRST) + 1 + number)
        held[f"{container}_net0"] = address
        entries[f"{container}_net0"] = {
            "container_id": container, "interface_name": "net0", "ip_address": address,
            "metadata": {
                "create_time": "2026-11-01T12:00:00.123456789Z", "pod_uuid": f"uid-{container}", "pod_name": container,
                "pod_namespace": "endurance", "device_id": "", "pool_config_snapshot": snapshot,
            },
        }  # fmt: skip
    record = {"name": pool, "entries": entries, "last_pool_config": snapshot}
    record["last_reserved_ip"] = list(held.values())[-1] if held else ""
    content = json.dumps({"version": 1, "checksum": 0, "pools": {pool: record}}, separators=(",", ":")).encode()
    total = checksum(content)
    return content.replace(b'"checksum":0,', b'"checksum":%d,' % total, 1), held
