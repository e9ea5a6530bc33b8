"""A real `jupyter_client`, run by a Python that has it: does one thing after the other and prints what came of it.

In: the path of a connection file, words on standard input, one a line. Out: a line of JSON for each. This file is run
by the Python of Jupyter's environment and imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from jupyter_client import BlockingKernelClient

PATIENCE_S = 60


def main() -> None:
    client = BlockingKernelClient(connection_file=sys.argv[1])
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE_S)
    say({"ready": True, "beats": client.hb_channel.is_beating()})
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        say(ACTIONS[word](client, rest))


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def execute(client: BlockingKernelClient, code: str) -> dict[str, Any]:
    """Run code; its outputs and how it ended. What it asks on standard input is answered with `typed`."""
    output: list[str] = []

    def note(message: dict[str, Any]) -> None:
        content = message["content"]
        output.append(content.get("text") or (content.get("data") or {}).get("text/plain") or "")

    reply = client.execute_interactive(
        code.replace("\\n", "\n"),
        timeout=PATIENCE_S,
        output_hook=note,
        stdin_hook=lambda message: client.input("typed"),
    )
    text, content = "".join(output), reply["content"]
    return {"status": content["status"], "output": text[:1000], "length": len(text), "ename": content.get("ename")}


def interrupt(client: BlockingKernelClient, code: str) -> dict[str, Any]:
    """Run code and interrupt it by a message once it printed something."""
    began, output = threading.Event(), []

    def note(message: dict[str, Any]) -> None:
        if message["header"]["msg_type"] == "stream":
            output.append(message["content"]["text"])
            if not began.is_set():
                began.set()
                request = client.session.msg("interrupt_request", {})
                client.control_channel.send(request)

    reply = client.execute_interactive(code.replace("\\n", "\n"), timeout=PATIENCE_S, output_hook=note)
    return {"status": reply["content"]["status"], "ename": reply["content"].get("ename")}


def complete(client: BlockingKernelClient, code: str) -> dict[str, Any]:
    return {"matches": client.complete(code, reply=True, timeout=PATIENCE_S)["content"]["matches"]}


def wait_ready(client: BlockingKernelClient, _: str) -> dict[str, Any]:
    """Until a kernel answers; one that is still starting has no heartbeat, which jupyter_client takes for its death."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.wait_for_ready(timeout=PATIENCE_S)
            return {"ready": True}
        except RuntimeError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def shutdown(client: BlockingKernelClient, _: str) -> dict[str, Any]:
    reply = client.shutdown(reply=True, timeout=PATIENCE_S)
    return {"status": reply["content"]["status"]}


ACTIONS = {
    "execute": execute,
    "interrupt": interrupt,
    "complete": complete,
    "wait": wait_ready,
    "shutdown": shutdown,
}

if __name__ == "__main__":
    main()
