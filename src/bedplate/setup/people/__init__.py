"""User management of `cm-kubernetes-setup`: `perform` carries out one `Request`."""

from __future__ import annotations

from typing import TextIO

from bedplate.setup.people.request import Action, Cluster, Request

__all__ = ["Action", "Cluster", "Request", "perform"]


def perform(request: Request, out: TextIO) -> int:
    """Carry out a request; the exit code. Results go to `out`, an error to standard error. Not in a running loop."""
    # Imported when it is called, so that `--help` of the program does not pay for the client.
    from bedplate.setup.people import actions

    return actions.perform(request, out)
