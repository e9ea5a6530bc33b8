"""Health as Kubernetes components report it: named checks, a verbose list, single checks by path.

In: checks, each a function that returns nothing or raises. Out: status code and text for /healthz, /livez, /readyz.
Pure but for the checks. A failing check names itself, not its reason, which may hold what an anonymous reader should
not see, unless the error says that anybody may read it (`is_public`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from bedplate.core import logging

__all__ = ["Check", "Checks", "Report"]

Check = Callable[[], Awaitable[None] | None]
log = logging.get_logger("serving.health")
_CHECK_TIMEOUT_S = 5.0


class Report(NamedTuple):
    """An answer to a probe."""

    status: int
    text: str


class Checks:
    """The checks of one path (`/readyz`). `note`: a line for the verbose list, or nothing."""

    def __init__(
        self, name: str, checks: Mapping[str, Check] | None = None, *, note: Callable[[], str] = lambda: ""
    ) -> None:
        self.name = name
        self._note = note
        self._checks: dict[str, Check] = {"ping": lambda: None, **(checks or {})}

    def add(self, name: str, check: Check) -> None:
        self._checks[name] = check

    @property
    def names(self) -> list[str]:
        return list(self._checks)

    async def report(self, *, exclude: Collection[str] = (), verbose: bool = False, shown_as: str = "") -> Report:
        """Run all checks but the excluded ones. `shown_as`: the path that was asked for, if it has another name."""
        title = shown_as or self.name
        lines, failed = [], []
        for name, check in self._checks.items():
            if name in exclude:
                lines.append(f"[+]{name} excluded: ok")
            elif (fault := await self._fault(name, check)) is None:
                lines.append(f"[+]{name} ok")
            else:
                reason = str(fault) if getattr(fault, "is_public", False) else "reason withheld"
                lines.append(f"[-]{name} failed: {reason}")
                failed.append(name)
        unknown = sorted(set(exclude) - set(self._checks))
        if unknown:
            quoted = ", ".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        if note := self._note():
            lines.append(note)
        if failed:
            return Report(500, "\n".join([*lines, f"{title} check failed", ""]))
        return Report(200, "\n".join([*lines, f"{title} check passed", ""]) if verbose else "ok")

    async def report_one(self, name: str) -> Report:
        """Run one check by name."""
        check = self._checks.get(name)
        if check is None:
            return Report(404, f"no check named {name}\n")
        return Report(200, "ok") if await self._fault(name, check) is None else Report(500, "internal server error\n")

    async def _fault(self, name: str, check: Check) -> Exception | None:
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                result = check()
                if result is not None:
                    await result
        except Exception as err:
            log.warning("health.check_failed", check=f"{self.name}/{name}", error=str(err) or type(err).__name__)
            return err
        return None
