"""Callers of a CNI plugin that note what they were told, and the check that none of it is lost, doubled or leaked.

Each caller has containers of its own. For every one of them the truth is known: the address that was acknowledged, or
that nobody knows, because the daemon went away under the call; then DEL is called until it is answered, as a runtime
does. Anything else that a store holds after a crash is a lost, doubled or leaked address.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Iterator

from tests.endurance import cninodes

__all__ = ["Caller", "Truth", "loaded"]

INTERFACE = "net0"


def key_of(container: str) -> str:
    return f"{container}_{INTERFACE}"


@dataclasses.dataclass
class Truth:
    """What all callers together know."""

    held: dict[str, str] = dataclasses.field(default_factory=dict)
    """Acknowledged addresses by reservation; gone from here before their DEL is called."""
    unsure: set[str] = dataclasses.field(default_factory=set)
    """Reservations with a call that is under way or was never answered."""
    problems: list[str] = dataclasses.field(default_factory=list)
    answers: Counter[str] = dataclasses.field(default_factory=Counter)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def begun(self, key: str) -> None:
        with self._lock:
            self.held.pop(key, None)
            self.unsure.add(key)

    def added(self, key: str, address: str) -> None:
        with self._lock:
            other = next((one for one, taken in self.held.items() if taken == address), None)
            if other is not None:
                self.problems.append(f"{address} was given to {key} while {other} holds it")
            self.held[key] = address
            self.unsure.discard(key)

    def deleted(self, key: str) -> None:
        with self._lock:
            self.unsure.discard(key)

    def note(self, command: str, container: str, answer: cninodes.Answer) -> None:
        with self._lock:
            self.answers[f"{command} {'ok' if answer.is_ok else 'away' if answer.is_away else 'failed'}"] += 1
            if not answer.is_ok and not answer.is_away:
                self.problems.append(f"{command} {container}: {answer}")

    def differences(self, entries: dict[str, str]) -> list[str]:
        """What is wrong with a store's content while no call is under way."""
        with self._lock:
            found = [f"lost: {key} {address}" for key, address in self.held.items() if entries.get(key) != address]
            found += [f"leaked: {key}" for key in entries if key not in self.held and key not in self.unsure]
        twins = [address for address, count in Counter(entries.values()).items() if count > 1]
        return found + [f"twice: {address}" for address in twins]

    @property
    def acknowledged(self) -> int:
        return sum(count for name, count in self.answers.items() if name.endswith(" ok"))


class Caller:
    """One of those who call at the same time."""

    def __init__(self, number: int, daemon: cninodes.NodeDaemon, truth: Truth, rng: random.Random, most: int) -> None:
        self._number, self._daemon, self._truth, self._rng, self._most = number, daemon, truth, rng, most
        self._made = 0
        self._mine: list[str] = []
        self._unsure: list[str] = []

    def run(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            try:
                self._step()
            except Exception as error:  # A thread's end would only mean less load.
                self._truth.problems.append(f"caller {self._number}: {error!r}")
                return

    def settle(self) -> None:
        """End the calls that were never answered."""
        while self._unsure:
            self._delete(self._unsure.pop(0))

    def _step(self) -> None:
        if self._unsure:
            self._delete(self._unsure.pop(0))
            return
        dice = self._rng.random()
        if not self._mine or (dice < 0.45 and len(self._mine) < self._most):
            self._add()
        elif dice < 0.75:
            self._check(self._rng.choice(self._mine))
        else:
            self._delete(self._mine.pop(self._rng.randrange(len(self._mine))))

    def _call(self, command: str, container: str) -> cninodes.Answer:
        answer = self._daemon.call(command, container, INTERFACE)
        self._truth.note(command, container, answer)
        return answer

    def _add(self) -> None:
        self._made += 1
        container = f"c{self._number:02d}n{self._made:06d}"
        self._truth.begun(key_of(container))
        answer = self._call("ADD", container)
        if answer.is_ok:
            self._mine.append(container)
            self._truth.added(key_of(container), answer.address)
        else:
            self._unsure.append(container)

    def _check(self, container: str) -> None:
        # An acknowledged address that the daemon does not know is a failure that is not "try again later".
        self._call("CHECK", container)

    def _delete(self, container: str) -> None:
        self._truth.begun(key_of(container))
        if self._call("DEL", container).is_ok:
            self._truth.deleted(key_of(container))
        else:
            self._unsure.append(container)


@contextlib.contextmanager
def loaded(callers: list[Caller]) -> Iterator[None]:
    """The callers call while the block runs; at its end no call is under way."""
    is_over = threading.Event()
    threads = [threading.Thread(target=caller.run, args=(is_over,)) for caller in callers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
