"""Who may read the manager's metrics, configuration and profiles.

In: a request's token, client certificate and headers. Out: an `Access`. Tokens and rights are reviewed by the API
server: TokenReview for the identity, SubjectAccessReview for the right. Its answers are kept for a short time (10 s by
default), so that a scrape does not cost two requests each time; one that cannot be asked is an error of the client,
never an answer. A client certificate counts when an authority of users issued it; when an authority of proxies issued
it, and its name is allowed, the request's headers say who asks. The authorities come from flags, else from the config
map kube-system/extension-apiserver-authentication, which is read again every minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from bedplate.api.names import NAMESPACE_SYSTEM
from bedplate.api.resources import CONFIG_MAPS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from bedplate.cloud.manager.options_serving import Authentication
from bedplate.core import clock, errors, logging
from bedplate.kube.client import Client

__all__ = [
    "ANONYMOUS",
    "Access",
    "Authorities",
    "Caller",
    "DelegatedGate",
    "Keep",
    "RequestGate",
    "User",
    "authorities_of",
    "follow",
    "from_flags",
    "look_up",
]

_KEPT_ANSWERS = 1024
User = dict[str, Any]
ANONYMOUS: User = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}


class Access(NamedTuple):
    """Whether a request may pass: 200, or 401 or 403 with a sentence."""

    status: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long answers are used again."""

    users_s: float = 10.0
    allowed_s: float = 10.0
    denied_s: float = 10.0


class DelegatedGate:
    """Users and their rights, as an API server knows them."""

    def __init__(
        self,
        client: Client,
        *,
        access_client: Client | None = None,
        keep: Keep | None = None,
        time: clock.Clock | None = None,
    ) -> None:
        """`access_client`: asks about rights, where another cluster than that of `client` knows them."""
        self._client = client
        self._access_client = access_client if access_client is not None else client
        self._keep = keep if keep is not None else Keep()
        self._time = time if time is not None else clock.SystemClock()
        self._users: dict[str, tuple[float, User | None]] = {}
        self._rights: dict[tuple[str, str, str], tuple[float, Access]] = {}

    async def authenticate(self, token: str) -> User | None:
        """Who a token belongs to; None when the server does not know it."""
        known = self._users.get(token)
        if known is not None and known[0] > self._time.monotonic():
            return known[1]
        review = await self._client.create(TOKEN_REVIEWS.raw(), {"spec": {"token": token}})
        status = review.get("status") or {}
        user = status.get("user") if status.get("authenticated") else None
        _keep(self._users, token, (self._time.monotonic() + self._keep.users_s, user))
        return user

    async def authorise(self, user: User, method: str, path: str) -> Access:
        """Whether a user may ask for a path."""
        key = (str(user), method, path)
        known = self._rights.get(key)
        if known is not None and known[0] > self._time.monotonic():
            return known[1]
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": path, "verb": method},
        }
        review = await self._access_client.create(SUBJECT_ACCESS_REVIEWS.raw(), {"spec": spec})
        if (review.get("status") or {}).get("allowed"):
            access, kept_s = Access(200), self._keep.allowed_s
        else:
            name = user.get("username", "")
            access = Access(403, f'forbidden: User "{name}" cannot {method} path "{path}"')
            kept_s = self._keep.denied_s
        _keep(self._rights, key, (self._time.monotonic() + kept_s, access))
        return access


def _keep(memory: dict[Any, Any], key: Any, value: Any) -> None:
    if len(memory) >= _KEPT_ANSWERS:
        memory.clear()
    memory[key] = value


log = logging.get_logger("cloud.access")
CONFIG_MAP = "extension-apiserver-authentication"
_PERIOD_S = 60.0


