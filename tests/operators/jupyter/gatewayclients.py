"""A user of Jupyter Enterprise Gateway: starts a kernel, runs code, interrupts, restarts and ends it.

In: the gateway's URL, the name of a kernelspec, a user. Out: a line of JSON for each step. This file is run by the
Python of Jupyter's environment and imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

import requests
import websocket

PATIENCE_S = 90


class Channels:
    """The kernel's channels, through the gateway."""

    def __init__(self, url: str, kernel: str) -> None:
        address = f"{url.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels"
        self._socket = websocket.create_connection(address, timeout=PATIENCE_S)

    def send(self, code: str) -> str:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": "s", "date": ""}
        header["version"] = "5.3"
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        self._socket.send(json.dumps(message))
        return str(header["msg_id"])

    def messages(self, request: str) -> Any:
        while True:
            message = json.loads(self._socket.recv())
            if message["parent_header"].get("msg_id") == request:
                yield message

    def execute(self, code: str) -> dict[str, Any]:
        text, request = "", self.send(code)
        reply, is_idle = None, False
        for message in self.messages(request):
            content = message["content"]
            text += content.get("text", "") if message["msg_type"] == "stream" else ""
            text += content["data"]["text/plain"] if message["msg_type"] == "execute_result" else ""
            if message["msg_type"] == "execute_reply":
                reply = content
            is_idle = is_idle or (message["msg_type"] == "status" and content["execution_state"] == "idle")
            # They come on two channels, in any order.
            if is_idle and reply is not None:
                return {"status": reply["status"], "output": text, "ename": reply.get("ename")}
        raise AssertionError("never reached")


def say(step: str, **answer: Any) -> None:
    print(json.dumps({"step": step, **answer}), flush=True)


def main(url: str, name: str, user: str) -> None:
    def post(path: str, **body: Any) -> requests.Response:
        return requests.post(f"{url}/api/kernels{path}", json=body, timeout=PATIENCE_S)

    created = post("", name=name, env={"KERNEL_USERNAME": user, "KERNEL_UID": "1", "KERNEL_GID": "1"})
    say("created", code=created.status_code, text=created.text)
    kernel = created.json()["id"]
    channels = Channels(url, kernel)
    say("executed", **channels.execute("x = 6 * 7\nx"))
    request = channels.send("import time\nprint('began', flush=True)\nwhile True: time.sleep(0.01)")
    for message in channels.messages(request):
        if message["msg_type"] == "stream":
            post(f"/{kernel}/interrupt")
        if message["msg_type"] == "execute_reply":
            say("interrupted", ename=message["content"].get("ename"))
            break
    say("restarted", code=post(f"/{kernel}/restart").status_code)
    say("executed again", **Channels(url, kernel).execute("print('x' in dir())"))
    if sys.stdin.readline().strip() == "delete":
        done = requests.delete(f"{url}/api/kernels/{kernel}", timeout=PATIENCE_S)
        say("deleted", code=done.status_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
