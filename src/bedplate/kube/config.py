"""How to reach an API server and who to be: one value, made once by an entry point.

In: a kubeconfig, the files of a pod, or code. Out: `ClientConfig`. `load` finds it the way kubectl does: an explicit
file, `KUBECONFIG`, `~/.kube/config`, and else the service account of the pod this runs in.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bedplate import __version__
from bedplate.core import errors

__all__ = [
    "AuthConfig",
    "ClientConfig",
    "ExecConfig",
    "Impersonation",
    "TLSConfig",
    "TokenSource",
    "load",
    "user_agent",
]


def user_agent(program: str = "bedplate") -> str:
    """`program/version`, the form that API servers log."""
    return f"{program}/{__version__}"


@dataclass(frozen=True, slots=True)
class TLSConfig:
    """Whom to trust and, with a certificate, who to be. Files are watched and read again when they change."""

    ca_file: str = ""
    ca_data: bytes = b""
    cert_file: str = ""
    cert_data: bytes = b""
    key_file: str = ""
    key_data: bytes = field(default=b"", repr=False)
    server_name: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class ExecConfig:
    """A program that prints credentials (client.authentication.k8s.io)."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False
    cluster_config: Any = None


TokenSource = Callable[[str], Awaitable[str]]
"""Gives a token that is good now; it is told the one that the server has just refused, or nothing."""


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Credentials that travel in a header. A token file wins over a token, which is then the fallback.

    `token_source`: code that gives tokens, instead of all else.
    """

    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    exec: ExecConfig | None = None
    token_source: TokenSource | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Act as another user, if RBAC allows it."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """All that a client needs. `qps` and `burst` are client-go's defaults; a negative `qps` means no limit.

    `compress`: ask for gzip on reads; None decides by distance (not on loopback, where it only costs time).
    """

    server: str
    tls: TLSConfig = TLSConfig()
    auth: AuthConfig = AuthConfig()
    impersonate: Impersonation = Impersonation()
    proxy_url: str = ""
    namespace: str = "default"
    qps: float = 5.0
    burst: int = 10
    timeout_s: float = 60.0
    connect_timeout_s: float = 10.0
    user_agent: str = field(default_factory=user_agent)
    compress: bool | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_rate(self, qps: float, burst: int) -> ClientConfig:
        """The same with another limit on requests per second."""
        return replace(self, qps=qps, burst=burst)

    def with_user_agent(self, program: str) -> ClientConfig:
        """The same under another program's name."""
        return replace(self, user_agent=user_agent(program))


def load(
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Find the configuration as kubectl does. Raises `core.errors.Invalid` naming every place that was looked at."""
    from bedplate.kube import incluster
    from bedplate.kube import kubeconfig as files

    env = os.environ if environ is None else environ
    if kubeconfig:
        return files.read([Path(kubeconfig)], context, environ=env)
    if env.get("KUBECONFIG"):
        paths = [Path(part) for part in env["KUBECONFIG"].split(os.pathsep) if part]
        return files.read(paths, context, environ=env, missing_ok=True)
    home = Path(env.get("HOME") or "~").expanduser() / ".kube" / "config"
    if home.exists():
        return files.read([home], context, environ=env)
    if incluster.is_available(env):
        return incluster.load(env)
    raise errors.Invalid(
        "no Kubernetes configuration found",
        problems=["KUBECONFIG is not set", f"{home} does not exist", "this is not a pod with a service account"],
        hint="pass --kubeconfig, or set KUBECONFIG",
    )
