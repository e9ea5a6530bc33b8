"""Configuration of a program that runs in a pod: the service account's files and the environment.

In: environment values. Out: a `ClientConfig`. The token file rotates; the credentials read it again by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bedplate.core import errors
from bedplate.kube.config import AuthConfig, ClientConfig, TLSConfig

__all__ = ["SERVICE_ACCOUNT_FOLDER", "is_available", "load"]

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def is_available(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT_FOLDER) -> bool:
    """Whether this process runs in a pod with a service account."""
    return (
        bool(environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT"))
        and (folder / "token").exists()
    )


def load(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT_FOLDER) -> ClientConfig:
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
