"""The keeper of one service: a small process of its own, so that a service survives its agent and never runs twice.

Run as `python -I -S keeper.py FOLDER HANDLE`. In: `FOLDER/spec`, what to run (marshalled). Out: the service's
processes, and `FOLDER/status`, a line `key=value` each. While it lives it holds a lock on `FOLDER/lock`, which the
kernel gives to one process only. HANDLE is a lock that the agent took before it started the keeper: until it is closed,
everybody knows that a keeper is on its way. SIGTERM stops the service and ends the keeper, SIGHUP reloads. It adopts
what its service leaves behind (the agent makes it a subreaper), so that daemons which fork are found and stopped whole.

Next to nothing is imported, types not at all: every service of a node has one of these.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    Words = list[str]
    Commands = list[tuple[Words, bool]]

_TERM, _HUP, _CHLD, _KILL, _CONT = 15, 1, 17, 9, 18
_CLEAN_SIGNALS = (1, 2, 13, 15)
_EXITED, _KILLED = "exit code", "killed by signal"
_LONGEST_WAIT_S = 60.0
_STEADY_S = 60.0
_LOG_LOOK_S = 60.0
_BUSY = 75
_CREDENTIALS = 12
"""Bytes that the kernel says about a sender: process, user, group."""


class Stopped(Exception):
    """SIGTERM came while something else was waited for."""


class Keeper:
    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.spec = spec
        self.main = 0
        self.ended: dict[int, int] = {}
        self.is_stopping = False
        self.is_told_to_stop = False
        self.wants_reload = False
        self.restarts = 0
        self.reloads = 0
        self.reload_error = ""
        self.status_text = ""
        self.notices: Any = None
        self.is_ready = False
        self.log_looked_s = time.monotonic()
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        for number in (_TERM, _HUP, _CHLD, 2):
            signal.signal(number, self._signalled)
        self.poll = select.poll()
        self.poll.register(self.wake_read, select.POLLIN)
        if spec["notify"]:
            self._listen()

    # What comes from outside

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if number in (_TERM, 2):
            self.is_stopping = self.is_told_to_stop = True
        elif number == _HUP:
            self.wants_reload = True

    def has_to_stop(self) -> bool:
        """Whether it was ever told to: `is_stopping` only cuts short what is waited for."""
        return self.is_told_to_stop

    def _listen(self) -> None:
        import socket

        path = os.path.join(self.folder, "notify")
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self.notices.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        here = os.getcwd()
        # A path of a socket is at most 107 bytes long; a name has no such trouble.
        os.chdir(self.folder)
        try:
            self.notices.bind("notify")
        finally:
            os.chdir(here)
        os.chmod(path, 0o777)
        self.poll.register(self.notices.fileno(), select.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Sleep until something happens, at most so long; children that ended are in `ended`."""
        left_s = self.log_looked_s + _LOG_LOOK_S - time.monotonic()
        for handle, _ in self.poll.poll(max(0.0, min(timeout_s, left_s)) * 1000):
            if handle == self.wake_read:
                try:
                    os.read(self.wake_read, 4096)
                except BlockingIOError:
                    pass
            else:
                self._heard()
        self._reap()
        if time.monotonic() - self.log_looked_s >= _LOG_LOOK_S:
            self.log_looked_s = time.monotonic()
            self._rotate()

    def _heard(self) -> None:
        import socket

        try:
            while True:
                # No room for descriptors: the kernel closes what is sent with a message.
                message, about, _, _ = self.notices.recvmsg(8192, socket.CMSG_SPACE(_CREDENTIALS))
                pid, uid = (int.from_bytes(about[0][2][at : at + 4], sys.byteorder) for at in (0, 4))
                if not self._is_own(pid, uid):
                    continue
                for line in message.decode(errors="replace").splitlines():
                    key, _, value = line.partition("=")
                    if key == "READY" and value == "1":
                        self.is_ready = True
                    elif key == "MAINPID" and value.isdecimal() and int(value) in descendants():
                        # Whatever it calls its own is killed in the end.
                        self.main = int(value)
                    elif key == "STATUS":
                        self.status_text = value
        except BlockingIOError:
            pass

    def _is_own(self, pid: int, uid: int) -> bool:
        """Whether the service says it: any user of the machine can send to the socket."""
        user = self.spec["uid"]
        return uid in (0, os.geteuid() if user is None else user) or pid in descendants()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.ended[pid] = os.waitstatus_to_exitcode(status)

    # Telling

    def tell(self, state: str, why: str = "") -> None:
        facts = {
            "state": state,
            "keeper": os.getpid(),
            "keeper_start": started(os.getpid()),
            "main": self.main,
            "main_start": started(self.main) if self.main else 0,
            "since": int(time.time()),
            "restarts": self.restarts,
            "reloads": self.reloads,
            "reload_error": self.reload_error,
            "why": why,
            "text": self.status_text,
        }
        lines = "".join(f"{key}={str(value).replace(chr(10), ' ')}\n" for key, value in facts.items())
        path = os.path.join(self.folder, "status")
        try:
            handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            os.write(handle, lines.encode())
            os.close(handle)
            os.rename(path + ".new", path)
        except OSError:
            # The disk is full: the service matters more than what is said about it.
            pass

    # Running

    def spawn(self, words: Words) -> int:
        """Start a command as the service's user; its id, or an OSError."""
        spec = self.spec
        words = [str(self.main) if word in ("$MAINPID", "${MAINPID}") else word for word in words]
        words = [word.replace("${MAINPID}", str(self.main)).replace("$MAINPID", str(self.main)) for word in words]
        environ = dict(spec["environ"])
        if self.main:
            environ["MAINPID"] = str(self.main)
        if self.notices is not None:
            environ["NOTIFY_SOCKET"] = os.path.join(self.folder, "notify")
        report, tell = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            try:
                os.close(report)
                self._become(words, environ)
            except OSError as err:
                what = err.filename if err.filename in (spec["folder"], spec["log"]) else words[0]
                os.write(tell, f"{err.errno or 0} {what}".encode())
            except BaseException:
                os.write(tell, f"0 {words[0]}".encode())
            os._exit(203)
        os.close(tell)
        message = b""
        while True:
            part = os.read(report, 4096)
            if not part:
                break
            message += part
        os.close(report)
        if message:
            number, _, what = message.decode(errors="replace").partition(" ")
            while pid not in self.ended:
                self._reap()
                time.sleep(0.001)
            raise OSError(int(number), os.strerror(int(number)), what)
        return pid

    def _become(self, words: Words, environ: dict[str, str]) -> None:
        spec = self.spec
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (_TERM, _HUP, _CHLD, 2, 13):
            signal.signal(number, signal.SIG_DFL)
        log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if spec["open_files"]:
            import resource

            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            limit = spec["open_files"]
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, max(limit, hard)))
            except (ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))
        os.umask(spec["umask"])
        if spec["uid"] is not None:
            os.setgroups(spec["groups"])
            os.setgid(spec["gid"])
            os.setuid(spec["uid"])
        os.chdir(spec["folder"])
        os.execvpe(words[0], words, environ)

    def command(self, words: Words, timeout_s: float) -> int:
        """Run a command to its end: its exit code. It is not cut short when the service is to stop."""
        pid = self.spawn(words)
        end_s = time.monotonic() + timeout_s
        while pid not in self.ended:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                kill_group(pid)
                raise TimeoutError(f"{words[0]} did not end within {timeout_s:g} s")
            self.wait(left_s)
        return self.ended.pop(pid)

    def commands(self, commands: Commands, timeout_s: float, what: str) -> str:
        """Run commands in order; the first that fails ends it. Why, or nothing."""
        for words, may_fail in commands:
            try:
                code = self.command(words, timeout_s)
                why = outcome(code) if code else ""
            except OSError as err:
                why = describe(err)
            if why and not may_fail:
                return f"{what} {words[0]}: {why}"
            if self.is_stopping:
                raise Stopped
        return ""

    def start(self) -> str:
        """Bring the service up: empty, or why not."""
        spec = self.spec
        self.main, self.is_ready = 0, False
        self.tell("starting")
        why = self.commands(spec["start_pre"], spec["start_timeout_s"], "ExecStartPre")
        if why:
            return why
        if spec["type"] == "oneshot":
            return self.commands(spec["start"], spec["start_timeout_s"], "ExecStart")
        words = spec["start"][0][0]
        try:
            pid = self.spawn(words)
        except OSError as err:
            return describe(err)
        if spec["type"] == "forking":
            why = self._forked(pid, words)
        else:
            self.main = pid
            why = self._ready() if spec["notify"] else ""
        return why or self.commands(spec["start_post"], spec["start_timeout_s"], "ExecStartPost")

    def _ready(self) -> str:
        self.tell("starting")
        end_s = time.monotonic() + self.spec["start_timeout_s"]
        while not self.is_ready:
            if self.main in self.ended:
                return f"it ended before it was ready: {outcome(self.ended.pop(self.main))}"
            if self.is_stopping:
                raise Stopped
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return f"it was not ready within {self.spec['start_timeout_s']:g} s"
            self.wait(left_s)
        return ""

    def _forked(self, pid: int, words: Words) -> str:
        end_s = time.monotonic() + self.spec["start_timeout_s"]
        while pid not in self.ended:
            if self.is_stopping:
                raise Stopped
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return f"{words[0]} did not go into the background within {self.spec['start_timeout_s']:g} s"
            self.wait(left_s)
        code = self.ended.pop(pid)
        if code:
            return outcome(code)
        while True:
            self.main = self._background()
            if self.main or time.monotonic() > end_s:
                break
            if self.is_stopping:
                raise Stopped
            self.wait(0.05)
        return "" if self.main else "its main process was not found"

    def _background(self) -> int:
        path = self.spec["pid_file"]
        if path:
            try:
                with open(path) as stream:
                    text = stream.read().strip()
            except OSError:
                return 0
            return int(text) if text.isdecimal() and started(int(text)) else 0
        children = [pid for pid, parent in processes() if parent == os.getpid()]
        return min(children) if children else 0

    # Ending

    def stop(self) -> None:
        """Stop everything: the service's own commands, then signals, then SIGKILL."""
        spec = self.spec
        self.tell("stopping")
        self.is_stopping = False
        is_up = bool(self.main) and self.main not in self.ended and bool(started(self.main))
        try:
            if is_up or (spec["type"] == "oneshot" and spec["remains"]):
                self.commands([(words, True) for words, _ in spec["stop"]], spec["stop_timeout_s"], "ExecStop")
        except Stopped:
            pass
        self._terminate()
        self.is_stopping = False
        try:
            self.commands([(words, True) for words, _ in spec["stop_post"]], spec["stop_timeout_s"], "ExecStopPost")
        except Stopped:
            pass
        self.main = 0

    def _terminate(self) -> None:
        spec = self.spec
        mode = spec["kill_mode"]
        if mode == "none":
            return
        first = [self.main] if mode in ("mixed", "process") and self.main else descendants()
        for pid in first:
            send(pid, spec["kill_signal"])
            send(pid, _CONT)
        end_s = time.monotonic() + spec["stop_timeout_s"]
        while self._left(mode) and time.monotonic() < end_s:
            self.wait(min(0.05, spec["stop_timeout_s"]))
        if mode == "process":
            send(self.main, _KILL)
            return
        while True:
            left = descendants()
            if not left:
                return
            for pid in left:
                send(pid, _KILL)
            self.wait(0.02)

    def _left(self, mode: str) -> bool:
        if mode in ("mixed", "process"):
            return bool(self.main) and self.main not in self.ended and bool(started(self.main))
        return bool(descendants())

    def reload(self) -> None:
        self.wants_reload = False
        self.reload_error = ""
        try:
            if self.spec["reload"]:
                self.reload_error = self.commands(self.spec["reload"], self.spec["start_timeout_s"], "ExecReload")
            elif self.main:
                send(self.main, _HUP)
            else:
                self.reload_error = "it has no main process and no ExecReload="
        finally:
            self.reloads += 1
            self.tell("running")

    # The whole life

    def live(self) -> int:
        """Until it is to stop, or ends for good: the exit code of the keeper."""
        spec, wait_s = self.spec, -1.0
        why: str | None
        while True:
            began_s = time.monotonic()
            try:
                why = self.start()
                if not why and spec["type"] == "oneshot" and not spec["remains"]:
                    self.tell("done")
                    return 0
                if not why:
                    self.tell("running")
                    why = self._until_end()
            except Stopped:
                why = None
            if why is None or self.is_stopping:
                self.stop()
                self.tell("stopped")
                return 0
            is_good = why == ""
            # What a service leaves behind when its main process ends goes with it.
            self.stop()
            if self.has_to_stop():
                self.tell("stopped")
                return 0
            if not restarts(spec["restart"], why):
                self.tell("stopped" if is_good else "failed", why or "it ended")
                return 0 if is_good else 1
            wait_s = pause(wait_s, spec["restart_s"], time.monotonic() - began_s)
            self.restarts += 1
            self.tell("waiting", why or "it ended")
            end_s = time.monotonic() + wait_s
            while time.monotonic() < end_s:
                self.wait(end_s - time.monotonic())
                if self.has_to_stop():
                    self.tell("stopped")
                    return 0

    def _until_end(self) -> str | None:
        """Wait for the main process: None when the service is to stop, empty for a good end, else why."""
        while True:
            if self.is_stopping:
                return None
            if self.main in self.ended:
                code = self.ended.pop(self.main)
                is_good = code == 0 or -code in _CLEAN_SIGNALS or str(code) in self.spec["success"]
                return "" if is_good else outcome(code)
            if self.main and self.spec["type"] == "forking" and not started(self.main):
                return "its main process is gone"
            if self.wants_reload:
                self.reload()
                continue
            self.ended = {pid: code for pid, code in self.ended.items() if pid == self.main}
            self.wait(_LOG_LOOK_S)

    def _rotate(self) -> None:
        """Copy a log that has become too long, and empty it: the service keeps its handle."""
        path, most = self.spec["log"], self.spec["log_bytes"]
        try:
            if os.stat(path).st_size <= most:
                return
            if os.path.exists(path + ".1"):
                os.rename(path + ".1", path + ".2")
            source = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            target = os.open(path + ".1", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
            while True:
                part = os.read(source, 1 << 20)
                if not part:
                    break
                os.write(target, part)
            os.ftruncate(source, 0)
            os.close(source)
            os.close(target)
        except OSError:
            pass


def restarts(policy: str, why: str) -> bool:
    """Whether a service that ended by itself is started again; `why` is empty for a good end."""
    match policy:
        case "always":
            return True
        case "on-success":
            return not why
        case "on-failure":
            return bool(why)
        case "on-abnormal":
            return bool(why) and _EXITED not in why
        case "on-abort":
            return _KILLED in why
    # Nobody watches for signs of life here: on-watchdog never comes true.
    return False


def pause(before_s: float, first_s: float, lasted_s: float) -> float:
    """How long the next start waits: the unit's own span at first (`before_s` is below zero) and after a run that
    lasted, else twice as long as before the last one."""
    if before_s < 0 or lasted_s > _STEADY_S:
        return first_s
    return min(max(before_s, 0.1) * 2, _LONGEST_WAIT_S)


def outcome(code: int) -> str:
    return f"{_EXITED} {code}" if code >= 0 else f"{_KILLED} {-code}"


def describe(err: OSError) -> str:
    if err.filename:
        return f"{err.filename}: {(err.strerror or '').lower()}"
    return str(err)


def started(pid: int) -> int:
    """When a process started, in ticks since the machine did; 0 for one that is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            words = stream.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in (b"Z", b"X") else int(words[19])


def processes() -> list[tuple[int, int]]:
    """Every process with its parent, zombies left out."""
    pairs = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    words = stream.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if words[0] not in (b"Z", b"X"):
                pairs.append((int(name), int(words[1])))
    return pairs


def descendants() -> list[int]:
    """Every process below this one."""
    children: dict[int, list[int]] = {}
    for pid, parent in processes():
        children.setdefault(parent, []).append(pid)
    below, todo = [], [os.getpid()]
    while todo:
        for pid in children.get(todo.pop(), []):
            below.append(pid)
            todo.append(pid)
    return below


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, _KILL)
    except ProcessLookupError:
        pass


def main(folder: str, on_its_way: int) -> int:
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return _BUSY
    with open(os.path.join(folder, "spec"), "rb") as stream:
        spec = marshal.load(stream)
    keeper = Keeper(folder, spec)
    keeper.tell("starting")
    os.close(on_its_way)
    return keeper.live()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
