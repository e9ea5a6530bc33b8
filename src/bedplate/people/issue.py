"""A user's certificate and kubeconfig: issued, proven, put into the home folder, and removed from it.

In: an account, the user's grants, a cluster. Out: `~/.kube/config` with the user's entries, the expiry as an annotation
of the user's objects. A certificate is shown to the API server before anything is written: one that the server does not
accept would lock the user out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from bedplate.api.resources import SELF_SUBJECT_ACCESS_REVIEWS
from bedplate.core import clock, errors
from bedplate.kube import Client
from bedplate.kube.config import AuthConfig, ClientConfig, Impersonation, TLSConfig
from bedplate.people import certificates, grants, homes, kubeconfig
from bedplate.people.accounts import PKI, Account
from bedplate.people.certificates import Authority
from bedplate.people.cluster import Cluster
from bedplate.people.grants import Grant
from bedplate.people.kubeconfig import Credentials, Place
from bedplate.people.settings import CLUSTER_ADMIN

__all__ = ["Issuer", "path_of"]

DEFAULT_NAME = "kubernetes"


def path_of(account: Account) -> Path:
    """Where the kubeconfig of an account is."""
    return account.home / homes.KUBECONFIG


class Issuer:
    """Issues and forgets certificates of one cluster's users."""

    def __init__(
        self,
        name: str,
        settings: ClientConfig,
        cluster: Cluster,
        time: clock.Clock,
        pki: Path = PKI,
        authority: Authority | None = None,
    ) -> None:
        self._authority = authority
        self._settings = settings
        self._cluster = cluster
        self._time = time
        self._pki = pki
        self._place = _place(name or DEFAULT_NAME, settings)

    def check(self, account: Account) -> None:
        """Raises `Invalid` where the user's kubeconfig could not be written."""
        self.present(account)

    def present(self, account: Account) -> Credentials | None:
        """The certificate that the user has for this cluster. Raises `Invalid` as `check` does."""
        with _naming(account):
            return kubeconfig.credentials(homes.read(account), self._place, account.name)

    async def issue(
        self,
        account: Account,
        present: Sequence[Grant],
        *,
        is_current: bool,
        life: timedelta = certificates.LIFE,
    ) -> datetime:
        """A new certificate in the user's kubeconfig; when it expires."""
        authority = certificates.find_authority(self._authority, self._place.ca, self._place.name, self._pki)
        issued = await certificates.obtain(
            self._cluster.client, account.name, life, authority, self._cluster.timeout_s, self._time
        )
        await self._prove(account.name, issued)
        # A home folder may be on a file server that does not answer.
        await asyncio.to_thread(self._put, account, _namespace(present), issued, is_current)
        await self.note(present, issued)
        return certificates.expiry_of(issued.certificate)

    def _put(self, account: Account, namespace: str, issued: Credentials, is_current: bool) -> None:
        # The user may edit the file at any moment: it is read as late as possible.
        with _naming(account):
            text = kubeconfig.with_entries(
                homes.read(account), self._place, account.name, namespace, issued, is_current=is_current
            )
            homes.replace(account, text)

    async def note(self, present: Sequence[Grant], issued: Credentials) -> None:
        """Write on the user's objects from when until when a certificate is valid."""
        begins, expires = certificates.validity_of(issued.certificate)
        notes = {grants.ISSUED: clock.rfc3339(begins), grants.EXPIRES: clock.rfc3339(expires)}
        for grant in present:
            await self._cluster.annotate(grant.name, notes)

    def forget(self, account: Account) -> bool:
        """Remove the user's entries for this cluster; whether there were any."""
        with _naming(account):
            present = homes.read(account)
            text = kubeconfig.without_entries(present, self._place, account.name)
            if text == present:
                return False
            homes.replace(account, text)
        return True

    async def _prove(self, user: str, issued: Credentials) -> None:
        """Ask the API server something with the new certificate."""
        tls = TLSConfig(
            ca_file=self._settings.tls.ca_file,
            ca_data=self._settings.tls.ca_data,
            cert_data=issued.certificate,
            key_data=issued.key,
            server_name=self._settings.tls.server_name,
            verify=self._settings.tls.verify,
        )
        person = replace(self._settings, tls=tls, auth=AuthConfig(), impersonate=Impersonation())
        question = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
        try:
            async with Client(person) as client:
                await client.create(SELF_SUBJECT_ACCESS_REVIEWS, question)
        except (errors.Denied, errors.Unavailable) as err:
            # A server may also close the connection when it does not know the authority.
            raise errors.Denied(
                f"the API server does not accept the new certificate of {user}: {err}",
                hint="it must trust the authority that signed it (--client-ca-file of kube-apiserver)",
            ) from err


def _place(name: str, settings: ClientConfig) -> Place:
    ca = settings.tls.ca_data
    if settings.tls.ca_file:
        try:
            ca = Path(settings.tls.ca_file).read_bytes()
        except OSError as err:
            raise errors.Invalid(f"{settings.tls.ca_file} cannot be read: {err.strerror}") from err
    return Place(name, settings.server, ca, settings.tls.server_name, settings.tls.verify)


def _namespace(present: Sequence[Grant]) -> str:
    """The namespace in which the user's kubectl works: their own, else the first."""
    local = [grant for grant in present if grant.role != CLUSTER_ADMIN]
    if not local:
        return ""
    own = next((grant for grant in local if grant.namespace == grants.default_namespace(grant.user)), None)
    return (own or next((grant for grant in local if grant.create_namespace), local[0])).namespace


@contextlib.contextmanager
def _naming(account: Account) -> Iterator[None]:
    """Let errors about a kubeconfig say which one it is."""
    try:
        yield
    except errors.Invalid as err:
        path = str(path_of(account))
        if path in err.message or str(account.home) in err.message:
            raise
        hint = err.hint or f"let {account.name} repair it or move it away; it is not changed"
        raise errors.Invalid(f"{path}: {err.message}", hint=hint) from err
