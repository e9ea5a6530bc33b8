"""The plugin, and a folder with a daemon, a configuration and a log of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.crates.fakedaemon import FakeDaemon, fake_daemon
from tests.ipam.cni import calls
from tests.ipam.cni.calls import Answer


@dataclass
class Bench:
    """Calls of the plugin that differ from a usual one in what the test names."""

    folder: Path
    daemon: FakeDaemon
    plugin: Path
    conf: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = self.folder / "cni.log"
        socket = f"unix://{self.folder}/daemon.sock"
        self.conf = {"daemonSocket": socket, "logFile": str(self.log), "allowNetworkPaths": True}
        self.write_conf()

    def write_conf(self, text: str | None = None) -> None:
        """The node's file `nv-ipam.conf`."""
        (self.folder / "nv-ipam.conf").write_text(json.dumps(self.conf) if text is None else text)

    def network(self, **more: Any) -> dict[str, Any]:
        """A network configuration; `ipam` is added to the usual section."""
        ipam = {"type": "nv-ipam", **(more.pop("ipam", None) or {})}
        return {"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "ipam": ipam, **more}

    def environment(self, command: str, **more: str) -> dict[str, str]:
        """The CNI environment; an empty text takes a variable away."""
        env = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": "c1",
            "CNI_NETNS": "/no/such/netns",
            "CNI_IFNAME": "net1",
            "CNI_PATH": "/opt/cni/bin",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=pod;K8S_POD_NAMESPACE=ns;K8S_POD_UID=uid",
            "NV_IPAM_CONF_DIR": str(self.folder),
            **more,
        }
        return {key: value for key, value in env.items() if value}

    def call(self, command: str, stdin: Any = None, **env: str) -> Answer:
        """Run the plugin; `stdin` is a configuration, or bytes."""
        given = self.network() if stdin is None else stdin
        raw = given if isinstance(given, bytes) else json.dumps(given).encode()
        return calls.invoke(self.plugin, self.environment(command, **env), raw, cwd=self.folder)


@pytest.fixture
def bench(tmp_path: Path, nv_ipam: Path) -> Iterator[Bench]:
    with fake_daemon(f"unix:{tmp_path}/daemon.sock") as daemon:
        yield Bench(tmp_path, daemon, nv_ipam)
