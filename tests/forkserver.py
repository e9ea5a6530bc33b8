"""The project's programs as processes that start in milliseconds: forked from one that has imported everything.

In: a command line that begins with one of the project's programs (or `python -m` and a module with `main`), an
environment, files. Out: `Process`, with the methods of `subprocess.Popen`, and `run`, as `subprocess.run`. A process
can be killed, frozen and read like any other; only its imports were done before: tests of what a program imports, and
one start of every program, use `subprocess`. All processes end with the test process, even after `kill -9` of that.

Run as a program, this file is the server: it takes requests from the file descriptor named until that is closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.metadata
import json
import os
import pathlib
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NoReturn

__all__ = ["Process", "is_ours", "run"]

_PR_SET_PDEATHSIG = 1
_SIZE = struct.Struct("!I")
_FILES = 4
"""Standard input, output and error, and the pipe on which the server tells the process id and the exit code."""


# What tests use


class Process:
    """A running program, with the methods of `subprocess.Popen`; text is UTF-8."""

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        text: bool = False,
    ) -> None:
        self.args = [os.fspath(word) for word in command]
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = None, None, None  # type: IO[Any] | None, IO[Any] | None, IO[Any] | None
        self._lock = threading.Lock()
        self._told = b""
        request = {
            "command": self.args,
            "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd or pathlib.Path.cwd()),
        }
        with contextlib.ExitStack() as theirs:
            files = []
            for name, wish in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
                if wish == subprocess.PIPE:
                    reading, writing = os.pipe()
                    mine, other = (writing, reading) if name == "stdin" else (reading, writing)
                    setattr(self, name, os.fdopen(mine, ("w" if name == "stdin" else "r") + ("" if text else "b")))
                    theirs.callback(os.close, other)
                elif wish == subprocess.DEVNULL:
                    other = os.open(os.devnull, os.O_RDWR)
                    theirs.callback(os.close, other)
                elif wish == subprocess.STDOUT:
                    other = files[1]
                elif wish is None:
                    other = len(files)
                else:
                    other = wish if isinstance(wish, int) else wish.fileno()
                files.append(other)
            self._status, writing = os.pipe()
            theirs.callback(os.close, writing)
            _server().ask(request, [*files, writing])
        self.pid = int(self._read_line() or 0)
        assert self.pid, f"the fork server is gone; {self.args} was not started"

    def _read_line(self) -> bytes:
        while b"\n" not in self._told:
            data = os.read(self._status, 64)
            if not data:
                return b""
            self._told += data
        line, _, self._told = self._told.partition(b"\n")
        return line

    def poll(self) -> int | None:
        return self._look(0.0)

    def _look(self, timeout: float | None) -> int | None:
        """Wait for the exit code at most that long; several threads may."""
        if self.returncode is None:
            # Not `select`, which takes no descriptors above 1023. The pipe stays readable after its end.
            ready = select.poll()
            ready.register(self._status, select.POLLIN)
            if ready.poll(None if timeout is None else timeout * 1000):
                with self._lock:
                    if self.returncode is None:
                        # Without a line, the server was killed, and its processes with it.
                        self.returncode = int(self._read_line() or -signal.SIGKILL)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, data: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Write, read to the ends, wait."""
        read: dict[str, Any] = {}

        def drain(name: str, file: IO[Any]) -> None:
            with file:
                read[name] = file.read()

        named = [(name, file) for name in ("stdout", "stderr") if (file := getattr(self, name)) is not None]
        drains = [threading.Thread(target=drain, args=pair, daemon=True) for pair in named]
        for one in drains:
            one.start()
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self.stdin:
                if data:
                    self.stdin.write(data)
        until = None if timeout is None else time.monotonic() + timeout
        self.wait(timeout)
        for one in drains:
            one.join(None if until is None else max(0.0, until - time.monotonic()))
            if one.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return read.get("stdout"), read.get("stderr")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()
        self.wait()

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._status)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    input: Any = None,
    capture_output: bool = False,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    text: bool = False,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`; a program that takes longer than `timeout` is killed."""
    if capture_output:
        stdout = stderr = subprocess.PIPE
    if input is not None:
        stdin = subprocess.PIPE
    process = Process(command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, text=text)
    try:
        out, err = process.communicate(input, timeout)
    except BaseException:
        process.kill()
        raise
    assert process.returncode is not None
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def is_ours(command: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether the server can start this command."""
    found = _main_of([os.fspath(word) for word in command])
    return found is not None and found[0].partition(".")[0] in ("bedplate", "tests")


class _Server:
    """The server of this test process, started when the first program is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, __file__, str(number)]
            self._process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)

    def ask(self, request: Mapping[str, Any], files: list[int]) -> None:
        body = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self.socket, [_SIZE.pack(len(body))], files)
            self.socket.sendall(body)


_servers: list[_Server] = []
_starting = threading.Lock()


def _server() -> _Server:
    with _starting:
        if not _servers:
            _servers.append(_Server())
        return _servers[0]


# The server


def _main_of(command: Sequence[str]) -> tuple[str, str, list[str]] | None:
    """Module and function of a command, and its words with the name of the program."""
    if command[0] == sys.executable and command[1:2] == ["-m"]:
        return command[2], "main", list(command[2:])
    folder, name = os.path.split(command[0])
    script = _scripts().get(name)
    # The originals' programs have the same names, in a folder of their own.
    is_here = not os.path.isabs(folder) or os.path.realpath(folder) == os.path.realpath(os.path.dirname(sys.executable))
    return (script.module, script.attr, list(command)) if script is not None and is_here else None


@functools.cache
def _scripts() -> dict[str, importlib.metadata.EntryPoint]:
    scripts = importlib.metadata.distribution("bedplate").entry_points.select(group="console_scripts")
    return {script.name: script for script in scripts}


def _import_everything() -> None:
    """All of the project and, thereby, of what it uses; what an optional package is missing for is left out."""
    import bedplate

    for found in pkgutil.walk_packages(bedplate.__path__, "bedplate."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)
    for name in ("uvloop", "rich.console", "rich.table", "prompt_toolkit"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _serve(requests: socket.socket) -> NoReturn:
    import gc

    # Ctrl-C reaches the whole group; the test process decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_everything()
    gc.collect()
    gc.freeze()
    woken, waking = os.pipe()
    for end in (woken, waking):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    while True:
        ready = select.select([requests, woken], [], [])[0]
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        _tell_the_ended(running)
        if requests not in ready:
            continue
        received = _receive(requests)
        if received is None:
            break
        request, files = received
        pid = os.fork()
        if not pid:
            for end in (requests.fileno(), woken, waking, files[-1], *running.values()):
                os.close(end)
            _become(request, files[:-1])
        running[pid] = files.pop()
        os.write(running[pid], b"%d\n" % pid)
        for file in files:
            os.close(file)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _tell_the_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        if (pipe := running.pop(pid, None)) is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(pipe)


def _receive(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    head, files, _, _ = socket.recv_fds(requests, _SIZE.size, _FILES)
    if not head:
        return None
    while len(head) < _SIZE.size:
        head += requests.recv(_SIZE.size - len(head))
    (size,) = _SIZE.unpack(head)
    body = bytearray()
    while len(body) < size:
        part = requests.recv(size - len(body))
        if not part:
            return None
        body += part
    return json.loads(body), files


def _become(request: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """Be the program that was asked for, from its first line to its exit code."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()
        # As an interpreter opens them: output in lines to a terminal, in blocks to all else, errors in lines.
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, closefd=False, errors="backslashreplace")
        found = _main_of(request["command"])
        assert found is not None, f"not a program of the project: {request['command']}"
        module, function, sys.argv = found
        sys.path.insert(0, request["cwd"])
        code = _call(getattr(importlib.import_module(module), function))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _call(main: Callable[[], object]) -> int:
    import atexit

    code: object = None
    try:
        main()
    except SystemExit as end:
        code = end.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # Waits for threads, as the end of an interpreter does.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
