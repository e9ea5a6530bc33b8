"""kubeadm's configuration, compared with files; `BEDPLATE_UPDATE_GOLDEN=1` writes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.setup.kubernetes import sites

from bedplate.setup.kubernetes import kubeadm

GOLDEN = Path(__file__).with_name("golden")
THREE = {"nodes": ["node001", "node002", "node003"], "categories": [], "head_nodes": []}
CASES: dict[str, dict[str, Any]] = {
    "one-control-plane": {"version": "1.35.4"},
    "three-control-planes": {"version": "1.35.4", "nodes__masters": THREE, "cgroup_driver": "cgroupfs"},
    "own-repository": {"images__repository": "my-registry:5000/kubernetes", "version": "1.34.2"},
    "other-network-plugin": {
        "version": "1.35.4",
        "cni": "calico",
        "cni_manifest": "/root/calico.yaml",
        "networks__pod_node_mask": 26,
    },
}


@pytest.mark.parametrize("name", CASES)
def test_items_90_102_the_configuration_is_as_written_down(name: str) -> None:
    text = kubeadm.init_file(sites.settings(**CASES[name]))
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("BEDPLATE_UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_item_90_the_configuration_has_etcd_ranges_dns_endpoint_and_names() -> None:
    settings = sites.settings(proxy__port=10444)
    cluster, kubelet, _ = yaml.safe_load_all(kubeadm.init_file(settings))
    assert cluster["etcd"]["external"]["endpoints"] == ["https://10.141.0.1:5001"]
    assert cluster["networking"]["podSubnet"] == str(settings.pods)
    assert cluster["networking"]["serviceSubnet"] == str(settings.services)
    assert cluster["controlPlaneEndpoint"] == "127.0.0.1:10444"
    assert cluster["apiServer"]["certSANs"] == settings.trusted_domains
    assert cluster["certificatesDir"] == "/etc/kubernetes/pki/default"
    assert kubelet["clusterDNS"] == [settings.dns]
