"""Whether the daemon can do its work, waiting until it can, and whether the API server is there at all.

In: what the parts report; a client. Out: readiness for the probe and for calls; lists and watches for reflectors, by
which `Readiness` hears of every answer and of its absence. Ready means: the store is loaded, the caches hold complete
lists, the socket is bound, and nothing that was lost waits to be found again. While another daemon serves the node,
store and socket are that one's: the caches are enough, and the other one may be told to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from bedplate.api.resources import ResourceRef
from bedplate.core import errors, logging
from bedplate.ipam.pools import GROUP
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.codec import ListResult, WatchEvent
from bedplate.runtime.cache import Cache

__all__ = ["ApiSource", "NotReady", "Readiness"]

T = TypeVar("T")
# `list` is a verb inside `ApiSource`, so its types are named out here.
Batch = list[WatchEvent[Any]]
log = logging.get_logger("ipam.node")
# A server that is only slow may know of another block than the store: it is waited for nearly as long as plugins wait.
PATIENCE_S = 4.0


class NotReady(errors.Unavailable):
    """A part of the daemon is not ready yet."""


class Readiness:
    """The state of one daemon. Everything happens on one event loop."""

    def __init__(self) -> None:
        self.pool_caches: tuple[Cache[Any], ...] = ()
        self.pod_caches: tuple[Cache[Any], ...] = ()
        self.has_store = False
        self.has_socket = False
        self.is_standing_by = False
        """Another daemon serves this node."""
        self.is_away = False
        """The API server did not answer so far: what the store remembers has to do."""
        self.must_recover = False
        self.refusal = ""
        """Why the API server does not let pools be read, if it does not."""
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def has_pools(self) -> bool:
        """Every pool was listed once."""
        return bool(self.pool_caches) and all(cache.synced.is_set() for cache in self.pool_caches)

    @property
    def has_pods(self) -> bool:
        """This node's pods were listed once."""
        return bool(self.pod_caches) and all(cache.synced.is_set() for cache in self.pod_caches)

    def changed(self) -> None:
        """Let everybody who waits look again."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    def answered(self) -> None:
        """The API server has answered."""
        self.refusal = ""
        if self.is_away:
            self.is_away = False
            log.info("apiserver.back")
            self.changed()

    def refused(self, reason: str) -> None:
        """The API server has answered that it will not answer."""
        self.answered()
        self.refusal = reason
        self.changed()

    def unanswered(self, reason: str) -> None:
        """The API server has not responded, or not in time."""
        if not self.is_away:
            self.is_away = True
            level = log if not self.has_pools else log.v(2)
            level.warning("apiserver.away", error=reason, effect="pools recorded in the store are served")
            self.changed()

    async def wait(self, is_enough: Callable[[], bool], until: float) -> bool:
        """Wait until the condition holds, or until that loop time; whether it holds."""
        loop = asyncio.get_running_loop()
        while not is_enough():
            left = until - loop.time()
            if left <= 0:
                return False
            change: asyncio.Future[None] = loop.create_future()
            self._waiting.add(change)
            try:
                await asyncio.wait((change,), timeout=left)
            finally:
                self._waiting.discard(change)
        return True

    def check_store(self) -> None:
        """Raise unless the store is loaded and whole."""
        if self.is_standing_by:
            return
        if not self.has_store:
            raise NotReady("the store is not loaded")
        if self.must_recover:
            raise NotReady("the store was damaged, and the addresses that pods hold have not been read yet")

    def check_caches(self) -> None:
        """Raise unless everything was listed once."""
        if not self.has_pools:
            raise NotReady("pools have not been listed yet")
        if not self.has_pods:
            raise NotReady("pods have not been listed yet")

    def check_socket(self) -> None:
        """Raise unless calls can arrive."""
        if not self.has_socket and not self.is_standing_by:
            raise NotReady("the socket is not bound")

    def note(self) -> str:
        """What a reader of the probe should know besides."""
        return "stand-by: another daemon serves this node" if self.is_standing_by else ""

    @property
    def is_ready(self) -> bool:
        """All of it."""
        return self.has_store and not self.must_recover and self.has_pools and self.has_pods and self.has_socket


class ApiSource:
    """What reflectors read from. A cluster without the custom resource of a kind of pool has no such pools."""

    def __init__(self, client: Client, readiness: Readiness) -> None:
        self._client = client
        self._readiness = readiness
        self._listed: set[str] = set()

    async def list(
        self, ref: ResourceRef[T], namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> ListResult[T]:
        """A complete list. Others than pools wait for the pools, which the first call needs."""
        state = self._readiness
        until = asyncio.get_running_loop().time() + PATIENCE_S
        if ref.group != GROUP and state.pool_caches and not state.has_pools:
            await state.wait(lambda: state.has_pools or state.is_away or bool(state.refusal), until)
        loop = asyncio.get_running_loop()
        impatience = loop.call_later(PATIENCE_S, self._readiness.unanswered, f"no response for {PATIENCE_S:g} s")
        try:
            listed = await self._client.list(
                ref, namespace, label_selector=label_selector, field_selector=field_selector
            )
        except kube_errors.NotFound as err:
            self._readiness.answered()
            if ref.group != GROUP or ref.plural in self._listed:
                raise
            log.warning("pools.no_resource", resource=str(ref), error=str(err), effect="no pool of this type is served")
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
