"""`bedplate doctor ipam`: gather, judge, print. The original's chapter on debugging, as a program.

In: a kubeconfig; on a node also its files and socket. Out: findings and an exit code, as of `bedplate doctor`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import click

from bedplate.api import resources
from bedplate.cli import cluster, display
from bedplate.cli.doctor import ipam_checks, ipam_facts, ipam_node, reading, report
from bedplate.cloud.doctor import Finding, note, unknown
from bedplate.core import clock, errors
from bedplate.ipam.pools import IPPOOLS
from bedplate.kube import Client, config

__all__ = ["examine_if_installed", "ipam"]

EXAMPLES = """
\b
Examples:
  bedplate doctor ipam                                  the cluster; on a node the node, too
  bedplate doctor ipam --on-node --no-cluster           this node alone, without an API server
  bedplate doctor ipam -n nvidia-network-operator -o json
\b
Exit code: 0 all checks passed, 1 something is wrong, 2 something could not be checked.
"""
_DEFAULT = ipam_node.Places()
_OF_PODS = ("controller", "daemons", "rbac", "webhook")


@click.command(epilog=EXAMPLES, short_help="Diagnose address management.")
@cluster.kubeconfig_option
@click.option(
    "-n", "--namespace", default="kube-system", show_default=True, help="Namespace of the pools and programs."
)
@click.option("--name-prefix", default="nv-ipam-", show_default=True, help="Prefix of the names of deployed objects.")
@click.option("--cluster/--no-cluster", "has_cluster", default=True, show_default=True, help="Check the cluster.")
@click.option("--on-node", is_flag=True, help="Check this machine as a node, even if it does not seem to be one.")
@click.option("--cni-conf-dir", type=click.Path(path_type=Path), default=_DEFAULT.conf_dir, show_default=True)
@click.option("--cni-bin-dir", type=click.Path(path_type=Path), default=_DEFAULT.bin_dir, show_default=True)
@click.option("--store-file", type=click.Path(path_type=Path), default=_DEFAULT.store, show_default=True)
@display.output_option
def ipam(
    kubeconfig: str,
    namespace: str,
    name_prefix: str,
    has_cluster: bool,
    on_node: bool,
    cni_conf_dir: Path,
    cni_bin_dir: Path,
    store_file: Path,
    output: str,
) -> None:
    """Diagnose why pods do not get addresses, and suggest the command that fixes each problem.

    Looks at definitions, pools, blocks, controller, daemons, rights and webhook; on a node also at the plugin, its
    configuration and log, the daemon's socket and the store.
    """
    places = ipam_node.Places(cni_conf_dir, cni_bin_dir, store_file)
    called = ipam_facts.Names(namespace, name_prefix)
    findings = asyncio.run(_examine(kubeconfig if has_cluster else None, called, places, on_node=on_node))
    findings = report.pasteable(findings, kubeconfig, namespace)
    report.show(findings, output)
    raise SystemExit(report.exit_code(findings))


async def _examine(
    kubeconfig: str | None, called: ipam_facts.Names, places: ipam_node.Places, *, on_node: bool
) -> list[Finding]:
    """`kubeconfig`: None to leave the cluster out."""
    findings = await _cluster(kubeconfig, called) if kubeconfig is not None else []
    if on_node or ipam_node.is_node(places):
        return findings + await ipam_node.check_node(places)
    text = "not checked: this machine does not seem to be one (no plugin, configuration or store)"
    return [*findings, note("node", "this node", text, "bedplate doctor ipam   # as root on a node")]


async def _cluster(kubeconfig: str, called: ipam_facts.Names) -> list[Finding]:
    try:
        settings = cluster.connection(kubeconfig).with_user_agent("bedplate-doctor")
    except errors.BedplateError as err:
        return [unknown("kubernetes-api", "kubeconfig", err, "give --kubeconfig, or --no-cluster")]
    return await _judge(settings, called)


async def examine_if_installed(
    settings: config.ClientConfig, called: ipam_facts.Names, *, is_deployed: bool
) -> list[Finding]:
    """The cluster's findings; none where pools are not defined. `is_deployed`: the programs are expected in pods."""
    async with Client(settings) as client:
        definition = await reading.get(client, resources.CRDS, f"{IPPOOLS.plural}.{IPPOOLS.group}")
    if definition is None:
        return []
    findings = await _judge(settings, called)
    if is_deployed:
        return findings
    return [finding for finding in findings if finding.level != "note" or finding.check not in _OF_PODS]


async def _judge(settings: config.ClientConfig, called: ipam_facts.Names) -> list[Finding]:
    def acting(user: str) -> Client:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{called.namespace}", "system:authenticated")
        pretence = config.Impersonation(user=user, groups=groups)
        return Client(dataclasses.replace(settings, impersonate=pretence).with_rate(-1, 1))

    with display.progress() as tell:
        async with Client(settings.with_rate(-1, 1)) as client:
            facts = await ipam_facts.gather(client, acting, called, clock.SystemClock().now(), tell)
    return ipam_checks.check_ipam(facts)
