"""The command line as values."""

from __future__ import annotations

import pytest

from bedplate.ipam.controller import options, process


def test_defaults_are_the_originals() -> None:
    read = options.read([])
    chosen = read.options.controlling
    assert not read.problems
    assert (chosen.ippools_namespace, chosen.leader_elect_namespace) == ("kube-system", "kube-system")
    assert (chosen.metrics_bind_address, chosen.health_probe_bind_address) == (":8080", ":8081")
    assert not chosen.leader_elect and not chosen.webhook and not chosen.kubeconfig
    assert read.options.webhook.webhook_port == 9443
    assert read.options.allocating.allocation_mode == "stable" and read.options.allocating.quarantine == "pods"


def test_the_manifests_arguments_are_understood() -> None:
    words = ["--leader-elect=true", "--leader-elect-namespace=ipam", "--ippools-namespace=ipam", "--webhook=true"]
    read = options.read(words)
    chosen = read.options.controlling
    assert not read.problems
    assert chosen.leader_elect and chosen.webhook and chosen.ippools_namespace == "ipam"


@pytest.mark.parametrize("flag", ["metrics-bind-address", "health-probe-bind-address"])
def test_an_address_that_cannot_be_listened_on_is_refused(flag: str) -> None:
    assert options.read([f"--{flag}=host"]).problems == (f"--{flag}: 'host' is not HOST:PORT, :PORT or 0",)


def test_every_flag_is_in_the_help() -> None:
    text = process.PROGRAM.usage()
    for flag, _ in [*options.Options().items()]:
        assert f"--{flag.name}" in text
