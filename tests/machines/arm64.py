"""The same on ARM64, and what needs the controllers of cgroup v2, which only that machine has. Runs inside it."""

import contextlib
import time

from suite import (
    Background,
    call,
    expect,
    expect_true,
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

MEMORY_LIMIT = f"[limits]\nmemory_max = {64 * MIB}\n"
PIDS_LIMIT = "[limits]\npids_max = 100\n"

# The product's promise. The machine's clock counts instructions, at the speed of one modest processor, so the value
# holds here as it stands and does not depend on the host's load; see arm64-vm.
HEALTH_LIMIT_SECS = 0.1
PROBES = 100  # at least, or it says little


@contextlib.contextmanager
def every_command_with(limits):
    """The limits in force, and the daemon unharmed by what hits them."""
    before = main_pid(), restarts()
    with configuration(limits):
        shell("systemctl reload shelly-executor")
        yield
    expect("the daemon's process and restarts", (main_pid(), restarts()), before)


def the_memory_peak_is_measured():
    _, body = call(f"head -c {32 * MIB} /dev/zero | tail -c {32 * MIB} | wc -c")
    peak = body["usage"]["memory_peak_bytes"]
    expect_true(f"a command that used 32 MiB had a peak of {peak}", peak is not None and 32 * MIB <= peak <= 128 * MIB)


def what_a_cgroup_was_used_for_does_not_count_for_the_next():
    where = "grep ^0:: /proc/self/cgroup"
    _, body = call(f"{where}; head -c {32 * MIB} /dev/zero | tail -c {32 * MIB} >/dev/null")
    hog, its_peak = body["content"].splitlines()[1], body["usage"]["memory_peak_bytes"]
    expect_true(f"the hog in {hog} had a peak of {its_peak}", its_peak >= 32 * MIB)
    # While nothing else runs there are two that take turns.
    later = [call(where)[1] for _ in range(4)]
    peaks = [body["usage"]["memory_peak_bytes"] for body in later if body["content"].splitlines()[1] == hog]
    expect_true(f"modest commands in the same cgroup had peaks of {peaks}", peaks and max(peaks) <= 8 * MIB)


def a_command_out_of_memory_says_so():
    sleep = unique_sleep()
    with every_command_with(MEMORY_LIMIT):
        status, body = call("tail /dev/zero")
        expect("a command that is the hog", (status, body["oom_killed"]), (200, True))
        expect("its signal", body["signal"], {"number": 9, "name": "SIGKILL"})
        expect("its exit code", body["exit_code"], None)
        _, body = call(f"{sleep} & tail /dev/zero; echo $?")
        expect("a command whose child is the hog", body["oom_killed"], True)
        expect("processes that are left", processes(sleep), [])
        _, body = call("echo modest")
        expect("a command that is none", (body["oom_killed"], body["exit_code"]), (False, 0))


def health_stays_quick_during(limits, command, times, hit_the_limit):
    """Measures /health all the while the command runs so many times; each of its answers must tell of the limit."""
    slowest, probes = 0, 0
    with every_command_with(limits):
        runs = Background(lambda: [call(command, timeout_secs=3) for _ in range(times)])
        while runs.running():
            began = time.monotonic()
            status, _ = request("GET", "/health")
            slowest = max(slowest, time.monotonic() - began)
            probes += 1
            expect("the status", status, 200)
    expect("answers without a sign of the limit", [answer for answer in runs.result() if not hit_the_limit(*answer)], [])
    measured = f"the slowest of {probes} answers took {slowest * 1000:.1f} ms"
    print(f"# {measured}")
    expect_true(measured, probes >= PROBES and slowest <= HEALTH_LIMIT_SECS)


def health_stays_quick_during_a_fork_bomb():
    # Not the shell's: a shell that cannot fork waits, and in the end gives up.
    bomb = """exec python3 -c '
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
'"""

    def hit_the_limit(status, body):
        kill = body.get("kill", {})
        return status == 504 and kill["signalled"] >= 90 and kill["survivors"] == 0

    health_stays_quick_during(PIDS_LIMIT, bomb, 1, hit_the_limit)


def health_stays_quick_during_a_memory_hog():
    health_stays_quick_during(MEMORY_LIMIT, "tail /dev/zero", 5, lambda status, body: body["oom_killed"])


RESOURCES = [
    the_memory_peak_is_measured,
    what_a_cgroup_was_used_for_does_not_count_for_the_next,
    a_command_out_of_memory_says_so,
    health_stays_quick_during_a_fork_bomb,
    health_stays_quick_during_a_memory_hog,
]

if __name__ == "__main__":
    run_checks(INSTALLATION + COMMANDS + RESOURCES + CONFIGURATION + SUPERVISION + REMOVAL)
