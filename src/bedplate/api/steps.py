"""What a node does to get from one desired state to the next: steps in order, and what follows when one fails.

In: two desired states. Out: steps, one at a time; the caller that carries them out says of each whether it failed. A
file that its test refuses is not written, and its services are left alone; they are not started without any. A file
that cannot be written stops its services where it says so. The outcome tells what holds now, so that the next attempt
starts from the truth. Nothing is touched here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from bedplate.api.desired import Desired, File, Flag, Service, Taint

__all__ = ["Failed", "Outcome", "Step", "carry_out", "notice", "steps", "walk"]

_DONE = {
    "install": "installed",
    "test": "tested",
    "write": "written",
    "remove": "removed",
    "release": "released",
    "reload units": "reloaded",
    "start": "started",
    "stop": "stopped",
    "restart": "restarted",
    "reload": "reloaded",
    "set": "set",
    "clear": "cleared",
}
_UNITS = "/etc/systemd/system/"
_REPOSITORIES = (
    *("/etc/apt/sources.list.d/", "/etc/apt/keyrings/", "/etc/yum.repos.d/", "/etc/zypp/repos.d/"),
    "/etc/pki/rpm-gpg/",
)
"""Where package managers look for their repositories and the keys of those: such files come before packages."""
_V = TypeVar("_V")


class Step(NamedTuple):
    """One thing to do: `install package`, `test file`, `restart service`. `because` are the files that cause it."""

    kind: str
    name: str
    verb: str
    because: tuple[str, ...] = ()

    @property
    def done(self) -> str:
        """The verb once it is done."""
        return _DONE[self.verb]


class Failed(NamedTuple):
    """A step that did not succeed, and why."""

    step: Step
    why: str


class Outcome(NamedTuple):
    """What was done, what was not, and the state that holds now."""

    done: tuple[Step, ...]
    failed: tuple[Failed, ...]
    held: Desired


def notice(step: Step) -> str:
    """What people are told when the step is done; empty: nothing."""
    return f"Service {step.name} was {step.done}" if step.kind == "service" else ""


def steps(before: Desired | None, after: Desired) -> list[Step]:
    """All steps, should none fail."""
    return list(carry_out(before, after, lambda step: None).done)


def carry_out(before: Desired | None, after: Desired, act: Callable[[Step], str | None]) -> Outcome:
    """Let `act` do one step after the other; it gives None, or why it failed."""
    going = walk(before, after)
    try:
        step = next(going)
        while True:
            step = going.send(act(step))
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def walk(before: Desired | None, after: Desired) -> Generator[Step, str | None, Outcome]:
    """The steps, each sent back None or why it failed; for those who carry them out in their own time."""
    run = _Run(before or Desired(node=after.node), after)
    yield from run.going()
    return Outcome(tuple(run.done), tuple(run.failed), run.held())


class _Run:
    def __init__(self, before: Desired, after: Desired) -> None:
        self._before, self._after = before, after
        self._old = {file.path: file for file in before.files}
        self._new = {file.path: file for file in after.files}
        self._changed: list[File] = []
        self._kept: dict[str, File | None] = {}
        self._stopped: set[str] = set()
        self._refused: set[str] = set()
        self.done: list[Step] = []
        self.failed: list[Failed] = []

    def going(self) -> Generator[Step, str | None, None]:
        for path, file in sorted(self._new.items()):
            if path.startswith(_REPOSITORIES):
                yield from self._bring(path, file)
        for package in sorted(set(self._after.packages) - set(self._before.packages)):
            yield from self._try(Step("package", package, "install"))
        gone = {service.name for service in self._before.services} - {service.name for service in self._after.services}
        for name in sorted(gone):
            yield from self._try(Step("service", name, "stop"))
        yield from self._remove()
        for path, file in sorted(self._new.items()):
            if not path.startswith(_REPOSITORIES):
                yield from self._bring(path, file)
        units = tuple(file.path for file in self._changed if file.path.startswith(_UNITS))
        if units:
            yield from self._try(Step("units", "systemd", "reload units", units))
        yield from self._services()
        yield from self._rest()
        # Last, when nothing uses them any more.
        for package in sorted(set(self._before.packages) - set(self._after.packages)):
            yield from self._try(Step("package", package, "remove"))

    def _try(self, step: Step) -> Generator[Step, str | None, bool]:
        why = yield step
        if why is None:
            self.done.append(step)
            return True
        self.failed.append(Failed(step, why))
        return False

    def _remove(self) -> Generator[Step, str | None, None]:
        for path, file in sorted(self._old.items()):
            if path in self._new:
                continue
            verb = "release" if path in self._after.unmanaged else "remove"
            if not (yield from self._try(Step("file", path, verb))):
                self._kept[path] = file
            elif verb == "remove":
                self._changed.append(file)

    def _bring(self, path: str, file: File) -> Generator[Step, str | None, None]:
        """Write a file that is another one than before."""
        present = self._old.get(path)
        if present is None or present.on_disk != file.on_disk:
            yield from self._write(file)

    def _write(self, file: File) -> Generator[Step, str | None, None]:
        if file.test and not (yield from self._try(Step("file", file.path, "test"))):
            self._kept[file.path] = self._old.get(file.path)
            if file.path not in self._old:
                self._refused.update(file.services)
            return
        if (yield from self._try(Step("file", file.path, "write"))):
            self._changed.append(file)
            return
        self._kept[file.path] = self._old.get(file.path)
        for service in file.services if file.stop_on_failure else ():
            if service not in self._stopped:
                self._stopped.add(service)
                yield from self._try(Step("service", service, "stop", (file.path,)))

    def _services(self) -> Generator[Step, str | None, None]:
        had = {service.name for service in self._before.services}
        acts = _acts(self._changed)
        for service in self._after.services:
            if service.name in self._stopped:
                continue
            if service.name not in had:
                # Without the file that was refused it would run with whatever its package brings.
                if service.autostart and service.name not in self._refused:
                    yield from self._try(Step("service", service.name, "start"))
            elif service.name in acts:
                verb, because = acts[service.name]
                yield from self._try(Step("service", service.name, verb, because))

    def _rest(self) -> Generator[Step, str | None, None]:
        before, after = self._before, self._after
        yield from self._differences("flag", _flags(before), _flags(after))
        yield from self._differences("label", before.labels, after.labels)
        yield from self._differences("taint", _taints(before), _taints(after))

    def _differences(
        self, kind: str, old: Mapping[str, object], new: Mapping[str, object]
    ) -> Generator[Step, str | None, None]:
        for name in sorted(set(old) - set(new)):
            yield from self._try(Step(kind, name, "clear"))
        for name in sorted(new):
            if old.get(name) != new[name]:
                yield from self._try(Step(kind, name, "set"))

    def held(self) -> Desired:
        """What was asked for, but for what failed: there the old state still holds."""
        if not self.failed:
            return self._after
        lost = {(failed.step.kind, failed.step.name) for failed in self.failed}
        return msgspec.structs.replace(
            self._after,
            files=self._files_held(),
            packages=self._packages_held(lost),
            services=self._services_held(lost),
            labels=_held("label", self._before.labels, self._after.labels, lost),
            flags=tuple(_held("flag", _flags(self._before), _flags(self._after), lost).values()),
            taints=tuple(_held("taint", _taints(self._before), _taints(self._after), lost).values()),
        )

    def _files_held(self) -> tuple[File, ...]:
        """A file whose services could not take it in counts as not written, so that both are tried again."""
        again = {path for failed in self.failed if failed.step.kind == "service" for path in failed.step.because}
        files = {**self._new, **self._kept, **{path: self._old.get(path) for path in again}}
        return tuple(file for _, file in sorted(files.items()) if file is not None)

    def _packages_held(self, lost: set[tuple[str, str]]) -> tuple[str, ...]:
        """One that could not be installed counts as not there, one that could not be removed as there."""
        there = [name for name in self._after.packages if ("package", name) not in lost]
        still = sorted(set(self._before.packages) - set(self._after.packages))
        return (*there, *(name for name in still if ("package", name) in lost))

    def _services_held(self, lost: set[tuple[str, str]]) -> tuple[Service, ...]:
        """A service that was stopped or could not be started counts as not there, one that would not stop as there."""
        names = {service.name for service in self._after.services}
        had = {service.name for service in self._before.services}
        failed = {name for kind, name in lost if kind == "service"} | self._refused
        there = [
            service
            for service in self._after.services
            if service.name not in self._stopped and (service.name in had or service.name not in failed)
        ]
        still = [service for service in self._before.services if service.name not in names]
        return (*there, *(service for service in still if ("service", service.name) in lost))


def _held(kind: str, old: Mapping[str, _V], new: Mapping[str, _V], lost: set[tuple[str, str]]) -> dict[str, _V]:
    names = {name for name in {*old, *new} if name in (old if (kind, name) in lost else new)}
    return {name: (old if (kind, name) in lost else new)[name] for name in sorted(names)}


def _flags(state: Desired) -> dict[str, Flag]:
    return {flag.name: flag for flag in state.flags}


def _taints(state: Desired) -> dict[str, Taint]:
    return {taint.text: taint for taint in state.taints}


def _acts(changed: Iterable[File]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """What services do after those files changed: a restart makes a reload needless."""
    acts: dict[str, tuple[str, tuple[str, ...]]] = {}
    for file in changed:
        for service in file.services if file.action != "NONE" else ():
            verb, because = acts.get(service, ("reload", ()))
            acts[service] = ("restart" if file.action == "RESTART" else verb, (*because, file.path))
    return acts
