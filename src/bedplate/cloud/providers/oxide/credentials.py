"""Whether the token and the project are good: asked at the start, and again until the answer was yes once."""

from __future__ import annotations

from bedplate.cloud.errors import CloudError
from bedplate.cloud.http.errors import ApiError
from bedplate.cloud.providers.oxide.api import Api, is_absence
from bedplate.core import clock, errors
from bedplate.core.logging import get_logger

__all__ = ["Credentials"]

log = get_logger("cloud.oxide")
PAUSE_S = 10.0


class Credentials:
    """Remembers that the cloud has accepted us. Until then every question asks it again, not more often than every
    ten seconds."""

    def __init__(self, api: Api, time: clock.Clock, project: str) -> None:
        self._api = api
        self._time = time
        self._project = project
        self._is_verified = False
        self._failure: errors.BedplateError | None = None
        self._asked_at = float("-inf")

    async def verify(self) -> None:
        """Raise while the cloud has not accepted the token and shown us the project."""
        if self._is_verified:
            return
        now = self._time.monotonic()
        if self._failure is not None and now < self._asked_at + PAUSE_S:
            raise self._failure
        self._asked_at = now
        try:
            user = await self._api.current_user_view()
            project = await self._project_view()
        except CloudError as err:
            self._failure = err
            raise
        self._is_verified = True
        log.info("oxide.verified", user=user.id, silo=user.silo_name, project=project)

    async def _project_view(self) -> str:
        try:
            return (await self._api.project_view()).name
        except ApiError as err:
            if is_absence(err):
                raise CloudError(
                    f"oxide: there is no project {self._project!r} that this token may see",
                    hint="correct OXIDE_PROJECT, or use a token of the right silo",
                ) from err
            raise
