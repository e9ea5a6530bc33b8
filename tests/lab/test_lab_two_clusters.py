"""Two clusters of one head side by side: each has its own authority, port, overlays and networks, and one that is half
made, or removed, leaves the other as it is. The tests follow one another.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.lab.test_lab_setup import EXAMPLE, NODES, Lab, bare
from tests.waiting import wait_until

from bedplate.lab import binaries, managed, packages

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")]

_MEMBERS = {
    "east": {"masters": ["node001"], "workers": ["node002"]},
    "west": {"masters": ["node003"], "workers": ["node003"]},
}


class Pair(NamedTuple):
    """A lab for two clusters."""

    lab: Lab
    kubectl: Path
    folder: Path

    def answers(self, name: str) -> str:
        answers = yaml.safe_load(EXAMPLE.read_text())
        nodes = {role: {"nodes": names} for role, names in _MEMBERS[name].items()}
        answers["kubernetes"].update(name=name, nodes=nodes)
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(answers))
        return str(file)

    def deploy(self, name: str) -> None:
        assert "status: completed" in self.lab.setup("-c", self.answers(name), "--on-error-action", "abort")

    def remove(self, name: str) -> str:
        words = ("--remove", "--cluster", name, "--yes-i-really-mean-it", "--on-error-action", "abort")
        said = self.lab.setup(*words)
        assert "status: completed" in said
        return said

    def config(self, name: str) -> Path:
        return Path(self.lab.setup("--kubeconfig-of", name).strip())

    def get(self, name: str, *words: str) -> Any:
        """What kubectl of this machine gets of a cluster."""
        line = [str(self.kubectl), f"--kubeconfig={self.config(name)}", "--request-timeout=20s", "get", *words]
        result = subprocess.run([*line, "-o", "json"], capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def nodes(self, name: str) -> dict[str, Any]:
        return {item["metadata"]["name"]: item for item in self.get(name, "nodes")["items"]}

    def of_tree(self, name: str) -> dict[str, list[str]]:
        """The names of the head's objects that are a cluster's."""
        tree = yaml.safe_load(self.lab.tree_of_head())
        modes = {mode: objects for mode, objects in tree.items() if isinstance(objects, dict)}
        return {mode: sorted(key for key in objects if name in key) for mode, objects in modes.items()}


@pytest.fixture(scope="module")
def pair(new_lab: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    programs = binaries.ensure((*packages.TAKEN, *managed.IMAGED), progress=print)
    made = new_lab("p")
    yield Pair(bare(made, NODES), programs["kubectl"], tmp_path_factory.mktemp("pair"))
    made.run("down")


def test_item_116_a_cluster_that_is_half_deployed_is_removed_and_the_other_goes_on(pair: Pair) -> None:
    pair.deploy("east")
    before = {name: item["metadata"]["uid"] for name, item in pair.nodes("east").items()}
    assert set(before) == {"node001", "node002"}
    assert pair.lab.kill_at("Join Worker Nodes", "-c", pair.answers("west"))
    pair.remove("west")
    pair.lab.assert_clean("node003")
    assert not any(pair.of_tree("west").values())
    assert {name: item["metadata"]["uid"] for name, item in pair.nodes("east").items()} == before


def test_item_105_two_clusters_have_authority_port_overlays_and_networks_of_their_own(pair: Pair) -> None:
    pair.deploy("west")
    assert set(pair.nodes("east")) == {"node001", "node002"} and set(pair.nodes("west")) == {"node003"}
    configs = {name: yaml.safe_load(pair.config(name).read_text())["clusters"][0]["cluster"] for name in _MEMBERS}
    assert configs["east"]["certificate-authority-data"] != configs["west"]["certificate-authority-data"]
    assert [configs[name]["server"].rpartition(":")[2] for name in ("east", "west")] == ["10443", "10444"]
    overlays = {name: pair.of_tree(name)["configurationoverlay"] for name in _MEMBERS}
    assert overlays["east"] == ["kube-east-etcd", "kube-east-master", "kube-east-worker"]
    assert overlays["west"] == ["kube-west-etcd", "kube-west-master", "kube-west-worker"]
    networks = yaml.safe_load(pair.lab.tree_of_head())["network"]
    ranges = {networks[name]["values"]["base_address"] for name in networks if re.search("east|west", name)}
    assert len(ranges) == 4, ranges
    # A client of one is not known to the other: their authorities differ.
    stranger = yaml.safe_load(pair.config("east").read_text())
    stranger["clusters"][0]["cluster"] = configs["west"]
    file = pair.folder / "stranger.kubeconfig"
    file.write_text(yaml.safe_dump(stranger))
    result = subprocess.run(
        [str(pair.kubectl), f"--kubeconfig={file}", "get", "nodes"], capture_output=True, text=True, check=False
    )
    assert result.returncode != 0, result.stdout
    assert "Unauthorized" in result.stderr or "logged in" in result.stderr, result.stderr


def test_item_99_control_plane_nodes_have_the_taint_unless_they_are_workers_and_workers_have_none(pair: Pair) -> None:
    taints = {
        name: [taint["key"] for taint in item["spec"].get("taints", []) if taint["key"].startswith("node-role")]
        for cluster in _MEMBERS
        for name, item in pair.nodes(cluster).items()
    }
    assert taints == {"node001": ["node-role.kubernetes.io/control-plane"], "node002": [], "node003": []}


def test_item_98_max_pods_is_the_capacity_of_the_node(pair: Pair) -> None:
    assert pair.nodes("east")["node002"]["status"]["capacity"]["pods"] == "110"
    pair.lab.site.cmsh(
        "configurationoverlay use kube-east-worker", "roles", "use kubelet", "set maxpods 42", "/", "commit --wait"
    )
    wait_until(lambda: pair.nodes("east")["node002"]["status"]["capacity"]["pods"] == "42", "the capacity", step_s=0.5)
    assert pair.nodes("east")["node001"]["status"]["capacity"]["pods"] == "110"


def test_item_114_the_removal_of_one_leaves_the_other_untouched(pair: Pair) -> None:
    west, before = pair.nodes("west")["node003"]["metadata"]["uid"], pair.of_tree("west")
    config = pair.config("west").read_bytes()
    pair.remove("east")
    assert not any(pair.of_tree("east").values())
    assert pair.of_tree("west") == before and pair.config("west").read_bytes() == config
    assert pair.nodes("west")["node003"]["metadata"]["uid"] == west
    assert pair.lab.site.cmsh("healthcheck list").count("Kubernetes") >= 4, "they are those of the other one, too"
    pair.remove("west")
    pair.lab.assert_as_before()
