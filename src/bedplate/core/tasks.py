"""Groups of tasks that lose no cancellation.

In: tasks that belong together. Out: `TaskGroup`, as asyncio has it. That one, before Python 3.13, forgets that it was
cancelled from outside if a task of the group fails in the same moment: whoever handles the failure goes on without end,
and a program that was told to stop does not. And it leaves a cancellation of its own on the task's account.
"""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType

__all__ = ["TaskGroup"]


class TaskGroup(asyncio.TaskGroup):
    """Who is cancelled from outside is, whatever fails meanwhile; the failure is the cause of the `CancelledError`."""

    if sys.version_info < (3, 13):
        _cancels = 0
        _parent_cancel_requested: bool
        """Whether the group has cancelled its owner, because a task failed."""

        async def __aenter__(self) -> TaskGroup:
            self._cancels = _cancels()
            await super().__aenter__()
            return self

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
        ) -> None:
            was_requested = self._parent_cancel_requested
            try:
                await super().__aexit__(kind, error, where)
            except BaseExceptionGroup as group:
                task = asyncio.current_task()
                if task is not None and self._parent_cancel_requested and not was_requested:
                    task.uncancel()
                if _cancels() > self._cancels:
                    raise asyncio.CancelledError from group
                raise


def _cancels() -> int:
    """How often the task that runs was cancelled."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
