"""Takes the pictures of the head's page in docs/pictures: a demonstration's head, after an hour of its time.

    python tools/headshots.py [FOLDER]

In: Debian's chromium and the package playwright. Out: PNG files. The head and its devices live by a clock that runs
faster, so that the plots have a history; pictures differ from run to run, so no test compares them.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path

from playwright.async_api import Page, async_playwright

from bedplate.cli.up import uphead
from bedplate.client import HeadClient
from bedplate.core import logging
from bedplate.core.clock import SystemClock
from bedplate.head.daemon import Daemon, Options
from bedplate.sim.agents import Devices, Pace
from bedplate.ui import web

IMAGES = Path(__file__).resolve().parent.parent / "docs/pictures"
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
BROWSER = "/usr/bin/chromium"
LIVES_S = 60.0
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 800}


class Hasty(SystemClock):
    """A clock that runs `times` as fast, and ends at the present when the pictures are taken."""

    def __init__(self, times: float) -> None:
        self._times = times
        self._started = super().monotonic()
        self._began = super().now() - timedelta(seconds=LIVES_S * (times - 1))

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic() - self._started)

    def monotonic(self) -> float:
        return self._started + (super().monotonic() - self._started) * self._times

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._times)


async def main() -> None:
    clock = Hasty(60.0)
    with tempfile.TemporaryDirectory() as folder:
        made = await uphead.folder_of(Path(folder) / "head", clock=clock)
        daemon = Daemon(made, Options(bind="127.0.0.1", port=0), web.serve, clock=clock)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(daemon.run())]
            await daemon.started.wait()
            client = HeadClient(daemon.url, token=made.admin_token(), ca_file=str(made.file("ca.crt")))
            async with client:
                devices = Devices(client, clock=clock, pace=Pace(reports_per_s=30))
                running.append(tasks.create_task(devices.run()))
                await asyncio.sleep(LIVES_S)
                await take(daemon.url, made.admin_token())
                running.pop().cancel()
            running.pop().cancel()


async def take(url: str, token: str) -> None:
    """Sign in, stage a change, and take the pictures."""
    FOLDER.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        player = await stack.enter_async_context(async_playwright())
        browser = await player.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for size, shots in ((WIDE, wide), (PHONE, phone)):
            context = await browser.new_context(ignore_https_errors=True, viewport=size)
            page = await context.new_page()
            await page.goto(f"{url}/login")
            await page.get_by_label("Token").fill(token)
            await page.get_by_role("button", name="Sign in", exact=True).click()
            await page.wait_for_url(f"{url}/")
            await shots(page, url)
        await browser.close()


async def wide(page: Page, url: str) -> None:
    await page.goto(f"{url}/edit/configurationoverlay/kube-default-worker/roles/kubelet")
    await page.get_by_label("Max Pods").fill("250")
    await page.get_by_role("button", name="Stage and show plan").click()
    await page.get_by_label("Message").fill("more pods on the workers")
    await shot(page, "head-plan")
    await page.get_by_role("button", name="Commit").click()
    await page.wait_for_timeout(3000)
    await shot(page, "head-overview", f"{url}/")
    await shot(page, "head-node", f"{url}/show/device/node014#health")


async def phone(page: Page, url: str) -> None:
    await shot(page, "head-phone", f"{url}/health")


async def shot(page: Page, name: str, address: str = "") -> None:
    """A picture of an address, or of what is shown already."""
    if address:
        await page.goto(address)
    # An anchor lies under the bar that stays.
    await page.evaluate("scrollBy(0, -160)")
    await page.wait_for_timeout(500)
    await page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    logging.configure(logging.LogOptions(), io.StringIO())
    asyncio.run(main())
