"""Certificates, service account keys and kubeconfig files of a cluster.

In: names, addresses, a folder. Out: PEM files in the folder, readable by the owner alone. Keys are P-256;
certificates live ten years, as no cluster of this package is meant to live longer than a test or a day of trying
things.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bedplate.serving import issuing
from bedplate.serving.files import write_private
from bedplate.serving.issuing import Use

__all__ = ["Authority", "KeyPair", "write_kubeconfig", "write_service_account_keys"]

_LIFE = datetime.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Where a certificate and its private key lie."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that writes what it issues into one folder."""

    def __init__(self, folder: Path, name: str, authority: issuing.Authority) -> None:
        self.folder = folder
        self.certificate_path = folder / f"{name}.crt"
        self._authority = authority

    @classmethod
    def open(cls, folder: Path, name: str = "ca") -> Authority:
        """The authority of that name in the folder, created when there is none."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        if certificate.exists() and key.exists():
            pair = issuing.Pair(certificate.read_bytes(), key.read_bytes())
            return cls(folder, name, issuing.Authority.load(pair))
        authority = issuing.Authority.create(f"bedplate lab {name}", _now(), _LIFE)
        authority.pair.write(folder, name, certificate_mode=0o600)
        return cls(folder, name, authority)

    def issue(
        self, file_name: str, common_name: str, *, groups: Sequence[str] = (), hosts: Iterable[str] = ()
    ) -> KeyPair:
        """A certificate for a client (name and groups are its Kubernetes identity) and, with `hosts`, for a server."""
        pair = KeyPair(self.folder / f"{file_name}.crt", self.folder / f"{file_name}.key")
        if not (pair.certificate.exists() and pair.key.exists()):
            names = list(hosts)
            uses = [Use.CLIENT, Use.SERVER] if names else [Use.CLIENT]
            issued = self._authority.issue(common_name, _now(), _LIFE, uses=uses, groups=groups, hosts=names)
            issued.write(self.folder, file_name, certificate_mode=0o600)
        return pair


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def write_service_account_keys(folder: Path) -> tuple[Path, Path]:
    """The private and the public key for service account tokens, created when there are none."""
    private, public = folder / "sa.key", folder / "sa.pub"
    if not (private.exists() and public.exists()):
        private_pem, public_pem = issuing.new_key_pem()
        write_private(private, private_pem)
        write_private(public, public_pem)
    return private, public


def write_kubeconfig(
    path: Path, server: str, authority: Path, pair: KeyPair, *, user: str, cluster: str = "lab"
) -> Path:
    """A kubeconfig with everything inside it, so that it may be copied alone."""

    def inline(source: Path) -> str:
        return base64.b64encode(source.read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": inline(authority)}}],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": inline(pair.certificate),
                    "client-key-data": inline(pair.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
    }
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())
    return path
