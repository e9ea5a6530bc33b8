"""How a machine gets the certificate of its node, and the next one before that ends.

In: the URLs of the heads and a one-time token, whose end is the fingerprint of the site's authority. Out: `ca.crt`, the
authority that is trusted from then on, and `agent.pem`, certificate and key in one file, so that both change at once.
The key is made first and kept until its certificate is there: a request that was interrupted is repeated with the same
key and gets the same answer. Nothing is sent to a head whose authority has another fingerprint.

The library that makes keys is imported here alone, when a key is made: an agent at rest does not carry it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import os
import random
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from bedplate.agent.commands import Run, run
from bedplate.api.headapi import CertificateAnswer, EnrolmentAnswer, Facts
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.backoff import jitter
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger

__all__ = ["AUTHORITY", "PAIR", "Life", "enrol", "facts", "keep_renewed", "life", "renew"]

_LOG = get_logger("agent.enrol")
AUTHORITY, PAIR, _KEY = "ca.crt", "agent.pem", "agent.key.new"
_LARGEST = 1 << 20
_PATIENCE_S = 30.0
_WAIT_S = 60.0
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_RENEWS_FROM = 0.8
_LOOK_S, _AGAIN_S = 6 * 3600.0, 600.0


class Life(NamedTuple):
    """From when to when a certificate is good, in seconds since the epoch."""

    begins_s: float
    ends_s: float

    @property
    def renews_s(self) -> float:
        """When the next one is asked for."""
        return self.begins_s + _RENEWS_FROM * (self.ends_s - self.begins_s)


async def enrol(
    urls: Sequence[str],
    token: str,
    folder: str,
    *,
    about: Facts | None = None,
    told: Callable[[EnrolmentAnswer], None] = lambda answer: None,
) -> EnrolmentAnswer:
    """Get the certificate of this machine's node. `told` is called when it has to wait for an administrator.

    Raises `Denied` for a head that is not the token's, and for an enrolment that was denied.
    """
    text, _, fingerprint = token.strip().rpartition(".")
    if not text or not re.fullmatch("[0-9a-f]{64}", fingerprint):
        raise errors.Invalid(
            "this is not a token for an enrolment", hint="bedplate head token create --enrol NODE makes one on the head"
        )
    with _told(folder):
        os.makedirs(folder, mode=0o755, exist_ok=True)
    authority = await asyncio.to_thread(_pinned, urls, fingerprint)
    _put(folder, AUTHORITY, authority, 0o644)
    key = _key(folder)
    async with HeadClient(urls, token=text, ca_file=os.path.join(folder, AUTHORITY)) as client:
        answer = await client.enrol(_request(key), about or facts())
        if answer.state == "pending":
            told(answer)
        while answer.state == "pending":
            answer = await client.enrolment(answer.id, wait_s=_WAIT_S)
    if answer.state == "denied":
        why = f": {answer.text}" if answer.text else ""
        raise errors.Denied(f"the enrolment as {answer.node} was denied{why}", hint="ask an administrator of the site")
    _settle(folder, key, answer.certificate, answer.authority)
    return answer


async def renew(node: str, urls: Sequence[str], folder: str) -> CertificateAnswer:
    """Get the next certificate with the present one. Raises `Conflict` when the head finds it too early."""
    key = _key(folder)
    pair = os.path.join(folder, PAIR)
    async with HeadClient(urls, ca_file=os.path.join(folder, AUTHORITY), cert_file=pair) as client:
        answer = await client.renew_certificate(node, _request(key))
    _settle(folder, key, answer.certificate, answer.authority)
    return answer


async def keep_renewed(path: str, command: Sequence[str], *, clock: Clock, rng: random.Random, run: Run = run) -> None:
    """Run a command, which gets the next certificate, when most of the present one's life is over; until cancelled.

    It is another process, so that this one stays small.
    """
    while True:
        wait_s = _LOOK_S
        about = life(path)
        if about is not None:
            left_s = about.renews_s - clock.now().timestamp()
            if left_s <= 0:
                ended = await run(command, timeout_s=300.0)
                if not ended.is_good:
                    _LOG.warning("agent.certificate.kept", error=ended.reason, ends=about.ends_s)
                left_s = _AGAIN_S
            wait_s = min(wait_s, left_s)
        await clock.sleep(jitter(wait_s, 0.1, rng))


def _settle(folder: str, key: bytes, certificate: str, authority: str) -> None:
    """Put the new pair in place, then what it trusts; then the key is no longer a loose one."""
    _put(folder, PAIR, certificate.encode() + key, 0o600)
    if authority:
        _put(folder, AUTHORITY, authority.encode(), 0o644)
    os.unlink(os.path.join(folder, _KEY))


def _pinned(urls: Sequence[str], fingerprint: str) -> bytes:
    """The site's authority, from the first head that answers. It is believed for its fingerprint alone."""
    last: errors.BedplateError = errors.Invalid("no head was given", hint="give the URL of a head")
    for url in urls:
        try:
            authority = _fetched(url)
        except errors.Unavailable as err:
            last = err
            continue
        # Whoever is in between can add an authority of their own to what is fetched: the named one alone is trusted.
        for match in _PEM.finditer(authority):
            if _fingerprint(match[0]) == fingerprint:
                return bytes(match[0]) + b"\n"
        raise errors.Denied(
            f"{url} presents another authority than the token names; nothing was sent to it",
            hint="check the URL, and that nobody is in between",
        )
    raise last


