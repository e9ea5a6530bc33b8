"""Takes the pictures of the head's page in docs/pictures: a demonstration's head, after an hour of its time.

    python tools/headshots.py [FOLDER]
    python tools/headshots.py --nodes 2000 FOLDER

In: Debian's chromium and the package playwright. Out: PNG files. The head and its devices live by a clock that runs
faster, so that the plots have a history; pictures differ from run to run, so no test compares them. With `--nodes`
they are of every kind of page of a site of that size, wide and on a phone, light and dark, to be looked at before a
change of the page is called done; it says which page is wider than its window.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec
from playwright.async_api import FloatRect, Page, ViewportSize, async_playwright

from bedplate.api.headapi import Result
from bedplate.cli.up import demotree, uphead
from bedplate.client import HeadClient
from bedplate.core import logging
from bedplate.core.clock import SystemClock
from bedplate.head.access import USER
from bedplate.head.daemon import Daemon, Options
from bedplate.head.folder import creation, datafolder
from bedplate.head.health import NODES
from bedplate.head.policy import Identity
from bedplate.head.tokens import Tokens
from bedplate.sim.agents import Devices, Pace
from bedplate.store.interface import Put
from bedplate.ui import web

IMAGES = Path(__file__).resolve().parent.parent / "docs/pictures"
OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("folder", nargs="?", type=Path, default=IMAGES)
OPTIONS.add_argument("--nodes", type=int, default=0)
ASKED = OPTIONS.parse_args()
FOLDER: Path = ASKED.folder
BROWSER = "/usr/bin/chromium"
LIVES_S = 60.0
Kind = tuple[ViewportSize, Literal["light", "dark"], Callable[[Page, str], Awaitable[None]]]
WIDE, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=800)


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
    async with AsyncExitStack() as stack:
        player = await stack.enter_async_context(async_playwright())
        browser = await player.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        kinds: list[Kind] = [(WIDE, "light", wide), (PHONE, "dark", phone)]
        if ASKED.nodes:
            kinds = [(WIDE, "light", every), (WIDE, "dark", every), (PHONE, "light", every), (PHONE, "dark", every)]
        for size, scheme, shots in kinds:
            context = await browser.new_context(ignore_https_errors=True, viewport=size, color_scheme=scheme)
            page = await context.new_page()
            page.set_default_timeout(120_000)
            await page.goto(f"{url}/login")
            await page.get_by_label("Token").fill(token)
            await page.get_by_role("button", name="Sign in", exact=True).click()
            await page.wait_for_url(f"{url}/")
            await shots(page, url)
        await browser.close()


async def look() -> None:
    """A site of any size, whose nodes have reported once, and every kind of its pages."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "head"
        await creation.make(data, name=uphead.NAME, nodes=ASKED.nodes)
        async with datafolder.open_head(data) as opened:
            await fill(opened)
        daemon = Daemon(opened.folder, Options(bind="127.0.0.1", port=0), web.serve)
        task = asyncio.create_task(daemon.run())
        try:
            await daemon.started.wait()
            await take(daemon.url, opened.folder.admin_token())
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def fill(opened: datafolder.Opened) -> None:
    """Clusters, users, tokens; of the nodes some fail a check, some have stopped reporting, some never have."""
    session = opened.head.session()
    demotree.stage(session)
    session.add(("category", demotree.GPU_CATEGORY, "roles"), "Docker::Host")
    session.set(session.add(("user",), "olga"), "role", "operator")
    session.add(("user",), "anna-with-a-long-name-of-a-person")
    await opened.head.commit_as(Identity.local("bedplate up"), session.edits(), "a cluster to look at")
    tokens = Tokens(opened.store)
    for name, days in (("laptop", 5), ("the pipeline of the storage team", 200)):
        await tokens.create(USER, "olga", name, lasts=timedelta(days=days), by="admin")
    health, notices = await opened.health(), await opened.notices()
    for number, node in enumerate(opened.head.tree.mode("device")):
        if number % 37 == 5:
            continue
        failing = Result("disk", "FAIL", info="/var is 97% full")
        disk = failing if number % 23 == 7 else Result("disk", "PASS")
        await health.record(node, [disk, Result("Docker", "PASS"), Result("load", "PASS", number % 20)], applied=2)
        if disk is failing:
            await notices.add(node, f"Check disk failed: {failing.info}", "warning")
        told = health.of(node)
        if number % 41 == 3 and told is not None:
            silent = msgspec.structs.replace(told, heard="2026-01-01T00:00:00.000Z")
            await opened.store.commit([Put(NODES + node, msgspec.json.encode(silent))])


PAGES = {
    "overview": "/",
    "devices": "/show/device",
    "device": "/show/device/node{0}",
    "edit-device": "/edit/device/node{0}",
    "cluster": "/show/kubernetes/default",
    "edit-cluster": "/edit/kubernetes/default",
    "edit-overlay": "/edit/configurationoverlay/kube-default-worker",
    "edit-role": "/edit/category/gpu/roles/Docker::Host",
    "bulk": "/bulk/device?q=gpu",
    "health": "/health",
    "roles": "/roles",
    "credentials": "/credentials",
    "history": "/history",
    "events": "/events",
}


async def every(page: Page, url: str) -> None:
    """Every kind of page, and many staged changes."""
    number = f"{ASKED.nodes - 1:0{max(len(str(ASKED.nodes)), 3)}d}"
    for name, address in PAGES.items():
        await whole(page, name, url + address.format(number))
    await page.goto(url + PAGES["bulk"])
    await page.get_by_label("Install mode", exact=True).select_option(label="FULL")
    await page.get_by_role("button", name="Stage and show plan").click()
    await page.wait_for_url(f"{url}/changes")
    await whole(page, "changes", f"{url}/changes")


async def whole(page: Page, name: str, address: str) -> None:
    """A picture of a page from its beginning, also of what is below the window."""
    await page.goto(address)
    dark = await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    inner, width, height = await page.evaluate(
        "[innerWidth, document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    if width > inner:
        sys.stdout.write(f"{name} is {width} wide in a window of {inner}\n")
    clip = FloatRect(x=0, y=0, width=inner, height=min(height, 2600))
    file = f"{name}-{ASKED.nodes}-{inner}-{'dark' if dark else 'light'}.png"
    await page.screenshot(path=FOLDER / file, full_page=True, clip=clip)


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
    await shot(page, "head-phone", f"{url}/")


async def shot(page: Page, name: str, address: str = "") -> None:
    """A picture of an address, or of what is shown already."""
    if address:
        await page.goto(address)
    await page.wait_for_timeout(500)
    await page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    logging.configure(logging.LogOptions(), io.StringIO())
    FOLDER.mkdir(parents=True, exist_ok=True)
    asyncio.run(look() if ASKED.nodes else main())
