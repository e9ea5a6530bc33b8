"""The way of a request: who asks and whether they may (`access`), which verb answers (`dispatch`).

In: `http.Request`. Out: `http.Response` or `http.Stream`. Reads that need no waiting are answered at once; everything
else becomes a coroutine. Whatever goes wrong on the way becomes a `Status` here.
"""

from __future__ import annotations

from collections.abc import Awaitable

from bedplate.apiserver import services, status
from bedplate.apiserver.documents import pages
from bedplate.apiserver.pipeline import access, answers, dispatch, routes
from bedplate.core import errors, logging
from bedplate.serving import http

__all__ = ["Pipeline"]

log = logging.get_logger("apiserver.pipeline")

_TOO_LARGE = f"Request entity too large: limit is {http.MAX_BODY_BYTES}"


class Pipeline:
    """One server's request handler."""

    def __init__(self, parts: services.Services, dispatcher: dispatch.Dispatcher, counts: pages.RequestCounts) -> None:
        self._credentials = access.Credentials(parts.authenticator, parts.clock)
        self._permissions = access.Permissions(parts.authorizer)
        self._dispatcher = dispatcher
        self._counts = counts

    def __call__(self, incoming: http.Request) -> http.Answer | Awaitable[http.Answer]:
        info = routes.parse(incoming.method, incoming.path, incoming.query, bool(incoming.raw_query))
        try:
            user = self._permissions.acting_user(incoming, self._credentials.user(incoming))
            self._permissions.check(user, info, incoming)
            if incoming.is_too_large:
                raise status.StatusError(413, "RequestEntityTooLarge", _TOO_LARGE)
            answer = self._dispatcher.dispatch(incoming, info, user)
        except status.StatusError as err:
            answer = answers.failure(err, incoming)
        except Exception as err:
            answer = self._crashed(err, incoming)
        if isinstance(answer, http.Response):
            self._counts.add(info, answer.code)
            return answer
        if isinstance(answer, http.Stream):
            self._counts.add(info, 200)
            return answer
        return self._later(incoming, info, answer)

    async def _later(
        self, incoming: http.Request, info: routes.RequestInfo, pending: Awaitable[http.Answer]
    ) -> http.Answer:
        try:
            answer = await pending
        except status.StatusError as err:
            answer = answers.failure(err, incoming)
        except (errors.Retryable, errors.Unavailable) as err:
            # The store is full or away: nothing wrong with the request, and nothing to look for in the code.
            log.warning("request.store_failed", method=incoming.method, path=incoming.path, reason=str(err))
            answer = answers.failure(
                status.StatusError(500, "InternalError", f"Internal error occurred: {err}"), incoming
            )
        except Exception as err:
            answer = self._crashed(err, incoming)
        self._counts.add(info, answer.code if isinstance(answer, http.Response) else 200)
        return answer

    def _crashed(self, err: Exception, incoming: http.Request) -> http.Response:
        log.exception("request.failed", method=incoming.method, path=incoming.path)
        text = f"Internal error occurred: {type(err).__name__}: {err}"
        return answers.failure(status.StatusError(500, "InternalError", text), incoming)