def _fetched(url: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise errors.Invalid(f"{url} must be an https URL", hint="write https://HOST:PORT")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=_PATIENCE_S, context=context)
    try:
        connection.request("GET", "/ca.crt")
        return connection.getresponse().read(_LARGEST)
    except (OSError, http.client.HTTPException) as err:
        raise errors.Unavailable(f"{url} does not give its authority: {err}", hint="is a head running there?") from err
    finally:
        connection.close()


def _fingerprint(certificate: bytes) -> str:
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.decode())).hexdigest()
    except ValueError:
        return ""


# Keys


def _key(folder: str) -> bytes:
    """The key that a certificate is asked for: the one of an interrupted request, or a new one."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    place = os.path.join(folder, _KEY)
    try:
        with open(place, "rb") as stream:
            key = stream.read(_LARGEST)
        serialization.load_pem_private_key(key, None)
        return key
    except (FileNotFoundError, ValueError, TypeError):
        # One that was damaged meanwhile is of no use to anybody.
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _put(folder, _KEY, key, 0o600)
        return key
    except OSError as err:
        raise errors.Invalid(f"{place} cannot be read: {err.strerror}", hint="run it as root") from err


def _request(key: bytes) -> str:
    """A signing request: of it only the public key counts, so that it names nothing else."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    loaded = serialization.load_pem_private_key(key, None)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(loaded, hashes.SHA256())  # type: ignore[arg-type]
    return request.public_bytes(serialization.Encoding.PEM).decode()


def _put(folder: str, name: str, content: bytes, mode: int) -> None:
    place = os.path.join(folder, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with _told(place):
        handle = os.open(f"{place}.new", flags, 0o600)
        with open(handle, "wb") as stream:
            os.fchmod(handle, mode)
            stream.write(content)
            stream.flush()
            os.fsync(handle)
        os.rename(f"{place}.new", place)


@contextlib.contextmanager
def _told(place: str) -> Iterator[None]:
    """What the system says about a place that is written, with what to do next."""
    try:
        yield
    except OSError as err:
        raise errors.Terminal(
            f"{place} cannot be written: {(err.strerror or str(err)).lower()}",
            hint="put that right (free space, run it as root), and repeat it: it goes on where it was interrupted",
        ) from err


# What a machine says of itself


def facts(system: str = "/sys") -> Facts:
    """Host name, MAC addresses of real interfaces, serial number: by these a head may know the machine."""
    macs = []
    for name in sorted(_listed(f"{system}/class/net")):
        place = f"{system}/class/net/{name}"
        if os.path.exists(f"{place}/device"):
            macs.append(_text(f"{place}/address").lower())
    serial = _text(f"{system}/class/dmi/id/product_serial")
    return Facts(
        hostname=_plain(os.uname().nodename, 253),
        macs=[mac for mac in macs if re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", mac)][:64],
        serial=_plain(serial, 100),
    )


def _listed(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return ()


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as stream:
            return stream.read(200).strip()
    except OSError:
        return ""


def _plain(text: str, longest: int) -> str:
    return "".join(char for char in text if "!" <= char <= "~" or char == " ").strip()[:longest]


# How long a certificate is good


def life(path: str) -> Life | None:
    """When the first certificate in a file begins and ends; None when it cannot be read. It needs no library."""
    try:
        with open(path, "rb") as stream:
            certificates = _PEM.findall(stream.read(_LARGEST))
        data = ssl.PEM_cert_to_DER_cert(certificates[0].decode())
        begins, ends = _validity(data)
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return Life(begins, ends)


def _validity(data: bytes) -> tuple[float, float]:
    """The two times in a certificate (RFC 5280): they follow version, serial number, algorithm and issuer."""
    fields = list(_parts(next(_parts(next(_parts(data))[1]))[1]))
    if fields[0][0] == 0xA0:
        del fields[0]
    begins, ends = _parts(fields[3][1])
    return _moment(*begins), _moment(*ends)


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a DER value: tag and content."""
    place = 0
    while place < len(data):
        tag, size = data[place], data[place + 1]
        place += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[place : place + count], "big")
            place += count
        yield tag, data[place : place + size]
        place += size


def _moment(tag: int, text: bytes) -> float:
    form = "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()
