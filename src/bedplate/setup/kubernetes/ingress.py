"""The stages that give the ingress of a cluster its certificate.

In: answers: the cluster and either trusted domains or a pair of files. Out: `stages`. Without a pair of the site's own
an authority is made, whose certificate users must trust. Files are in `/etc/kubernetes/pki/CLUSTER`, or below the
folder that the answers name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bedplate.core import errors
from bedplate.head.ingress import certificates, installing
from bedplate.kube import Client
from bedplate.serving.issuing import Pair
from bedplate.setup.engine.stage import Context, Stage
from bedplate.setup.kubernetes import cluster as clusters
from bedplate.setup.kubernetes.deploy import PLUGIN, folder_of

__all__ = ["PKI", "pair_of", "stages"]

PKI = Path("/etc/kubernetes/pki")

Step = Callable[[Context], Awaitable[None]]


def stages(answers: Mapping[str, Any]) -> list[Stage]:
    """Five stages, of which the first two are left out where the site has a pair of its own."""
    steps: Mapping[str, tuple[Step, str, str]] = {
        "Generate Self Signed CA": (_authority, "", "ingress-ca.crt and ingress-ca.key"),
        "Generate Signed Server Cert Pair": (_pair, "the trusted domains", "ingress-server.crt, .csr and .key"),
        "Create Kubernetes Server Cert Pair Secret": (_secret, "the pair", f"the Secret {installing.SECRET}"),
        "Find Ingress Enabled": (_find, "the ingress controller", ""),
        "Patch Ingress Deployment": (_patch, "", "the ingress controller, whose pods start again"),
    }
    names = installing.STAGES if not answers["certificate"] else installing.STAGES[2:]
    return [
        Stage(name, PLUGIN, run, _kept if effects else None, None, inputs, effects)
        for name, (run, inputs, effects) in ((name, steps[name]) for name in names)
    ]


def _folder(context: Context) -> Path:
    return Path(context.answers["folder"]) / str(context.answers["cluster"])


async def _authority(context: Context) -> None:
    with _written(_folder(context)):
        certificates.generate_authority(_folder(context), context.answers["cluster"], context.clock.now())
    context.say(f"Users must trust {_folder(context)}/ingress-ca.crt")


async def _pair(context: Context) -> None:
    domains = context.answers["domains"]
    with _written(_folder(context)):
        certificates.generate_pair(_folder(context), domains, context.clock.now())
    context.say(f"{_folder(context)}/ingress-server.crt: {', '.join(domains)}")


def pair_of(answers: Mapping[str, Any]) -> Pair:
    """The pair that the ingress gets: the site's own, or the one of the folder. Raises `Invalid`."""
    folder = Path(answers["folder"]) / str(answers["cluster"])
    crt = Path(answers["certificate"] or folder / "ingress-server.crt")
    key = Path(answers["key"] or folder / "ingress-server.key")
    contents = []
    for file in (crt, key):
        try:
            contents.append(file.read_bytes())
        except OSError as err:
            raise errors.Invalid(f"{file} cannot be read: {err.strerror}") from err
    return Pair(*contents)


async def _with(context: Context, step: Callable[[Client, installing.Controller], Awaitable[None]]) -> None:
    async with clusters.connected(folder_of(context), context.answers["cluster"]) as client:
        await step(client, await installing.find(client))


async def _secret(context: Context) -> None:
    async def create(client: Client, controller: installing.Controller) -> None:
        await installing.create_secret(client, controller, pair_of(context.answers))
        context.say(f"Secret {controller.namespace}/{installing.SECRET}")

    await _with(context, create)


async def _find(context: Context) -> None:
    async def tell(client: Client, controller: installing.Controller) -> None:
        context.say(f"{controller.ref.kind} {controller.namespace}/{controller.name}")

    await _with(context, tell)


async def _patch(context: Context) -> None:
    async def patch(client: Client, controller: installing.Controller) -> None:
        is_changed = await installing.patch(client, controller, pair_of(context.answers))
        told = "restarts with the certificate, which takes about a minute" if is_changed else "has the certificate"
        context.say(f"{controller.namespace}/{controller.name} {told}")

    await _with(context, patch)


async def _kept(context: Context) -> None:
    context.say("What the ingress had before is not known; configure it again to give it another certificate")


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    """A folder that cannot be written is told in words."""
    try:
        yield
    except OSError as err:
        raise errors.Invalid(
            f"{err.filename or folder} cannot be written: {err.strerror}", hint="name another with --pki"
        ) from err
