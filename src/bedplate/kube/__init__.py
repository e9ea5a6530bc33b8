"""The Kubernetes client: `config.load()` finds a cluster, `Client` talks to it."""

from bedplate.kube.client import Client
from bedplate.kube.codec import ListResult, WatchEvent
from bedplate.kube.config import ClientConfig
from bedplate.kube.options import PatchType

__all__ = ["Client", "ClientConfig", "ListResult", "PatchType", "WatchEvent"]
