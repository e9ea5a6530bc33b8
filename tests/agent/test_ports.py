"""Who has a port: the process, its service, and the line of the file that made it so."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from tests.agent.machines import Machine

from bedplate.agent import ports

_HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class Processes:
    """A folder that looks like /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "net").mkdir(parents=True)
        (folder / "net/tcp").write_text(_HEADER)

    def listen(self, port: int, inode: int, *, table: str = "tcp", state: str = "0A") -> None:
        with open(self.folder / "net" / table, "a") as stream:
            stream.write(
                f"   0: 00000000:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0"
            )
            stream.write(f"        0 {inode} 1 0 100 0 0 10 0\n")

    def add(self, pid: int, program: str, inode: int, *, environ: str = "", group: str = "", command: str = "") -> None:
        folder = self.folder / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "fd/0").symlink_to("/dev/null")
        (folder / "fd/5").symlink_to(f"socket:[{inode}]")
        (folder / "comm").write_text(f"{program}\n")
        (folder / "cmdline").write_bytes((command or f"/usr/sbin/{program} -k start").replace(" ", "\0").encode())
        (folder / "environ").write_bytes(f"PATH=/bin\0{environ}\0".encode())
        (folder / "cgroup").write_text(f"0::{group or '/'}\n")

    def taken(self, machine: Machine, port: int, *services: str) -> str:
        return ports.taken(machine.root, port, services, proc=str(self.folder))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "node")


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "proc")


@pytest.mark.parametrize(
    ("program", "path"), [("apache2", "/etc/apache2/ports.conf"), ("httpd", "/etc/httpd/conf.d/ssl.conf")]
)
def test_the_line_that_a_web_server_has_the_port_from_is_named(
    machine: Machine, processes: Processes, program: str, path: str
) -> None:
    processes.listen(443, 77, table="tcp6")
    processes.add(812, program, 77, group=f"/system.slice/{program}.service")
    processes.add(900, program, 77, group=f"/system.slice/{program}.service")
    machine.put(path, "# Listen 443\nListen 80\nListen 1443\n  Listen 443 https\n")
    assert processes.taken(machine, 443, "nginx") == (
        f"port 443 is in use by {program}: {path}, line 4, says 'Listen 443 https'; "
        f"comment that line out and restart {program}"
    )


def test_a_service_without_a_known_file_is_named_with_its_unit(machine: Machine, processes: Processes) -> None:
    processes.listen(10443, 5)
    processes.add(44, "python3", 5, group="/system.slice/portal.service", command="python3 -m portal")
    machine.put("/etc/systemd/system/portal.service", "[Service]\nExecStart=/bin/portal\n")
    assert processes.taken(machine, 10443, "nginx") == (
        "port 10443 is in use by the service portal (/etc/systemd/system/portal.service), process 44: "
        "python3 -m portal; stop it, or choose another port"
    )


def test_a_service_of_our_own_supervisor_is_known_by_its_mark(machine: Machine, processes: Processes) -> None:
    processes.listen(9000, 5)
    processes.add(44, "app", 5, environ="BEDPLATE_SERVICE=/run/bedplate-agent/services/portal")
    assert "in use by the service portal, process 44" in processes.taken(machine, 9000, "nginx")
    assert processes.taken(machine, 9000, "portal") == ""


def test_a_process_of_nobody_is_named_by_its_number(machine: Machine, processes: Processes) -> None:
    processes.listen(9000, 5)
    processes.add(44, "nc", 5, command="nc -l 9000")
    assert processes.taken(machine, 9000, "nginx") == (
        "port 9000 is in use by process 44: nc -l 9000; stop it, or choose another port"
    )


def test_a_port_that_is_free_ours_or_only_talked_over_is_not_taken(machine: Machine, processes: Processes) -> None:
    processes.listen(443, 5)
    processes.add(44, "nginx", 5)
    processes.listen(8443, 6, state="01")
    processes.add(45, "curl", 6)
    for port in (443, 8443, 80, 4430):
        assert processes.taken(machine, port, "nginx") == "", port
    # Whoever may not look into other processes is not told who it is, and goes on.
    processes.listen(9443, 99)
    assert processes.taken(machine, 9443, "nginx") == ""


def test_a_real_listener_is_found(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = ports.taken(machine.root, port, ["nginx"])
        assert told.startswith(f"port {port} is in use by ") and f"process {os.getpid()}: " in told
    assert ports.taken(machine.root, port, ["nginx"]) == ""
