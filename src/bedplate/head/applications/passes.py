"""One pass over one application: apply, wait for definitions, apply the rest, delete what left.

In: the plan, the record, a server. Out: the next record, and what happened on the way. An object that fails does not
stop the others; nothing is deleted from an enabled application while one of its objects fails, so that a broken change
does not take away what works. A server that cannot be asked at all ends the pass, and says nothing about objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from typing import Any, Literal

import msgspec

from bedplate.api import meta
from bedplate.api.resources import CRDS, ResourceRef
from bedplate.core import errors
from bedplate.head.applications.applying import Applier, is_away
from bedplate.head.applications.kinds import Served
from bedplate.head.applications.manifests import Manifest
from bedplate.head.applications.planning import Plan, Wanted, rank
from bedplate.head.applications.pruning import Fate, Pruner
from bedplate.head.applications.records import Application, Item, Trouble, item_of
from bedplate.head.notices import one_line
from bedplate.kube import errors as kube_errors

__all__ = ["Pass"]

Save = Callable[[Application], Awaitable[None]]
_LONGEST = 400


class Pass:
    """`run` gives the next record; None for an application that has nothing left."""

    def __init__(
        self, record: Application, application: Wanted | None, plan: Plan, applier: Applier, pruner: Pruner, save: Save
    ) -> None:
        self._record = record
        self._wanted = application
        self._plan = plan
        self._applier = applier
        self._pruner = pruner
        self._save = save
        self._own: dict[Item, ResourceRef[Any]] = {}
        self._failures: list[Trouble] = []
        self.applied: dict[Item, meta.ObjectMeta] = {}
        """What was applied, as the server has it now."""
        self.deleted: list[Item] = []
        self.kept: list[tuple[Item, str]] = []
        self.going: list[tuple[Item, str]] = []

    @property
    def kinds(self) -> Iterable[ResourceRef[Any]]:
        """The kinds of the application's objects."""
        return set(self._own.values())

    async def run(self) -> Application | None:
        if self._wanted is not None:
            self._failures += [Trouble("", f"config: {problem}") for problem in self._wanted.problems]
            self._failures += [
                Trouble(str(manifest), f"it is also in application {other}, which comes first")
                for manifest, other in self._plan.refused
            ]
        await self._apply(self._plan.first)
        await self._apply(self._plan.rest)
        left = {item: None for item in self._record.objects if item not in self._own}
        for item in self._plan.handed:
            left.pop(item, None)
        if self._wanted is None or not self._failures:
            for item in await self._delete():
                left.pop(item, None)
        objects = (*self._own, *left)
        if self._wanted is None and not objects:
            return None
        return msgspec.structs.replace(
            self._record,
            state=self._state(),
            objects=objects,
            failures=tuple(self._failures),
            warnings=self._warnings(),
        )

    def _state(self) -> Literal["applied", "failed", "removing"]:
        if self._failures:
            return "failed"
        return "applied" if self._wanted is not None else "removing"

    def _warnings(self) -> tuple[str, ...]:
        unknown = self._wanted.unknown if self._wanted is not None else ()
        names = [f"${name} has no value and was left unchanged" for name in unknown]
        return (*names, *(f"{item}: {why}" for item, why in self.going))

    async def _apply(self, manifests: Iterable[Manifest]) -> None:
        resolved: list[tuple[Manifest, Item, Served]] = []
        for manifest in manifests:
            try:
                served = await self._applier.served(manifest)
            except errors.BedplateError as err:
                self._fail(str(manifest), err)
                continue
            resolved.append((manifest, item_of(manifest, namespaced=served.ref.namespaced), served))
        if not resolved:
            return
        self._own.update((item, served.ref) for _, item, served in resolved)
        await self._intend()
        for manifest, item, served in resolved:
            try:
                self.applied[item] = (await self._applier.apply(manifest, served)).metadata
            except errors.BedplateError as err:
                self._fail(str(item), err)
        for item in [item for _, item, _ in resolved if (item.group, item.kind) == (CRDS.group, CRDS.kind)]:
            if item in self.applied:
                try:
                    await self._applier.established(item.name)
                except errors.BedplateError as err:
                    self._fail(str(item), err)

    async def _intend(self) -> None:
        """Record objects before they are there."""
        known = set(self._record.objects)
        more = [item for item in self._own if item not in known]
        if more:
            self._record = msgspec.structs.replace(self._record, objects=(*self._record.objects, *more))
            await self._save(self._record)

    async def _delete(self) -> list[Item]:
        """What is the application's no more. The next kinds wait until those before them are gone: who looks after a
        custom resource must outlive it."""
        done: list[Item] = []
        for _, items in groupby(self._plan.delete, key=lambda item: rank(item.group, item.kind)):
            for item in items:
                try:
                    fate, why = await self._pruner.delete(item)
                except errors.BedplateError as err:
                    self._fail(str(item), err)
                    continue
                if fate is Fate.GOING:
                    self.going.append((item, why))
                    continue
                done.append(item)
                if fate is Fate.KEPT:
                    self.kept.append((item, why))
                else:
                    self.deleted.append(item)
            if self.going or self._failures:
                break
        return done

    def _fail(self, what: str, err: errors.BedplateError) -> None:
        """Note a failure of one object; raises it where it is not about the object."""
        if is_away(err):
            raise err
        text = err.status.message if isinstance(err, kube_errors.ApiError) and err.status.message else str(err)
        hint = f"; {err.hint}" if err.hint else ""
        self._failures.append(Trouble(what, one_line(f"{text}{hint}", _LONGEST)))
