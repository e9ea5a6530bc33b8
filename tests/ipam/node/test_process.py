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


def test_what_the_first_call_does_not_need_is_not_loaded_before_it() -> None:
    """Neither the library of metrics, nor a web server, nor the messages, which are loaded while pools are listed."""
    late = ["prometheus_client", "google.protobuf", "bedplate.program.endpoints", "cryptography", "click"]
    text = f"import bedplate.ipam.node.daemon, sys; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"
