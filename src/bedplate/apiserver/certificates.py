"""The server's certificates: an authority of its own, a serving certificate, the administrator's client certificate.

In: a folder, the names and addresses people reach the server by, the time. Out: PEM files in that folder and a
kubeconfig. Made once, renewed when close to their end or when the names change. What is there is read without the
cryptography library, whose import would cost a tenth of a second at every start.
"""

from __future__ import annotations

import base64
import datetime
import pathlib
import socket

import msgspec

from bedplate.core import clock as clocks
from bedplate.core import errors
from bedplate.serving.files import write_private

__all__ = ["Pki", "ensure", "kubeconfig", "serving_names"]

AUTHORITY_LIFE = datetime.timedelta(days=3650)
LEAF_LIFE = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=30)
_SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_FIRST_SERVICE_ADDRESS = "10.96.0.1"


class Pki(msgspec.Struct):
    """Where the files are, and until when they are good."""

    folder: str
    names: list[str]
    renew_at: str

    def path(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.folder) / name

    def text(self, name: str) -> str:
        return self.path(name).read_text()


def serving_names(bind_address: str) -> list[str]:
    """All names and addresses the serving certificate is for."""
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *_SERVICE_NAMES, _FIRST_SERVICE_ADDRESS]
    if bind_address not in ("", "0.0.0.0", "::"):
        names.append(bind_address)
    return list(dict.fromkeys(names))


def ensure(folder: pathlib.Path, names: list[str], clock: clocks.Clock) -> Pki:
    """The certificates in a folder, made or renewed where needed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    pki = _read(folder)
    now = clock.now()
    if pki is not None and set(names) <= set(pki.names) and now < clocks.parse_rfc3339(pki.renew_at):
        return pki
    return _make(folder, names, now)


def _read(folder: pathlib.Path) -> Pki | None:
    path = folder / "state.json"
    if not path.exists():
        return None
    try:
        pki = msgspec.json.decode(path.read_bytes(), type=Pki)
    except msgspec.DecodeError as err:
        hint = "remove it to have the certificates generated again"
        raise errors.Invalid(f"{path} is damaged: {err}", hint=hint) from err
    pki.folder = str(folder)
    return pki


def _make(folder: pathlib.Path, names: list[str], now: datetime.datetime) -> Pki:
    from bedplate.serving import issuing
    from bedplate.serving.issuing import Use

    if (folder / "ca.key").exists():
        pair = issuing.Pair((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
        authority = issuing.Authority.load(pair)
    else:
        authority = issuing.Authority.create("bedplate-ca", now, AUTHORITY_LIFE)
        authority.pair.write(folder, "ca", certificate_mode=0o600)
    server = authority.issue("kube-apiserver", now, LEAF_LIFE, uses=[Use.SERVER], hosts=names)
    server.write(folder, "server", certificate_mode=0o600)
    admin = authority.issue("kubernetes-admin", now, LEAF_LIFE, uses=[Use.CLIENT], groups=["system:masters"])
    admin.write(folder, "admin", certificate_mode=0o600)
    pki = Pki(str(folder), names, clocks.rfc3339(now + LEAF_LIFE - RENEW_BEFORE))
    write_private(folder / "state.json", msgspec.json.encode(pki))
    return pki


def kubeconfig(pki: Pki, url: str, name: str = "bedplate") -> bytes:
    """The administrator's kubeconfig, with everything inside."""

    def inline(file: str) -> str:
        return base64.b64encode(pki.path(file).read_bytes()).decode()

    cluster = {"server": url, "certificate-authority-data": inline("ca.crt")}
    user = {"client-certificate-data": inline("admin.crt"), "client-key-data": inline("admin.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": f"{name}-admin", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"{name}-admin"}}],
        "current-context": name,
    }
    # JSON is YAML, and writing it needs no YAML library at start.
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
