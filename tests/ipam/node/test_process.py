"""How the program starts: quickly, and with nothing that it does not need."""

from __future__ import annotations

import subprocess
import sys


def test_neither_the_daemon_nor_a_manager_loads_the_heavy_http_library() -> None:
    """Its import alone reads every certificate of the system twice: a tenth of a second of every start."""
    code = (
        "import sys, bedplate.ipam.node.daemon, bedplate.ipam.controller.assembly, bedplate.cloud.manager.assembly\n"
        "import bedplate.cloud.providers.oxide.provider, bedplate.cloud.providers.nvidia_bmm.provider\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('aiohttp', 'yarl', 'multidict')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
