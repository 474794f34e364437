"""Quick starts of the `keyway` command: forks of one process that has imported all of it.

A start from the beginning imports for half a second of CPU, and the tests start some hundred nodes
and commands. A fork is the same process from `main()` on. Its arguments, environment, working
directory and streams are those of the request, it has a session of its own, and it ends as any
process ends.

`python fork_server.py serve SOCKET` listens there until its stdin ends. A request is JSON, with
three streams as file descriptors. The answer is a line with the process's id, then one with its
exit status when it has ended. Who hangs up has the process killed, so none outlives its test run.
`python fork_server.py run SOCKET ...` is the command for a shell.

Nothing here may import much: `run` is started for each command.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module

# Most of it is imported only by the commands that need it. Without the second line each command
# would import for 0.1 s that asks a node, or prints help.
PRELOADED = (
    *("gateway.cli.main", "gateway.node.process", "gateway.node.doctor", "offsets.cli"),
    *("httpx", "httpcore", "rich.markdown", "rich.progress", "uvicorn.protocols.http.h11_impl"),
    "schema_dist.cli",
)
PR_SET_PDEATHSIG = 1
STREAMS = 3
LINES_WAITING_MAX = 64


def ask(
    address: str,
    arguments: list[str],
    directory: str,
    environment: dict[str, str],
    streams: tuple[int, int, int],
) -> socket.socket:
    """A line on which the process's id and its exit status come."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(address)
    request = json.dumps([arguments, directory, environment]).encode()
    socket.send_fds(line, [len(request).to_bytes(4, "big")], streams)
    line.sendall(request)
    return line


def serve(address: str) -> None:
    """Returns in each fork, ready for `main()`; here never."""
    ended, wakes = socket.socketpair()
    for end in (ended, wakes):
        end.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    lines: dict[int, socket.socket] = {}  # by process id
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
        listener.bind(f"{address}.new")
        listener.listen(LINES_WAITING_MAX)
        os.rename(f"{address}.new", address)  # Who sees it is heard.
        for each in (listener, ended, sys.stdin):
            ready.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is listener:
                    line, _ = listener.accept()
                    if (pid := _forked(line)) == 0:
                        for other in (ended, wakes, *lines.values()):
                            other.close()
                        return
                    lines[pid] = line
                    ready.register(line, selectors.EVENT_READ, pid)
                elif key.fileobj is ended:
                    ended.recv(1_024)
                elif key.fileobj is sys.stdin:
                    os._exit(0)
                else:  # Nobody says a word after the request: it hung up.
                    ready.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)
            _report_the_dead(lines, ready)


def _forked(line: socket.socket) -> int:
    """As os.fork(); a request that ends early is a process that ends early."""
    size, streams, _, _ = socket.recv_fds(line, 4, STREAMS)
    request = line.makefile("rb").read(int.from_bytes(size, "big"))
    pid = os.fork()
    if pid == 0:
        line.close()
        arguments, directory, environment = json.loads(request)
        _become(arguments, directory, environment, streams)
        return 0
    for stream in streams:
        os.close(stream)
    with suppress(OSError):  # it hung up
        line.sendall(b"%d\n" % pid)
    return pid


def _report_the_dead(lines: dict[int, socket.socket], ready: selectors.BaseSelector) -> None:
    while lines:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        line = lines.pop(pid)
        if line in ready.get_map():
            ready.unregister(line)
        with suppress(OSError):  # it hung up
            line.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        line.close()


def _become(
    arguments: list[str], directory: str, environment: dict[str, str], streams: list[int]
) -> None:
    """In the fork: all that differs from one start to another."""
    import ctypes

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    written_through = bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=written_through)
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.stderr.reconfigure(line_buffering=True)
    sys.argv = ["keyway", *arguments]


def _serve_keyway(address: str) -> None:
    import gc

    # As `python -m` from the checkout's own folder has it.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for module in PRELOADED:
        import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has one thread alone"
    gc.collect()
    gc.freeze()
    serve(address)
    import_module("gateway.cli.main").main()


def _run_keyway(address: str, arguments: list[str]) -> int:
    line = ask(address, arguments, os.getcwd(), dict(os.environ), (0, 1, 2))
    words = line.makefile()
    pid = int(words.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    status = int(words.readline())
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve_keyway(sys.argv[2])
    else:
        sys.exit(_run_keyway(sys.argv[2], sys.argv[3:]))
