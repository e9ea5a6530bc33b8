"""The client that writes once a second: what it counts as written, as a retry, and as lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.setup.rehearsal.writing import Writer


class Cluster:
    """Answers creations with what is next, an error or none, and has what was created."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.names: list[str] = []

    async def create(self, ref: Any, body: Any, namespace: str) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is None or isinstance(answer, errors.AlreadyExists):
            self.names.append(body["metadata"]["name"])
        if answer is not None:
            raise answer

    async def list(self, ref: Any, namespace: str) -> Any:
        return SimpleNamespace(items=[SimpleNamespace(metadata=SimpleNamespace(name=name)) for name in self.names])


async def _run(cluster: Any, seconds: float) -> Writer:
    clock, is_over = ManualClock(), asyncio.Event()
    writer = Writer(cluster, clock)
    task = asyncio.create_task(writer.write(is_over.is_set))
    await clock.advance(seconds)
    is_over.set()
    await clock.advance(2.0)
    await task
    return writer


async def test_it_writes_once_a_second() -> None:
    writer = await _run(Cluster(), 3.5)
    assert writer.written == ["write-00000", "write-00001", "write-00002", "write-00003"]
    assert writer.retries == [] and await writer.lost() == []


async def test_it_tries_a_write_again_until_it_is_accepted_and_counts_each_retry() -> None:
    writer = await _run(Cluster(errors.Unavailable("refused"), errors.Denied("not yet"), TimeoutError()), 0.7)
    assert writer.written == ["write-00000"]
    assert [text.split(" ", 1)[1] for text in writer.retries] == [
        "write-00000: refused", "write-00000: not yet", "write-00000: TimeoutError",
    ]  # fmt: skip
    assert 0.59 < writer.slowest_s < 0.61


async def test_a_write_whose_answer_was_lost_is_written_and_one_that_is_not_there_is_lost() -> None:
    cluster = Cluster(errors.AlreadyExists("write-00000"))
    writer = await _run(cluster, 1.5)
    assert await writer.lost() == []
    cluster.names.remove("write-00001")
    assert await writer.lost() == ["write-00001"]


async def test_it_ends_also_while_nobody_answers() -> None:
    writer = await _run(Cluster(*[errors.Unavailable("refused")] * 100), 3.0)
    assert writer.written == [] and len(writer.retries) > 10
