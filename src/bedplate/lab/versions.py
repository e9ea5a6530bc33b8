"""Which versions of Kubernetes and its companions the lab knows.

In: what a person writes (`1.35`, `v1.35`, `1.35.4`). Out: an exact version tag. Nothing here touches disk or network.
"""

from __future__ import annotations

import re

from bedplate.core import errors

__all__ = [
    "CONTAINERD",
    "COREDNS",
    "DEFAULT",
    "ETCD",
    "HELM",
    "KNOWN",
    "KWOK",
    "KYVERNO",
    "LOCAL_PATH",
    "METRICS_SERVER",
    "REGISTRY",
    "TRAEFIK",
    "minor",
    "resolve",
]

# The newest patch release of each minor that the Go module proxy was seen to serve.
KNOWN = {"1.33": "v1.33.13", "1.34": "v1.34.4", "1.35": "v1.35.4", "1.36": "v1.36.3"}
DEFAULT = "1.35"

ETCD = "v3.6.6"
COREDNS = "v1.14.7"
HELM = "v3.22.0"
KWOK = "v0.8.0"
REGISTRY = "v3.1.2"
KYVERNO = "v1.19.1"
CONTAINERD = "v2.2.9"
METRICS_SERVER = "v0.9.0"
LOCAL_PATH = "v0.0.30"
# Later ones need modules that the proxy was not seen to serve.
TRAEFIK = "v3.6.12"

_FORM = re.compile(r"v?(\d+\.\d+)(\.\d+)?", re.ASCII)


def resolve(text: str) -> str:
    """The exact tag (`v1.35.4`) for a full version or for a minor this module knows."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise errors.Invalid(f"{text!r} is not a Kubernetes version", hint="write it as 1.35 or 1.35.4")
    if match[2]:
        return f"v{match[1]}{match[2]}"
    if match[1] not in KNOWN:
        raise errors.Invalid(
            f"no patch release of Kubernetes {match[1]} is known here",
            hint=f"name the patch release ({match[1]}.x), or one of {', '.join(KNOWN)}",
        )
    return KNOWN[match[1]]


def minor(tag: str) -> str:
    """`1.35` of `v1.35.4`."""
    return ".".join(tag.removeprefix("v").split(".")[:2])
