"""Provider IDs of NVIDIA BMM: every form that was ever written, read; one form written.

    nvidia-bmm://<org>/<tenant>/<site>/<instance UUID>      the present form
    nvidia-bmm://<org>/<site>/<instance UUID>               the old one, without a tenant
    nvidia-carbide://…                                      the same under the successor's scheme, read only

Tenant and site are opaque: some writers use UUIDs, others names. A provider ID can never change once it stands on a
Node, so none of these forms may ever be dropped, and what is written must be what the next reader expects. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bedplate.core import errors

__all__ = ["ALIAS", "SCHEME", "ProviderID", "is_uuid", "parse"]

SCHEME = "nvidia-bmm"
ALIAS = "nvidia-carbide"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def is_uuid(text: str) -> bool:
    """Whether this is a UUID in its usual form, of any case."""
    return _UUID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class ProviderID:
    """One instance. `instance` is in lower case, as the API writes it; `tenant` is empty in the old form."""

    org: str
    tenant: str
    site: str
    instance: str

    def __str__(self) -> str:
        return f"{SCHEME}://{self.org}/{self.tenant}/{self.site}/{self.instance}"


def parse(text: str) -> ProviderID:
    """Read any of the forms; raises `Invalid`, which says what is wrong."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in (SCHEME, ALIAS):
        raise errors.Invalid(f"provider ID {text!r} does not begin with {SCHEME}://")
    segments = rest.split("/")
    if len(segments) == 3:
        segments.insert(1, "")
    if len(segments) != 4:
        raise errors.Invalid(
            f"provider ID {text!r} is not of the form {SCHEME}://<org>/<tenant>/<site>/<instance UUID>"
        )
    org, tenant, site, instance = segments
    missing = [name for name, value in (("org", org), ("site", site), ("instance", instance)) if not value]
    if rest.count("/") == 3 and not tenant:
        missing.append("tenant")
    if missing:
        raise errors.Invalid(f"provider ID {text!r} has an empty {' and '.join(missing)}")
    if not is_uuid(instance):
        raise errors.Invalid(f"provider ID {text!r} does not end with an instance's UUID")
    return ProviderID(org, tenant, site, instance.lower())
