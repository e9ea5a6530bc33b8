"""`bedplate doctor ipam`: gather, judge, print. The original's chapter on debugging, as a program.

In: a kubeconfig; on a node also its files and socket. Out: findings and an exit code, as of `bedplate doctor`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from bedplate.api import resources
from bedplate.cli import cluster, display
from bedplate.cli.doctor import ipam_checks, ipam_facts, ipam_node, reading, report
from bedplate.cloud.doctor import Finding, note, unknown
from bedplate.cloud.manager import deployed
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
@click.pass_context
def ipam(
    ctx: click.Context,
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
    # Who names a place of a node wants it looked at, also where nothing is there.
    named = ("cni_conf_dir", "cni_bin_dir", "store_file")
    on_node |= any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in named)
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
    text = "this machine does not seem to be one (no plugin, configuration or store)"
    if kubeconfig is None:
        return [unknown("node", "this node", text, "bedplate doctor ipam --no-cluster   # as root on a node")]
    return [*findings, note("node", "this node", f"not checked: {text}", "bedplate doctor ipam   # as root on a node")]


async def _cluster(kubeconfig: str, called: ipam_facts.Names) -> list[Finding]:
    try:
        settings = cluster.connection(kubeconfig).with_user_agent("bedplate-doctor")
    except errors.BedplateError as err:
        fix = report.remedy(err)
        fix += "" if isinstance(err, errors.Unavailable) else "; to leave the cluster out: --no-cluster"
        return [unknown("kubernetes-api", "kubeconfig", err, fix)]
    # `bedplate up` has controller and daemons in itself.
    return _without_pods(await _judge(settings, called)) if _is_of_up(kubeconfig) else await _judge(settings, called)


def _is_of_up(kubeconfig: str) -> bool:
    file = deployed.kubeconfig_file(kubeconfig, cluster.environ())
    return file is not None and (file.parent / deployed.FLAGS_FILE).is_file()


def _without_pods(findings: Sequence[Finding]) -> list[Finding]:
    """The same without remarks that nothing is deployed."""
    return [finding for finding in findings if finding.level != "note" or finding.check not in _OF_PODS]


async def examine_if_installed(
    settings: config.ClientConfig, called: ipam_facts.Names, *, is_deployed: bool
) -> list[Finding]:
    """The cluster's findings; none where pools are not defined. `is_deployed`: the programs are expected in pods."""
    async with Client(settings) as client:
        definition = await reading.get(client, resources.CRDS, f"{IPPOOLS.plural}.{IPPOOLS.group}")
    if definition is None:
        return []
    findings = await _judge(settings, called)
    return findings if is_deployed else _without_pods(findings)


async def _judge(settings: config.ClientConfig, called: ipam_facts.Names) -> list[Finding]:
    def acting(user: str) -> Client:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{called.namespace}", "system:authenticated")
        pretence = config.Impersonation(user=user, groups=groups)
        return Client(dataclasses.replace(settings, impersonate=pretence).with_rate(-1, 1))

    with display.progress() as tell:
        async with Client(settings.with_rate(-1, 1)) as client:
            facts = await ipam_facts.gather(client, acting, called, clock.SystemClock().now(), tell)
    return ipam_checks.check_ipam(facts)
