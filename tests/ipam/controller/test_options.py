"""The command line as values."""

from __future__ import annotations

import pytest

from bedplate.ipam import commonflags
from bedplate.ipam.controller import options, usage


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


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("0", None),
        ("", None),
        (":8080", (None, 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:81", ("::1", 81)),
        ("host.example:443", ("host.example", 443)),
    ],
)
def test_addresses_mean_what_they_mean_to_the_original(address: str, wanted: tuple[str | None, int] | None) -> None:
    assert commonflags.listener(address) == wanted


@pytest.mark.parametrize("address", ["8080", "host", "::1:80", ":http", ":70000", ":-1", "host:"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"is not HOST:PORT|write an IPv6"):
        commonflags.listener(address)
    assert options.read([f"--metrics-bind-address={address}"]).problems


def test_every_flag_is_in_the_help() -> None:
    text = usage.full("ipam-controller")
    for flag, _ in [*options.Options().items()]:
        assert f"--{flag.name}" in text
