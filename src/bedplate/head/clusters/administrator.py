"""The administrator's kubeconfig of each cluster that was set up here: made, watched over, and made again in time.

In: the authority of a cluster in the tree, its kubeconfig in the data folder, its control plane nodes. Out: a
kubeconfig whose certificate lasts a year and is renewed when 80 % of it are over, and whose server is a control plane
node of the present tree; what there is to say about the certificate. A kubeconfig of another authority is left alone.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from bedplate.api.headapi import Certificate
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head.certificates import describe
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.kubeclusters import file_of
from bedplate.head.objects import Secret
from bedplate.head.render.clusters import address, control_plane
from bedplate.head.service import Head
from bedplate.head.tree import Tree
from bedplate.serving import files

if TYPE_CHECKING:
    from bedplate.serving import issuing

__all__ = ["LIFE", "USER", "Administrators", "Present", "due", "present", "text"]

_LOG = get_logger("head.clusters")
USER = "kubernetes-admin"
LIFE = timedelta(days=365)
_SHARE = 0.8
_GROUP = "kubeadm:cluster-admins"
_LOOK_S = 5.0
_EVERY_S = 600.0


class Present(NamedTuple):
    """What a kubeconfig has: the certificate of its user, the authority it trusts, and where the API server is."""

    certificate: bytes
    authority: bytes
    server: str
    begins: datetime
    ends: datetime


def text(pair: issuing.Pair, server: str, cluster: str, now: datetime) -> str:
    """A kubeconfig of an administrator, whose certificate the cluster's authority issues."""
    import yaml

    from bedplate.serving import issuing  # only clusters that were set up here cost this

    own = issuing.Authority.load(pair).issue(USER, now, LIFE, uses=(issuing.Use.CLIENT,), groups=(_GROUP,))

    def data(content: bytes) -> str:
        return base64.b64encode(content).decode()

    name = f"{USER}@{cluster}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": data(pair.certificate)}}
        ],
        "users": [
            {
                "name": USER,
                "user": {"client-certificate-data": data(own.certificate), "client-key-data": data(own.key)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": cluster, "user": USER}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def present(content: str) -> Present | None:
    """What a kubeconfig made here has; None for any other."""
    import yaml
    from cryptography import x509

    try:
        document = yaml.safe_load(content)
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        certificate = base64.b64decode(user["client-certificate-data"], validate=True)
        authority = base64.b64decode(cluster["certificate-authority-data"], validate=True)
        parsed = x509.load_pem_x509_certificate(certificate)
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError, binascii.Error):
        return None
    return Present(
        certificate, authority, str(cluster.get("server")), parsed.not_valid_before_utc, parsed.not_valid_after_utc
    )


def due(known: Present, hosts: Sequence[str], now: datetime) -> str:
    """Why a kubeconfig has to be made again; empty when it has not. Pure."""
    if known.ends - known.begins > LIFE + timedelta(days=2):
        return f"its certificate lasts until {known.ends:%Y-%m-%d}, longer than {LIFE.days} days"
    if now >= known.begins + _SHARE * (known.ends - known.begins):
        return f"its certificate ends on {known.ends:%Y-%m-%d}"
    host = urlsplit(known.server).hostname
    if hosts and host not in hosts:
        return f"{host} is no longer a control plane node"
    return ""


class Administrators:
    """The kubeconfigs in a data folder. `run` until cancelled."""

    def __init__(self, head: Head, folder: Path, *, clock: Clock) -> None:
        self._head = head
        self._folder = folder
        self._clock = clock

    async def run(self) -> None:
        """Look at them when the tree changes, and now and then."""
        tree, looked_s = None, 0.0
        while True:
            if self._head.tree is not tree or self._clock.monotonic() - looked_s > _EVERY_S:
                tree, looked_s = self._head.tree, self._clock.monotonic()
                for cluster in tree.mode("kubernetes"):
                    self.look(tree, cluster)
            await self._clock.sleep(_LOOK_S)

    def look(self, tree: Tree, cluster: str) -> bool:
        """Whether a kubeconfig was made again."""
        file, pair = file_of(self._folder, cluster), _authority(tree, cluster)
        known = _read(file)
        if known is None or pair is None or known.authority.strip() != pair.certificate.strip():
            return False
        hosts = [address(member.node) for member in control_plane(tree, cluster)]
        why = due(known, hosts, self._clock.now())
        if not why:
            return False
        server, host = known.server, urlsplit(known.server).hostname or ""
        if hosts and host not in hosts:
            server = server.replace(host, hosts[0], 1)
        try:
            files.write_private(file, text(pair, server, cluster, self._clock.now()).encode())
        except (OSError, ValueError, errors.BedplateError) as err:
            _LOG.warning("head.clusters.kubeconfig_not_renewed", cluster=cluster, why=why, error=str(err))
            return False
        _LOG.info("head.clusters.kubeconfig_renewed", cluster=cluster, why=why)
        return True

    def certificates(self) -> Iterator[Certificate]:
        """Those of the kubeconfigs, for whoever looks at the ends of certificates."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        for cluster in self._head.tree.mode("kubernetes"):
            known = _read(file_of(self._folder, cluster))
            if known is not None:
                der = x509.load_pem_x509_certificate(known.certificate).public_bytes(Encoding.DER)
                yield msgspec.structs.replace(describe("kubernetes", der), subject=f"{USER}@{cluster}")


def _authority(tree: Tree, cluster: str) -> issuing.Pair | None:
    obj = tree.get(("kubernetes", cluster))
    certificate, key = KubeCluster.kube_ca_cert.value(obj), KubeCluster.kube_ca_key.value(obj)
    if not isinstance(certificate, Secret) or not isinstance(key, Secret):
        return None
    from bedplate.serving import issuing

    return issuing.Pair(certificate.reveal().encode(), key.reveal().encode())


def _read(file: Path) -> Present | None:
    try:
        return present(file.read_text())
    except (OSError, UnicodeDecodeError):
        return None
