"""The API server as the daemon's caches see it: lists that also tell whether it is there at all.

In: a client. Out: lists and watches for reflectors; `Readiness` hears of every answer and of its absence. A cluster
without the custom resource of a kind of pool has no such pools.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

from bedplate.api.resources import ResourceRef
from bedplate.core import errors, logging
from bedplate.ipam.node.readiness import Readiness
from bedplate.ipam.pools import GROUP
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client, ListResult
from bedplate.kube.codec import WatchEvent

__all__ = ["ApiSource"]

T = TypeVar("T")
# `list` is a verb inside the class, so its types are named out here.
Batch = list[WatchEvent[Any]]
log = logging.get_logger("ipam.node")
# A server that is only slow may know of another block than the store: it is waited for nearly as long as plugins wait.
PATIENCE_S = 4.0


class ApiSource:
    """What reflectors read from."""

    def __init__(self, client: Client, readiness: Readiness) -> None:
        self._client = client
        self._readiness = readiness
        self._listed: set[str] = set()

    async def list(
        self, ref: ResourceRef[T], namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> ListResult[T]:
        """A complete list."""
        loop = asyncio.get_running_loop()
        impatience = loop.call_later(PATIENCE_S, self._readiness.unanswered, f"no answer for {PATIENCE_S:g} s")
        try:
            listed = await self._client.list(
                ref, namespace, label_selector=label_selector, field_selector=field_selector
            )
        except kube_errors.NotFound as err:
            self._readiness.answered()
            if ref.group != GROUP or ref.plural in self._listed:
                raise
            log.warning("pools.no_resource", resource=str(ref), error=str(err), effect="there are no such pools")
            listed = ListResult([], "")
        except errors.Retryable as err:
            self._readiness.unanswered(str(err))
            raise
        except errors.Terminal as err:
            self._readiness.refused(str(err))
            raise
        finally:
            impatience.cancel()
        self._listed.add(ref.plural)
        self._readiness.answered()
        return listed

    def watch_batches(
        self,
        ref: ResourceRef[T],
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[Batch, None]:
        """Changes since then."""
        return self._client.watch_batches(
            ref,
            namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
        )
