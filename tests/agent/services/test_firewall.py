"""The firewall: our table is loaded at once, and goes alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.agent.machines import Commands, Services

from bedplate.agent.commands import Ended, run
from bedplate.agent.files import Root, Written
from bedplate.agent.services.firewall import Firewalled

TABLE = """\
table inet bedplate
delete table inet bedplate
table inet bedplate {
    chain input {
        type filter hook input priority filter; policy accept;
        tcp dport 4711 drop
    }
}
"""


class Machine(Root):
    """A sandbox that counts as the machine itself."""

    @property
    def is_machine(self) -> bool:
        return True


async def test_the_rendered_file_is_loaded_and_only_our_table_goes(tmp_path: Path) -> None:
    commands, services = Commands(), Services()
    root = Machine(str(tmp_path), is_privileged=False)
    firewall = Firewalled(services, root, commands)
    assert await firewall.start("nftables") == "/etc/nftables.conf does not exist"
    root.write("/etc/nftables.conf", TABLE.encode(), Written(), folder_mode=0o755)
    assert await firewall.start("nftables") is None
    assert await firewall.reload("nftables") is None
    assert await firewall.stop("nftables") is None
    place = str(tmp_path / "etc/nftables.conf")
    assert commands.ran == [
        ["nft", "-f", place],
        ["nft", "-f", place],
        ["nft", "table inet bedplate; delete table inet bedplate"],
    ]
    commands.answers["nft"] = Ended(1, "", "Error: Could not process rule: Permission denied\n")
    assert "Permission denied" in str(await firewall.reload("nftables"))
    assert (await firewall.status(["nftables"]))["nftables"].condition == "stopped"
    assert services.did == []


async def test_other_services_go_to_the_back_end(tmp_path: Path) -> None:
    services = Services()
    firewall = Firewalled(services, Root(str(tmp_path)))
    assert await firewall.start("nginx") is None
    assert (await firewall.status(["nginx", "nftables"]))["nginx"].condition == "running"
    assert services.did == ["start nginx"]


async def test_a_sandbox_leaves_the_rules_of_the_machine_alone(tmp_path: Path) -> None:
    commands = Commands()
    root = Root(str(tmp_path), is_privileged=False)
    root.write("/etc/nftables.conf", TABLE.encode(), Written(), folder_mode=0o755)
    firewall = Firewalled(Services(), root, commands)
    assert await firewall.start("nftables") is None
    assert (await firewall.status(["nftables"]))["nftables"].condition == "running"
    assert await firewall.stop("nftables") is None
    assert commands.ran == []


@pytest.mark.root
async def test_item_127_the_table_is_in_the_kernel_and_goes_without_the_others(tmp_path: Path) -> None:
    """In a network namespace of its own, with the real nft."""
    assert shutil.which("nft")
    space = f"bedplate-fw-{tmp_path.name[-8:]}"
    subprocess.run(["ip", "netns", "add", space], check=True)
    try:

        async def inside(command: list[str], **more: object) -> Ended:
            return await run(["ip", "netns", "exec", space, *command], timeout_s=30.0)

        root = Machine(str(tmp_path))
        root.write("/etc/nftables.conf", TABLE.encode(), Written(), folder_mode=0o755)
        assert (await inside(["nft", "add table inet theirs"])).is_good
        firewall = Firewalled(Services(), root, inside)  # type: ignore[arg-type]
        assert (await firewall.status(["nftables"]))["nftables"].condition == "stopped"
        for _ in range(2):
            assert await firewall.reload("nftables") is None
        assert (await firewall.status(["nftables"]))["nftables"].condition == "running"
        rules = (await inside(["nft", "list", "ruleset"])).text
        assert rules.count("dport 4711") == 1
        assert await firewall.stop("nftables") is None
        assert await firewall.stop("nftables") is None
        assert (await inside(["nft", "list", "tables"])).text.split() == ["table", "inet", "theirs"]
    finally:
        subprocess.run(["ip", "netns", "del", space], check=True)
