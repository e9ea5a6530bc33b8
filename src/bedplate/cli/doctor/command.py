"""`bedplate doctor`: gather, judge, print. This part looks at a cloud controller manager; `ipam_command` at pools.

In: a kubeconfig and the manager's own provider configuration. Out: a table of findings (or JSON) and an exit code.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from bedplate.api import core
from bedplate.cli import display
from bedplate.cli.doctor import cluster_checks, facts, ipam_command, node_checks, rates, report
from bedplate.cloud import registry
from bedplate.cloud.doctor import Diagnosable, Finding, problem, unknown
from bedplate.cloud.interface import Provider
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, errors
from bedplate.kube import Client, config

__all__ = ["doctor"]

EXAMPLES = """
\b
Examples:
  bedplate doctor --cloud-provider nvidia-bmm --cloud-config /etc/nvidia-bmm/cloud-config
  OXIDE_HOST=… OXIDE_TOKEN=… OXIDE_PROJECT=… bedplate doctor --cloud-provider oxide
  bedplate doctor --cloud-provider cloudlycke -o json
  bedplate doctor ipam
\b
Exit code: 0 all checks passed, 1 something is wrong, 2 something could not be checked.
"""
# What the originals' manifests call their objects (ClusterRole, ServiceAccount, Lease), and where they are.
_NAMES = {
    "nvidia-bmm": (
        "system:cloud-controller-manager",
        "cloud-controller-manager",
        "nvidia-bmm-cloud-controller-manager",
        "deploy/rbac",
    ),
    "oxide": (
        "system:oxide-cloud-controller-manager",
        "oxide-cloud-controller-manager",
        "cloud-controller-manager",
        "manifests/oxide-cloud-controller-manager.yaml",
    ),
    "cloudlycke": (
        "system:cloud-controller-manager",
        "cloudlycke-cloud-controller-manager",
        "cloud-controller-manager",
        "manifests/cloudlycke-ccm.yaml",
    ),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for."""

    providers: tuple[str, ...]
    configs: dict[str, Path]
    kubeconfig: str
    called: facts.Names
    metrics_url: str
    metrics_token: str = dataclasses.field(repr=False)
    metrics_ca_file: Path | None
    is_metrics_insecure: bool


