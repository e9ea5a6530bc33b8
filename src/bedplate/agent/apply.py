"""From one desired state to the next on a real machine: each step of `api.steps` is noted, done, and noted as done.

In: the state that holds and the one that should. Out: files, services and packages of the node, and the outcome. Where
the agent was killed in the middle, `resume` goes on: what is noted as done is not done again, a service that was
restarted already is known by its new run, everything else may be done twice without harm.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from bedplate.agent import trial
from bedplate.agent.commands import Run, run
from bedplate.agent.files import FileProblem, Present, Root, Written
from bedplate.agent.manifests import Manifests
from bedplate.agent.observe import Edits, Watch, content_digest
from bedplate.agent.packages import Packages
from bedplate.agent.services import Services
from bedplate.agent.sound import sound
from bedplate.agent.state import Change, Record, State, StateProblem, digest_of
from bedplate.api.desired import Desired, File, Service, block_of, merged
from bedplate.api.steps import Outcome, Step, walk
from bedplate.core import errors
from bedplate.core.logging import get_logger

__all__ = ["Applier", "Effects", "NoTurns", "Turns"]

_LOG = get_logger("agent.apply")
_SERVICE_S = 90.0


class Turns(Protocol):
    """Who of several nodes may restart a service now. Entering waits for the turn; leaving with an error is a brake
    for the others."""

    def take(self, serial: str, service: str) -> AbstractAsyncContextManager[object]: ...


class NoTurns:
    """For an agent that is alone."""

    def take(self, serial: str, service: str) -> AbstractAsyncContextManager[object]:
        return nullcontext()


@dataclass(frozen=True, slots=True)
class Effects:
    """What the agent does things with."""

    root: Root
    state: State
    services: Services
    packages: Packages
    run: Run = run
    turns: Turns = field(default_factory=NoTurns)
    edits: Edits = field(default_factory=Edits)
    again: Callable[[], Awaitable[None]] | None = None
    """Tries once more what the machine does without for now."""


class _Failure(Exception):
    """A step failed; the text says why."""


class Applier:
    """Carries out changes, one at a time. `on_step` is called with each step that was done or failed."""

    def __init__(
        self, effects: Effects, watch: Watch, on_step: Callable[[Step, str | None], None] | None = None
    ) -> None:
        self._root, self._state = effects.root, effects.state
        self._services, self._packages = effects.services, effects.packages
        self._run, self._turns, self._edits = effects.run, effects.turns, effects.edits
        self._manifests = Manifests(effects.root, effects.state)
        self._watch = watch
        self._on_step = on_step or (lambda step, why: None)
        self.kept: set[str] = set()
        """Paths that people changed and that were left as they are."""

    async def apply(self, before: Desired | None, after: Desired, etag: str | None = None) -> Outcome:
        """Make it so. The journal ends when its caller has written down what holds (`State.end`).

        Raises `StateProblem` when not even the intention can be noted."""
        ordered = self._ordered(after)
        possible, refused = sound(ordered)
        first = next(walk(before, possible), None)
        if first is None:
            return Outcome((), refused, possible if refused else after)
        change = Change(before, ordered, etag)
        self._state.begin(change)
        return await self._carry_out(change)

    async def resume(self) -> tuple[Change, Outcome] | None:
        """Finish a change that was under way when the agent ended; None when there was none."""
        change = self._state.resume()
        if change is None:
            return None
        _LOG.info(
            "agent.change.resumed", done=len(change.done), step=" ".join(change.started[:3]) if change.started else ""
        )
        for file in (*change.after.files, *(change.before.files if change.before is not None else ())):
            self._root.clear_trial(file.path)
        return change, await self._carry_out(change)

    def _ordered(self, after: Desired) -> Desired:
        """With services in the order in which they start."""
        names = self._services.ordered([service.name for service in sound(after)[0].services])
        places = {name: place for place, name in enumerate(names)}
        services = sorted(after.services, key=lambda service: places.get(service.name, len(places)))
        return msgspec.structs.replace(after, services=tuple(services))

    async def _carry_out(self, change: Change) -> Outcome:
        done = list(change.done)
        possible, refused = sound(change.after)
        going = walk(change.before, possible)
        try:
            step = next(going)
            while True:
                if step in done:
                    done.remove(step)
                    why = None
                else:
                    why = await self._step(step, change)
                step = going.send(why)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome._replace(failed=(*refused, *outcome.failed))

    async def _step(self, step: Step, change: Change) -> str | None:
        instance = ""
        try:
            if step.kind == "service":
                if change.started == step and await self._is_new_run(step, change.instance):
                    self._state.ended(step, None)
                    return None
                instance = await self._instance(step.name)
            self._state.started(step, instance)
            await self._act(step, change)
            why = None
        except (_Failure, StateProblem, FileProblem, OSError, ValueError, OverflowError) as err:
            # Of a value that the machine does not take, the system says so in its own words.
            hint = getattr(err, "hint", "")
            why = f"{err}; {hint}" if hint else str(err)
            if step.kind == "service" and step.because:
                # Not put back by itself: the old file need not be what the service wants now, and people look for
                # the cause in the new one.
                why += f"; {', '.join(step.because)} stays as the head says: commit a correction, or rollout undo"
            _LOG.warning("agent.step.failed", step=f"{step.verb} {step.kind} {step.name}", error=why)
        else:
            _LOG.v(2).info("agent.step.done", step=f"{step.verb} {step.kind} {step.name}")
        try:
            self._state.ended(step, why)
        except StateProblem as err:
            # The step is done twice after a restart, which does no harm.
            _LOG.warning("agent.journal.lost", error=str(err))
        self._on_step(step, why)
        return why

    async def _act(self, step: Step, change: Change) -> None:
        if step.kind == "file":
            await self._file(step, change)
        elif step.kind == "service":
            await self._service(step, change)
        elif step.kind == "package":
            await self._package(step)
        elif step.kind == "units":
            _raise(await self._services.reload_units())
        elif step.kind == "flag":
            self._manifests.apply(step, change.before, change.after)
        # Labels and taints are objects of Kubernetes: the head sets them there, the held state says which.

    # Services

    async def _instance(self, name: str) -> str:
        status = (await self._services.status([name])).get(name)
        return status.instance if status is not None and status.is_up else ""

    async def _is_new_run(self, step: Step, before: str) -> bool:
        """Whether a restart was done before the agent was killed: the service runs, and not as it did then."""
        now = await self._instance(step.name) if step.verb == "restart" else ""
        return bool(now) and now != before

    async def _service(self, step: Step, change: Change) -> None:
        known = {service.name: service for service in (*_services(change.before), *change.after.services)}
        service = known.get(step.name, Service(name=step.name))
        timeout_s = float(service.timeout) if service.timeout > 0 else _SERVICE_S
        if step.verb == "stop":
            if any(other.name == step.name for other in change.after.services):
                _raise(await self._services.stop(step.name, timeout_s))
            else:
                _raise(await self._services.retire(step.name, timeout_s))
                await self._disable(step.name)
            return
        act = {"start": self._services.start, "restart": self._services.restart, "reload": self._services.reload}
        if service.serial and change.etag is not None:
            # Members of one cluster take turns; who could not start keeps the others from trying.
            try:
                async with self._turns.take(service.serial, step.name):
                    _raise(await act[step.verb](step.name, timeout_s))
            except errors.BedplateError as err:
                raise _Failure(str(err)) from err
        else:
            _raise(await act[step.verb](step.name, timeout_s))
        if step.verb == "start" and service.autostart:
            await self._enable(step.name)

    async def _enable(self, name: str) -> None:
        if await self._services.is_enabled(name):
            return
        self._state.save_enabled(self._state.enabled() | {name})
        _raise(await self._services.enable(name))

    async def _disable(self, name: str) -> None:
        enabled = self._state.enabled()
        if name in enabled:
            _raise(await self._services.disable(name))
            self._state.save_enabled(enabled - {name})

    # Packages

    async def _package(self, step: Step) -> None:
        ours = self._state.installed()
        if step.verb == "install":
            if step.name in await self._packages.installed([step.name]):
                return
            # Noted first: whoever dies in between may remove what it began to install.
            self._state.save_installed(ours | {step.name})
            why = await self._packages.install(step.name)
            if why:
                self._state.save_installed(ours)
                raise _Failure(why)
        elif step.name in ours:
            _raise(await self._packages.remove(step.name))
            self._state.save_installed(ours - {step.name})

    # Files

    async def _file(self, step: Step, change: Change) -> None:
        self._watch.forget(step.name)
        if step.verb == "remove":
            self._remove(step.name)
        elif step.verb == "release":
            self._release(step.name)
        else:
            file = next(file for file in change.after.files if file.path == step.name)
            if step.verb == "test":
                await self._test(file)
            else:
                self._write(file, self._edits.under(change.after.settings))
        self._watch.forget(step.name)

    async def _test(self, file: File) -> None:
        content = self._content(file, self._root.read(file.path, follow=file.block))
        mode = _folder_mode(file)
        why = await trial.refusal(self._root, self._run, file, content, _written(file), folder_mode=mode)
        if why:
            raise _Failure(why)

    def _write(self, file: File, edits: Edits) -> None:
        record = self._state.record(file.path)
        present = self._root.read(file.path, follow=file.block)
        if record is not None and self._is_edited(record, present):
            if edits.of(file.path) == "keep":
                self.kept.add(file.path)
                return
            self._state.keep_edited(file.path, present.content)
        self.kept.discard(file.path)
        content = self._content(file, present)
        new = self._new_record(file, record, present)
        self._state.save_record(new)
        written = _written(file)
        if file.block and present.kind == "file":
            # The rest of the file is somebody else's, and so are its mode and owner.
            written = Written(present.mode, str(present.uid), str(present.gid))
        try:
            self._root.write(file.path, content, written, folder_mode=_folder_mode(file), follow=file.block)
        except FileProblem:
            self._undo_record(file.path, record, new)
            raise

    def _content(self, file: File, present: Present) -> bytes:
        if not file.block:
            return file.content.encode()
        text = present.content.decode(errors="surrogateescape")
        return merged(text, file.content).encode(errors="surrogateescape")

    def _is_edited(self, record: Record, present: Present) -> bool:
        if not present.is_there:
            return False
        return content_digest(present, record.block) not in (record.digest, "")

    def _new_record(self, file: File, record: Record | None, present: Present) -> Record:
        missing = self._root.missing_folders(file.path)
        if record is None:
            original, folders = self._state.keep_original(file.path, present), missing
        else:
            original, folders = record.original, tuple(dict.fromkeys((*record.folders, *missing)))
        content = block_of(merged("", file.content)) or "" if file.block else file.content
        return Record(
            path=file.path,
            digest=digest_of(content.encode()),
            mode=int(file.mode, 8),
            owner=file.owner,
            group=file.group,
            block=file.block,
            original=original,
            folders=folders,
        )

    def _undo_record(self, path: str, record: Record | None, new: Record) -> None:
        """The file was not written: what is known of it is what was known before."""
        try:
            if record is None:
                self._root.remove_folders(new.folders)
                self._state.forget(path)
            else:
                self._state.save_record(record)
        except (StateProblem, FileProblem) as err:
            _LOG.warning("agent.record.lost", path=path, error=str(err))

    def _remove(self, path: str) -> None:
        """Take a file away: what was there before the agent is there again."""
        record = self._state.record(path)
        if record is None:
            self._root.clear_trial(path)
            return
        original = self._state.original(record)
        present = self._root.read(path, follow=record.block)
        if record.block and present.kind == "file":
            self._remove_block(record, original, present)
        elif original.is_there:
            self._root.put_back(path, original)
        else:
            self._root.remove(path)
        self._hand_over(record)
        self._root.remove_folders(record.folders)
        self._state.forget(path)

    def _release(self, path: str) -> None:
        """Leave a file to people. Folders that were made for it are remembered with another file of ours in them."""
        record = self._state.record(path)
        if record is None:
            return
        heirs = (each for each in self._state.records() if each.path != path and _is_below(each.path, record.folders))
        if (heir := next(heirs, None)) is not None:
            folders = tuple(sorted({*record.folders, *heir.folders}))
            self._state.save_record(msgspec.structs.replace(heir, folders=folders))
        self._state.forget(path)

    def _hand_over(self, record: Record) -> None:
        """Folders that were made for a file and hold others of ours go with the last of those."""
        for other in self._state.records():
            shared = [folder for folder in record.folders if other.path.startswith(f"{folder}/")]
            if other.path != record.path and shared and not set(shared) <= set(other.folders):
                folders = tuple(sorted({*shared, *other.folders}))
                self._state.save_record(msgspec.structs.replace(other, folders=folders))

    def _remove_block(self, record: Record, original: Present, present: Present) -> None:
        """What others wrote around a block stays; where they wrote nothing, the file is what it was."""
        rest = merged(present.content.decode(errors="surrogateescape"), None)
        if original.kind == "file" and rest == merged(original.content.decode(errors="surrogateescape"), None):
            content = original.content
        else:
            content = rest.encode(errors="surrogateescape")
        if content or original.is_there:
            written = Written(present.mode, str(present.uid), str(present.gid))
            self._root.write(record.path, content, written, follow=True)
            if content == original.content:
                place = self._root.place(record.path)
                os.utime(place, ns=(original.mtime_ns, original.mtime_ns))
        else:
            self._root.remove(record.path)


def _raise(why: str | None) -> None:
    if why:
        raise _Failure(why)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _services(state: Desired | None) -> Sequence[Service]:
    return state.services if state is not None else ()


def _written(file: File) -> Written:
    return Written(int(file.mode, 8), file.owner, file.group)


def _folder_mode(file: File) -> int | None:
    return int(file.folder_mode, 8) if file.folder_mode else None
