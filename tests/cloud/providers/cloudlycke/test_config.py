"""What a configuration file may say, and how its faults are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.cloud.providers.cloudlycke import config
from bedplate.core import errors


def test_without_a_file_the_cloud_has_the_two_machines_of_the_original() -> None:
    found = config.read(None)
    assert found.interface == "v2" and not found.api_error
    assert [(each.name, each.provider_id, each.type) for each in found.instances] == [
        ("master-c2-1", "cloudlycke://m-c2-1", "vbox.vm.512mb.1cpu"),
        ("node-c2-1", "cloudlycke://n-c2-1", "vbox.vm.1g.2cpu"),
    ]
    assert {each.internal_ips for each in found.instances} == {("192.168.20.10",), ("192.168.20.11",)}
    assert all(each.internal_ips == each.external_ips for each in found.instances)
    assert {each.state for each in found.instances} == {"running"}
    assert (found.load_balancer.enabled, found.load_balancer.pool) == (True, "192.168.20.200/29")


@pytest.mark.parametrize("text", ["", "interface: v2\n", "loadBalancer: {enabled: true}\n"])
def test_a_file_that_names_no_instances_keeps_the_built_in_ones(text: str) -> None:
    assert config.parse(text).instances == config.BUILT_IN


def test_a_files_instances_replace_the_built_in_ones() -> None:
    found = config.parse("instances:\n- {id: a, name: one, internalIPs: [10.0.0.1, 'fd00::1'], state: stopped}\n")
    (one,) = found.instances
    assert (one.internal_ips, one.external_ips, one.state) == (("10.0.0.1", "fd00::1"), (), "stopped")
    assert (one.zone, one.region) == ("virtualbox", "virtualbox")
    assert config.parse("instances: []").instances == ()


def test_every_fault_of_a_file_is_told_at_once() -> None:
    text = """
interface: v3
colour: red
loadBalancer: {pool: 10.0.0.0/8, size: 3}
instances:
- {id: a, name: one, state: asleep}
- {id: a/b, name: two, internalIPs: [ten]}
- {id: c, name: two}
- {name: three}
"""
    with pytest.raises(errors.Invalid) as caught:
        config.parse(text)
    told = "\n".join(caught.value.problems)
    for part in ("interface", "colour", "loadBalancer", "instances[0]", "'a/b'", "'ten'", "name 'two'", "instances[3]"):
        assert part in told, part


@pytest.mark.parametrize("pool", ["10.0.0.1/24", "fd00::/120", "10.0.0.0/8", "all"])
def test_a_pool_must_be_an_ipv4_network_of_sane_size(pool: str) -> None:
    with pytest.raises(errors.Invalid, match=r"loadBalancer\.pool"):
        config.parse(f"loadBalancer: {{pool: '{pool}'}}")


@pytest.mark.parametrize("text", ["- a list", "a: [", "just text"])
def test_what_is_no_mapping_is_refused_with_the_files_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text(text)
    with pytest.raises(errors.Invalid, match=r"cloud\.yaml"):
        config.read(path)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="cannot be read"):
        config.read(Path("/nowhere/cloud.yaml"))
