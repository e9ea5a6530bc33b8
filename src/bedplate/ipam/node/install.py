"""What the daemon puts on the node: the CNI plugin and its configuration.

In: options. Out: two files, each complete or as it was: a new one is made beside it, synced, and renamed over it; of a
failure nothing is left. Neither is removed when the daemon ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bedplate.core import errors, logging
from bedplate.ipam.node.options import DEFAULT_PLUGIN, Cni

__all__ = ["CONF_NAME", "PLUGIN_NAME", "configuration", "find_plugin", "install"]

log = logging.get_logger("ipam.node.install")
PLUGIN_NAME = "nv-ipam"
CONF_NAME = "nv-ipam.conf"
_CONF_MODE = 0o664
_PIECE = 1 << 20


def find_plugin(chosen: Cni) -> Path | None:
    """The plugin to install: what the flag names, and where its default is absent the one that came with us."""
    named = Path(chosen.cni_nv_ipam_bin_file)
    if named.is_file():
        return named
    if chosen.cni_nv_ipam_bin_file != DEFAULT_PLUGIN:
        return None
    return next((path for path in _beside() if path.is_file()), None)


def _beside() -> Iterator[Path]:
    """Where a plugin that was installed with this program stands."""
    yield Path(sys.argv[0]).resolve().parent / PLUGIN_NAME
    yield Path(sys.executable).parent / PLUGIN_NAME
    import sysconfig

    yield Path(sysconfig.get_path("scripts")) / PLUGIN_NAME


def install(chosen: Cni, plugin: Path | None) -> None:
    """Put both in place, as far as the flags want them."""
    if not chosen.cni_skip_nv_ipam_binary_copy:
        if plugin is None:
            raise errors.Invalid(f"there is no plugin {chosen.cni_nv_ipam_bin_file} to install")
        _copy(plugin, Path(chosen.cni_bin_dir))
        log.info("install.plugin", source=str(plugin), folder=chosen.cni_bin_dir)
    if not chosen.cni_skip_nv_ipam_config_creation:
        text = configuration(chosen)
        target = Path(chosen.cni_conf_dir) / CONF_NAME
        with _replacing(target, f".{CONF_NAME}") as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), _CONF_MODE & ~_umask())
        log.info("install.configuration", path=str(target), content=text)


def configuration(chosen: Cni) -> str:
    """The text of the plugin's configuration."""
    content: dict[str, str | int | bool] = {
        "daemonSocket": chosen.cni_daemon_socket,
        "daemonCallTimeoutSeconds": chosen.cni_daemon_call_timeout,
        "logFile": chosen.cni_log_file,
        "logLevel": chosen.cni_log_level,
        "forcePoolName": chosen.cni_force_pool_name,
    }
    if chosen.cni_allow_network_paths:
        content["allowNetworkPaths"] = True
    return json.dumps(content, indent=2)


def _copy(source: Path, folder: Path) -> None:
    with _replacing(folder / PLUGIN_NAME, f"_{PLUGIN_NAME}") as file, source.open("rb") as content:
        while piece := content.read(_PIECE):
            file.write(piece)
        os.fchmod(file.fileno(), os.fstat(content.fileno()).st_mode & 0o7777)


@contextlib.contextmanager
def _replacing(target: Path, prefix: str) -> Iterator[BinaryIO]:
    """A new file that takes the target's place when the block ends well, and vanishes when it does not."""
    try:
        temporary = target.parent / f"{prefix}{os.urandom(6).hex()}"
        number = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(number, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        _sync_folder(target.parent)
    except OSError as err:
        raise errors.Invalid(f"cannot install {target}: {err.strerror or err}") from err


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _umask() -> int:
    # There is no way to read it but to set it.
    umask = os.umask(0)
    os.umask(umask)
    return umask
