"""Restarting a machine, and what counts as that in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.machines import Commands, Services
from tests.agent.services.test_firewall import Machine

from bedplate.agent.commands import Ended
from bedplate.agent.files import Root
from bedplate.agent.power import Power, boot_id


@pytest.mark.parametrize(
    ("kind", "with_systemd", "without"),
    [
        ("reboot", "systemctl --no-block reboot", "reboot"),
        ("reset", "systemctl reboot --force --force", "reboot -f"),
        ("off", "systemctl --no-block poweroff", "poweroff"),
    ],
)
async def test_a_machine_is_told_by_its_own_commands(
    tmp_path: Path, kind: str, with_systemd: str, without: str
) -> None:
    for has_systemd, expected in ((True, with_systemd), (False, without)):
        commands = Commands()
        power = Power(Machine(str(tmp_path)), Services(), commands, has_systemd=has_systemd)
        assert await power.use(kind, ["app"]) is None
        assert [" ".join(command) for command in commands.ran] == [expected]
        commands.answers[commands.ran[0][0]] = Ended(1, "", "not permitted")
        assert await power.use(kind, []) == "exit code 1: not permitted"


async def test_a_sandbox_stops_its_services_and_starts_them_again(tmp_path: Path) -> None:
    services, commands = Services(), Commands()
    power = Power(Root(str(tmp_path)), services, commands)
    assert await power.use("reboot", ["a", "b"]) is None
    assert services.did == ["stop b", "stop a", "start a", "start b"]
    services.did.clear()
    assert await power.use("off", ["a", "b"]) is None
    assert services.did == ["stop b", "stop a"]
    assert commands.ran == []


def test_a_run_of_the_machine_has_a_name(tmp_path: Path) -> None:
    assert boot_id() == boot_id() != ""
    assert boot_id(str(tmp_path / "none")) == ""


@pytest.mark.parametrize(("start", "expected"), [(1, "run"), (123456, "run.123456")])
def test_a_machine_whose_first_process_is_younger_than_the_kernel_starts_with_that_process(
    tmp_path: Path, start: int, expected: str
) -> None:
    (tmp_path / "id").write_text("run\n")
    (tmp_path / "stat").write_text(f"1 (in) it) S {'0 ' * 18}{start} 0 0\n")
    assert boot_id(str(tmp_path / "id"), str(tmp_path / "stat")) == expected
