"""Services as children of one process: they run, are told apart by run, and end with their machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from bedplate.agent.files import Root
from bedplate.agent.services.children import Children

UNIT = """\
[Service]
Environment=WORD=hello
ExecStart=/bin/sh -c 'echo $WORD $$$$ >> $BEDPLATE_ROOT/starts; exec sleep 1000'
ExecReload=/bin/sh -c 'echo reload $MAINPID >> $BEDPLATE_ROOT/starts'
"""


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Children]:
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/app.service").write_text(UNIT)
    (tmp_path / "etc/systemd/system/wrong.service").write_text("[Service]\nExecStart=/no/such/program\n")
    root = Root(str(tmp_path), is_privileged=False)
    children = Children(root, str(tmp_path / "run"), str(tmp_path / "log"), environ={"BEDPLATE_ROOT": str(tmp_path)})
    yield children
    children.kill()


def starts(folder: Path) -> list[str]:
    file = folder / "starts"
    return file.read_text().splitlines() if file.exists() else []


async def test_a_service_is_started_once_and_another_run_after_a_restart(services: Children, tmp_path: Path) -> None:
    assert (await services.status(["app"]))["app"].condition == "stopped"
    assert await services.start("app") is None
    assert await services.start("app") is None
    first = (await services.status(["app"]))["app"]
    assert first.condition == "running" and first.pid
    await until(lambda: starts(tmp_path) == [f"hello {first.pid}"])
    assert await services.reload("app") is None
    assert starts(tmp_path)[-1] == f"reload {first.pid}"
    assert await services.restart("app") is None
    second = (await services.status(["app"]))["app"]
    assert second.is_up and second.instance != first.instance
    assert not os.path.exists(f"/proc/{first.pid}")
    assert await services.stop("app") is None
    assert await services.stop("app") is None
    assert (await services.status(["app"]))["app"].condition == "stopped"


async def test_one_that_dies_has_failed_and_says_how(services: Children) -> None:
    assert await services.start("app") is None
    os.kill((await services.status(["app"]))["app"].pid, signal.SIGKILL)
    await until(lambda: _failed(services))
    assert (await services.status(["app"]))["app"].why == "it was ended by signal 9"
    assert await services.reload("app") == "app does not run, and cannot be reloaded"


async def _failed(services: Children) -> bool:
    return (await services.status(["app"]))["app"].condition == "failed"


async def test_what_cannot_start_says_why(services: Children) -> None:
    assert "no such file" in (await services.start("wrong") or "")
    assert "there is no unit nothing.service" in (await services.start("nothing") or "")
    assert (await services.status(["nothing"]))["nothing"].condition == "missing"


async def test_a_machine_without_power_has_no_process(services: Children) -> None:
    assert await services.start("app") is None
    pid = (await services.status(["app"]))["app"].pid
    services.kill()
    assert not os.path.exists(f"/proc/{pid}")
