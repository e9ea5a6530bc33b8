"""When the certificates of a Kubernetes node end.

In: the files of kubeadm, of the kubelet and of etcd below a root. Out: each certificate with its end, the one that ends
first before the others; kubeconfigs hold theirs within. What an end is made of is read here in a few lines, so that an
agent at rest carries no library of certificates.
"""

from __future__ import annotations

import base64
import glob
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from bedplate.agent.files import Root
from bedplate.api.headapi import Result

__all__ = ["CHECK", "SOON", "Certificate", "certificates", "ends", "judge"]

CHECK: Final = "KubernetesCertificates"
SOON: Final = timedelta(days=30)
_PATTERNS = (
    "/etc/kubernetes/pki/*.crt",
    "/etc/kubernetes/pki/*/*.crt",
    "/etc/kubernetes/*.conf",
    "/var/lib/kubelet/pki/kubelet-client-current.pem",
    "/cm/local/apps/etcd/current/etc/certs/*.crt",
)
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _SHORT_YEAR, _LONG_YEAR = 0x30, 0xA0, 0x17, 0x18
"""Tags of DER."""
_WITHIN = re.compile(rb"client-certificate-data:\s*([A-Za-z0-9+/=]+)")


class Certificate(NamedTuple):
    """A certificate of a file; `why` says why it cannot be read."""

    path: str
    ends: datetime | None
    why: str = ""


def certificates(root: Root) -> list[Certificate]:
    """The certificates of a node, soonest end first; those that cannot be read before all others."""
    listed = []
    for pattern in _PATTERNS:
        for place in sorted(glob.glob(os.path.join(root.folder, pattern.lstrip("/")))):
            path = "/" + os.path.relpath(place, root.folder)
            try:
                with open(place, "rb") as stream:
                    content = stream.read(1 << 20)
                end = ends(content)
            except OSError as err:
                listed.append(Certificate(path, None, (err.strerror or str(err)).lower()))
            except ValueError as err:
                listed.append(Certificate(path, None, str(err)))
            else:
                if end is not None:
                    listed.append(Certificate(path, end))
    return sorted(listed, key=lambda each: (each.ends or datetime.min.replace(tzinfo=UTC), each.path))


def ends(content: bytes) -> datetime | None:
    """When the first certificate of a file ends; None for a file without one. Raises `ValueError`."""
    within = _WITHIN.search(content)
    if within is not None:
        content = base64.b64decode(within[1])
    match = _PEM.search(content)
    if match is None:
        if b"BEGIN CERTIFICATE" in content:
            raise ValueError("it is cut off")
        return None
    return _not_after(base64.b64decode(match[1]))


def judge(listed: list[Certificate], now: datetime) -> Result | None:
    """What the check says: none may end within a month. None for a node without certificates. Pure."""
    if not listed:
        return None
    unread = [f"{each.path}: {each.why}" for each in listed if each.ends is None]
    late = [each for each in listed if each.ends is not None and each.ends - now < SOON]
    first = next((each.ends for each in listed if each.ends is not None), None)
    value = round((first - now) / timedelta(days=1), 1) if first is not None else None
    bad = unread + [f"{each.path} {_words(each, now)}" for each in late]
    if not bad:
        return Result(check=CHECK, status="PASS", value=value)
    more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
    remedy = "cm-kubernetes-setup --renew-certificates; those of authorities and of etcd are the head's to replace"
    return Result(check=CHECK, status="FAIL", value=value, info=f"{', '.join(bad[:3])}{more}"[:900], remedy=remedy)


def _words(each: Certificate, now: datetime) -> str:
    assert each.ends is not None
    return f"{'ended' if each.ends <= now else 'ends'} on {each.ends:%Y-%m-%d}"


def _not_after(der: bytes) -> datetime:
    """The end of a certificate's validity, the second time of its fifth field, or fourth where it tells no version."""
    try:
        whole = _sequence(next(_fields(der)))
        body = _sequence(next(_fields(whole)))
        fields = [field for field in _fields(body) if field[0] != _VERSION]
        kind, text = list(_fields(_sequence(fields[3])))[1]
        digits = text.decode("ascii").removesuffix("Z")
        if kind not in (_SHORT_YEAR, _LONG_YEAR):
            raise ValueError("its end must be a time")
        if kind == _SHORT_YEAR:
            digits = ("19" if digits >= "50" else "20") + digits
        return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except (IndexError, StopIteration, ValueError) as err:
        raise ValueError("it is not a certificate") from err


def _sequence(field: tuple[int, bytes]) -> bytes:
    """The content of a field that must be a sequence: damaged letters of a file may leave lengths as they were."""
    tag, content = field
    if tag != _SEQUENCE:
        raise ValueError("it is not a certificate")
    return content


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents of a sequence in DER."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + length > len(data):
            raise ValueError("it is cut off")
        yield tag, data[at : at + length]
        at += length