@dataclass(frozen=True, slots=True)
class Authorities:
    """Who vouches for users and for proxies (PEM), and which headers such proxies set."""

    users: str = ""
    proxies: str = ""
    proxy_names: tuple[str, ...] = ()
    name_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)

    @property
    def all(self) -> str:
        return f"{self.users}\n{self.proxies}".strip()


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request shows of who sent it; the certificate in DER, verified against one of the authorities."""

    token: str = field(default="", repr=False)
    certificate: bytes = b""
    headers: Mapping[str, list[str]] = field(default_factory=dict)
    """By name in lower case."""


class RequestGate:
    """Decides about one request. `authorities` is replaced when the config map changes."""

    def __init__(self, delegate: DelegatedGate) -> None:
        self._delegate = delegate
        self.authorities = Authorities()

    async def admit(self, method: str, path: str, caller: Caller) -> Access:
        try:
            user = await self._user(caller)
            if user is None:
                return Access(401, "Unauthorized")
            return await self._delegate.authorise(user, method, path)
        except errors.Denied as err:
            log.warning("access.reviews_refused", path=path, error=str(err), hint="bind it to system:auth-delegator")
            return Access(403, "forbidden: the manager's account may not request access reviews from the API server")
        except errors.BedplateError as err:
            log.warning("access.failed", path=path, error=str(err))
            return Access(500, "Internal Server Error: the API server could not be queried")

    async def _user(self, caller: Caller) -> User | None:
        if caller.certificate:
            # A certificate that vouches for nobody does not keep its holder from showing a token.
            user = certificate_user(caller, self.authorities)
            if user is not None or not caller.token:
                return user
        return await self._delegate.authenticate(caller.token) if caller.token else ANONYMOUS


def certificate_user(caller: Caller, authorities: Authorities) -> User | None:
    """Who a client certificate, or the proxy that showed it, says is asking. Pure."""
    certificate = x509.load_der_x509_certificate(caller.certificate)
    common_names = _values(certificate, x509.NameOID.COMMON_NAME)
    if _is_issued(certificate, authorities.proxies):
        if authorities.proxy_names and not set(common_names) & set(authorities.proxy_names):
            return None
        return _proxied_user(caller.headers, authorities)
    if not common_names or not _is_issued(certificate, authorities.users):
        return None
    groups = _values(certificate, x509.NameOID.ORGANIZATION_NAME)
    return {"username": common_names[0], "groups": [*groups, "system:authenticated"]}


def _proxied_user(headers: Mapping[str, list[str]], authorities: Authorities) -> User | None:
    name = next((values[0] for key in authorities.name_headers if (values := headers.get(key.lower()))), "")
    if not name:
        return None
    uid = next((values[0] for key in authorities.uid_headers if (values := headers.get(key.lower()))), "")
    groups = [group for key in authorities.group_headers for group in headers.get(key.lower(), ())]
    extra: dict[str, list[str]] = {}
    for key, values in headers.items():
        for prefix in authorities.extra_prefixes:
            if key.startswith(prefix.lower()):
                extra.setdefault(key[len(prefix) :], []).extend(values)
    return {"username": name, "uid": uid, "groups": [*groups, "system:authenticated"], "extra": extra}


def _values(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid)]


def _is_issued(certificate: x509.Certificate, authorities: str) -> bool:
    for issuer in _load(authorities):
        try:
            certificate.verify_directly_issued_by(issuer)
            return True
        except (ValueError, TypeError, InvalidSignature):
            continue
    return False


def _load(pem: str) -> Iterable[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem.encode()) if pem.strip() else ()


def from_flags(options: Authentication) -> Authorities:
    """What the flags alone say. Raises `Invalid` when a file is not a certificate."""
    return Authorities(
        users=_file("--client-ca-file", options.client_ca_file),
        proxies=_file("--requestheader-client-ca-file", options.requestheader_client_ca_file),
        proxy_names=options.requestheader_allowed_names,
        name_headers=options.requestheader_username_headers,
        uid_headers=options.requestheader_uid_headers,
        group_headers=options.requestheader_group_headers,
        extra_prefixes=options.requestheader_extra_headers_prefix,
    )


def _file(flag: str, path: str) -> str:
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        _load(text)
    except (OSError, ValueError) as err:
        raise errors.Invalid(f"{flag}: {path} holds no certificates: {err}") from err
    return text


def authorities_of(data: Mapping[str, str], flags: Authorities) -> Authorities:
    """The config map's authorities, where flags name none. Pure; what cannot be read is left out."""
    users = flags.users or _checked(data.get("client-ca-file", ""))
    if flags.proxies:
        return Authorities(users, flags.proxies, flags.proxy_names, flags.name_headers, flags.uid_headers,
                           flags.group_headers, flags.extra_prefixes)  # fmt: skip
    proxies = _checked(data.get("requestheader-client-ca-file", ""))
    return Authorities(
        users,
        proxies,
        _words(data, "requestheader-allowed-names"),
        _words(data, "requestheader-username-headers") or flags.name_headers,
        _words(data, "requestheader-uid-headers") or flags.uid_headers,
        _words(data, "requestheader-group-headers") or flags.group_headers,
        _words(data, "requestheader-extra-headers-prefix") or flags.extra_prefixes,
    )


def _checked(pem: str) -> str:
    try:
        _load(pem)
    except ValueError as err:
        log.warning("access.authorities_unreadable", error=str(err))
        return ""
    return pem


def _words(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        names: Any = json.loads(data.get(key) or "[]")
    except ValueError:
        names = []
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


async def look_up(client: Client, options: Authentication, flags: Authorities) -> Authorities:
    """Read the config map once. A refusal is an error unless it is to be tolerated; that there is none is fine."""
    if options.authentication_skip_lookup or (flags.users and flags.proxies):
        return flags
    try:
        config_map = await client.get(CONFIG_MAPS, CONFIG_MAP, NAMESPACE_SYSTEM)
    except errors.NotFound:
        return flags
    except errors.Denied as err:
        if not options.authentication_tolerate_lookup_failure:
            raise errors.Denied(
                f"the authorities of client certificates cannot be read: {err}",
                hint="bind the Role extension-apiserver-authentication-reader of kube-system to this account, or pass "
                " --authentication-tolerate-lookup-failure or --authentication-skip-lookup",
            ) from err
        log.warning("access.lookup_refused", error=str(err), effect="client certificates are not accepted")
        return flags
    return authorities_of(config_map.data, flags)


async def follow(
    client: Client,
    options: Authentication,
    flags: Authorities,
    apply: Callable[[Authorities], None],
    time: clock.Clock,
) -> None:
    """Read the config map again every minute until cancelled; failures leave everything as it was."""
    while True:
        await time.sleep(_PERIOD_S)
        try:
            apply(await look_up(client, options, flags))
        except errors.BedplateError as err:
            log.warning("access.lookup_failed", error=str(err))
