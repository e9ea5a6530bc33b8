"""A deployment from the page in a real Chromium over a real daemon, whose tool has stages that need no nodes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.apps import headprograms
from tests.setup.serving.faking import SECRET, Fake
from tests.ui.web import browsing
from tests.ui.web.browsing import DEADLINE_MS, DESKTOP, PHONE, Window

pytestmark = [pytest.mark.external, pytest.mark.xdist_group("page")]
expect.set_options(timeout=DEADLINE_MS)
SERVER = Path(__file__).with_name("setupserver.py")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsing.browser() as made:
        yield made


class Daemon:
    """A head that can be killed and started again at the same port."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.port = "0"
        self.start()

    def start(self) -> None:
        words = [sys.executable, str(SERVER), str(self.fake.folder), self.port]
        with (self.fake.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.port = self.url.rpartition(":")[2]

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def token(self) -> str:
        return (self.fake.data / "admin.token").read_text().strip()


@pytest.fixture(scope="module")
def daemon(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    fake = Fake(tmp_path_factory.mktemp("setups"))
    fake.world.mkdir()
    headprograms.init(fake.data, "--nodes", "6")
    made = Daemon(fake)
    yield made
    made.end(signal.SIGTERM)
    fake.end()
    log = (fake.folder / "log").read_text()
    assert SECRET not in log and "Traceback" not in log


def tick(window: Window, role: str, node: str) -> None:
    window.page.locator(f"[data-field='a.kubernetes.nodes.{role}.nodes']").get_by_label(node).check()


def answer(window: Window, name: str) -> None:
    """Fill in the form with one mistake, correct it, and go on to the summary."""
    page = window.page
    window.open("/setup/deploy")
    page.get_by_label("Cluster name").fill("Bad_Name")
    window.has("must be a name of lower-case letters")  # while it is typed
    page.get_by_label("Cluster name").fill(name)
    tick(window, "masters", "node001")
    tick(window, "workers", "node002")
    page.get_by_role("button", name="Check and show summary").click()
    window.has("Nothing was changed yet")
    assert window.fits()


@pytest.mark.parametrize(
    ("size", "scheme", "name"), [(DESKTOP, "light", "first"), (PHONE, "dark", "second")], ids=["desktop", "phone"]
)
def test_items_216_217_a_run_is_followed_live_while_its_daemon_is_killed(
    chromium: Browser, daemon: Daemon, size: tuple[int, int], scheme: str, name: str
) -> None:
    fake, away = daemon.fake, ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_NETWORK", "ERR_EMPTY")
    with browsing.window(chromium, daemon.url, size, expected=away) as window:
        page = window.page
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        window.sign_in(daemon.token)
        answer(window, name)
        fake.will("hold")
        page.get_by_role("button", name="Deploy").click()
        window.has("********@mirror.example.com")
        assert SECRET not in page.content() and window.fits()
        daemon.end(signal.SIGKILL)
        daemon.start()
        page.reload()
        expect(page.get_by_role("button", name="Abort")).to_be_visible()
        page.locator("details[data-key='Make Etcd'] summary").click()
        fake.will("fail")
        fake.will_not("hold")
        # Nobody touches the page: the stream tells that the run moved on.
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        window.has("answered 500")
        expect(page.locator("details[data-key='Make Etcd'][open]")).to_be_visible()
        assert window.fits() and SECRET not in page.content()
        fake.will_not("fail")
        page.get_by_role("button", name="Resume").click()
        window.has("4 of 4 stages")
        assert window.fits()
        window.open("/setup")
        window.has("completed")
        assert window.fits()


def test_without_javascript_the_same_is_done_by_forms(chromium: Browser, daemon: Daemon) -> None:
    with browsing.window(chromium, daemon.url, PHONE, script=False, expected=("400",)) as window:
        page = window.page
        window.sign_in(daemon.token)
        window.open("/setup/deploy")
        page.get_by_label("Cluster name").fill("third")
        page.get_by_role("button", name="Check and show summary").click()
        window.has("at least one control-plane node is needed")
        tick(window, "masters", "node003")
        page.get_by_role("button", name="Check and show summary").click()
        window.has("Nothing was changed yet")
        page.get_by_role("button", name="Deploy").click()
        window.has("started by admin")
        assert window.fits()


def test_a_network_that_nobody_touched_follows_the_other_one(chromium: Browser, daemon: Daemon) -> None:
    with browsing.window(chromium, daemon.url, DESKTOP) as window:
        page = window.page
        window.sign_in(daemon.token)
        window.open("/setup/deploy")
        before = page.get_by_label("Pod network").input_value()
        page.get_by_label("Service network").fill(before)
        expect(page.get_by_label("Pod network")).not_to_have_value(before)
        page.locator("[name='a.kubernetes.cni']").select_option("calico")
        expect(page.get_by_label("Manifest of the plugin")).to_be_visible()
