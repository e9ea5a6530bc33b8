"""What rsync starts instead of a remote shell: it hands rsync's two ends to the agent, and waits until that is done.

Run as `python -I -S pipe.py HANDLE …` by rsync, which talks to its standard input and output. Both go to the agent over
HANDLE, a socket that the agent has the other end of; the agent carries the bytes over its own connection to the head.
So rsync needs no key, no port and no address, and no byte is copied once more.
"""

from __future__ import annotations

# What is built into the interpreter: `socket` and `os` would more than double what a start of this costs.
import _socket
import posix
import sys


def main() -> None:
    """Give both ends away, and stay until the agent closes the socket: rsync waits for its child."""
    agent = _socket.socket(fileno=int(sys.argv[1]))
    ends = b"".join(end.to_bytes(4, sys.byteorder) for end in (0, 1))
    agent.sendmsg([b"r"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, ends)])
    # The agent's copies are the only ones left, so that rsync sees the end when the agent closes them.
    posix.close(0)
    posix.close(1)
    agent.recv(1)


if __name__ == "__main__":
    main()
    posix._exit(0)  # there is nothing left to flush to
