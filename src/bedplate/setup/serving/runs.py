"""The last run for a cluster, as somebody sees it who is not at its terminal.

In: the journal, what stages said, who holds the lock, and who started the tool and what it printed, where that was the
daemon (`start.json` and `output` beside the journal). Out: `SetupRun`. A run is under way as long as its process has
the lock, whatever the journal says; one without a process that is not over was interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from bedplate.api.setups import SetupActionName, SetupRun, SetupStage, SetupStatus
from bedplate.core import errors
from bedplate.setup.engine import journal as journals
from bedplate.setup.engine.journal import Journal, Record, StageRecord
from bedplate.setup.engine.lock import Holder
from bedplate.setup.engine.masking import Masker
from bedplate.setup.engine.said import FILE as SAID
from bedplate.setup.engine.said import last_lines

__all__ = ["FILES", "OUTPUT", "START", "Start", "clusters", "is_tool", "read", "read_start"]

START = "start.json"
OUTPUT = "output"
FILES = (journals.FILE, SAID, START)
"""What changes when a run moves on."""
_OVER = ("done", "undone")
_TAIL = 64 << 10
_MODULE = "kubernetessetup"


class Start(msgspec.Struct, frozen=True):
    """A tool that the daemon started: as which process, for whom, to do what."""

    pid: int
    by: str
    action: str
    at: str


def clusters(state: Path) -> list[str]:
    """The clusters of which there is a run, or was an attempt."""
    return [
        name
        for name in journals.known(state)
        if (state / name / journals.FILE).is_file() or read_start(state, name) is not None
    ]


def read_start(state: Path, cluster: str) -> Start | None:
    try:
        return msgspec.json.decode((state / cluster / START).read_bytes(), type=Start)
    except (OSError, msgspec.MsgspecError):
        return None


def is_tool(pid: int, processes: Path = Path("/proc")) -> bool:
    """Whether a process is one of the tool, and not another one that got its number."""
    folder = processes / str(pid)
    try:
        words = (folder / "cmdline").read_bytes()
        if not words:
            # A program that was started this moment has none yet. A dead one has none either, and no file to run.
            (folder / "exe").readlink()
    except OSError:
        return False
    return not words or _MODULE.encode() in words.replace(b"-", b"")


def read(state: Path, cluster: str, holder: Holder | None, now: datetime) -> SetupRun:
    """The run. Raises `NotFound` for a cluster without one, and for what cannot be the name of a cluster."""
    try:
        folder = journals.folder_of(state, cluster)
    except errors.Invalid as err:
        raise errors.NotFound(f"there is no run for a cluster {cluster!r}") from err
    start = read_start(state, cluster)
    try:
        journal = Journal.load(state, cluster)
    except errors.Invalid as err:
        return SetupRun(cluster=cluster, operation="", status="failed", percent=0, trouble=errors.describe(err))
    if journal is None and start is None:
        raise errors.NotFound(f"there is no run for a cluster {cluster!r}", hint="the page Setup lists all")
    is_held = holder is not None and holder.cluster == cluster
    is_own = start is not None and journal is not None and journal.record.pid == start.pid
    is_late = start is not None and not is_own and (journal is None or start.at > _ended(journal.record))
    # A tool has the lock some moments before its journal: what is there then is the journal of the run before.
    if start is not None and is_late and (holder is None or not is_held or holder.pid == start.pid):
        return _not_begun(folder, cluster, start, journal)
    if journal is None:
        raise errors.NotFound(f"the run for the cluster {cluster!r} has not begun", hint="load the page again")
    status = _status(journal.record, is_held=is_held)
    return SetupRun(
        cluster=cluster,
        operation=journal.record.operation,
        status=status,
        percent=_percent(journal.record),
        began=journal.record.began,
        ended="" if is_held else journal.record.ended,
        by=start.by if start is not None and is_own else "",
        process=holder.pid if holder is not None and is_held else 0,
        trouble=_trouble(journal.record, status, is_held=is_held),
        actions=_actions(journal.record, status),
        stages=_stages(journal.record.stages, last_lines(folder), now),
    )


def _ended(record: Record) -> str:
    """When a run was last heard of, as far as its journal says."""
    moments = [record.began, record.ended, *(stage.ended or stage.began for stage in record.stages)]
    return max(moments)


def _not_begun(folder: Path, cluster: str, start: Start, journal: Journal | None) -> SetupRun:
    """A tool that was started and has no journal yet, or ended without one."""
    is_starting = is_tool(start.pid)
    stays = journal is not None and not journal.is_over
    return SetupRun(
        cluster=cluster,
        operation=start.action,
        status="starting" if is_starting else "refused",
        percent=0,
        began=start.at,
        by=start.by,
        process=start.pid if is_starting else 0,
        trouble="" if is_starting else _printed(folder),
        actions=_actions(journal.record, "interrupted") if journal is not None and stays and not is_starting else [],
    )


def _status(record: Record, *, is_held: bool) -> SetupStatus:
    if is_held:
        return "running"
    is_cut = any(stage.state in ("running", "undoing") for stage in record.stages)
    if record.status and not (is_cut and record.phase != "over"):
        return record.status
    return "interrupted"


def _trouble(record: Record, status: SetupStatus, *, is_held: bool) -> str:
    failed = [stage for stage in record.stages if stage.state == "failed"]
    if is_held and failed and not any(stage.state in ("running", "undoing") for stage in record.stages):
        return "it asks at its terminal what to do"
    if status == "interrupted":
        return "its process ended without a word: killed, or the machine was restarted"
    if failed:
        return f"{failed[0].name}: {failed[0].error}"
    return ""


def _actions(record: Record, status: SetupStatus) -> list[SetupActionName]:
    if status == "running":
        return ["abort"]
    if record.phase == "over":
        return []
    if record.operation == "remove":
        return ["resume"]  # What is destroyed does not come back.
    return ["undo"] if record.phase == "undo" else ["resume", "undo"]


def _percent(record: Record) -> int:
    stages = record.stages
    if record.phase == "undo" or record.status == "undone":
        stages = [stage for stage in stages if stage.state != "pending"]
        is_done = [stage.state == "undone" for stage in stages]
    else:
        is_done = [stage.state == "done" for stage in stages]
    return 100 * sum(is_done) // len(is_done) if is_done else 0


def _stages(stages: Sequence[StageRecord], lines: dict[str, list[str]], now: datetime) -> list[SetupStage]:
    return [
        SetupStage(
            name=stage.name,
            plugin=stage.plugin,
            state=stage.state,
            began=stage.began,
            ended=stage.ended,
            took=_took(stage, now),
            error=stage.error,
            lines=lines.get(stage.name, []),
        )
        for stage in stages
    ]


def _took(stage: StageRecord, now: datetime) -> float | None:
    if not stage.began:
        return None
    with contextlib.suppress(ValueError, TypeError):
        end = datetime.fromisoformat(stage.ended) if stage.ended else now
        return max(round((end - datetime.fromisoformat(stage.began)).total_seconds(), 1), 0.0)
    return None


def _printed(folder: Path) -> str:
    """What the tool said that is not an event, masked: why it did not begin."""
    try:
        with (folder / OUTPUT).open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL, 0))
            lines = file.read(_TAIL).decode(errors="replace").splitlines()
    except OSError:
        lines = []
    told = [line.removeprefix("cm-kubernetes-setup: ") for line in lines if line.strip() and not _is_event(line)]
    return Masker()("\n".join(told)) or "the tool ended without a word"


def _is_event(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
