"""How the application is run: with our own log, and with room for long addresses.

In: the application. Out: an aiohttp runner. What is not HTTP is refused by aiohttp itself, before any handler; it would
write a traceback for each such request to standard error, where a line is enough.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bedplate.core.logging import get_logger

__all__ = ["runner"]

_LOG = get_logger("head.http")
_LONGEST_LINE = 32 * 1024


class _Forward(logging.Handler):
    """aiohttp's own messages as ours: a peer that speaks no HTTP is its own trouble, anything else is a bug of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        err = record.exc_info[1] if record.exc_info else None
        if isinstance(err, HttpProcessingError):
            _LOG.v(2).info("head.no_http", error=" ".join(err.message.split())[:200])
        elif record.levelno >= logging.ERROR:
            _LOG.error("head.connection_failed", error=f"{record.getMessage()}: {err}" if err else record.getMessage())
        else:
            _LOG.v(6).info("head.connection", text=record.getMessage())


def _logger() -> logging.Logger:
    logger = logging.Logger("head.http", logging.INFO)
    logger.addHandler(_Forward())
    return logger


def runner(app: web.Application, *, shutdown_s: float = 2.0, kept_alive_s: float = 75.0) -> web.AppRunner:
    """To be set up, given sites, and cleaned up by its owner."""
    return web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=shutdown_s,
        keepalive_timeout=kept_alive_s,
        logger=_logger(),
        max_line_size=_LONGEST_LINE,
        max_field_size=_LONGEST_LINE,
    )
