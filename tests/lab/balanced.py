"""API servers as far as a balancer can tell, and clients that ask them without a pause. Runs on nodes of a lab.

serve    in: a JSON object with `tls` (certificate and key, PEM) and `places` (HOST:PORT), then a line `stop PLACE` or
         `start PLACE` each; out: `serving`, and each line once it is done. A server is killed, its connections too.
ask      in: a JSON object with `ca` (PEM) and `url`; then an empty line for each time somebody wants to know how
         many answers there were of each server; out: a JSON object with these counts and how many requests each
         client has ended, and at the end of the input one with how many were asked for a second time, and the errors
         of those that failed twice.
"""

from __future__ import annotations

import collections
import http.client
import http.server
import json
import os
import signal
import socketserver
import ssl
import sys
import tempfile
import threading
import time
import urllib.parse
from typing import Any

CLIENTS = 4
# Four clients with a new connection for every request: some hundred requests a second, whatever the machine.
PAUSE_S = 0.01
RETRY_S = 0.25
"""A killed process takes connections until the kernel has closed its socket: milliseconds, more on a busy machine. Who
tries again at once may meet the same one."""


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host, port = self.server.server_address[:2]
        body = f"{host}:{port}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def server_bind(self) -> None:
        """Without asking for the name of the address, which nobody on a lab's networks answers."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away."""


def _serve_at(place: str, pem: str) -> int:
    """The id of a process that serves; it listens already."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
    host, _, port = place.partition(":")
    server = _Server((host, int(port)), _Answers)
    # The handshake belongs to the thread of a connection, or one slow client would keep all others waiting.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        server.serve_forever()
    server.socket.close()
    return pid


def serve() -> None:
    given = json.loads(sys.stdin.readline())
    running = {place: _serve_at(place, given["tls"]) for place in given["places"]}
    try:
        print("serving", flush=True)
        for line in sys.stdin:
            verb, place = line.split()
            if verb == "stop":
                os.kill(running[place], signal.SIGKILL)
                os.waitpid(running.pop(place), 0)
            else:
                running[place] = _serve_at(place, given["tls"])
            print(line, end="", flush=True)
    finally:
        for pid in running.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class _Load:
    def __init__(self, ca: str, url: str) -> None:
        self._context = ssl.create_default_context(cadata=ca)
        self._place = urllib.parse.urlsplit(url)
        self._lock = threading.Lock()
        self.answers: collections.Counter[str] = collections.Counter()
        self.rounds = [0] * CLIENTS
        self.again = 0
        self.failed: list[str] = []
        self.has_ended = threading.Event()

    def _asked(self) -> str:
        link = http.client.HTTPSConnection(
            self._place.hostname or "", self._place.port, timeout=20, context=self._context
        )
        try:
            link.request("GET", "/version")
            return link.getresponse().read().decode()
        finally:
            link.close()

    def told(self) -> dict[str, Any]:
        with self._lock:
            return {"answers": dict(self.answers), "rounds": list(self.rounds)}

    def client(self, number: int) -> None:
        while not self.has_ended.is_set():
            try:
                answer, again, why = self._asked(), 0, ""
            except (OSError, http.client.HTTPException):
                time.sleep(RETRY_S)
                try:
                    answer, again, why = self._asked(), 1, ""
                except (OSError, http.client.HTTPException) as err:
                    answer, again, why = "", 1, repr(err)
            with self._lock:
                self.answers[answer] += 1
                self.rounds[number] += 1
                self.again += again
                self.failed += [why] if why else []
            time.sleep(PAUSE_S)


def ask() -> None:
    given = json.loads(sys.stdin.readline())
    load = _Load(given["ca"], given["url"])
    clients = [threading.Thread(target=load.client, args=(number,)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for _ in sys.stdin:
        print(json.dumps(load.told()), flush=True)
    load.has_ended.set()
    for client in clients:
        client.join()
    print(json.dumps({"again": load.again, "failed": load.failed}), flush=True)


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]]()
