"""`bedplate doctor`: gather, judge, print. This part looks at a cloud controller manager; `ipam_command` at pools.

In: a kubeconfig, and the manager's own provider configuration, or the manager that runs (`deployed`). Out: a table of
findings (or JSON) and an exit code.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from bedplate.api import core
from bedplate.cli import cluster, display
from bedplate.cli.doctor import cluster_checks, facts, ipam_command, ipam_facts, node_checks, rates, reading, report
from bedplate.cloud import registry
from bedplate.cloud.doctor import Diagnosable, Finding, note, problem, unknown
from bedplate.cloud.interface import Provider
from bedplate.cloud.manager import deployed, selection
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, errors
from bedplate.kube import Client, config

__all__ = ["doctor"]

EXAMPLES = """
\b
Examples:
  bedplate doctor                              what there is: managers, and address management
  bedplate doctor --cloud-provider nvidia-bmm --cloud-config /etc/nvidia-bmm/cloud-config
  OXIDE_HOST=… OXIDE_TOKEN=… OXIDE_PROJECT=… bedplate doctor --cloud-provider oxide
  bedplate doctor --cloud-provider cloudlycke -o json
  bedplate doctor ipam
\b
Exit code: 0 all checks passed, 1 something is wrong, 2 something could not be checked.
"""
# What the manifests call their objects (ClusterRole and its binding, ServiceAccount, Lease), and where they are.
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
        "system:cloudlycke-cloud-controller-manager",
        "cloudlycke-cloud-controller-manager",
        "cloud-controller-manager",
        "manifests/cloudlycke-ccm.yaml",
    ),
}

_EXPLAIN = re.compile(r"bedplate ccm explain (?:node|service) \S+")


@dataclass(frozen=True, slots=True)
class Options:
    """One manager to look at."""

    providers: tuple[str, ...]
    configs: Mapping[str, Path | None]
    settings: config.ClientConfig = dataclasses.field(repr=False)
    called: facts.Names
    environ: Mapping[str, str] = dataclasses.field(repr=False)
    flags: str
    """What `bedplate ccm explain` needs to see the same."""
    serves_metrics: bool = True


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """Where the running manager's metrics are, if anywhere."""

    url: str
    token: str = dataclasses.field(repr=False)
    ca_file: Path | None
    is_insecure: bool


@dataclass(frozen=True, slots=True)
class Given:
    """Names that the command line has; empty for those of the manager that runs, or of the manifests."""

    account: str = ""
    role: str = ""
    lease: str = ""

    def names(self, provider: str, manager: deployed.Manager | None) -> facts.Names:
        """What a manager's objects are called."""
        role, account, lease, manifests = _NAMES.get(provider, _NAMES["nvidia-bmm"])
        namespace, elects, has_accounts = "kube-system", True, None
        lease_namespace = "kube-system"
        if manager is not None:
            generic = manager.options.generic
            account, namespace = manager.account, manager.namespace
            lease, lease_namespace = generic.leader_elect_resource_name, generic.leader_elect_resource_namespace
            elects = generic.leader_elect and not generic.dry_run
            has_accounts = generic.use_service_account_credentials and not generic.dry_run
        if self.account:
            namespace, _, account = self.account.rpartition("/")
        return facts.Names(
            role=self.role or role,
            account=account,
            namespace=namespace,
            lease=self.lease or lease,
            manifests=manifests,
            lease_namespace=lease_namespace,
            is_lease_given=bool(self.lease) or manager is not None,
            elects=elects,
            has_accounts=has_accounts,
        )


@dataclass(frozen=True, slots=True)
class Request:
    """The command line."""

    providers: tuple[str, ...]
    configs: str
    files: Mapping[str, Path | None]
    """What `configs` says of each provider."""
    kubeconfig: str
    given: Given
    metrics: MetricsAddress

    def flags(self, providers: Sequence[str]) -> str:
        """What has to follow `bedplate ccm explain`, so that it looks at the same."""
        pairs = (
            ("--cloud-provider", ",".join(providers)),
            ("--cloud-config", self.configs),
            ("--kubeconfig", self.kubeconfig),
        )
        return "".join(f" {name}={shlex.quote(value)}" for name, value in pairs if value)


