"""Options that cannot be used are refused, all of them together, each by the name of its flag."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.cloud.manager import options, validation

KNOWN = ("cloudlycke", "nvidia-bmm", "oxide")


def problems_of(*words: str) -> list[str]:
    read = options.read(["--cloud-provider=oxide", *words])
    assert not read.problems, read.problems
    return validation.problems(read.options, KNOWN)


def test_the_defaults_are_usable() -> None:
    assert problems_of() == []


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("--concurrent-node-syncs=0", "--concurrent-node-syncs: must be at least 1"),
        ("--concurrent-service-syncs=-1", "--concurrent-service-syncs: must be at least 1"),
        ("--node-deletion-confirmations=0", "--node-deletion-confirmations: must be at least 1"),
        ("--mass-deletion-hold=-1s", "--mass-deletion-hold: must be at least 0s"),
        ("--max-node-deletions-percent=101", "--max-node-deletions-percent: must be at most 100"),
        ("--node-monitor-period=0s", "--node-monitor-period: must be greater than 0"),
        ("--node-startup-grace-period=-1s", "--node-startup-grace-period: must be at least 0s"),
        ("--leader-elect-lease-duration=5s", "--leader-elect-*: lease duration must be longer than the renew deadline"),
        ("--leader-elect-resource-lock=endpoints", "only leases is supported"),
        ("--leader-elect-resource-name=A_b", "--leader-elect-resource-name"),
        ("--enable-leader-migration", "leader migration is not offered"),
        ("--leader-migration-config=x", "leader migration is not offered"),
        ("--controllers=x", "'x' is not a controller"),
        ("--feature-gates=NoSuch=true", "unrecognized feature gate: NoSuch"),
        ("--feature-gates=CloudControllerManagerWebhook=maybe", "'maybe' is neither true nor false"),
        ("--feature-gates=CloudControllerManagerWebhook", "lacks a value"),
        ("--cluster-cidr=10.0.0.0/8,10.1.0.0/16", "different IP families"),
        ("--cluster-cidr=nonsense", "--cluster-cidr"),
        ("--cluster-name=", "--cluster-name: must not be empty"),
        ("--cidr-allocator-type=x", "--cidr-allocator-type: unknown 'x'"),
        ("--node-selector=a b", "--node-selector"),
        ("--kubeconfig=/no/such/file", "--kubeconfig: /no/such/file cannot be opened"),
        ("--cloud-config=/no/such/file", "--cloud-config: /no/such/file cannot be opened"),
        ("--client-ca-file=/no/such/file", "--client-ca-file"),
        ("--master=10.0.0.1:6443", "--master: must begin with"),
        ("--master=https://a:b@10.0.0.1:6443", "--master: put credentials in the kubeconfig"),
        ("--secure-port=70000", "--secure-port: 70000 must be a port"),
        ("--webhook-secure-port=10258", "--webhook-secure-port: must differ"),
        ("--bind-address=localhost", "--bind-address: 'localhost' is not an IP address"),
        ("--webhooks=x", "there is no webhook 'x'"),
        ("--tls-cert-file=x", "give both or neither"),
        ("--tls-min-version=1.2", "--tls-min-version: '1.2' is none of"),
        ("--tls-cipher-suites=RC4", "--tls-cipher-suites: 'RC4' is not supported"),
        ("--tls-curve-preferences=P1", "--tls-curve-preferences: 'P1' is none of"),
        ("--tls-sni-cert-key=x", "--tls-sni-cert-key"),
        ("--authorization-always-allow-paths=/a*b", "may contain * only at its end"),
        ("--logging-format=xml", "--logging-format: 'xml' is neither text nor json"),
        ("--vmodule=kube", "--vmodule: 'kube' is not NAME=N"),
        ("--load-balancer-class=bad class", "--load-balancer-class"),
    ],
)
def test_a_bad_value_names_its_flag(word: str, part: str) -> None:
    found = problems_of(word)
    assert any(part in problem for problem in found), found


def test_all_problems_are_reported_together() -> None:
    found = problems_of("--secure-port=-1", "--controllers=x", "--concurrent-node-syncs=0", "--webhooks=y")
    assert len(found) == 4


def test_leader_election_flags_are_not_judged_when_it_is_off() -> None:
    assert problems_of("--leader-elect=false", "--leader-elect-lease-duration=1s") == []


def test_a_dry_run_and_a_selector_are_usable(tmp_path: Path) -> None:
    file = tmp_path / "oxide.yaml"
    file.touch()
    assert (
        problems_of("--dry-run", "--node-selector=a=b,!c,d in (e,f),g notin (h),i!=j", f"--cloud-config={file}") == []
    )


@pytest.mark.parametrize("text", ["a=b", "a", "!a", "a==b,c!=d", "a in (b, c),d", "example.com/a in (b)", ""])
def test_selectors_that_kubernetes_takes_are_taken(text: str) -> None:
    assert validation.selector_problems(text) == []


@pytest.mark.parametrize("text", ["a=b c", "-a", "a in (b", "a=(b)", "/a=b"])
def test_selectors_that_kubernetes_refuses_are_refused(text: str) -> None:
    assert validation.selector_problems(text)
