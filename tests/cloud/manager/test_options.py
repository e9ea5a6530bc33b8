"""Every flag of the manager: its default, its place in the help, and that the help says what has no effect."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bedplate.cloud.manager import options
from bedplate.cloud.manager.process import defaults_for, help_text
from bedplate.core import flags

GENERIC: dict[str, Any] = {
    "allocate-node-cidrs": False,
    "allow-untagged-cloud": False,
    "cidr-allocator-type": "RangeAllocator",
    "cloud-config": (),
    "cloud-provider": (),
    "cluster-cidr": "",
    "cluster-name": "kubernetes",
    "configure-cloud-routes": True,
    "controller-start-interval": 0.0,
    "controllers": ("*",),
    "external-cloud-volume-plugin": "",
    "feature-gates": (),
    "kube-api-burst": 100,
    "kube-api-content-type": "application/vnd.kubernetes.protobuf",
    "kube-api-qps": 50.0,
    "leader-elect": True,
    "leader-elect-lease-duration": 15.0,
    "leader-elect-renew-deadline": 10.0,
    "leader-elect-retry-period": 2.0,
    "leader-elect-resource-lock": "leases",
    "leader-elect-resource-name": "cloud-controller-manager",
    "leader-elect-resource-namespace": "kube-system",
    "min-resync-period": 12 * 3600.0,
    "node-monitor-period": 5.0,
    "node-sync-period": 0.0,
    "route-reconciliation-period": 10.0,
    "use-service-account-credentials": False,
    "event-qps": 50.0,
    "dry-run": False,
    "node-selector": "",
}
OTHERS: dict[str, dict[str, Any]] = {
    "Leader-migration": {"enable-leader-migration": False, "leader-migration-config": ""},
    "Debugging": {"profiling": True, "contention-profiling": False},
    "Cloud": {"cloud-api-qps": 0.0, "cloud-api-burst": 200, "cloud-api-timeout": 30.0, "cloud-cache-ttl": 30.0},
    "Cloud-node-controller": {
        "concurrent-node-syncs": 16,
        "concurrent-node-status-updates": 0,
        "reconcile-node-labels": True,
    },
    "Cloud-node-lifecycle-controller": {
        "node-deletion-confirmations": 2,
        "max-node-deletions-percent": 20,
        "mass-deletion-hold": 900.0,
        "node-startup-grace-period": 120.0,
        "node-terminated-grace-period": 3600.0,
        "concurrent-node-lifecycle-checks": 5,
        "node-out-of-service-taint": False,
    },
    "Service-lb-controller": {
        "concurrent-service-syncs": 4,
        "load-balancer-class": (),
        "load-balancer-default-class": True,
        "lb-failover-delay": 15.0,
    },
    "Node-route-controller": {"route-full-resync-period": 300.0},
    "Webhook": {"webhooks": ()},
    "Webhook serving": {
        "webhook-bind-address": "0.0.0.0",
        "webhook-secure-port": 10260,
        "webhook-cert-dir": "",
        "webhook-tls-cert-file": "",
        "webhook-tls-private-key-file": "",
        "webhook-disable-http2-serving": False,
        "webhook-tls-cipher-suites": (),
        "webhook-tls-curve-preferences": (),
        "webhook-tls-min-version": "",
        "webhook-tls-sni-cert-key": (),
    },
    "Secure serving": {
        "bind-address": "0.0.0.0",
        "secure-port": 10258,
        "cert-dir": "",
        "tls-cert-file": "",
        "tls-private-key-file": "",
        "tls-cipher-suites": (),
        "tls-min-version": "",
        "tls-sni-cert-key": (),
        "http2-max-streams-per-connection": 0,
        "disable-http2-serving": False,
        "permit-address-sharing": False,
        "permit-port-sharing": False,
        "tls-curve-preferences": (),
        "address": "",
        "port": 0,
    },
    "Authentication": {
        "authentication-kubeconfig": "",
        "authentication-skip-lookup": False,
        "authentication-token-webhook-cache-ttl": 10.0,
        "authentication-tolerate-lookup-failure": False,
        "client-ca-file": "",
        "requestheader-allowed-names": (),
        "requestheader-client-ca-file": "",
        "requestheader-extra-headers-prefix": ("x-remote-extra-",),
        "requestheader-group-headers": ("x-remote-group",),
        "requestheader-uid-headers": (),
        "requestheader-username-headers": ("x-remote-user",),
    },
    "Authorization": {
        "authorization-always-allow-paths": ("/healthz", "/readyz", "/livez"),
        "authorization-kubeconfig": "",
        "authorization-webhook-cache-authorized-ttl": 10.0,
        "authorization-webhook-cache-unauthorized-ttl": 10.0,
    },
    "Misc": {"kubeconfig": "", "master": "", "node-status-update-frequency": 300.0},
    "Global": {
        "v": 0,
        "vmodule": (),
        "log-flush-frequency": 5.0,
        "logging-format": "text",
        "log-json-info-buffer-size": "0",
        "log-json-split-stream": False,
        "log-text-info-buffer-size": "0",
        "log-text-split-stream": False,
        "version": "false",
        "help": False,
    },
}
ALL = {"Generic": GENERIC, **OTHERS}


def test_every_flag_has_its_default_and_there_is_no_other() -> None:
    read = options.read([])
    assert read.problems == ()
    found = {
        group.title: {
            one.name: getattr(getattr(read.options, group.field), one.field) for one in flags.flags_of(group.kind)
        }
        for group in options.GROUPS
    }
    assert found == ALL


def test_help_shows_every_flag_in_its_group() -> None:
    text = help_text("bedplate ccm run")
    sections = re.split(r"(?m)^(\S.* flags):$", text)[1:]
    shown = {
        title.removesuffix(" flags"): set(re.findall(r"(?m)^ {2,6}(?:-\w, )?--([a-z0-9-]+)", body))
        for title, body in zip(sections[::2], sections[1::2], strict=True)
    }
    assert shown == {title: set(values) for title, values in ALL.items()}
    assert "Examples:" in text


def test_the_help_of_a_program_says_for_which_cloud_it_works() -> None:
    text = help_text("oxide-cloud-controller-manager", "oxide", defaults_for("oxide"))
    assert "works for oxide" in text
    assert "(default oxide)" in text


def test_a_program_named_after_a_cloud_works_for_it_unless_told_otherwise() -> None:
    defaults = defaults_for("oxide")
    assert options.read([], defaults).options.generic.cloud_provider == ("oxide",)
    assert options.read(["--cloud-provider", "nvidia-bmm"], defaults).options.generic.cloud_provider == ("nvidia-bmm",)
    assert options.read(["--cloud-provider=nvidia-bmm,oxide"]).options.generic.cloud_provider == ("nvidia-bmm", "oxide")


@pytest.mark.parametrize(
    "words",
    [
        # The manifests of the originals, word for word (and the podman command of Oxide's documentation).
        "--cloud-provider=nvidia-bmm --cloud-config=/etc/nvidia-bmm/cloud-config "
        "--use-service-account-credentials=true --leader-elect=true "
        "--leader-elect-resource-name=nvidia-bmm-cloud-controller-manager --v=2",
        "--cloud-provider oxide --kubeconfig /tmp/kubeconfig.yaml",
        "--cloud-provider=oxide",
        "--v=5 --cloud-provider=cloudlycke --cluster-name=kubernetes-2 --use-service-account-credentials "
        "--address=127.0.0.1",
    ],
)
def test_the_originals_command_lines_are_understood(words: str) -> None:
    assert options.read(words.split()).problems == ()


def test_the_old_name_of_the_bind_address_counts_unless_the_new_one_is_given() -> None:
    assert options.read(["--address=127.0.0.1"]).options.secure_serving.bind_address == "127.0.0.1"
    both = options.read(["--address=127.0.0.1", "--bind-address=10.0.0.1"]).options
    assert both.secure_serving.bind_address == "10.0.0.1"


def test_positional_arguments_are_refused() -> None:
    assert options.read(["--leader-elect", "false", "x"]).problems == (
        "unexpected argument 'false'",
        "unexpected argument 'x'",
    )
