"""Where the webhook's certificate comes from: a folder that another program fills, or a Secret of our own.

In: a folder, or a client and names. Out: an `ssl.SSLContext` whose new connections use the newest pair, and
`is_ready`. Neither source ends the program: files that are missing, and a Secret that may not be read, are told and
tried again.

With the Secret, every replica does the same: read it, make or renew what is missing or old (the first writer wins,
the others read again), and see to it that the webhook configurations name the authority: by writing it where the
account may, otherwise by reporting that an administrator must. A configuration with an address of its own (`url`) adds
the host of that address to the names of the certificate.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from bedplate.api.resources import SECRETS, RawObject, ResourceRef, custom
from bedplate.core import clock, errors, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.options import PatchType
from bedplate.program import webhookpki as pki

__all__ = [
    "CONFIGURATIONS",
    "MUTATING_CONFIGURATIONS",
    "FolderCertificates",
    "SecretCertificates",
    "ServingPair",
    "Source",
]

log = logging.get_logger("program.webhookcertificates")
CONFIGURATIONS = custom(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
MUTATING_CONFIGURATIONS = custom(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
_MEMORY = "/dev/shm"
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
LOOK_S = 5.0
"""How often files, the Secret and the configuration are looked at."""
CONFLICT_S = 0.2
PUBLISH_HINT = 'an administrator publishes ca.crt of the Secret: "Trust the webhook" in docs/guides/ipam.md'


class Source(Protocol):
    """What keeps a `ServingPair` up to date, leading or not."""

    async def run(self) -> None: ...


class ServingPair:
    """What the webhook's port presents. `is_ready` once there is a pair."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_ciphers(_CIPHERS)
        self.is_ready = False
        self._content = b""

    def use(self, certificate: bytes, key: bytes) -> bool:
        """Serve this certificate and key from now on; whether they changed. Raises ValueError when they do not
        match."""
        content = certificate + b"\n" + key
        if content == self._content:
            return False
        # Tried on another context first: a broken pair must not replace a good one.
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), content)
        self._load(self.context, content)
        self._content, self.is_ready = content, True
        return True

    @staticmethod
    def _load(context: ssl.SSLContext, content: bytes) -> None:
        # OpenSSL's interface takes paths only. The file is private to this user and gone after the call.
        folder = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        with tempfile.NamedTemporaryFile(prefix="bedplate-webhook-", dir=folder) as file:
            file.write(content)
            file.flush()
            try:
                # An encrypted key is an error: without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(file.name, password="")
            except ssl.SSLError as err:
                raise ValueError(f"no matching certificate and key in PEM ({err.reason or err})") from err


@dataclass(slots=True)
class FolderCertificates:
    """`tls.crt` and `tls.key` of a folder, as cert-manager and OpenShift mount them."""

    pair: ServingPair
    folder: Path
    time: clock.Clock = field(default_factory=clock.SystemClock)
    _told: str = ""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await self.time.sleep(LOOK_S)

    def look(self) -> None:
        """Read the files; a pair that cannot be used is told once, and the last good one stays."""
        try:
            is_new = self.pair.use((self.folder / "tls.crt").read_bytes(), (self.folder / "tls.key").read_bytes())
        except (OSError, ValueError) as err:
            text = str(err)
            if text != self._told:
                hint = "mount a certificate there, or use --webhook-cert-dir or --webhook-self-signed"
                log.error("webhook.no_certificate", folder=str(self.folder), error=text, hint=hint)
            self._told = text
            return
        self._told = ""
        if is_new:
            log.info("webhook.certificate_loaded", folder=str(self.folder))


