"""What the checks inside the test machines are made of: a runner, a client, and words for what systemd says."""

import contextlib
import http.client
import itertools
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time

UNIT = "shelly-executor.service"
SOCKET = "/run/shelly-executor/executor.sock"
CONFIG = pathlib.Path("/etc/shelly-executor/executor.toml")
DROP_IN = pathlib.Path(f"/run/systemd/system/{UNIT}.d/suite.conf")

# The bound of every wait, in seconds. Nothing is expected to take this long: it only has to be longer than anything
# that goes well on an emulated processor that shares its host.
PATIENCE = 90


class Failure(Exception):
    """A check did not hold; the message says in what way."""


def expect(what, actual, expected):
    if actual != expected:
        raise Failure(f"{what} is {actual!r}, not {expected!r}")


def expect_true(what, holds):
    if not holds:
        raise Failure(what)


def wait_for(what, condition):
    """Polls until the condition returns something true, and returns that."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Failure(f"waited {PATIENCE} s in vain for {what}")
        time.sleep(0.2)
    return value


def run_checks(checks):
    """Runs them in order. They leave the machine as they found it, so that one failure does not bring others."""
    failed = 0
    for check in checks:
        name = check.__name__.replace("_", " ")
        began = time.time()
        try:
            check()
            print(f"ok {name}", flush=True)
        except Exception as error:  # whatever went wrong, the next check may still tell something
            failed += 1
            print(f"not ok {name}: {type(error).__name__}: {error}", flush=True)
            log = shell(f"journalctl --no-pager --output=short-precise --since=@{began:.3f} --lines=40 || true")
            print(*(f"#   {line}" for line in log.splitlines()), sep="\n", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed", flush=True)
    sys.exit(failed > 0)


# Commands that are not under test: they have to succeed.


def shell(script):
    done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"`{script}` exited with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def show(name, unit=UNIT):
    """A property of a unit, as `systemctl show` prints it."""
    return subprocess.check_output(["systemctl", "show", "--value", f"--property={name}", unit], text=True).strip()


def main_pid():
    return int(show("MainPID"))


def journal(*matches):
    """What the journal has of the unit, one dictionary for each entry."""
    shell("journalctl --sync")
    lines = shell(f"journalctl --unit={UNIT} --output=json {' '.join(matches)}")
    return [json.loads(line) for line in lines.splitlines()]


@contextlib.contextmanager
def running_with(config=None, drop_in=None):
    """The service restarted with another configuration or a drop-in, and as it was afterwards."""
    original = CONFIG.read_text()
    try:
        if config is not None:
            CONFIG.write_text(config)
        if drop_in is not None:
            DROP_IN.parent.mkdir(parents=True, exist_ok=True)
            DROP_IN.write_text(f"[Service]\n{drop_in}\n")
        shell(f"systemctl daemon-reload && systemctl restart {UNIT}")
        yield
    finally:
        CONFIG.write_text(original)
        DROP_IN.unlink(missing_ok=True)
        # kill: a daemon that ignores SIGTERM is that check's failure, and not to be waited for here.
        shell(f"systemctl kill --signal=KILL {UNIT} || true; systemctl daemon-reload && systemctl restart {UNIT}")


# Calls to the daemon.


class Connection(http.client.HTTPConnection):
    """HTTP over the daemon's socket."""

    def __init__(self):
        super().__init__("localhost", timeout=PATIENCE)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def request(method, path, body=None, headers=None):
    """Status and decoded body of the answer."""
    with contextlib.closing(Connection()) as connection:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def call(command, headers=None, **members):
    """One call of the bash tool: status and body."""
    return request("POST", "/execute", {"name": "bash", "input": {"command": command}, **members}, headers)


def output(command, **members):
    """The standard output of a command that has to succeed."""
    status, body = call(command, **members)
    expect(f"the status of `{command}`", status, 200)
    expect(f"the exit code of `{command}`, which answered {body}", body["exit_code"], 0)
    sections = body["content"].split("\n\n[exit_code]\n")[0]
    return sections.removeprefix("[stdout]\n")


def health():
    """The body of GET /health, or None as long as there is no such answer."""
    try:
        status, body = request("GET", "/health")
    except OSError:
        return None
    return body if status == 200 else None


class Background:
    """A function running in a thread; `result` waits for what it returned or raised."""

    def __init__(self, function, *arguments, **named):
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(function, arguments, named), daemon=True)
        self._thread.start()

    def _run(self, function, arguments, named):
        try:
            self._outcome = function(*arguments, **named)
        except Exception as error:  # handed to whoever asks for the result
            self._outcome = error

    def running(self):
        return self._thread.is_alive()

    def result(self):
        self._thread.join(PATIENCE)
        expect_true("a call in the background did not end", not self.running())
        return self._outcome


# Processes. Each check gives its own a number of seconds to sleep that no other has, to find them again by whatever
# happens to their session, parent or environment.

_sleeps = itertools.count(1_000_001)


def unique_sleep():
    return f"sleep {next(_sleeps)}"


def processes(command_line):
    """The ids of the processes that have exactly this command line."""
    wanted = command_line.replace(" ", "\0").encode() + b"\0"
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone since
            if (process / "cmdline").read_bytes() == wanted:
                found.append(int(process.name))
    return found


def wait_for_processes(command_line, count):
    return wait_for(f"{count} × `{command_line}`", lambda: len(processes(command_line)) == count)


def wait_for_end_of(command_line):
    return wait_for(f"the end of all `{command_line}`", lambda: not processes(command_line))
