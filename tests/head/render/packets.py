"""Sends packets through a rendered table of nftables, from outside and from the internal network.

In (standard input): JSON with the table, the ports to listen on, and probes: source address, port, and how long to wait
for an answer. Out: JSON, for each probe whether it was answered. Runs in a network namespace of its own (`unshare -n`),
makes a second one for the clients, and takes both away with itself.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

NEAR = ("192.0.2.1/24", "10.141.255.254/16")
FAR = ("192.0.2.2/24", "10.141.0.9/16")
PROBE = """
import socket, sys
source, target, port, wait_s = sys.argv[1:]
try:
    with socket.create_connection((target, int(port)), float(wait_s), (source, 0)) as connection:
        connection.settimeout(float(wait_s))
        print("open" if connection.recv(4) == b"here" else "silent")
except OSError as wrong:
    print(type(wrong).__name__)
"""


def run(*words: str, given: str | None = None) -> str:
    return subprocess.run(words, check=True, input=given, capture_output=True, text=True, timeout=120).stdout.strip()


def other_namespace() -> subprocess.Popen[bytes]:
    """A process that does nothing in a network namespace of its own."""
    process = subprocess.Popen(["unshare", "-n", "--kill-child", "sleep", "600"])
    mine = os.readlink("/proc/self/ns/net")
    end = time.monotonic() + 120
    while os.readlink(f"/proc/{process.pid}/ns/net") == mine:
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


def connect(pid: int) -> list[str]:
    inside = ["nsenter", "-t", str(pid), "-n"]
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(pid))
    for address in NEAR:
        run("ip", "address", "add", address, "dev", "near")
    for address in FAR:
        run(*inside, "ip", "address", "add", address, "dev", "far")
    run("ip", "link", "set", "near", "up")
    run(*inside, "ip", "link", "set", "far", "up")
    return inside


def serve(port: int) -> None:
    listener = socket.create_server(("0.0.0.0", port))

    def answer() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"here")

    threading.Thread(target=answer, daemon=True).start()


def main() -> None:
    asked = json.load(sys.stdin)
    process = other_namespace()
    try:
        inside = connect(process.pid)
        run("nft", "-f", "-", given=asked["table"])
        for port in asked["listen"]:
            serve(port)
        answers = []
        for source, port, wait_s in asked["probes"]:
            target = "192.0.2.1" if source.startswith("192.") else "10.141.255.254"
            answers.append(run(*inside, sys.executable, "-c", PROBE, source, target, str(port), str(wait_s)))
        json.dump(answers, sys.stdout)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    assert pathlib.Path("/proc/self/ns/net").exists()
    main()
