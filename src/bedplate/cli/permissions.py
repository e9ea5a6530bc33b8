"""`bedplate permissions`: what the permission manager needs on a cluster.

In: the address of the webhook, or the image of a manager inside the cluster; the features of a cluster with Kyverno.
Out: YAML on standard output.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from bedplate.cli import display

__all__ = ["permissions"]

# As in `operators.permissions.kyverno`, which is imported only by the command that needs it.
RELEASES = ("kyverno", "kyverno-policies")
FEATURES = ("gpu-operator", "local-path", "prometheus")


@click.group(epilog=display.examples("bedplate permissions manifests | kubectl apply --server-side -f -"))
def permissions() -> None:
    """People on a cluster: what the permission manager needs there."""


@permissions.command(
    epilog=display.examples(
        "bedplate permissions manifests | kubectl apply --server-side -f -",
        "bedplate permissions manifests --webhook-url https://10.141.255.254:9443 > permissions.yaml",
    )
)
@click.option("--webhook-url", default="", metavar="URL", help="Where the API server reaches a manager outside it.")
@click.option("--image", default="bedplate:latest", show_default=True, help="Image of a manager inside the cluster.")
def manifests(webhook_url: str, image: str) -> None:
    """Print namespaces, custom kinds, rights and webhook configurations, for kubectl apply --server-side."""
    import yaml

    from bedplate.operators.permissions import manifests as made

    if webhook_url:
        _check(webhook_url)
    click.echo(yaml.safe_dump_all(made.objects(webhook_url, image), sort_keys=False), nl=False)


@permissions.command(
    "kyverno-values",
    epilog=display.examples(
        "bedplate permissions kyverno-values kyverno --ha > kyverno.yaml",
        "bedplate permissions kyverno-values kyverno-policies --feature prometheus --feature local-path",
    ),
)
@click.argument("release", type=click.Choice(RELEASES))
@click.option("--ha", is_flag=True, help="Three replicas of every controller; for the release kyverno.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    type=click.Choice(FEATURES),
    help="What the cluster has, for the release kyverno-policies; may be repeated.",
)
def kyverno_values(release: str, ha: bool, features: tuple[str, ...]) -> None:
    """Print the values of one of Kyverno's two releases, for helm install --namespace kyverno.

    The policies are enforced. Namespaces are left out of them as far as the features of the cluster need it; those of
    users, *-restricted, are left out of disallow-host-path, because the rules of the permission manager hold there.
    """
    import yaml

    from bedplate.operators.permissions import kyverno

    if ha and release != "kyverno":
        raise click.BadParameter("is for the release kyverno", param_hint="'--ha'")
    if features and release == "kyverno":
        raise click.BadParameter("is for the release kyverno-policies", param_hint="'--feature'")
    values = kyverno.engine_values(is_ha=ha) if release == "kyverno" else kyverno.policy_values(frozenset(features))
    click.echo(yaml.safe_dump(values, sort_keys=False), nl=False)


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise click.BadParameter(f"{url!r} must be https://HOST:PORT", param_hint="'--webhook-url'")
