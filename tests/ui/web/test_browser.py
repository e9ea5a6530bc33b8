"""The page in a real Chromium over a real daemon; what it did is read back in `cmsh`."""

from __future__ import annotations

import http.cookiejar
import json
import pathlib
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.apps import headprograms
from tests.apps.headprograms import Served
from tests.ui.web import browsing
from tests.ui.web.browsing import DEADLINE_MS, DESKTOP, PHONE, Window
from tests.ui.web.reading import Page

# One browser and one daemon for all of them, also where tests run side by side.
pytestmark = [pytest.mark.external, pytest.mark.xdist_group("page")]
expect.set_options(timeout=DEADLINE_MS)
SECRET = "hunter2-never-shown"
# A category of its own for each test that changes one, so that none depends on another.
SETUP = (
    "category; "
    + "; ".join(f"clone default {name}; exit" for name in ("desk", "phone", "plain"))
    + "; commit; device; "
)
SETUP += "; ".join(
    f"foreach -n {nodes} (set category {name})"
    for name, nodes in (("desk", "node001..node004"), ("phone", "node005..node008"), ("plain", "node009..node012"))
)
SETUP += "; commit -m 'three categories'"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsing.browser() as made:
        yield made


@pytest.fixture(scope="module")
def daemon(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A head as its user starts it; after the browser, so that nothing is started where there is none."""
    data = headprograms.init(tmp_path_factory.mktemp("head") / "data", "--nodes", "12")
    with headprograms.served(data) as served:
        cmsh(served, SETUP)
        yield served


def token(daemon: Served) -> str:
    return (daemon.data / "admin.token").read_text().strip()


def cmsh(daemon: Served, commands: str) -> str:
    program = pathlib.Path(sys.executable).with_name("cmsh")
    done = subprocess.run(
        [program, "--data", daemon.data, "-c", commands],
        capture_output=True,
        text=True,
        timeout=DEADLINE_MS / 1000,
        env=headprograms.environment(),
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("size", "script", "category", "nodes"),
    [
        pytest.param(DESKTOP, True, "desk", "node001..node004", id="desktop"),
        pytest.param(PHONE, True, "phone", "node005..node008", id="phone"),
        pytest.param(PHONE, False, "plain", "node009..node012", id="phone without JavaScript"),
    ],
)
def test_a_change_is_staged_planned_committed_and_undone_and_cmsh_sees_it(
    chromium: Browser, daemon: Served, size: tuple[int, int], script: bool, category: str, nodes: str
) -> None:
    asked = f"category; use {category}; get installmode"
    with browsing.window(chromium, daemon.url, size, script=script) as one:
        page = one.page
        one.sign_in(token(daemon))
        _menu(one, "Categories")
        page.get_by_role("link", name=category, exact=True).click()
        page.get_by_role("link", name="Edit").click()
        assert one.fits()
        page.get_by_label("Install mode").select_option("FULL")
        page.get_by_role("button", name="Stage and show plan").click()
        one.has(nodes)
        expect(page.locator("del")).to_have_text("AUTO (default)")
        expect(page.locator("ins")).to_have_text("FULL")
        expect(page.locator(".plan tbody tr")).to_have_count(1)
        expect(page.locator(".plan .name")).to_have_text("install_mode")
        assert one.fits()
        assert cmsh(daemon, asked) == "AUTO"
        page.get_by_label("Message").fill("install again")
        page.get_by_role("button", name="Commit").click()
        one.has("is committed.")
        assert cmsh(daemon, asked) == "FULL"
        number = page.url.rsplit("/", 1)[1]
        _menu(one, "History")
        expect(page.locator("tbody tr").first).to_contain_text("install again")
        page.get_by_role("link", name=number, exact=True).click()
        page.get_by_role("link", name="Undo…").click()
        one.has("what the undo would change")
        page.get_by_role("button", name=f"Undo revision {number}").click()
        one.has(f"Revision {number} is undone by revision {int(number) + 1}.")
        assert one.fits()
        assert cmsh(daemon, asked) == "AUTO"
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(daemon.url + "/login")


def _menu(one: Window, name: str) -> None:
    """Go to a page by the menu, which is folded on a phone."""
    menu = one.page.get_by_role("navigation", name="Pages")
    summary = menu.get_by_text("Menu", exact=True)
    if summary.is_visible():
        summary.click()
    menu.get_by_role("link", name=name, exact=True).locator("visible=true").click()


def test_tables_read_without_javascript(chromium: Browser, daemon: Served) -> None:
    with browsing.window(chromium, daemon.url, DESKTOP, script=False) as one:
        one.sign_in(token(daemon))
        one.open("/show/device?q=node01")
        rows = one.page.locator("tbody tr")
        assert [row.locator("td.key").inner_text() for row in rows.all()] == ["node010", "node011", "node012"]
        one.open("/show/device/node001")
        one.has("from category:desk")
        expect(one.page.locator(".compact tbody tr").first).to_be_visible()


def test_an_event_of_somebody_else_appears_without_a_reload(chromium: Browser, daemon: Served) -> None:
    with browsing.window(chromium, daemon.url) as one, browsing.window(chromium, daemon.url, PHONE) as other:
        one.sign_in(token(daemon))
        one.open("/events")
        other.sign_in(token(daemon))
        for each in (one, other):
            each.page.locator("body[data-stream=open]").wait_for()
            each.page.evaluate("window.isTheSamePage = true")
        before = int(one.page.locator("#revision").inner_text())
        cmsh(daemon, "device; use node003; set notes 'live words'; commit -m 'from a shell'")
        row = one.page.locator("[data-feed=events] tr", has_text="from a shell")
        expect(row).to_contain_text("device[node003]")
        expect(one.page.locator("#revision")).to_have_text(str(before + 1))
        expect(other.page.locator("#live")).to_contain_text("from a shell")
        assert all(each.page.evaluate("window.isTheSamePage") for each in (one, other))


def test_a_roll_out_is_followed_live_and_stopped_by_hand(chromium: Browser, daemon: Served) -> None:
    """Nodes report; an open page shows it without a reload, at both widths."""
    nodes = ["node001", "node002", "node003", "node004"]

    def report(*names: str) -> None:
        for name in names:
            request = urllib.request.Request(
                f"{daemon.url}/api/v1/nodes/{name}/desired", headers={"Authorization": f"Bearer {token(daemon)}"}
            )
            context: ssl.SSLContext = headprograms.trust(daemon.data)
            with urllib.request.urlopen(request, timeout=DEADLINE_MS / 1000, context=context) as response:
                state, etag = json.loads(response.read()), response.headers["ETag"].strip('"')
            told = {"applied": state["revision"], "digest": etag}
            _asked(daemon, f"/api/v1/nodes/{name}/report", json.dumps(told).encode(), method="POST")

    report(*nodes)
    cmsh(daemon, "category use desk; set installmode FULL; commit --batch 2 --settle 86400")
    with browsing.window(chromium, daemon.url) as one, browsing.window(chromium, daemon.url, PHONE) as other:
        for each in (one, other):
            each.sign_in(token(daemon))
            each.open("/rollout")
            each.page.locator("body[data-stream=open]").wait_for()
            each.page.evaluate("window.isTheSamePage = true")
            expect(each.page.locator("#rollout-nodes tbody tr", has_text="node002")).to_contain_text("pending")
            assert each.fits()
        report("node001", "node002")
        for each in (one, other):
            row = each.page.locator("#rollout-nodes tbody tr", has_text="node002")
            expect(row).to_contain_text("applied")
            assert each.page.evaluate("window.isTheSamePage")
        one.page.get_by_role("button", name="Pause").click()
        one.has("Paused by admin.")
        expect(other.page.get_by_role("button", name="Go on", exact=True)).to_be_visible()
        expect(other.page.locator("#rollout-now")).to_contain_text("paused")
        one.open("/show/device/node001")
        one.page.locator("body[data-stream=open]").wait_for()
        expect(one.page.locator("#agent")).to_contain_text("The node is what it should be")
        other.page.get_by_role("button", name="Undo on all nodes").click()
        other.has("is undone.")
        expect(one.page.locator("#agent")).to_contain_text("install_mode")
        assert one.fits()
    assert "undone" in cmsh(daemon, "rollout")


def test_lists_are_filtered_while_typing_and_sorted_by_a_click(chromium: Browser, daemon: Served) -> None:
    with browsing.window(chromium, daemon.url) as one:
        one.sign_in(token(daemon))
        one.open("/show/device")
        one.page.get_by_label("Filter").fill("node01")
        expect(one.page.locator("tbody tr:visible")).to_have_count(3)
        one.page.get_by_label("Filter").fill("")
        head = one.page.get_by_role("button", name="Hostname (key)")
        head.click()
        head.press("Enter")
        expect(one.page.locator("tbody tr").first).to_contain_text("node012")
        expect(one.page.locator("th[aria-sort=descending]")).to_have_count(1)


@pytest.mark.parametrize(
    ("size", "script"), [(DESKTOP, True), (PHONE, False)], ids=["desktop", "phone without JavaScript"]
)
def test_many_objects_are_edited_at_once(
    chromium: Browser, daemon: Served, size: tuple[int, int], script: bool
) -> None:
    words = f"many at once, {'by a script' if script else 'without one'}"
    with browsing.window(chromium, daemon.url, size, script=script) as one:
        page = one.page
        one.sign_in(token(daemon))
        one.open("/show/device")
        if script:
            page.get_by_label("Filter").fill("node01")
            expect(page.get_by_role("button", name="Edit all 3 that match…")).to_be_enabled()
            page.get_by_label("Select all that are shown").check()
            page.get_by_role("button", name="Edit 3 selected…").click()
        else:
            for name in ("node010", "node011", "node012"):
                page.get_by_label(f"Select {name}", exact=True).check()
            page.get_by_role("button", name="Edit selected…").click()
        expect(page.locator("h1")).to_have_text("Edit 3 Devices")
        page.get_by_label("Notes", exact=True).fill(words)
        assert one.fits()
        page.get_by_role("button", name="Stage and show plan").click()
        one.has("device[node010..node012]")
        page.get_by_role("button", name="Commit").click()
        one.has("is committed.")
    for name in ("node010", "node012"):
        assert cmsh(daemon, f"device; use {name}; get notes") == words
    assert cmsh(daemon, "device; use node009; get notes") != words


def test_the_keyboard_reaches_everything(chromium: Browser, daemon: Served) -> None:
    with browsing.window(chromium, daemon.url) as one:
        one.sign_in(token(daemon))
        one.open("/edit/device/node001")
        one.page.keyboard.press("Tab")
        expect(one.page.locator(":focus")).to_have_text("Skip to content")
        one.page.keyboard.press("Enter")
        expect(one.page.locator("main:focus")).to_have_count(1)
        notes = one.page.get_by_label("Notes")
        for _ in range(40):
            one.page.keyboard.press("Tab")
            if notes.evaluate("field => field === document.activeElement"):
                break
        one.page.keyboard.type("typed blindly")
        one.page.get_by_role("button", name="Stage", exact=True).press("Enter")
        one.has("device[node001] is staged.")


def test_an_auditor_reads_and_is_offered_nothing_to_change(chromium: Browser, daemon: Served) -> None:
    cmsh(daemon, "user; add eve; set role auditor; commit")
    made = headprograms.bedplate("head", "token", "create", "eve", "--data", daemon.data)
    words = [word for word in made.stdout.split() if word.startswith("bph_")]
    with browsing.window(chromium, daemon.url, PHONE, expected=("403",)) as one:
        one.sign_in(words[0])
        for address in ("/", "/show/device/node001", "/show/category/default", "/changes", "/history/1"):
            one.open(address)
            expect(one.page.locator("main form[method=post], main a[href^='/edit']")).to_have_count(0)
            assert one.fits(), address
        one.open("/edit/device/node001")
        one.has("has read-only access")


def test_a_staged_secret_is_in_no_page_log_or_answer_of_the_daemon(chromium: Browser, daemon: Served) -> None:
    with browsing.window(chromium, daemon.url) as one:
        one.sign_in(token(daemon))
        _asked(daemon, "/api/v1/objects/kubernetes/k8s", b'{"values": {}}')
        one.open("/edit/kubernetes/k8s")
        one.page.locator("summary", has_text="Certificates").click()
        one.page.get_by_label("Kube CA Key", exact=True).fill(f"{SECRET}\nsecond line\n")
        one.page.get_by_role("button", name="Stage and show plan").click()
        one.has("not set")
        for address in ("/changes", "/show/kubernetes/k8s", "/edit/kubernetes/k8s", "/events", "/search?q=hunter"):
            one.open(address)
            assert SECRET not in one.page.content(), address
        for address in ("tree", "export", "revisions", "audit", "notices"):
            assert SECRET not in _asked(daemon, f"/api/v1/{address}"), address
        assert SECRET not in daemon.log()
        one.open("/changes")
        one.page.get_by_role("button", name="Commit").click()
        one.has("is committed.")
        assert SECRET not in one.page.content()
        assert "second line" not in one.page.content()
        for address in ("tree", "export", "revisions", "audit", "notices"):
            assert SECRET not in _asked(daemon, f"/api/v1/{address}"), address
        assert SECRET not in daemon.log()


def _asked(daemon: Served, address: str, put: bytes | None = None, *, method: str = "PUT") -> str:
    headers = {"Authorization": f"Bearer {token(daemon)}", "Content-Type": "application/json"}
    method = "GET" if put is None else method
    request = urllib.request.Request(daemon.url + address, put, headers, method=method)
    context: ssl.SSLContext = headprograms.trust(daemon.data)
    with urllib.request.urlopen(request, timeout=DEADLINE_MS / 1000, context=context) as response:
        return str(json.dumps(response.read().decode()))


def test_whoever_has_a_certificate_signs_in_with_it(daemon: Served) -> None:
    trusted = headprograms.trust(daemon.data, daemon.data / "admin.crt")
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=trusted), urllib.request.HTTPCookieProcessor(jar)
    )
    with opener.open(f"{daemon.url}/login", timeout=DEADLINE_MS / 1000) as response:
        form = Page(response.read().decode()).forms[1]
    body = urllib.parse.urlencode(form.fields | {"certificate": "yes"}).encode()
    with opener.open(f"{daemon.url}/login", body, timeout=DEADLINE_MS / 1000) as response:
        page = Page(response.read().decode())
    assert "Overview" in page.text
    assert all(cookie.secure for cookie in jar)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        _posted_without_certificate(daemon, jar)


def _posted_without_certificate(daemon: Served, jar: http.cookiejar.CookieJar) -> None:
    """The same form over a connection that shows no certificate."""
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=headprograms.trust(daemon.data)), urllib.request.HTTPCookieProcessor(jar)
    )
    jar.clear()
    with opener.open(f"{daemon.url}/login", timeout=DEADLINE_MS / 1000) as response:
        page = Page(response.read().decode())
    assert len(page.forms) == 1, "nobody is offered"
    body = urllib.parse.urlencode(page.forms[0].fields | {"certificate": "yes"}).encode()
    opener.open(f"{daemon.url}/login", body, timeout=DEADLINE_MS / 1000).close()


def test_every_page_fits_a_phone_and_says_nothing_wrong(chromium: Browser, daemon: Served) -> None:
    with browsing.window(chromium, daemon.url, PHONE, expected=("404",)) as one:
        one.open("/login")
        assert one.fits()
        one.sign_in(token(daemon))
        for address in (
            "/",
            "/health",
            "/rollout",
            "/images",
            "/setup",
            "/setup/deploy",
            "/events",
            "/changes",
            "/roles",
            "/appgroups",
            "/people",
            "/show/device",
            "/show/device/node001",
            "/show/network/internalnet",
            "/edit/network/internalnet",
            "/show/healthcheck",
            "/history",
            "/history/1",
            "/credentials",
            "/bulk/device?q=node",
            "/search?q=node",
            "/nowhere",
        ):
            one.open(address)
            expect(one.page.locator("h1")).to_be_visible()
            assert one.fits(), address


def test_long_names_widen_no_page(chromium: Browser, daemon: Served) -> None:
    word = "name-that-somebody-chose-without-a-thought-of-phones-0123456789"
    lines = [
        f"category; clone default {word}; exit; commit -m {word}{word}",
        f"user; add {word}; commit; kubernetes; add {word}; kubernetesusers; add {word[:60]}; /; commit",
        f"device; add {word}; set category {word}; set notes {word * 4}; commit",
    ]
    cmsh(daemon, "; /; ".join(lines))
    shown = (
        *("/", "/health", "/history", "/credentials", "/people", f"/people/{word}", "/setup", "/setup/deploy"),
        *(f"/setup/runs/{word}/remove", "/show/device", f"/show/device/{word}", f"/edit/device/{word}"),
        *("/show/category", f"/show/category/{word}", f"/show/kubernetes/{word}", f"/search?q={word}", "/events"),
    )
    for size in (PHONE, DESKTOP):
        with browsing.window(chromium, daemon.url, size) as one:
            one.sign_in(token(daemon))
            for address in shown:
                one.open(address)
                expect(one.page.locator("h1")).to_be_visible()
                assert one.fits(), f"{address} at {size[0]}"
    cmsh(
        daemon,
        f"device; remove {word}; commit; /; kubernetes; remove {word}; commit; /; category; remove {word}; commit",
    )
