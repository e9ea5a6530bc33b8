"""The machines of the Cloudlycke cloud, as the cloud itself would list them now.

In: the configuration file, looked at before every answer and read again when it has changed, so that a demonstration
can stop or terminate a machine with an editor. Out: instances by ID or name; `InstanceNotFound` for what is not there
or is terminated; `CloudError` during an outage (`apiError`), and while the file cannot be read or understood: a
broken file is a cloud that cannot be asked, never one without machines.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.providers.cloudlycke import config
from bedplate.core import errors, logging

__all__ = ["Inventory", "instance_id"]

log = logging.get_logger("cloud.cloudlycke")

_Mark = tuple[int, int, int]


def instance_id(provider_id: str) -> str:
    """The ID in `cloudlycke://<ID>`; raises `Invalid` for anything else."""
    scheme, separator, id_ = provider_id.partition("://")
    if scheme != config.SCHEME or not separator or not id_ or "/" in id_:
        raise errors.Invalid(
            f"{provider_id!r} is not a provider ID of this cloud", hint=f"it looks like {config.SCHEME}://n-c2-1"
        )
    return id_


class Inventory:
    """All machines; `path` is None for the built-in ones."""

    def __init__(self, path: Path | None, first: config.Config) -> None:
        self._path = path
        self._current = first
        self._fault = ""
        self._mark: _Mark | None = None

    async def by_id(self, id_: str) -> config.Instance:
        """The instance with this ID, running or stopped."""
        return self._judge(await self._find("id", id_), f"ID {id_!r}")

    async def by_name(self, name: str) -> config.Instance:
        """The instance with this node name, running or stopped."""
        return self._judge(await self._find("name", name), f"name {name!r}")

    def lacks(self, name: str) -> bool:
        """Whether the cloud could be asked when it was last looked at, and had no machine of this name."""
        current = self._current
        if self._fault or current.api_error:
            return False
        return not any(each.name == name and each.state != "terminated" for each in current.instances)

    async def refresh(self) -> config.Config:
        """The configuration as it is now; raises `CloudError` while the cloud cannot be asked."""
        if self._path is not None:
            await asyncio.to_thread(self._reread, self._path)
        if self._fault:
            raise CloudError(self._fault, hint="correct the file given to --cloud-config")
        if self._current.api_error:
            raise CloudError("the Cloudlycke API does not answer (apiError is set)")
        return self._current

    async def _find(self, field: str, value: str) -> config.Instance | None:
        current = await self.refresh()
        return next((each for each in current.instances if getattr(each, field) == value), None)

    @staticmethod
    def _judge(instance: config.Instance | None, what: str) -> config.Instance:
        if instance is not None and instance.api_error:
            raise CloudError(f"the Cloudlycke API does not answer for the instance with {what} (apiError is set)")
        if instance is None or instance.state == "terminated":
            raise InstanceNotFound(f"Cloudlycke has no instance with {what}")
        return instance

    def _reread(self, path: Path) -> None:
        try:
            facts = path.stat()
            mark = (facts.st_mtime_ns, facts.st_ino, facts.st_size)
            if mark == self._mark:
                return
            fresh = config.read(path)
            if not facts.st_size and self._current.instances != config.BUILT_IN:
                # Editors and scripts empty a file before they write it; the built-in machines would replace all others.
                raise errors.Invalid(f"{path} is empty", hint="it may be in the middle of a write")
        except (OSError, errors.Invalid) as err:
            # The mark stays as it was, so that the next question looks again.
            if str(err) != self._fault:
                log.error("cloudlycke.inventory_unreadable", file=str(path), error=str(err))
            self._fault = str(err)
            self._mark = None
            return
        self._mark, self._fault, self._current = mark, "", fresh
        log.v(2).info("cloudlycke.inventory_read", file=str(path), instances=len(fresh.instances))