@click.group(epilog=EXAMPLES, invoke_without_command=True)
@click.option("--cloud-provider", default="", help="One provider, or several separated by commas.")
@click.option("--cloud-config", default="", help="The manager's configuration: FILE, or NAME=FILE,NAME=FILE.")
@click.option("--kubeconfig", default="", help="Kubeconfig of the cluster.  [default: as for kubectl]")
@click.option("--service-account", default="", help="NAMESPACE/NAME of the manager's account.  [as in the manifests]")
@click.option("--cluster-role", default="", help="Name of the manager's ClusterRole.  [as in the manifests]")
@click.option("--lease-name", default="", help="Name of the leader's Lease in kube-system.  [as in the manifests]")
@click.option(
    "--metrics-url",
    default="",
    help="Address of the running manager's metrics, to check its request rate to the cloud.",
)
@click.option("--metrics-token-file", type=click.Path(path_type=Path), help="Token for that address.")
@click.option("--metrics-ca-file", type=click.Path(path_type=Path), help="Certificate authority of that address.")
@click.option("--metrics-insecure", is_flag=True, help="Do not verify that address's certificate.")
@display.output_option
@click.pass_context
def doctor(
    ctx: click.Context,
    cloud_provider: str,
    cloud_config: str,
    kubeconfig: str,
    service_account: str,
    cluster_role: str,
    lease_name: str,
    metrics_url: str,
    metrics_token_file: Path | None,
    metrics_ca_file: Path | None,
    metrics_insecure: bool,
    output: str,
) -> None:
    """Diagnose the programs of a cluster, and suggest the command that fixes each problem.

    With --cloud-provider: the cloud controller manager. `ipam`: address management.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not cloud_provider:
        raise click.UsageError("give --cloud-provider NAME, or the command ipam.", ctx)
    providers = tuple(name.strip() for name in cloud_provider.split(",") if name.strip())
    role, account, lease, manifests = _NAMES.get(providers[0] if providers else "", _NAMES["nvidia-bmm"])
    namespace, _, name = service_account.rpartition("/")
    called = facts.Names(
        role=cluster_role or role,
        account=name or account,
        namespace=namespace or "kube-system",
        lease=lease_name or lease,
        manifests=manifests,
    )
    options = Options(
        providers,
        _configs(cloud_config, providers),
        kubeconfig,
        called,
        metrics_url,
        _token(metrics_token_file),
        metrics_ca_file,
        metrics_insecure,
    )
    findings = asyncio.run(_examine(options))
    report.show(findings, output)
    raise SystemExit(report.exit_code(findings))


def _configs(text: str, providers: Sequence[str]) -> dict[str, Path]:
    if not text:
        return {}
    if "=" not in text:
        if len(providers) != 1:
            raise errors.Invalid("--cloud-config must name the provider of each file: NAME=FILE,NAME=FILE")
        return {providers[0]: Path(text)}
    pairs = [part.partition("=") for part in text.split(",")]
    strangers = [name for name, _, _ in pairs if name not in providers]
    if strangers:
        raise errors.Invalid(f"--cloud-config names {', '.join(strangers)}, which --cloud-provider does not")
    return {name: Path(file) for name, _, file in pairs}


def _token(file: Path | None) -> str:
    try:
        return file.read_text(encoding="utf-8").strip() if file is not None else ""
    except OSError as err:
        raise errors.Invalid(f"--metrics-token-file {file} cannot be read: {err.strerror}") from err


async def _examine(options: Options) -> list[Finding]:
    time = clock.SystemClock()
    providers, findings = _providers(options)
    try:
        settings = config.load(options.kubeconfig or None).with_user_agent("bedplate-doctor")
    except errors.BedplateError as err:
        findings.append(unknown("kubernetes-api", "kubeconfig", err, "give --kubeconfig"))
        return [*findings, *await _ask_clouds(providers, ())]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{options.called.namespace}", "system:authenticated")
    pretence = config.Impersonation(user=options.called.user, groups=groups)
    async with Client(settings) as client, Client(dataclasses.replace(settings, impersonate=pretence)) as acting:
        read = await facts.gather(client, acting, options.called, time.now())
    findings += cluster_checks.check_cluster(read)
    nodes: tuple[core.Node, ...] = ()
    if isinstance(read.nodes, Exception):
        findings.append(unknown("kubelet", "nodes", read.nodes))
    elif len(providers) < len(options.providers):
        # A provider that could not be made knows its nodes neither; they must not be reported as foreign.
        nodes = read.nodes
        findings.append(unknown("kubelet", "nodes", "they can be checked once the configuration is valid"))
    else:
        nodes = read.nodes
        findings += node_checks.check_nodes(nodes, Clouds(providers), time.now())
    findings += await _ask_clouds(providers, nodes)
    metrics = await _metrics(options) if options.metrics_url else None
    return findings + rates.check_rates(metrics, time.now())


async def _metrics(options: Options) -> str | Exception:
    return await rates.read(
        options.metrics_url, options.metrics_token, options.metrics_ca_file, is_insecure=options.is_metrics_insecure
    )


def _providers(options: Options) -> tuple[list[Provider], list[Finding]]:
    providers: list[Provider] = []
    findings: list[Finding] = []
    for name in options.providers:
        try:
            providers.append(registry.create(name, registry.Setting(options.configs.get(name), os.environ)))
        except errors.BedplateError as err:
            fix = err.hint or "correct the file of --cloud-config, or the environment"
            findings.append(problem("configuration", name, errors.describe(err), fix))
    return providers, findings


async def _ask_clouds(providers: Sequence[Provider], nodes: Sequence[core.Node]) -> list[Finding]:
    clouds = Clouds(providers)
    findings: list[Finding] = []
    for provider in providers:
        # A node without a provider ID may be anybody's; the provider looks for its name.
        own = [node for node in nodes if not node.spec.provider_id or _is_of(clouds, node, provider)]
        try:
            if isinstance(provider, Diagnosable):
                findings += await provider.diagnose(own)
        finally:
            await provider.close()
    return findings


def _is_of(clouds: Clouds, node: core.Node, provider: Provider) -> bool:
    return getattr(clouds.place(node), "provider", None) is provider


doctor.add_command(ipam_command.ipam)
