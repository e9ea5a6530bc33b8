"""Carrying out the steps of `plan`, one at a time, each decided on the cloud's latest answer.

Attaching and detaching are asynchronous in Oxide: the answer is `202`, and while an instance or an address is in
transition further requests are refused (400, 409, 503). So after each of them the address is read until it shows the
effect, and a refusal is followed by a fresh look and another decision, a few times; then the Service waits its turn
(`RetryError`) and holds up nobody.

A floating IP known from a list only is read again before it is changed or deleted: lists may be old, and ownership has
to be certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bedplate.cloud.errors import CloudError, RetryError
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.providers.oxide import models, ownership, plan, providerid, wants
from bedplate.cloud.providers.oxide.api import Api, NameTaken, is_absence
from bedplate.cloud.providers.oxide.seats import Refusals
from bedplate.core import clock
from bedplate.core.logging import get_logger

__all__ = ["Carrier", "Seen"]

log = get_logger("cloud.oxide")
TRIES = 4
FIRST_WAIT_S = 0.25
REFUSED_WAIT_S = 1.0
RETRY_S = 5.0
UNANSWERED_S = 60.0
_IN_TRANSITION = (http_errors.Invalid, http_errors.Conflict, http_errors.Unavailable, http_errors.NotFound)


class Seen:
    """The project's floating IPs as far as they are known; `fresh` ones were read one by one, or answered just now."""

    def __init__(self, listed: Iterable[models.FloatingIp]) -> None:
        self._by_id = {ip.id: ip for ip in listed}
        self._fresh: set[str] = set()

    @property
    def ips(self) -> tuple[models.FloatingIp, ...]:
        return tuple(self._by_id.values())

    def is_fresh(self, ip: models.FloatingIp) -> bool:
        return ip.id in self._fresh

    def named(self, name_or_id: str) -> models.FloatingIp | None:
        return next((ip for ip in self.ips if ip.name == name_or_id or providerid.same(ip.id, name_or_id)), None)

    def put(self, ip: models.FloatingIp) -> None:
        """Take in what the cloud has just said of one."""
        self._by_id[ip.id] = ip
        self._fresh.add(ip.id)

    def drop(self, id_: str) -> None:
        """It is gone."""
        self._by_id.pop(id_, None)
        self._fresh.discard(id_)


