"""`bedplate permissions`: what the permission manager needs on a cluster.

In: the address of the webhook, or the image of a manager inside the cluster. Out: YAML on standard output.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from bedplate.cli import display

__all__ = ["permissions"]


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


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise click.BadParameter(f"{url!r} must be https://HOST:PORT", param_hint="'--webhook-url'")
