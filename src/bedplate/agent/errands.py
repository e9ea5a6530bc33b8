"""What is to be done once: restarts of the machine, transfers of software images, kubeadm, pulls of container images,
the care for a cluster.

In: requests of the head. Out: each is written down, told as accepted, carried out and told as ended, in that order;
whatever comes in between, it is not carried out a second time. The head is also told, once, that the machine started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from bedplate.agent.care import Care
from bedplate.agent.images import Done, Transfers
from bedplate.agent.kubeadm import Kubeadm
from bedplate.agent.news import cut
from bedplate.agent.node import Node
from bedplate.agent.power import Power, boot_id
from bedplate.agent.pulls import Pulls
from bedplate.agent.state import Boot, Errand, StateProblem
from bedplate.agent.upkeep import Upkeep
from bedplate.api import headapi
from bedplate.api.desired import Desired
from bedplate.api.desired import Errand as Asked
from bedplate.core import errors
from bedplate.core.logging import get_logger

__all__ = ["Errands", "SwitchedOff"]

_LOG = get_logger("agent")


class SwitchedOff(errors.Terminal):
    """The head asked to switch the node off: the agent of a sandbox ends."""


class Errands:
    """One after the other. When a transfer is over the upkeep puts right what it took away."""

    def __init__(self, node: Node, upkeep: Upkeep) -> None:
        self._node = node
        self._head = node.head
        self._effects = node.effects
        self._state = node.effects.state
        self._upkeep = upkeep
        self._power = Power(node.effects.root, node.effects.services, node.effects.run)
        self._kubeadm = Kubeadm(node.effects, node.clock)
        self._pulls = Pulls(node.effects)
        self._care = Care(node.effects, node.head, node.clock)
        self._images = Transfers(node.effects.root, node.effects.state, node.head, node.clock)

    async def run(self, desired: Desired) -> bool:
        """Carry out what is to be done once. Each is written down, told as accepted, carried out and told as ended, in
        that order; whatever comes in between, it is not carried out a second time. Whether nothing is left to do or to
        tell: the head has to be asked again where something is."""
        is_told = True
        for errand in desired.errands:
            # What it is about goes to the disk, logins do not.
            work = msgspec.structs.replace(errand, logins=()) if errand.is_lasting else None
            known = self._state.errands().get(errand.id) or Errand("noted", errand.kind, boot_id(), work=work)
            if known.state != "noted":
                continue
            try:
                self._state.save_errand(errand.id, known)
                told = headapi.ErrandTold(id=errand.id, state="accepted")
                await self._head.report(headapi.ReportRequest(errands=[told]))
                self._state.save_errand(errand.id, msgspec.structs.replace(known, state="accepted"))
            except (errors.BedplateError, StateProblem) as err:
                # Nothing was done yet.
                _LOG.warning("agent.errand.later", id=errand.id, error=str(err))
                return False
            _LOG.info("agent.errand", kind=errand.kind, id=errand.id)
            if errand.is_lasting:
                is_told = await self._last(errand, known, desired)
                continue
            async with self._node.working:
                why = await self._power.use(errand.kind, self._node.services)
            if self._effects.root.is_machine and not why:
                # The machine goes down; the next run of it tells the end.
                continue
            self._end(errand.id, known, why)
            if not why:
                # In a sandbox that was a start of the machine.
                self._state.save_boot(msgspec.structs.replace(self._state.boot(), id=errand.id))
            is_told = await self._tells(self.tell)
            if errand.kind == "off" and not why:
                raise SwitchedOff("the head asked to switch this node off")
            is_told = await self._tells(self.tell_boot) and is_told
        return is_told

    async def _tells(self, what: Callable[[], Awaitable[None]]) -> bool:
        """Tell the head something; where it cannot be told now, it is told before the head is asked again."""
        try:
            await what()
        except errors.BedplateError as err:
            _LOG.v(2).info("agent.errand.untold", error=str(err))
            return False
        return True

    async def _last(self, work: Asked, known: Errand, desired: Desired) -> bool:
        """Copy an image here, or this node into one, run kubeadm, or take care of a cluster; nothing else changes the
        machine meanwhile. What an update took away that should be here comes back at once. Whether the head knows the
        end."""

        async def tell(text: str) -> None:
            told = headapi.ErrandTold(id=work.id, state="accepted", text=cut(text))
            try:
                await self._head.report(headapi.ReportRequest(errands=[told]))
            except errors.BedplateError as err:
                _LOG.v(2).info("agent.transfer.untold", error=str(err))

        async with self._node.working:
            if work.kind == "kubeadm":
                done = await self._kubeadm.run(work, tell)
            elif work.kind == "pullimages":
                done = await self._pulls.run(work, tell)
            elif work.kind == "care":
                done = await self._care.run(work, tell)
            else:
                done = await self._images.run(work, desired, tell)
        self._end(work.id, known, done.why, done)
        _LOG.info("agent.errand.over", kind=work.kind, about=work.image or work.cluster, why=done.why, text=done.text)
        if work.write and work.kind == "imageupdate":
            await self._upkeep.repair(is_whole=True)
        return await self._tells(self.tell)

    async def resume(self, desired: Desired) -> bool:
        """Go on with what an agent before this one began. Whether the head knows its end."""
        is_told = True
        for errand in self._state.errands().values():
            if errand.state == "accepted" and errand.work is not None:
                is_told = await self._last(errand.work, errand, desired)
        return is_told

    async def tell_boot(self) -> None:
        """Tell the head, once, that the machine has started; the first run of an agent does not count as one."""
        boot = self._state.boot()
        now = boot_id() if self._effects.root.is_machine else boot.id
        if now == boot.told:
            return
        if boot.told or not self._effects.root.is_machine:
            await self._head.report(headapi.ReportRequest(booted=True))
        self._state.save_boot(Boot(now, now))

    def _end(self, id_: str, errand: Errand, why: str | None, done: Done | None = None) -> None:
        text = why or (done.text if done is not None else "")
        state: Literal["done", "failed"] = "failed" if why else "done"
        lines = tuple(cut(line) for line in done.lines) if done is not None else ()
        after = msgspec.structs.replace(errand, state=state, text=cut(text), lines=lines, work=None)
        self._state.save_errand(id_, after)

    async def tell(self) -> None:
        """Tell the end of requests that the head does not know yet; those of an earlier run of the machine are done."""
        for id_, errand in self._state.errands().items():
            if errand.state == "accepted" and errand.work is None:
                is_new_run = errand.boot != boot_id()
                self._end(id_, errand, None if is_new_run else "the agent ended before it was carried out")
        for id_, errand in self._state.errands().items():
            if errand.state in ("done", "failed") and not errand.is_told:
                state: Literal["done", "failed"] = "done" if errand.state == "done" else "failed"
                told = headapi.ErrandTold(id=id_, state=state, text=errand.text, lines=list(errand.lines))
                await self._head.report(headapi.ReportRequest(errands=[told]))
                self._state.save_errand(id_, msgspec.structs.replace(errand, is_told=True, lines=()))
