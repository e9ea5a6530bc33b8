"""What is asked about a file before it is put in place: who has its ports, and what its program thinks of it."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest
from tests.agent.machines import Machine, desired

from bedplate.agent.commands import Ended
from bedplate.agent.files import Root
from bedplate.api.desired import File

CONF = File(path="/etc/app/app.conf", content="one\n", services=("app",), action="RELOAD", test=("cat", "-t", "{}"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "node")


async def test_item_129_a_file_whose_port_another_program_has_is_not_written(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Root, "is_machine", True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        wanted = desired(msgspec.structs.replace(CONF, ports=(port,)), services=["app"])
        outcome = await machine.apply(None, wanted)
        assert [failed.why.split(" by ")[0] for failed in outcome.failed] == [f"port {port} is in use"]
        assert not machine.at("/etc").exists()
        assert machine.services.did == [] and machine.commands.ran == []
    assert (await machine.apply(outcome.held, wanted)).failed == ()
    assert machine.services.did == ["start app"]


async def test_ports_of_the_machine_are_nothing_to_a_sandbox(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wanted = desired(msgspec.structs.replace(CONF, ports=(server.getsockname()[1],)))
        assert (await machine.apply(None, wanted)).failed == ()


async def test_a_program_that_is_too_old_to_be_asked_is_not_asked(machine: Machine) -> None:
    tested = msgspec.structs.replace(CONF, test=("cat", "--validate", "{}"))
    machine.commands.answers["cat"] = Ended(125, "", "Status: unknown flag: --validate\nSee 'cat --help'.\n")
    assert (await machine.apply(None, desired(tested))).failed == ()
    assert machine.at(CONF.path).exists()
    machine.commands.answers["cat"] = Ended(125, "", "unknown flag: --other\n")
    changed = msgspec.structs.replace(tested, content="two\n")
    outcome = await machine.apply(desired(tested), desired(changed))
    assert [failed.why for failed in outcome.failed] == ["cat refuses it: exit code 125: unknown flag: --other"]
    assert machine.at(CONF.path).read_text() == "one\n"
