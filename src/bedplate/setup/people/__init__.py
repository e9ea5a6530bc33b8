"""User management of `cm-kubernetes-setup`: `perform` carries out one `Request`."""

from bedplate.setup.people.request import Action, Cluster, Request

__all__ = ["Action", "Cluster", "Request"]
