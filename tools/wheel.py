"""Hatch's hook for wheels: the CNI plugin becomes a program of the wheel, the checksum library part of its package,
and so do the definitions of the pools.

Without a cargo, and with nothing in the cache, the wheel is made without them and says so: it is then one for every
platform. A checkout that is installed in place gets both from set-up instead.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeParts(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Adds what tools/crates.py builds."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        # A checkout reads them where they are deployed from.
        build_data["force_include"][str(Path(self.root) / "deploy" / "crds")] = "bedplate/ipam/crds"
        command = [sys.executable, str(Path(self.root) / "tools" / "crates.py"), "paths"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            self.app.display_warning(f"left out: nv-ipam and a faster ipam-node ({ran.stderr.strip()})")
            return
        paths = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["shared_scripts"][paths["nv-ipam"]] = "nv-ipam"
        build_data["force_include"][paths["libstoresum.so"]] = "bedplate/ipam/node/libstoresum.so"