@dataclass(slots=True)
class SecretCertificates:
    """A certificate of our own, in a Secret that all replicas share."""

    pair: ServingPair
    client: Client
    namespace: str
    secret: str
    configurations: Sequence[tuple[ResourceRef[RawObject], str]]
    """Kind and name of each webhook configuration."""
    names: Sequence[str]
    is_dry_run: bool = False
    time: clock.Clock = field(default_factory=clock.SystemClock)
    authority: str = "nv-ipam-webhook-ca"
    hint: str = PUBLISH_HINT
    _told: str = ""
    _unpublished: str = ""
    _unreadable: str = ""
    _unwritten: pki.Pair = field(default_factory=pki.Pair)
    """In a dry run: what the Secret would hold."""

    async def run(self) -> None:
        """Look, renew and publish until cancelled."""
        while True:
            pause_s = LOOK_S
            try:
                await self.look()
                self._told = ""
            except errors.Conflict as err:
                # Another replica was quicker: its work is read at once.
                log.v(2).info("webhook.certificate_conflict", error=str(err))
                pause_s = CONFLICT_S
            except errors.BedplateError as err:
                if str(err) != self._told:
                    hint = "the role lacks the rights for --webhook-self-signed; see the deployment guide"
                    log.error("webhook.certificate_failed", error=str(err), hint=hint)
                self._told = str(err)
            await self.time.sleep(pause_s)

    async def look(self) -> None:
        """One round."""
        configurations = [(ref, each) for ref, name in self.configurations if (each := await self._read(ref, name))]
        hosts = [host for _, each in configurations for host in _hosts(each)]
        pair = await self._held(list(dict.fromkeys([*self.names, *hosts])))
        if self.pair.use(pair.certificate, pair.key):
            log.info("webhook.certificate_loaded", secret=f"{self.namespace}/{self.secret}")
        for ref, configuration in configurations:
            await self._publish(ref, configuration, pair.authority)

    async def _held(self, names: Sequence[str]) -> pki.Pair:
        """What the Secret holds, after it was made or renewed."""
        now = self.time.now()
        try:
            secret: dict[str, Any] = await self.client.get(SECRETS.raw(), self.secret, self.namespace)
        except kube_errors.NotFound:
            renewed = pki.renewed(self._unwritten, names, now, self.authority)
            await self._write({"metadata": {"name": self.secret, "namespace": self.namespace}}, renewed)
            return renewed
        data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
        pair = pki.Pair.of(data)
        renewed = pki.renewed(pair, names, now, self.authority)
        if renewed != pair:
            await self._write(secret, renewed)
        return renewed

    async def _write(self, secret: dict[str, Any], pair: pki.Pair) -> None:
        if self.is_dry_run:
            self._unwritten = pair
            return
        data = {key: base64.b64encode(value).decode() for key, value in pair.data().items()}
        body = {"type": "kubernetes.io/tls", **secret, "data": {**(secret.get("data") or {}), **data}}
        if secret["metadata"].get("resourceVersion"):
            await self.client.update(SECRETS.raw(), body, self.namespace)
        else:
            try:
                await self.client.create(SECRETS.raw(), body, self.namespace)
            except kube_errors.AlreadyExists as err:
                raise errors.Conflict(str(err)) from err
        log.info("webhook.certificate_made", secret=f"{self.namespace}/{self.secret}")

    async def _read(self, ref: ResourceRef[RawObject], name: str) -> RawObject | None:
        try:
            return await self.client.get(ref, name)
        except kube_errors.NotFound:
            log.v(1).info("webhook.no_configuration", name=name)
            return None
        except kube_errors.Forbidden as err:
            # The certificate is needed all the same: an administrator may publish its authority.
            if self._unreadable != str(err):
                log.warning("webhook.configuration_unreadable", name=name, error=str(err), hint=self.hint)
            self._unreadable = str(err)
            return None

    async def _publish(self, ref: ResourceRef[RawObject], configuration: RawObject, authority: bytes) -> None:
        """Let the API server trust the authority."""
        name = configuration["metadata"]["name"]
        bundle = base64.b64encode(authority).decode()
        changes: list[dict[str, Any]] = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
            for index, webhook in enumerate(configuration.get("webhooks") or ())
            if webhook["clientConfig"].get("caBundle") != bundle
        ]
        if not changes or self.is_dry_run:
            return
        version = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": configuration["metadata"]["resourceVersion"],
        }
        try:
            await self.client.patch(ref, name, [version, *changes], type=PatchType.JSON)
        except kube_errors.Forbidden:
            # A right that the shipped role does not give: with it, every Secret of the cluster could be read.
            if self._unpublished != bundle:
                log.warning("webhook.authority_unpublished", configuration=name, hint=self.hint)
            self._unpublished = bundle
            return
        log.info("webhook.authority_published", configuration=name, webhooks=len(changes))


def _hosts(configuration: RawObject) -> list[str]:
    """The hosts that a configuration calls by address."""
    urls = [str(webhook["clientConfig"].get("url") or "") for webhook in configuration.get("webhooks") or ()]
    return [host for url in urls if (host := urlsplit(url).hostname)]
