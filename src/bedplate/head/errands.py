"""What people ask a machine to do once: to reboot, to switch off or to take over its image, by its agent; to switch on,
by its controller.

In: requests of people for nodes, what agents say about them, the time. Out: what each node has still to do, which its
agent gets with its desired state; notices of what became of it. A request has an id: an agent that has written the id
down says `accepted`, and is not asked again, whatever happens to either side; after the reboot it says `done`. One that
nobody accepts in time is given up, so that a machine that was away for a week does not reboot when it comes back.
What lasts, a transfer of an image or kubeadm, is told as accepted again and again, with how far it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from bedplate.api.desired import Errand, Login
from bedplate.api.headapi import ErrandKind, ErrandState, ErrandTold
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.book import Book, Change, again, write
from bedplate.head.notices import News, Notices, one_line
from bedplate.head.service import Head
from bedplate.store.interface import Store

__all__ = ["ERRANDS", "Controller", "Errands"]

ERRANDS: Final = "/head/errands/"
_LOG = get_logger("head.errands")
_KEPT = timedelta(days=1)
_ACCEPTED_FOR = timedelta(hours=1)
_WORDS = {
    "reboot": "reboot",
    "off": "switch off",
    "on": "switch on",
    "reset": "reset",
    "imageupdate": "update its software image",
    "grabimage": "give its software image",
    "kubeadm": "run kubeadm",
    "pullimages": "pull container images",
    "care": "take care of",
}
_CARES = {
    "inspect": "tell how it stands as a node",
    "renew": "renew its certificates",
    "snapshot": "give a snapshot of etcd",
    "fetch": "unpack a snapshot of etcd",
    "drop": "drop the unpacked snapshot of etcd",
    "halt": "halt the API server",
    "replace": "replace the data of etcd",
    "put-back": "put back the former data of etcd",
    "go-on": "go on with the API server",
}
_BATCH = 50

Controller = Callable[[str], Awaitable[str | None]]
"""Switches the machine of a node on; None, or why it could not."""


class Errands:
    """All requests to agents. Only the active head takes them."""

    def __init__(
        self, store: Store, head: Head, notices: Notices, *, clock: Clock, nonce: Callable[[], str] | None = None
    ) -> None:
        self._store = store
        self._head = head
        self._notices = notices
        self._clock = clock
        self._nonce = nonce or (lambda: uuid.uuid4().hex[:16])
        self._by_node: dict[str, dict[str, ErrandState]] = {}
        self._logins: dict[str, tuple[Login, ...]] = {}
        self.listeners: list[Callable[[Iterable[str]], None]] = []
        """Called with nodes whose requests changed."""
        self.controller: Controller | None = None
        """What stands in for the management controllers of the machines; None: there is none."""
        self.beside: Callable[[ErrandState], Sequence[Change]] = lambda errand: ()
        """What is written together with what became of a request."""
        self.book = Book(store, ERRANDS, ErrandState)
        self.book.listen(self._index)

    def _index(self, id_: str) -> None:
        errand = self.book.get(id_)
        if errand is None or errand.state != "waiting":
            # Whoever has accepted it has the logins, and needs them no more.
            self._logins.pop(id_, None)
        if errand is not None:
            self._by_node.setdefault(errand.node, {})[id_] = errand
            for listener in self.listeners:
                listener([errand.node])
            return
        for node, errands in list(self._by_node.items()):
            if errands.pop(id_, None) is not None and not errands:
                del self._by_node[node]

    def of(self, node: str) -> tuple[Errand, ...]:
        """What a node has still to do, in the order in which it was asked."""
        errands = self._by_node.get(node)
        if not errands:
            return ()
        now = self._clock.now()
        waiting = sorted((errand for errand in errands.values() if _is_open(errand, now)), key=_order)
        # Who is off cannot be asked to switch itself on.
        return tuple(_errand(errand, self._logins.get(errand.id, ())) for errand in waiting if errand.kind != "on")

    def transfers(self) -> Sequence[ErrandState]:
        """Transfers of images that wait or are under way, oldest first."""
        now = self._clock.now()
        return sorted(
            (
                errand
                for errand in self.book.items().values()
                if errand.is_transfer and (errand.state == "accepted" or _is_open(errand, now))
            ),
            key=_order,
        )

    def image(self, node: str) -> str:
        """What became of the last transfer of a node, in words; empty for none."""
        known = [errand for errand in self._by_node.get(node, {}).values() if errand.is_transfer and errand.write]
        if not known:
            return ""
        last = max(enumerate(known), key=lambda pair: (pair[1].asked, pair[0]))[1]
        if last.state == "accepted":
            return f"{last.image}: {last.text or 'begins'}"
        return f"{last.image}: {last.state}{f', {last.text}' if last.text else ''}"

    def list(self, nodes: Iterable[str] = ()) -> Sequence[ErrandState]:
        """The requests to nodes, or all, oldest first."""
        chosen = set(nodes)
        return sorted((item for item in self.book.items().values() if not chosen or item.node in chosen), key=_order)

    async def ask(
        self,
        nodes: Sequence[str],
        kind: ErrandKind,
        *,
        by: str,
        lasts_s: float,
        work: Mapping[str, Mapping[str, object]] | None = None,
        logins: Sequence[Login] = (),
    ) -> Sequence[ErrandState]:
        """Ask nodes to do something once; the same request that still waits is not made twice. `work` is what a
        transfer, kubeadm or a pull of each node is about. `logins` go to the nodes and nowhere else: a head that is
        started again does not know them. Raises `NotFound`."""
        self._head.standing.refuse_writes()
        if kind == "on" and self.controller is None:
            raise errors.Invalid(
                "a machine that is off has no agent that could switch it on",
                hint="use its management controller, or its power button",
            )
        for node in nodes:
            self._head.tree.get(("device", node))
        now = self._clock.now()
        asked: list[ErrandState] = []
        for start in range(0, len(nodes), _BATCH):
            fresh = []
            for node in nodes[start : start + _BATCH]:
                open_ = [errand for errand in self._by_node.get(node, {}).values() if _is_open(errand, now)]
                own = work[node] if work is not None else {}
                same = next((errand for errand in open_ if errand.kind == kind and _is_about(errand, own)), None)
                if same is None:
                    plain = ErrandState(
                        id=self._nonce(),
                        node=node,
                        kind=kind,
                        state="waiting",
                        asked=rfc3339(now),
                        until=rfc3339(now + timedelta(seconds=lasts_s)),
                        by=by,
                    )
                    same = msgspec.structs.replace(plain, **own)
                    fresh.append(same)
                if logins:
                    self._logins[same.id] = tuple(logins)
                asked.append(same)
            if fresh:
                await write(self._store, [self.book.change(errand.id, errand) for errand in fresh])
                await self._notices.add_all([News(item.node, _asked(item)) for item in fresh])
                _LOG.info("head.errands_asked", kind=kind, nodes=len(fresh), by=by)
        if kind == "on":
            asked = [await self._switch_on(errand) for errand in asked]
        return asked

    async def _switch_on(self, errand: ErrandState) -> ErrandState:
        assert self.controller is not None
        await self.told(errand.node, [ErrandTold(id=errand.id, state="accepted")])
        why = await self.controller(errand.node)
        ended = ErrandTold(id=errand.id, state="failed" if why else "done", text=(why or "")[:200])
        await self.told(errand.node, [ended])
        return self._by_node.get(errand.node, {}).get(errand.id, errand)

    async def told(self, node: str, told: Sequence[ErrandTold]) -> Sequence[ErrandState]:
        """Take what a node says about its requests; others' are none of its business. Those that changed."""
        moved = []
        for item in told:

            async def decide(item: ErrandTold = item) -> ErrandState | None:
                errand = self._by_node.get(node, {}).get(item.id)
                if errand is None or errand.state in ("done", "failed"):
                    return None
                is_progress, now = errand.state == item.state, self._clock.now()
                if is_progress and (not errand.is_lasting or _is_told(errand, item.text, now)):
                    return None
                changed = rfc3339(now)
                lines = [one_line(line) for line in item.lines] if item.state != "accepted" else []
                after = msgspec.structs.replace(errand, state=item.state, text=item.text, changed=changed, lines=lines)
                further = () if is_progress else self.beside(after)
                await write(self._store, [self.book.change(item.id, after), *further])
                return None if is_progress else after

            after = await again(decide)
            if after is not None:
                moved.append(after)
                await self._tell(after)
        return moved

    async def _tell(self, errand: ErrandState) -> None:
        what = _asked(errand)
        texts = {
            "accepted": f"{what}, and begins",
            "done": f"{what}, and has done it{f': {errand.text}' if errand.text else ''}",
            "failed": f"{what}, and could not: {errand.text or 'no reason given'}",
            "expired": f"{what}, and did not respond in time",
        }
        is_bad = errand.state in ("failed", "expired")
        await self._notices.add(errand.node, texts[errand.state], "warning" if is_bad else "notice")

    async def lapse(self) -> None:
        """Give up what nobody took in time, and forget what is over."""
        now = self._clock.now()
        for id_, errand in list(self.book.items().items()):
            is_late = errand.state == "waiting" and now >= parse_rfc3339(errand.until)
            is_lost = errand.state == "accepted" and now >= parse_rfc3339(errand.changed) + _ACCEPTED_FOR
            if is_late or is_lost:
                after = msgspec.structs.replace(errand, state="expired", changed=rfc3339(now))
            elif errand.changed and errand.state != "accepted" and now >= parse_rfc3339(errand.changed) + _KEPT:
                await write(self._store, [self.book.change(id_, None)])
                continue
            else:
                continue
            await write(self._store, [self.book.change(id_, after)])
            await self._tell(after)

    async def run(self) -> None:
        """Give up in time what nobody takes, while this head is the active one; runs until cancelled."""
        while True:
            if not self.book.items():
                await self.book.moved()
            if self._head.standing.is_active:
                try:
                    await self.lapse()
                except errors.Retryable as err:
                    _LOG.warning("head.errands_not_looked_at", error=str(err))
            await self._clock.sleep(5.0)

    async def forget(self, node: str) -> None:
        """Drop the requests to a node that was removed."""
        gone = [self.book.change(id_, None) for id_ in list(self._by_node.get(node, {}))]
        if gone:
            await write(self._store, gone)


