"""Chromium for tests of the page: one browser, windows of several widths, and a record of everything that went wrong.

In: the Chromium of the machine. Out: windows (`Window`) in which a test clicks as people do. `Missing` carries the
reason why there is no browser; the caller skips.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from tests import programs

DEADLINE_MS = 120_000.0
DESKTOP, PHONE = (1280, 900), (390, 844)
# Runs before the page's own script, outside of its policy: tells what the policy forbade.
_WATCH = """document.addEventListener("securitypolicyviolation",
  (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"""


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium that can reach this machine alone."""
    program = programs.on_path("chromium")
    arguments = [
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ]
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=arguments, timeout=DEADLINE_MS)
        try:
            yield made
        finally:
            made.close()


@dataclass
class Window:
    """One window with its own cookies. `wrong` is what should not have happened."""

    page: Page
    url: str
    wrong: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def open(self, address: str) -> None:
        self.page.goto(self.url + address)

    def sign_in(self, token: str) -> None:
        self.open("/login")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(self.url + "/")

    def has(self, text: str) -> None:
        """Wait until the page's main part says so."""
        self.page.locator("main").get_by_text(text).first.wait_for()

    def fits(self) -> bool:
        """Whether nothing sticks out at the side."""
        wide = self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        return bool(wide[0] <= wide[1])

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(word in message.text for word in self.expected):
            self.wrong.append(f"console {message.type}: {message.text}")

    def _note_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.wrong.append(f"foreign request: {request.url}")


@contextlib.contextmanager
def window(
    browser: Browser, url: str, size: tuple[int, int] = DESKTOP, *, script: bool = True, expected: tuple[str, ...] = ()
) -> Iterator[Window]:
    """A window; in the end nothing must have gone wrong in it."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        java_script_enabled=script,
        ignore_https_errors=True,
        has_touch=size == PHONE,
        is_mobile=size == PHONE,
    )
    try:
        context.set_default_timeout(DEADLINE_MS)
        context.add_init_script(_WATCH)
        made = Window(context.new_page(), url, expected=expected)
        made.page.on("console", made._note_console)
        made.page.on("pageerror", lambda error: made.wrong.append(f"error: {error}"))
        context.on("request", made._note_request)
        yield made
        assert not made.wrong, repr(made.wrong)
    finally:
        context.close()