@click.group(epilog=EXAMPLES, invoke_without_command=True)
@click.option("--cloud-provider", default="", help="One provider, or several separated by commas.")
@click.option("--cloud-config", default="", help="The manager's configuration: FILE, or NAME=FILE,NAME=FILE.")
@cluster.kubeconfig_option
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

    Without options: the cloud controller managers that run in the cluster, or in `bedplate up`, with their own flags,
    environment and files; and address management where it is installed. With --cloud-provider: that manager. `ipam`:
    address management alone.
    """
    if ctx.invoked_subcommand is not None:
        if ahead := [each.opts[-1] for each in ctx.command.params if _is_given(ctx, each)]:
            raise click.UsageError(f"{', '.join(ahead)}: give options behind {ctx.invoked_subcommand}.", ctx)
        return
    if cloud_config and not cloud_provider:
        raise click.UsageError("--cloud-config needs --cloud-provider.", ctx)
    if not metrics_url:
        for name, value in (
            ("token-file", metrics_token_file),
            ("ca-file", metrics_ca_file),
            ("insecure", metrics_insecure),
        ):
            if value:
                raise click.UsageError(f"--metrics-{name} needs --metrics-url.", ctx)
    files = _files(cloud_provider, cloud_config) if cloud_provider else {}
    request = Request(
        tuple(files),
        cloud_config,
        files,
        kubeconfig,
        Given(_account(service_account), cluster_role, lease_name),
        MetricsAddress(metrics_url, _token(metrics_token_file), metrics_ca_file, metrics_insecure),
    )
    findings = report.pasteable(asyncio.run(_examine(request)), kubeconfig)
    report.show(findings, output)
    raise SystemExit(report.exit_code(findings))


def _is_given(ctx: click.Context, parameter: click.Parameter) -> bool:
    return ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE


def _files(providers: str, configs: str) -> dict[str, Path | None]:
    """The providers in their order, each with its file: as the manager reads the two flags."""
    names = [name for name in map(str.strip, providers.split(",")) if name]
    # A provider that does not exist is a finding, with those that do.
    chosen, problems = selection.choose_clouds(
        names, configs.split(",") if configs else (), {*registry.names(), *names}
    )
    if problems:
        raise errors.Invalid("these options do not fit together", problems=problems)
    return {cloud.name: cloud.config for cloud in chosen}


def _account(text: str) -> str:
    """NAMESPACE/NAME of an account that may be given by its name alone."""
    namespace, _, name = text.rpartition("/")
    if text and (not name or "/" in namespace or text.startswith("/")):
        raise errors.Invalid(f"--service-account {text!r} must be NAMESPACE/NAME")
    return f"{namespace or 'kube-system'}/{name}" if text else ""


def _token(file: Path | None) -> str:
    try:
        return file.read_text(encoding="utf-8").strip() if file is not None else ""
    except OSError as err:
        raise errors.Invalid(f"--metrics-token-file {file} cannot be read: {err.strerror}") from err


async def _examine(request: Request) -> list[Finding]:
    try:
        settings = cluster.connection(request.kubeconfig).with_user_agent("bedplate-doctor")
    except errors.BedplateError as err:
        findings = [unknown("kubernetes-api", "kubeconfig", err, report.remedy(err))]
        providers, more = _providers(request.providers, request.files, os.environ)
        return [*more, *findings, *await _ask_clouds(providers, ())]
    async with Client(settings.with_rate(-1, 1)) as client:
        managers = await _managers(client, request)
        if isinstance(managers, Exception):
            fix = "check the kubeconfig and the network to the API server; then: kubectl version"
            findings = [unknown("kubernetes-api", "API server", managers, fix)]
        elif request.providers and not managers:
            findings = await _examine_manager(_as_given(request, settings, None), request.metrics)
        else:
            findings = []
            for manager in managers:
                findings += await _examine_running(client, request, settings, manager, is_only=len(managers) == 1)
        leader = await deployed.leaders_seen(client) if managers == [] else ""
    if request.providers or isinstance(managers, Exception):
        return findings
    is_of_up = any(not manager.namespace for manager in managers)
    pools = await ipam_command.examine_if_installed(settings, ipam_facts.Names(), is_deployed=not is_of_up)
    if not managers:
        text = "no Deployment, DaemonSet or static pod of this cluster runs a cloud controller manager"
        text += f", but {leader}, from elsewhere" if leader else ""
        fix = "bedplate doctor --cloud-provider nvidia-bmm   # or oxide, cloudlycke: one that runs elsewhere"
        # One program is enough to be well; nothing at all is most likely the wrong cluster.
        is_well = bool(pools) and not leader
        findings = [(note if is_well else unknown)("manager", "cluster", text, fix)]
    return list(dict.fromkeys(findings + pools))


async def _managers(client: Client, request: Request) -> list[deployed.Manager] | Exception:
    """Those to look at; none where the command line tells all, or where they cannot be found but are not needed."""
    if request.configs:
        return []
    file = deployed.kubeconfig_file(request.kubeconfig, cluster.environ())
    managers = await reading.attempt(deployed.find(client, file))
    if not request.providers:
        return managers
    if isinstance(managers, Exception):
        return []
    return [manager for manager in managers if set(request.providers) <= set(manager.providers)]


def _as_given(request: Request, settings: config.ClientConfig, manager: deployed.Manager | None) -> Options:
    """A manager as the command line describes it."""
    providers = request.providers
    return Options(
        providers,
        request.files,
        settings,
        request.given.names(providers[0], manager),
        os.environ,
        request.flags(providers),
    )


async def _examine_running(
    client: Client, request: Request, settings: config.ClientConfig, manager: deployed.Manager, *, is_only: bool
) -> list[Finding]:
    """A manager that was found, with its own flags and files."""
    findings = [note("manager", manager.where, f"works for {', '.join(manager.providers)}")]
    try:
        async with deployed.taken_over(client, manager) as (flags, environ):
            generic = flags.generic
            chosen, _ = selection.choose_clouds(generic.cloud_provider, generic.cloud_config, registry.names())
            options = Options(
                manager.providers,
                {cloud.name: cloud.config for cloud in chosen},
                settings,
                request.given.names(manager.providers[0], manager),
                {**environ, **os.environ},
                request.flags(request.providers if is_only else manager.providers),
                serves_metrics=bool(manager.options.secure_serving.secure_port),
            )
            return findings + await _examine_manager(options, request.metrics)
    except errors.BedplateError as err:
        fix = "use a kubeconfig that may read its Secrets and ConfigMaps, or give --cloud-provider and --cloud-config"
        return [*findings, unknown("configuration", manager.where, err, fix)]


async def _examine_manager(options: Options, metrics: MetricsAddress) -> list[Finding]:
    time = clock.SystemClock()
    providers, findings = _providers(options.providers, options.configs, options.environ)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{options.called.namespace}", "system:authenticated")
    pretence = config.Impersonation(user=options.called.user, groups=groups)
    acting = dataclasses.replace(options.settings, impersonate=pretence)
    async with Client(options.settings) as client, Client(acting) as account:
        has_load_balancers = any(provider.load_balancers is not None for provider in providers)
        called = dataclasses.replace(options.called, has_load_balancers=has_load_balancers)
        read = await facts.gather(client, account, called, time.now())
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
    text = await _metrics(metrics) if metrics.url else None
    findings += rates.check_rates(text, time.now(), is_served=options.serves_metrics)
    return [_complete(finding, options.flags) for finding in findings]


def _complete(finding: Finding, flags: str) -> Finding:
    """A finding whose command can be pasted: `bedplate ccm explain` looks at what was looked at here."""
    if not flags:
        return finding
    return dataclasses.replace(finding, fix=_EXPLAIN.sub(lambda match: match.group() + flags, finding.fix))


async def _metrics(metrics: MetricsAddress) -> str | Exception:
    return await rates.read(metrics.url, metrics.token, metrics.ca_file, is_insecure=metrics.is_insecure)


def _providers(
    chosen: Sequence[str], configs: Mapping[str, Path | None], environ: Mapping[str, str]
) -> tuple[list[Provider], list[Finding]]:
    providers: list[Provider] = []
    findings: list[Finding] = []
    for name in chosen:
        try:
            providers.append(registry.create(name, registry.Setting(configs.get(name), environ)))
        except errors.BedplateError as err:
            fix = err.hint or "correct the file of --cloud-config, or the environment"
            text = errors.describe(err).removesuffix(f"\n  next: {err.hint}")
            findings.append(problem("configuration", name, text, fix))
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
