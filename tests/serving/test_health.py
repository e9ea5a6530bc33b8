"""Health checks as Kubernetes components report them."""

import asyncio

from bedplate.serving.health import Checks
from bedplate.store.interface import NoQuorum


def failing() -> None:
    raise RuntimeError("password is hunter2")


async def slow() -> None:
    await asyncio.sleep(0)


async def test_all_good_is_a_short_ok() -> None:
    assert await Checks("readyz", {"caches": slow}).report() == (200, "ok")


async def test_verbose_lists_every_check() -> None:
    report = await Checks("readyz", {"caches": slow}).report(verbose=True)
    assert report.text == "[+]ping ok\n[+]caches ok\nreadyz check passed\n"


async def test_a_verbose_answer_names_the_path_that_was_asked() -> None:
    report = await Checks("livez").report(verbose=True, shown_as="healthz")
    assert report.text == "[+]ping ok\nhealthz check passed\n"


async def test_a_reason_that_anybody_may_read_is_told() -> None:
    def failing() -> None:
        raise NoQuorum(1, 3)

    report = await Checks("readyz", {"store": failing}).report()
    assert "[-]store failed: etcd has no quorum: 1 of 3 members answer" in report.text


async def test_a_failing_check_is_named_but_its_reason_is_not_told() -> None:
    report = await Checks("readyz", {"cloud": failing, "caches": slow}).report()
    assert report.status == 500
    assert "[-]cloud failed: reason withheld" in report.text and "[+]caches ok" in report.text
    assert "hunter2" not in report.text


async def test_an_excluded_check_is_not_run() -> None:
    report = await Checks("readyz", {"cloud": failing}).report(exclude=["cloud", "typo"], verbose=True)
    assert report.status == 200
    assert "[+]cloud excluded: ok" in report.text
    assert 'no matches for "typo"' in report.text


async def test_single_checks_can_be_asked_for() -> None:
    checks = Checks("livez", {"cloud": failing})
    assert (await checks.report_one("ping")).status == 200
    assert (await checks.report_one("cloud")).status == 500
    assert (await checks.report_one("nothing")).status == 404
