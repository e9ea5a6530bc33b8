"""The front page and the tutorials in a fresh clone, word for word: as root, and as an ordinary user who has no cargo,
no Go, no docker and no kubectl; with LC_ALL=C, in a folder with an umlaut in its name.

What the commands print is held against the pages elsewhere, where nothing happens meanwhile; here machines stop and
pods come and go, as they do for a reader. Only kubectl is not built again: it lies in the cache already.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import pages, programs
from tests.docs.conftest import ROOT
from tests.docs.test_users_page import ALONE
from tests.waiting import wait_until

from bedplate.lab import binaries

pytestmark = [
    pytest.mark.external,
    pytest.mark.root,
    pytest.mark.xdist_group("fresh clone"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a repository to clone"),
]
DEADLINE_S = 1800
NOBODY = 65534
CLONE = "git clone REPOSITORY bedplate && cd bedplate"
# What an ordinary user of a small installation has.
TOOLS = (
    "bash sh make git env cat cp mv rm ln ls mkdir rmdir chmod touch head tail tee sort tr cut date sleep true false "
    "test expr dirname basename readlink realpath mktemp uname id printf echo ps grep sed awk find xargs tar gzip "
    "kill curl"
)
# Where packages come from, on machines that reach them in a way of their own.
KEPT = re.compile(r"(PIP_\w+|SSL_CERT_\w+|\w+_proxy|\w+_PROXY|GOPROXY|GOSUMDB|GOFLAGS)$")
TUTORIALS = sorted(page.stem for page in ROOT.glob("docs/tutorials/*.md"))
REFUSED = {
    "ipam": "nv-ipam is missing: install cargo",
    "two-users": "this page creates accounts, which needs root",
    "cloudlycke": "a lab needs root",
}
"""What the first step of a page says to a reader who has neither cargo nor root."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody with a home, and a clone in it once the front page was followed so far."""

    home: Path
    environ: dict[str, str]
    is_root: bool

    @property
    def clone(self) -> Path:
        return self.home / "bedplate"

    def start(self, line: str, out: Path, folder: Path, within: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        who: dict[str, int] = {} if self.is_root else {"user": NOBODY, "group": NOBODY}
        with out.open("wb") as target:
            return subprocess.Popen(
                [*within, "bash", "-c", line],
                cwd=folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=listen_to_ctrl_c,
                extra_groups=None if self.is_root else [],
                **who,
            )

    def run(self, lines: list[str], folder: Path, within: Sequence[str] = ()) -> str:
        """Run lines in one shell, as they stand; what they printed. What they started is ended. `within`: a command
        that runs the shell."""
        out = self.home.parent / "printed"
        script = "".join(f"echo '+ line {number}'\n{line}\n" for number, line in enumerate(lines))
        shell = self.start(f"set -o pipefail -e\n{script}", out, folder, within)
        try:
            code = shell.wait(DEADLINE_S)
        finally:
            end(shell)
        printed = out.read_text()
        at = int(re.findall(r"(?m)^\+ line (\d+)$", printed)[-1])
        assert code == 0, f"$ {lines[at]}\n{printed[-6000:]}"
        return printed

    @contextlib.contextmanager
    def make_up(self) -> Iterator[str]:
        """`make up` in the first terminal, until Ctrl-C; what it printed."""
        out = self.home.parent / "up"
        shell = self.start("exec make up", out, self.clone)
        try:

            def is_ready() -> bool:
                assert shell.poll() is None, out.read_text()
                return "cmsh --data .bedplate/head" in out.read_text()

            wait_until(is_ready, "all is up", step_s=0.5, describe=out.read_text, deadline_s=DEADLINE_S)
            yield out.read_text()
            os.killpg(shell.pid, signal.SIGINT)
            shell.wait(DEADLINE_S)
            assert "stopped; the data is kept in .bedplate" in out.read_text()
            assert "Traceback" not in out.read_text()
        finally:
            end(shell)


def listen_to_ctrl_c() -> None:
    """Where the tests run in the background, it is ignored in what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end(shell: subprocess.Popen[bytes]) -> None:
    """End what is left of a shell's own session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def python_for_all() -> Path:
    """A Python that every user may run; that of the tests may be in root's home."""
    names = ("python3", "python3.11", "python3.12", "python3.13", "python3.14")
    places = [Path(folder, name) for folder in ("/usr/local/bin", "/usr/bin") for name in names]
    question = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    for place in (Path(os.path.realpath(sys.executable)), *places):
        with contextlib.suppress(OSError):
            if not subprocess.run([place, "-c", question], user=NOBODY, capture_output=True, check=False).returncode:
                return place
    pytest.skip("no Python that another user may run")


@pytest.fixture(scope="module", params=["root", "an ordinary user"])
def reader(request: pytest.FixtureRequest) -> Iterator[Reader]:
    is_root = request.param == "root"
    kubectl = programs.built("kubectl")
    # Not in pytest's folder, which is root's alone.
    with tempfile.TemporaryDirectory(prefix="bedplate-größe-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        home, tools = folder / "home", folder / "tools"
        tools.mkdir()
        for tool in TOOLS.split():
            (tools / tool).symlink_to(programs.on_path(tool))
        (tools / "python3").symlink_to(python_for_all())
        cache = home / ".cache/bedplate" / kubectl.relative_to(kubectl.parents[3])
        cache.parent.mkdir(parents=True)
        shutil.copy(kubectl, cache)
        subprocess.run(["git", "clone", "-q", "--bare", str(ROOT), str(home / "hub.git")], timeout=600, check=True)
        if not is_root:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(home)], timeout=60, check=True)
        kept = {key: value for key, value in os.environ.items() if KEPT.match(key)}
        # A cargo of rustup's finds its parts by the home.
        kept |= {"RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))} if is_root else {}
        path = os.environ["PATH"] if is_root else str(tools)
        yield Reader(home, {**kept, "HOME": str(home), "PATH": path, "LC_ALL": "C"}, is_root)


@pytest.fixture(scope="module")
def followed(reader: Reader) -> Reader:
    """The front page was followed: there is a clone, `make up` ran in it and was stopped."""
    (clone, start, *second) = pages.console_lines(ROOT / "README.md")
    assert (clone, start) == (CLONE, "make up")
    reader.run([clone.replace("REPOSITORY", str(reader.home / "hub.git"))], reader.home)
    with reader.make_up() as printed:
        assert "Python packages ready" in printed
        if not reader.is_root:
            assert "left out: nv-ipam" in printed, "there is no cargo"
        reader.run([allowed(line) for line in second], reader.clone)
    return reader


UNSHARED = ("unshare", "--mount", "--propagation", "private")
PASTED = re.findall(r"(?m)^    (sudo --shell|export PATH=.*)$", (ROOT / "docs/tutorials/cloudlycke.md").read_text())


def allowed(line: str) -> str:
    """A plan that found something to do ends with 3; what is explained or checked may not be well just now."""
    return f"{line} || (($? == 1 || $? == 3))" if re.search(r"\bplan\b|\bexplain\b|\bdoctor\b", line) else line


def test_the_front_page(followed: Reader) -> None:
    assert (followed.clone / ".bedplate/kubeconfig").exists()


@pytest.mark.soak
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.lab if name == "cloudlycke" else ()) for name in TUTORIALS]
)
def test_a_tutorial(followed: Reader, name: str) -> None:
    page = ROOT / "docs/tutorials" / f"{name}.md"
    lines = [allowed(line) for line in pages.console_lines(page)]
    if name in REFUSED and not followed.is_root:
        # The PATH comes before a page's first block where a shell of root is opened.
        with pytest.raises(AssertionError, match=REFUSED[name]):
            followed.run([PASTED[-1], *lines] if name == "cloudlycke" else lines, followed.clone)
        return
    if name == "two-users":
        (followed.home.parent / "alone").mkdir()
        subprocess.run(["cp", "--archive", "/etc", str(followed.home.parent / "alone/etc")], timeout=60, check=True)
        followed.run(
            lines, followed.clone, [*UNSHARED, "bash", "-c", ALONE, "bash", str(followed.home.parent / "alone")]
        )
    elif name == "cloudlycke":
        # Programs of Kubernetes and images are not built again.
        cache = f"export BEDPLATE_CACHE={shlex.quote(str(binaries.cache_folder()))}"
        try:
            followed.run([cache, PASTED[-1], *lines], followed.clone)
        finally:
            for lab in ("c1", "c2"):
                followed.run([cache, PASTED[-1], f"bedplate lab down --name {lab} || true"], followed.clone)
    elif name == "first-steps":
        with followed.make_up():
            followed.run([f"export KUBECONFIG={followed.clone}/.bedplate/kubeconfig", *lines[1:]], followed.clone)
    elif name == "first-controller":
        (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        (followed.clone / "gpus.py").write_text(code)
        with followed.make_up():
            followed.run([f"{lines[0]} > gpus.log 2>&1 &", *lines[1:], "kill $!; wait"], followed.clone)
    else:
        followed.run(lines, followed.clone)


@pytest.mark.soak
def test_nothing_is_left_of_it_after_it_was_removed(followed: Reader) -> None:
    (removed,) = re.findall(r"`(rm -rf \.bedplate [^`]*)`", (ROOT / "README.md").read_text())
    followed.run(["make clean", removed], followed.clone)
    assert not any((followed.clone / name).exists() for name in (".venv", "build", ".bedplate"))
    assert not (followed.home / ".cache/bedplate").exists()