class Carrier:
    """Carries out steps for one Service at a time; many may run side by side."""

    def __init__(self, api: Api, time: clock.Clock, refusals: Refusals, *, is_dry_run: bool = False) -> None:
        self._api = api
        self._time = time
        self._refusals = refusals
        self._is_dry_run = is_dry_run
        self._unanswered: dict[str, float] = {}

    def may_have_made(self, owner: ownership.Owner) -> bool:
        """Whether a floating IP may yet appear, because a request to make one had no answer a short while ago."""
        asked_at = self._unanswered.get(owner.service)
        if asked_at is not None and self._time.monotonic() >= asked_at + UNANSWERED_S:
            del self._unanswered[owner.service]
            asked_at = None
        return asked_at is not None

    async def claim(self, next_claim: Callable[[], plan.Update | None], seen: Seen) -> None:
        """Write records as long as there is one to write, see `plan.next_claim`."""
        refusals = _Refused()
        for _ in range(plan.MAX_STEPS):
            step = next_claim()
            if step is None:
                return
            if self._is_dry_run:
                self._show(step)
                seen.put(plan.predict(step, (step.ip,))[0])
                continue
            refusals.note(await self.carry_out(step, seen))
            if refusals.are_enough:
                break
        raise RetryError(f"the floating IPs of the Service cannot be taken over yet{refusals}", RETRY_S)

    async def settle(self, want: plan.Want, seen: Seen) -> plan.Want:
        """Bring the Service's floating IPs to what is wanted; the `Want` returned says what was given up on the way."""
        if self._is_dry_run:
            for planned in plan.plan(want, seen.ips):
                self._show(planned)
            return want
        refusals = _Refused()
        for _ in range(plan.MAX_STEPS):
            step = plan.next_step(want, seen.ips)
            if step is None:
                return want
            try:
                refusals.note(await self.carry_out(step, seen))
            except CloudError as err:
                if not isinstance(step, plan.Create) or step.slot.is_required:
                    raise
                log.warning("oxide.family_missing", family=step.slot.family, floating_ip=step.name, error=str(err))
                want = replace(want, failed=want.failed | {step.slot})
            if refusals.are_enough:
                slot = _slot_of(step, want, seen)
                if slot is None or slot.is_required:
                    raise RetryError(f"the cloud is not ready for this: {_text(step)}{refusals}", RETRY_S)
                log.warning("oxide.family_missing", family=slot.family, error=f"{_text(step)}{refusals}")
                want, refusals = replace(want, failed=want.failed | {slot}), _Refused()
        raise RetryError(f"the floating IPs of the Service did not reach a stable state{refusals}", RETRY_S)

    async def remove(
        self,
        owner: ownership.Owner,
        ip: models.FloatingIp,
        seen: Seen,
        *,
        is_retained: bool = False,
        is_renamed: bool = True,
    ) -> None:
        """Detach a floating IP of this Service and delete it, give it back, or keep it."""
        refusals = _Refused()
        for _ in range(plan.MAX_STEPS):
            # Looked up each time: what the cloud answered may no longer be this Service's.
            current = next((own for own in plan.owned(owner, seen.ips) if own.id == ip.id), None)
            step = None if current is None else plan.removal(current, is_retained=is_retained, is_renamed=is_renamed)
            if step is None:
                return
            if self._is_dry_run:
                self._show(step)
                return
            refusals.note(await self.carry_out(step, seen))
            if refusals.are_enough:
                break
        raise RetryError(f"the floating IP {ip.name} ({ip.ip}) cannot be released yet{refusals}", RETRY_S)

    async def carry_out(self, step: plan.Step, seen: Seen) -> http_errors.ApiError | None:
        """Do one step and take in the answer, or the refusal it met, which is returned: decide again."""
        if not isinstance(step, plan.Create) and not await self._is_certain(step.ip, seen):
            return None
        log.info("oxide.step", **plan.describe(step))
        try:
            if isinstance(step, plan.Create):
                await self._create(step, seen)
            elif isinstance(step, plan.Delete):
                if not await self._api.floating_ip_delete(step.ip.id):
                    await self._api.project_view()
                seen.drop(step.ip.id)
            elif isinstance(step, plan.Update):
                await self._update(step, seen)
            elif isinstance(step, plan.Attach):
                answer = await self._api.floating_ip_attach(step.ip.id, step.instance)
                await self._await_effect(answer, step.instance, seen)
            else:
                await self._await_effect(await self._api.floating_ip_detach(step.ip.id), None, seen)
        except _IN_TRANSITION as err:
            if isinstance(step, plan.Create):
                raise
            await self._look_again(step, err, seen)
            return err
        return None

    async def _create(self, step: plan.Create, seen: Seen) -> None:
        allocators = list(step.slot.allocators)
        while True:
            allocator = allocators.pop(0)
            try:
                seen.put(await self._request(step, allocator))
                return
            except NameTaken:
                # Made by an earlier attempt whose answer was lost, or hidden from us by an old list.
                ip = await self._api.floating_ip_view(step.name, is_name=True)
                if ip is None:
                    raise
                seen.put(ip)
                return
            except http_errors.Invalid:
                if not allocators:
                    raise

    async def _request(self, step: plan.Create, allocator: Mapping[str, Any]) -> models.FloatingIp:
        """Ask the cloud to make one; until it has answered for certain, it may have been made."""
        record = ownership.parse(step.description)
        service = record.owner.service if record is not None else ""
        self._unanswered[service] = self._time.monotonic()
        try:
            ip = await self._api.floating_ip_create(step.name, step.description, allocator)
        except (NameTaken, http_errors.Invalid, http_errors.Conflict, http_errors.NotFound, http_errors.Forbidden):
            del self._unanswered[service]
            raise
        del self._unanswered[service]
        return ip

    async def _update(self, step: plan.Update, seen: Seen) -> None:
        try:
            seen.put(await self._api.floating_ip_update(step.ip.id, step.name, step.description))
        except NameTaken:
            # The name is taken, unknown to us so far. Look it up, so that the next decision knows.
            ip = await self._api.floating_ip_view(step.name or "", is_name=True)
            if ip is None:
                raise
            seen.put(ip)

    async def _await_effect(self, answer: models.FloatingIp, instance: str | None, seen: Seen) -> None:
        """Read the floating IP until it is where it should be."""
        wait_s = FIRST_WAIT_S
        current: models.FloatingIp | None = answer
        for _ in range(TRIES + 1):
            await self._take_in(answer.id, current, seen)
            if current is None or _is_at(current, instance):
                return
            await self._time.sleep(wait_s)
            wait_s *= 2
            current = await self._api.floating_ip_view(answer.id)
        raise RetryError(f"the floating IP {answer.name} ({answer.ip}) is being attached or detached", RETRY_S)

    async def _look_again(self, step: plan.Change, err: http_errors.ApiError, seen: Seen) -> None:
        """After a refusal: what is true now? An instance that refuses is not the first to be tried next time."""
        if isinstance(err, http_errors.NotFound) and not is_absence(err):
            raise err
        if isinstance(step, plan.Attach) and isinstance(err, http_errors.Invalid | http_errors.NotFound):
            self._refusals.add(step.instance)
        log.v(2).info("oxide.refused", **plan.describe(step), error=str(err))
        if err.retry_after_s is not None and err.retry_after_s > RETRY_S:
            raise RetryError(str(err), err.retry_after_s) from err
        await self._time.sleep(REFUSED_WAIT_S)
        await self._take_in(step.ip.id, await self._api.floating_ip_view(step.ip.id), seen)

    async def _is_certain(self, ip: models.FloatingIp, seen: Seen) -> bool:
        """Whether it is as we believe; what is known from a list only is read first."""
        if seen.is_fresh(ip):
            return True
        current = await self._api.floating_ip_view(ip.id)
        await self._take_in(ip.id, current, seen)
        return current == ip

    async def _take_in(self, id_: str, current: models.FloatingIp | None, seen: Seen) -> None:
        """What the cloud says of one. It is gone only while the project is there: Oxide hides what one may not see."""
        if current is not None:
            seen.put(current)
            return
        await self._api.project_view()
        seen.drop(id_)

    def _show(self, step: plan.Step) -> None:
        log.info("oxide.dry_run", **plan.describe(step))


class _Refused:
    """The refusals that the steps for one Service have met; as text, what the last one said."""

    def __init__(self) -> None:
        self._errors: list[http_errors.ApiError] = []

    def note(self, error: http_errors.ApiError | None) -> None:
        if error is not None:
            self._errors.append(error)

    @property
    def are_enough(self) -> bool:
        return len(self._errors) >= TRIES

    def __str__(self) -> str:
        return f": {self._errors[-1]}" if self._errors else ""


def _is_at(ip: models.FloatingIp, instance: str | None) -> bool:
    return providerid.same(ip.instance_id, instance) if instance is not None else not ip.instance_id


def _slot_of(step: plan.Step, want: plan.Want, seen: Seen) -> wants.Slot | None:
    """The slot that a step is for; None when it is for none."""
    if isinstance(step, plan.Create):
        return step.slot
    assigned = plan.assign(want, plan.owned(want.owner, seen.ips))
    return next((slot for slot, ip in assigned.items() if ip.id == step.ip.id), None)


def _text(step: plan.Step) -> str:
    return " ".join(f"{key}={value}" for key, value in plan.describe(step).items())
