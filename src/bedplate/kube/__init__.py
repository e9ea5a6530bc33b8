"""The Kubernetes client: `config.load()` finds a cluster, `Client` talks to it."""

from bedplate.kube.client import Client, ListResult
from bedplate.kube.codec import WatchEvent
from bedplate.kube.config import ClientConfig
from bedplate.kube.options import PatchType

__all__ = ["Client", "ClientConfig", "ListResult", "PatchType", "WatchEvent"]
