"""The same on ARM64, and what needs the controllers of cgroup v2, which only that machine has. Runs inside it."""

import contextlib
import threading
import time

from suite import (
    Connection,
    call,
    expect,
    expect_true,
    health,
    main_pid,
    output,
    processes,
    request,
    run_checks,
    shell,
    unique_sleep,
)
from system import COMMANDS, CONFIGURATION, INSTALLATION, REMOVAL, SUPERVISION, configuration, restarts

MIB = 1 << 20

# What CONTRACT-like limits look like in practice: small enough to be hit at once, large enough for a shell.
LIMITS = f"[limits]\nmemory_max = {64 * MIB}\npids_max = 100\n"

# The product's promise. The machine's clock counts instructions, at the speed of one modest processor, so the value
# holds here as it stands and does not depend on the host's load; see arm64-vm.
HEALTH_LIMIT_SECS = 0.1
PROBES = 200


@contextlib.contextmanager
def limited_commands():
    """LIMITS in force for every command, and the daemon the same afterwards."""
    before = main_pid(), restarts()
    with configuration(LIMITS):
        shell("systemctl reload shelly-executor")
        yield
    expect("the daemon's process and restarts", (main_pid(), restarts()), before)


def the_memory_peak_is_measured():
    _, body = call(f"head -c {32 * MIB} /dev/zero | tail -c {32 * MIB} | wc -c")
    peak = body["usage"]["memory_peak_bytes"]
    expect_true(f"a command that used 32 MiB had a peak of {peak}", peak is not None and 32 * MIB <= peak <= 128 * MIB)


def a_command_out_of_memory_says_so():
    sleep = unique_sleep()
    with limited_commands():
        status, body = call("tail /dev/zero")
        expect("a command that is the hog", (status, body["oom_killed"]), (200, True))
        expect("its signal", body["signal"], {"number": 9, "name": "SIGKILL"})
        expect("its exit code", body["exit_code"], None)
        _, body = call(f"{sleep} & tail /dev/zero; echo $?")
        expect("a command whose child is the hog", body["oom_killed"], True)
        expect("processes that are left", processes(sleep), [])
        _, body = call("echo modest")
        expect("a command that is none", (body["oom_killed"], body["exit_code"]), (False, 0))


def slowest_health_secs(probes):
    slowest = 0
    for _ in range(probes):
        began = time.monotonic()
        status, _ = request("GET", "/health")
        slowest = max(slowest, time.monotonic() - began)
        expect("the status", status, 200)
    return slowest


def health_stays_quick_during(name, command, witness):
    """Measures /health while the command is run over and over; the witness says whether an answer is what it should be."""
    done = threading.Event()
    answers = []

    def misbehave():
        while not done.is_set():
            answers.append(call(command, timeout_secs=20))

    with limited_commands():
        thread = threading.Thread(target=misbehave, daemon=True)
        thread.start()
        try:
            slowest = slowest_health_secs(PROBES)
        finally:
            done.set()
            thread.join()
    expect_true(f"the {name} did what it should: {answers[-1]}", all(witness(*answer) for answer in answers))
    expect_true(f"the slowest answer took {slowest * 1000:.0f} ms", slowest <= HEALTH_LIMIT_SECS)


def health_stays_quick_during_a_fork_bomb():
    bomb = "bomb() { while :; do bomb & done; }; bomb 2>/dev/null"
    health_stays_quick_during("fork bomb", bomb, lambda status, body: status == 504 and body["kill"]["survivors"] == 0)


def health_stays_quick_during_a_memory_hog():
    health_stays_quick_during("memory hog", "tail /dev/zero", lambda status, body: body["oom_killed"])


RESOURCES = [
    the_memory_peak_is_measured,
    a_command_out_of_memory_says_so,
    health_stays_quick_during_a_fork_bomb,
    health_stays_quick_during_a_memory_hog,
]

if __name__ == "__main__":
    run_checks(INSTALLATION + COMMANDS + RESOURCES + CONFIGURATION + SUPERVISION + REMOVAL)
