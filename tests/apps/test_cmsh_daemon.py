"""`cmsh` against a running daemon: scripts over REST, live notices, and a daemon that dies and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests import forkserver, servers
from tests.apps import headprograms, tmux
from tests.apps.tmux import Screen
from tests.waiting import wait_until

from bedplate.api import headapi
from bedplate.head.folder import creation

TOP = "[basecm10]%"
DEFAULT = "[basecm10->category[default]]%"
STARRED = "[basecm10->category*[default*]]%"
TIMEOUT_S = 120.0


class Head:
    """A daemon that comes back at the address it had."""

    def __init__(self, data: pathlib.Path) -> None:
        self.data = data
        self._port = servers.free_port()
        self.start()

    def move(self) -> None:
        """Listen elsewhere from the next start on."""
        self._port = servers.free_port()

    def start(self) -> None:
        self._daemon = headprograms.Served(self.data, "--port", str(self._port))
        self.url = self._daemon.url

    def kill(self) -> None:
        """As a power cut would; also where it runs no more."""
        self._daemon.kill()

    def report(self, node: str, *actions: headapi.Action) -> None:
        """Tell what an agent on a node would tell."""

        async def tell() -> None:
            async with self._daemon.client() as client:
                await client.report(node, actions=actions)

        asyncio.run(tell())


@pytest.fixture
def served(tmp_path: pathlib.Path) -> Iterator[Head]:
    data = tmp_path / "data"
    asyncio.run(creation.make(data, name="basecm10", nodes=3))
    head = Head(data)
    yield head
    head.kill()


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def own(home: pathlib.Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_CONFIG_HOME": "", "TZ": "UTC", "BEDPLATE_URL": "", "BEDPLATE_DATA": ""}


@contextlib.contextmanager
def shell(home: pathlib.Path, *words: str | pathlib.Path) -> Iterator[Screen]:
    with tmux.terminal([sys.executable, "-m", "bedplate.apps.cmsh", *map(str, words)], own(home)) as screen:
        screen.wait_prompt(TOP)
        yield screen


def script(home: pathlib.Path, *words: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
    return forkserver.run(
        [sys.executable, "-m", "bedplate.apps.cmsh", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=dict(os.environ) | own(home),
    )


def test_a_folder_that_is_served_is_reached_over_rest(served: Head, home: pathlib.Path) -> None:
    done = script(home, "--data", served.data, "-c", "category use default; set notes told; commit; get notes")
    assert (done.returncode, done.stdout, done.stderr) == (0, "told\n", "")
    seen = script(home, "--data", served.data, "-c", "history -n 1")
    assert "admin" in seen.stdout and "category[default]" in seen.stdout


def test_credentials_come_from_flags_or_from_the_users_folder(served: Head, home: pathlib.Path) -> None:
    line = ("-c", "device use node001; get ip")
    files = served.data
    bare = script(home, "--url", served.url, *line)
    assert bare.returncode == 1
    assert "certificate" in bare.stderr and "Traceback" not in bare.stderr
    flags = ("--cert", files / "admin.crt", "--key", files / "admin.key", "--cacert", files / "ca.crt")
    assert script(home, "--url", served.url, *flags, *line).stdout == "10.141.0.1\n"
    flags = ("--token-file", files / "admin.token", "--cacert", files / "ca.crt")
    assert script(home, "--url", served.url, *flags, *line).stdout == "10.141.0.1\n"
    assert script(home, "--url", served.url, "--data", files, *line).stdout == "10.141.0.1\n"
    folder = home / ".config" / "bedplate"
    folder.mkdir(parents=True)
    for name in ("admin.token", "ca.crt"):
        (folder / name).write_bytes((files / name).read_bytes())
    assert script(home, "--url", served.url, *line).stdout == "10.141.0.1\n"
    (folder / "cmsh.yaml").write_text(f"url: {served.url}\n")
    assert script(home, *line).stdout == "10.141.0.1\n"


def test_a_refused_credential_and_a_silent_address_are_told_in_a_line(
    served: Head, home: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "token").write_text("bph_nonsense")
    flags = ("--token-file", tmp_path / "token", "--cacert", served.data / "ca.crt")
    refused = script(home, "--url", served.url, *flags, "-c", "device list")
    assert refused.returncode == 1
    assert "token" in refused.stderr and "nonsense" not in refused.stderr
    served.kill()
    gone = script(home, "--url", served.url, "--data", served.data, "-c", "device list")
    assert gone.returncode == 1
    assert served.url in gone.stderr and "Traceback" not in gone.stderr


def test_a_cold_line_loads_no_heavy_library_over_rest_either(served: Head, home: pathlib.Path) -> None:
    program = (
        "import sys\nfrom bedplate.apps.cmsh import main\n"
        "try:\n    main()\nfinally:\n"
        "    heavy = 'prompt_toolkit aiohttp rich cryptography jinja2 grpc yaml'.split()\n"
        "    print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, "--data", str(served.data), "-c", "device use node001; get ip"]
    environment = dict(os.environ) | own(home)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10.141.0.1\n", "[]\n")


def test_a_shell_behind_a_pipe_sees_what_others_commit(served: Head, home: pathlib.Path) -> None:
    command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(served.data)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with forkserver.Process(command, text=True, env=dict(os.environ) | own(home), **pipes) as child:

        def ask() -> str:
            child.stdin.write("get notes\n!echo end\n")
            child.stdin.flush()
            return "".join(iter(child.stdout.readline, "end\n")).strip()

        child.stdin.write("category use default\n")
        done = script(home, "--data", served.data, "-c", "category use default; set notes theirs; commit")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: ask() == "theirs", "the shell sees the commit", step_s=0.1)
        child.stdin.close()
        assert child.wait(TIMEOUT_S) == 0


def test_a_secret_is_in_no_output_and_in_no_log(served: Head, home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    secret = "hush-Hush-0123-never-told"
    looks = "show; diff; plan; export; history; audit; diff 2; get token; list -v; commit --dry-run"
    words = ("--data", served.data, "-vv", "-c")
    staged = script(home, *words, f"user use admin; set token {secret}; {looks}; frobnicate")
    committed = script(home, *words, f"user use admin; set token {secret}; commit -m why; {looks}; undo 2; {looks}")
    for done in (staged, committed):
        assert "*****" in done.stdout
        assert secret not in done.stdout + done.stderr
    for left in (*tmp_path.glob("*.log"), *tmp_path.glob("*.out"), *home.rglob("*")):
        assert left.is_dir() or secret not in left.read_text(errors="replace"), left


@pytest.mark.external
def test_notices_of_others_commits_and_of_devices_appear_above_the_prompt(served: Head, home: pathlib.Path) -> None:
    with shell(home, "--data", served.data) as screen:
        screen.enter("category use default; set notes mine")
        screen.wait_prompt(STARRED)
        screen.type("get not")
        done = script(home, "--data", served.data, "-c", "device use node001; set notes theirs; commit -m 'for you'")
        assert done.returncode == 0, done.stderr
        shown = screen.wait("committed revision 2")
        line = next(line for line in shown.splitlines() if "revision 2" in line)
        moment = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
        said = r"\[notice\] basecm10: admin committed revision 2: device\[node001\] \(for you\)"
        assert re.fullmatch(f"{moment} {said}", line)
        served.report("node001", headapi.Action(kind="service", name="shorewall", verb="restarted"))
        shown = screen.wait("[notice] node001: Service shorewall was restarted")
        assert re.search(rf"(?m)^{moment} \[notice\] node001: Service shorewall was restarted$", shown)
        # What was being typed is still there, below the notices.
        screen.wait_prompt(f"{STARRED} get not")
        screen.enter("es")
        screen.wait("\nmine\n")
        screen.enter("device use node001; get notes")
        screen.wait("\ntheirs\n")
        screen.enter("category use default; commit")
        screen.wait_prompt(DEFAULT)
        assert "committed revision 3" not in screen.text()


@pytest.mark.external
@pytest.mark.parametrize("moves", [False, True], ids=["where it was", "elsewhere"])
def test_a_shell_connects_again_with_what_is_staged(moves: bool, served: Head, home: pathlib.Path) -> None:
    with shell(home, "--data", served.data) as screen:
        screen.enter("category use default; set notes kept")
        screen.wait_prompt(STARRED)
        served.kill()
        screen.wait("[warning] basecm10: the connection to the head was lost")
        screen.wait_prompt(STARRED)
        if moves:
            served.move()
        served.start()
        screen.wait("[notice] basecm10: reconnected")
        screen.wait_prompt(STARRED)
        screen.enter("commit")
        screen.wait_prompt(DEFAULT)
    assert script(home, "--data", served.data, "-c", "category use default; get notes").stdout == "kept\n"


@pytest.mark.external
def test_a_commit_during_an_outage_waits_for_the_head(served: Head, home: pathlib.Path) -> None:
    with shell(home, "--data", served.data) as screen:
        screen.enter("category use default; set notes patient")
        screen.wait_prompt(STARRED)
        served.kill()
        screen.wait("was lost")
        screen.wait_prompt(STARRED)
        screen.enter("commit")
        served.start()
        screen.wait_prompt(DEFAULT)
        screen.enter("history -n 1")
        screen.wait("category[default]")
    seen = script(home, "--data", served.data, "-c", "history -d {}").stdout
    assert seen.count('"Revision"') == 2


@pytest.mark.external
def test_ctrl_c_gives_up_a_commit_and_keeps_it_staged(served: Head, home: pathlib.Path) -> None:
    with shell(home, "--data", served.data) as screen:
        screen.enter("category use default; set notes later")
        screen.wait_prompt(STARRED)
        served.kill()
        screen.wait("was lost")
        screen.wait_prompt(STARRED)
        screen.enter("commit")
        # Said by the command that runs: a key pressed before is one of the next line's.
        screen.wait("waiting for it, Ctrl-C gives up")
        screen.press("C-c")
        screen.wait("interrupted")
        screen.wait_prompt(STARRED)
        served.start()
        screen.wait("reconnected")
        screen.enter("commit")
        screen.wait_prompt(DEFAULT)
