"""How to reach an API server and who to be: one value, made once by an entry point.

In: a kubeconfig, the files of a pod, or code. Out: `ClientConfig`. It is found in one of three ways: `load` looks where
kubectl does (an explicit file, `KUBECONFIG`, `~/.kube/config`, and else the service account of the pod this runs in),
`find` where controller-runtime does, `find_named` only where a manager is told to. A pod's token file rotates; the
credentials read it again by themselves.
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
    "SERVICE_ACCOUNT_FOLDER",
    "AuthConfig",
    "ClientConfig",
    "ExecConfig",
    "Impersonation",
    "TLSConfig",
    "TokenSource",
    "Unconfigured",
    "find",
    "find_named",
    "is_in_pod",
    "load",
    "load_in_pod",
    "user_agent",
]

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Unconfigured(errors.Invalid):
    """No place names an API server; `problems` are the places."""


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
    """Find the configuration as kubectl does. Raises `Unconfigured` naming every place that was looked at."""
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
    if is_in_pod(env):
        return load_in_pod(env)
    raise Unconfigured(
        "no Kubernetes configuration found",
        problems=["KUBECONFIG is not set", f"{home} does not exist", "this is not a pod with a service account"],
        hint="pass --kubeconfig, or set KUBECONFIG",
    )


def find(path: str, environ: Mapping[str, str]) -> ClientConfig:
    """As controller-runtime does: the flag, KUBECONFIG, the pod's service account, the user's own file."""
    if not path and not environ.get("KUBECONFIG") and is_in_pod(environ):
        return load_in_pod(environ)
    return load(path, environ=environ)


def find_named(path: str, master: str, environ: Mapping[str, str]) -> ClientConfig:
    """As Kubernetes' managers do: the kubeconfig and the server that flags name, else the pod's service account.

    No other place is looked at: a program that deletes nodes must not find a cluster by chance.
    """
    server = master.rstrip("/")
    if path:
        connection = load(path, environ=environ)
        return replace(connection, server=server) if server else connection
    if server:
        return ClientConfig(server=server, environ=environ)
    if is_in_pod(environ):
        return load_in_pod(environ)
    raise errors.Invalid(
        "no cluster to manage: no --kubeconfig, no --master, and this is not a pod with a service account",
        hint="pass --kubeconfig=FILE",
    )


def is_in_pod(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT_FOLDER) -> bool:
    """Whether this process runs in a pod with a service account."""
    return (
        bool(environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT"))
        and (folder / "token").exists()
    )


def load_in_pod(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT_FOLDER) -> ClientConfig:
    """The configuration of the pod; raises `Invalid` outside of one."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    token = folder / "token"
    if not host or not port or not token.exists():
        raise errors.Invalid(
            "not running in a pod with a service account",
            problems=[f"KUBERNETES_SERVICE_HOST={host!r}", f"KUBERNETES_SERVICE_PORT={port!r}", f"token file {token}"],
            hint="pass --kubeconfig when running outside the cluster",
        )
    ca_file, namespace = folder / "ca.crt", folder / "namespace"
    return ClientConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=TLSConfig(ca_file=str(ca_file) if ca_file.exists() else ""),
        auth=AuthConfig(token_file=str(token)),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        compress=False,
        environ=environ,
    )