def _is_open(errand: ErrandState, now: datetime) -> bool:
    return errand.state == "waiting" and now < parse_rfc3339(errand.until)


def _order(errand: ErrandState) -> tuple[str, str]:
    """Those of one second stay in the order in which they came."""
    return errand.asked, errand.node


def _asked(errand: ErrandState) -> str:
    what = _WORDS[errand.kind]
    if errand.is_transfer:
        how = "" if errand.write else ", as a trial" if errand.mode != "full" else ", in full, as a trial"
        how = ", in full" if errand.write and errand.mode == "full" else how
        what = f"{what} ({errand.image}{how})"
    if errand.kind == "kubeadm":
        what = f"{what} {errand.action} for the cluster {errand.cluster}"
    if errand.kind == "pullimages":
        what = f"{what} ({', '.join(errand.images[:3])}{', …' if len(errand.images) > 3 else ''})"
    if errand.kind == "care":
        what = f"{_CARES[errand.care]} of the cluster {errand.cluster}"
    return f"{errand.node} was asked by {errand.by} to {what}"


def _is_told(errand: ErrandState, text: str, now: datetime) -> bool:
    """Whether how far something is was written down within this second, and needs not be so again."""
    is_fresh = bool(errand.changed) and now - parse_rfc3339(errand.changed) < timedelta(seconds=1)
    return is_fresh and (bool(errand.text) or text == errand.text)


def _is_about(errand: ErrandState, work: Mapping[str, object]) -> bool:
    return all(getattr(errand, name) == value for name, value in work.items())


def _errand(state: ErrandState, logins: tuple[Login, ...]) -> Errand:
    """A request as its agent gets it."""
    assert state.kind != "on", "who is off has no agent"
    return Errand(
        id=state.id,
        kind=state.kind,
        image=state.image,
        mode=state.mode,
        write=state.write,
        delete=state.delete,
        confirmed=state.confirmed,
        action=state.action,
        cluster=state.cluster,
        images=tuple(state.images),
        logins=logins,
        version=state.version,
        care=state.care,
        snapshot=state.snapshot,
    )
