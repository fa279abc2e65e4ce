"""The package under a real systemd: installed, used, broken, upgraded and removed. Runs inside a test machine."""

import contextlib
import errno
import grp
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess

from suite import (
    CONFIG,
    SOCKET,
    UNIT,
    Background,
    call,
    expect,
    expect_true,
    health,
    journal,
    main_pid,
    output,
    processes,
    request,
    run_checks,
    running_with,
    shell,
    show,
    unique_sleep,
    wait_for,
    wait_for_end_of,
    wait_for_processes,
)

DEB = "/machine/shelly-executor_*.deb"

# Short enough for a test, long enough for a daemon that has to share two processors with a compiler.
SHORT_WATCHDOG = "WatchdogSec=3s"
# For a script: goes on when the last background command is `sleep`, and no copy of its shell any more.
SLEEPS = "until read -r name </proc/$!/comm && [ $name = sleep ]; do :; done"

CAP_SYS_RESOURCE = 24  # linux/capability.h


# Installation.


def the_package_installs_and_the_service_is_active():
    shell(f"dpkg --install {DEB}")
    for unit in UNIT, "shelly-executor.socket":
        expect(f"ActiveState of {unit}", show("ActiveState", unit), "active")
        expect(f"UnitFileState of {unit}", show("UnitFileState", unit), "enabled")
    expect("the health", health()["status"], "ok")


def shellyctl_runs_a_command():
    shell("shellyctl exec -- true")
    expect("the output", shell("shellyctl exec -- echo hello"), "hello\n")
    expect("the exit code of `exit 7`", shell("shellyctl exec -- sh -c 'exit 7' && echo 0 || echo $?"), "7\n")


def curl_runs_a_command():
    call_json = json.dumps({"name": "bash", "input": {"command": "echo hello"}, "id": "toolu_01A"})
    answer = json.loads(shell(f"curl --silent --unix-socket {SOCKET} --data '{call_json}' http://localhost/execute"))
    expect("exit_code", answer["exit_code"], 0)
    expect("tool_use_id", answer["tool_use_id"], "toolu_01A")
    expect("content", answer["content"], "[stdout]\nhello\n\n[exit_code]\n0")


def the_socket_belongs_to_root_and_shelly():
    is_socket = os.stat(SOCKET)
    expect("the type and mode", stat.filemode(is_socket.st_mode), "srw-rw----")
    expect("the owner", is_socket.st_uid, 0)
    expect("the group", is_socket.st_gid, grp.getgrnam("shelly").gr_gid)
    directory = os.stat(os.path.dirname(SOCKET))
    expect("the directory", (stat.filemode(directory.st_mode), directory.st_uid), ("drwxr-xr-x", 0))


def the_group_may_call_and_others_may_not():
    def curl_as(identity):
        return shell(
            f"setpriv --reuid=4242 {identity} curl --silent --show-error --unix-socket {SOCKET}"
            """ --data '{"name":"bash","input":{"command":"true"}}' http://localhost/execute 2>&1 || true"""
        )

    for member in "--regid=4242 --groups=shelly", "--regid=shelly --clear-groups":
        expect(f"exit_code as {member}", json.loads(curl_as(member))["exit_code"], 0)
    refused = curl_as("--regid=4242 --clear-groups")
    expect_true(f"an outsider was answered: {refused}", "execution_id" not in refused and "curl: (7)" in refused)


# What commands get.


def a_command_has_a_cgroup_of_its_own():
    def own_cgroups(text):
        return [line[3:] for line in text.splitlines() if line.startswith("0::")]

    unit = show("ControlGroup")
    daemon = own_cgroups(pathlib.Path(f"/proc/{main_pid()}/cgroup").read_text())
    # The second runs while the first does.
    commands = own_cgroups(output("cat /proc/self/cgroup; shellyctl exec -- cat /proc/self/cgroup"))
    expect_true(f"{commands} are below {unit}", all(cgroup.startswith(unit + "/") for cgroup in commands))
    expect_true(f"{commands} and the daemon's {daemon} differ", len({*commands, *daemon}) == 3)
    for cgroup in commands:
        wait_for(f"the end of {cgroup}", lambda path=f"/sys/fs/cgroup{cgroup}": not os.path.exists(path))


def a_timeout_kills_the_whole_cgroup():
    sleep = unique_sleep()
    hiding = f"trap '' TERM; {sleep} & setsid {sleep} & (env -i setsid {sleep} &) & echo started; wait; {sleep}"
    status, body = call(hiding, timeout_secs=3)
    expect("the status", status, 504)
    expect("the code", body["code"], "timeout")
    expect("kill.by", body["kill"]["by"], "cgroup")
    expect("kill.reason", body["kill"]["reason"], "timeout")
    expect("kill.survivors", body["kill"]["survivors"], 0)
    expect_true(f"signalled at least the shell and its 3 sleepers: {body['kill']}", body["kill"]["signalled"] >= 4)
    expect_true(f"partial output is kept: {body['content']}", body["content"].startswith("[stdout]\nstarted\n"))
    expect("processes that are left", processes(sleep), [])


def nothing_that_the_unit_gives_the_daemon_reaches_a_command():
    given = """
        Environment=LEAKED=yes
        SetCredential=leaked:secret
        Nice=-7
        OOMScoreAdjust=-700
        UMask=0077
        IgnoreSIGPIPE=yes
    """
    usual_hard_limits = {
        "NOFILE=7777": "524288",
        "FSIZE=7G": "infinity",
        "STACK=7M": "infinity",
        "CORE=7M": "infinity",
        "MEMLOCK=7M": "8M",
    }
    # Only a privilege that the host may have kept from this machine lets the daemon raise hard limits again.
    may_raise = int(shell("grep CapEff /proc/self/status").split()[1], 16) >> CAP_SYS_RESOURCE & 1
    for soft, hard in usual_hard_limits.items():
        given += f"Limit{soft}\n" if may_raise else f"Limit{soft}:{hard}\n"
    private = {
        *("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID"),
        *("WATCHDOG_USEC", "WATCHDOG_PID", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "STATE_DIRECTORY"),
        *("MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "CREDENTIALS_DIRECTORY", "LEAKED"),
    }
    with running_with(drop_in=given):
        names = {line.split("=", 1)[0] for line in output("env").splitlines()}
        expect("the daemon's variables in a command", names & private, set())
        # What any service on this machine gets that asks for nothing.
        usual_limits = shell("systemd-run --quiet --pipe --wait cat /proc/self/limits")
        different = set(output("cat /proc/self/limits").splitlines()) - set(usual_limits.splitlines())
        expect("the limits that are not the machine's default", different, set())
        expect("nice", output("nice"), "0")
        expect("oom_score_adj", output("cat /proc/self/oom_score_adj"), "0")
        expect("umask", output("umask"), "0022")
        signals = output("grep -E '^Sig(Blk|Ign)' /proc/self/status")
        expect_true(f"no signal is blocked or ignored: {signals}", set(signals) <= set("SigBlkIn:\t\n0"))
        expect("descriptors (3 is the listing's own)", output("ls /proc/self/fd").split(), ["0", "1", "2", "3"])


# Journal, configuration and reload.


def the_journal_has_one_record_of_each_execution():
    trace = "0af7651916cd43dd8448eb211c80319c"
    command = "echo four; exit 3 # " + "x" * 300
    _, body = call(command, headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    match = f"EXECUTION_ID={body['execution_id']}"
    records = wait_for("the record", lambda: journal(match))
    expect("the number of records", len(records), 1)
    record = records[0]
    for field, value in {
        "TOOL_NAME": "bash",
        "EXIT_CODE": "3",
        "OUTPUT_BYTES": "5",
        "CALLER_UID": "0",
        "TRACE_ID": trace,
    }.items():
        expect(field, record.get(field), value)
    expect_true(f"STATUS {record.get('STATUS')} is an ending", record.get("STATUS") in ("success", "error"))
    expect_true(f"DURATION_MS {record.get('DURATION_MS')} is a number", record.get("DURATION_MS", "").isdigit())
    summary = record.get("COMMAND_SUMMARY", "")
    expect_true(f"COMMAND_SUMMARY {summary} is cut", summary.startswith("echo four; exit 3") and len(summary) <= 200)
    expect("fields with a prefix", [field for field in record if field.startswith("F_")], [])


@contextlib.contextmanager
def configuration(text):
    """A file that replaces the configuration, as an editor would do it, and the old one afterwards."""

    def replace(new):
        beside = CONFIG.with_suffix(".new")
        beside.write_text(new)
        beside.rename(CONFIG)

    original = CONFIG.read_text()
    replace(text)
    try:
        yield
    finally:
        replace(original)
        shell(f"systemctl reload {UNIT}")


def a_reload_takes_up_a_change():
    before = main_pid()
    with configuration('[env]\nMARK = "reloaded"\n'):
        shell(f"systemctl reload {UNIT}")
        expect("the variable", output("echo $MARK"), "reloaded")
    expect("the variable after going back", output("echo -n $MARK."), ".")
    expect("the daemon's process", main_pid(), before)


def a_change_on_disk_is_taken_up_without_a_reload():
    with configuration('[env]\nMARK = "noticed"\n'):
        wait_for("the variable", lambda: output("echo $MARK.") == "noticed.")


def a_reload_of_an_invalid_file_succeeds_and_keeps_the_old_one():
    with configuration('[env]\nMARK = "kept"\n'):
        shell(f"systemctl reload {UNIT}")
        CONFIG.write_text('[env]\nMARK = "lost"\n[acess]\ncallers = []\n')
        shell(f"systemctl reload {UNIT}")
        expect("the variable", output("echo $MARK"), "kept")
        report = health()
        expect("the health", report["status"], "degraded")
        problems = json.dumps(report["problems"])
        expect_true(f"a problem names file and key: {problems}", str(CONFIG) in problems and "acess" in problems)
        expect_true(f"STATUS= tells: {show('StatusText')!r}", "degraded" in show("StatusText"))
        expect_true("the journal names the key", any("acess" in str(entry.get("MESSAGE")) for entry in journal()))
    expect("the health after going back", health()["status"], "ok")
    expect_true(f"STATUS= is well again: {show('StatusText')!r}", "degraded" not in show("StatusText"))


def access_is_what_the_configuration_says():
    with configuration('[access]\ncallers = ["user:root"]\n'):
        shell(f"systemctl reload {UNIT}")
        refused = json.loads(
            shell(
                f"setpriv --reuid=4242 --regid=shelly --clear-groups curl --silent --unix-socket {SOCKET}"
                """ --data '{"name":"bash","input":{"command":"true"}}' http://localhost/execute"""
            )
        )
        expect("the answer to the group", (refused["status"], refused["code"]), (403, "access_denied"))
        expect("root's own call", output("echo in"), "in")


def what_is_untrusted_runs_in_the_sandbox():
    with configuration('[tools]\nuntrusted = ["bash"]\n'):
        shell(f"systemctl reload {UNIT}")
        _, answer = call(f"id -u; cat /etc/shadow; ls /var/lib/shelly-executor; sleep 60 & {SLEEPS}; exit 3")
        if shutil.which("runsc") is None:
            print("# SKIPPED: the sandbox itself, for there is no runsc in this machine", flush=True)
            expect("the code of what was not run", answer["code"], "sandbox_unavailable")
            expect_true(f"it says what to install: {answer['detail']}", "install gVisor" in answer["detail"])
            return
        expect("exit_code", answer["exit_code"], 3)
        expect("risk_level", answer["risk_level"], "untrusted")
        expect("the runtime", answer["sandbox"]["runtime"], "runsc")
        expect_true(f"it is nobody: {answer['content']}", "[stdout]\n65534\n" in answer["content"])
        expect("what was left", [left["command"] for left in answer["background"]], ["sleep 60"])
        expect("the kill", (answer["kill"]["by"], answer["kill"]["survivors"]), ("cgroup", 0))
        wait_for("the self-test", lambda: health()["sandbox"]["self_test"] == "passed")
        expect_true("shellyctl status tells", "self-test passed" in shell("shellyctl status"))
    # One that waits for the next call is not kept under another configuration.
    wait_for("no bundle is left", lambda: os.listdir("/var/lib/shelly-executor/sandbox") == [])


def what_is_untrusted_runs_in_another_runtime():
    if shutil.which("crun") is None:
        print("# SKIPPED: a sandbox by crun, for there is none in this machine", flush=True)
        return
    root = pathlib.Path("/srv/root")
    for name in ["proc", "sys", "dev", "tmp"]:
        (root / name).mkdir(parents=True)
    for program in ["/bin/bash", "/bin/cat", "/bin/sleep", "/usr/libexec/shelly-executor/shelly-sandbox-init"]:
        needs = [word for word in shell(f"ldd {program}").split() if word.startswith("/")]
        for file in [program, *needs]:
            target = root / file[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    with configuration('[sandbox]\nruntime = "crun"\nrootfs = "/srv/root"\n[tools]\nuntrusted = ["bash"]\n'):
        shell(f"systemctl reload {UNIT}")
        _, answer = call(f"cat /proc/self/status; sleep 60 & {SLEEPS}; exit 3")
        expect("exit_code", answer["exit_code"], 3)
        expect("the runtime", answer["sandbox"]["runtime"], "crun")
        for line in ["Uid:\t65534\t65534", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"]:
            expect_true(f"{line} in {answer['content']}", line in answer["content"])
        expect("what was left", [left["command"] for left in answer["background"]], ["sleep 60"])
        expect("the kill", (answer["kill"]["by"], answer["kill"]["survivors"]), ("cgroup", 0))
    # One that waits for the next call is not kept under another configuration.
    wait_for("no bundle is left", lambda: os.listdir("/var/lib/shelly-executor/sandbox") == [])
    shutil.rmtree(root)


# Watchdog, restart and stop.


def restarts():
    return int(show("NRestarts"))


def the_watchdog_restarts_a_daemon_that_hangs():
    with running_with(drop_in=SHORT_WATCHDOG):
        hanging, before = main_pid(), restarts()
        os.kill(hanging, signal.SIGSTOP)
        wait_for("a restart", lambda: restarts() == before + 1 and show("ActiveState") == "active")
        expect_true("it is another process", main_pid() not in (0, hanging))
        expect("a command's output", output("echo again"), "again")
        told = any("Watchdog timeout" in str(entry.get("MESSAGE")) for entry in journal())
        expect_true("systemd says that it was the watchdog", told)


def fed_watchdog():
    """Waits until the daemon has fed the watchdog twice more, so that it cannot have been asleep for long."""
    for _ in range(2):
        last = show("WatchdogTimestampMonotonic")
        wait_for("the watchdog to be fed", lambda last=last: show("WatchdogTimestampMonotonic") != last)


def idle_connections_do_not_starve_the_watchdog():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    with running_with(drop_in=SHORT_WATCHDOG), contextlib.ExitStack() as connections:
        daemon, before = main_pid(), restarts()
        # The daemon stands still for the moment that it takes to fill the kernel's queue to the brim.
        fed_watchdog()
        os.kill(daemon, signal.SIGSTOP)
        try:
            while True:
                idle = connections.enter_context(socket.socket(socket.AF_UNIX))
                idle.setblocking(False)
                idle.connect(SOCKET)
        except OSError as full:
            expect("what ends the filling", full.errno, errno.EAGAIN)
        finally:
            os.kill(daemon, signal.SIGCONT)
        fed_watchdog()
        status, _ = request("GET", "/health")
        expect("the status of one connection more", status, 503)
        fed_watchdog()
        expect("the daemon's process and restarts", (main_pid(), restarts()), (daemon, before))
        connections.close()
        wait_for("the daemon to serve again", health)


def stop_in_background():
    stop = Background(shell, f"systemctl stop {UNIT}")
    wait_for("the stop to begin", lambda: show("ActiveState") in ("deactivating", "inactive"))
    return stop


def a_stop_lets_a_running_command_finish():
    pathlib.Path("/tmp/go-on").unlink(missing_ok=True)
    with running_with(config="shutdown_grace_secs = 25\n"):
        waiting = Background(call, "touch /tmp/begun; until [ -e /tmp/go-on ]; do sleep 0.1; done; echo finished")
        wait_for("the command to begin", lambda: os.path.exists("/tmp/begun"))
        stop = stop_in_background()
        pathlib.Path("/tmp/go-on").touch()
        status, body = waiting.result()
        stop.result()
        expect("the answer", (status, body["content"]), (200, "[stdout]\nfinished\n\n[exit_code]\n0"))
        expect("the service's result", show("Result"), "success")


def a_stop_kills_what_does_not_end():
    sleep = unique_sleep()
    with running_with(config="shutdown_grace_secs = 1\n"):
        waiting = Background(call, f"trap '' TERM; setsid {sleep} & env -i setsid {sleep} & {sleep} & wait; {sleep}")
        wait_for_processes(sleep, 3)
        expect("`systemctl stop`", stop_in_background().result(), "")
        expect("processes that are left", processes(sleep), [])
        expect("the service's state and result", (show("ActiveState"), show("Result")), ("inactive", "success"))
        status, body = waiting.result()
        expect("the answer", (status, body["code"]), (503, "shutting_down"))
        expect("kill", (body["kill"]["reason"], body["kill"]["survivors"]), ("shutdown", 0))


def a_call_starts_a_stopped_service():
    shell(f"systemctl stop {UNIT}")
    expect("the service", show("ActiveState"), "inactive")
    expect_true("the socket is still there", stat.S_ISSOCK(os.stat(SOCKET).st_mode))
    expect("a command's output", output("echo awake"), "awake")
    expect("the service", show("ActiveState"), "active")


def nothing_survives_a_killed_daemon():
    sleep = unique_sleep()
    ways_to_hide = [
        sleep,
        f"setsid {sleep} & wait",
        f"(setsid {sleep} &) & read -r line < <({sleep})",
        f"env -i setsid {sleep} & trap '' TERM HUP; wait",
    ]
    kept = call(f"setsid {sleep} >/dev/null 2>&1 &", background="keep")
    expect("a command that leaves one in the background", (kept[0], kept[1]["background"][0]["killed"]), (200, False))
    for command in ways_to_hide:
        Background(call, command)
    wait_for_processes(sleep, 6)
    killed, before = main_pid(), restarts()
    os.kill(killed, signal.SIGKILL)
    wait_for_end_of(sleep)
    wait_for("a restart", lambda: restarts() == before + 1 and show("ActiveState") == "active")
    expect_true("it is another process", main_pid() not in (0, killed))
    expect("a command's output", output("echo again"), "again")


def verified(*options):
    """The exit status and the output of `shellyctl audit verify`."""
    shell("journalctl --sync")
    command = ["shellyctl", "audit", "verify", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def what_is_cut_off_the_audit_trail_while_nobody_looks_is_missed():
    ledger = pathlib.Path("/var/lib/shelly-executor/ledger.db")
    output("echo evidence")
    shell(f"systemctl stop {UNIT}")
    output("true")
    status, said = verified()
    expect_true(f"the trail is held against the journal: {said}", status == 0 and "Journal: names " in said)
    shell(f"systemctl stop {UNIT}")
    connection = sqlite3.connect(ledger)
    with connection:
        connection.execute("DELETE FROM audit WHERE number > (SELECT max(number) FROM audit) - 5")
    connection.close()
    # What comes afterwards is longer than what is missing.
    for _ in range(5):
        output("true")
    status, said = verified()
    expect_true(f"the trail is broken: {status} {said}", status == 1 and "it is not the record that was known" in said)
    # Its operator knows why. The history has what was cut off.
    status, said = verified("--since", "tomorrow")
    expect_true(f"nothing was noted since: {said}", "names no end of an audit trail" in said)
    expect_true(f"the history lacks proof: {said}", status == 1 and "the trail has no ending of it" in said)


# Upgrade and removal. These come last, and in this order.


def an_upgrade_keeps_the_configuration_and_the_socket():
    with CONFIG.open("a") as file:
        file.write("# kept by its operator\n")
    # The next version: the same with another number, and another default configuration.
    shell(
        f"""cd /tmp && rm -rf next && dpkg-deb --raw-extract {DEB} next
        sed -i 's/^Version: .*/&+next/' next/DEBIAN/control
        echo '# by the next version' | tee -a next/etc/shelly-executor/*.toml
        dpkg-deb -Znone --root-owner-group --build next next.deb"""
    )
    before, door = main_pid(), os.stat(SOCKET).st_ino
    shell("dpkg --force-confdef --force-confold --install /tmp/next.deb")
    expect_true("the operator's file is kept", CONFIG.read_text().endswith("# kept by its operator\n"))
    untouched = CONFIG.with_name("tools.toml").read_text()
    expect_true("a file nobody touched is the new one", untouched.endswith("# by the next version\n"))
    expect_true("the daemon is the new one", main_pid() not in (0, before))
    expect("the socket", os.stat(SOCKET).st_ino, door)
    expect("a command's output", output("echo upgraded"), "upgraded")


def removal_takes_the_service_and_leaves_the_configuration():
    daemon = main_pid()
    shell("dpkg --remove shelly-executor")
    expect_true("the daemon has ended", not os.path.exists(f"/proc/{daemon}"))
    expect_true("the socket is gone", not os.path.exists(SOCKET))
    expect_true("the programs are gone", not os.path.exists("/usr/bin/shellyctl"))
    expect_true("the configuration is kept", CONFIG.read_text().endswith("# kept by its operator\n"))
    expect("units that failed", shell("systemctl --failed --plain --no-legend"), "")


def it_installs_again_after_removal():
    shell(f"dpkg --force-confdef --force-confold --install {DEB}")
    expect("the service", show("ActiveState"), "active")
    expect_true("the configuration is kept", CONFIG.read_text().endswith("# kept by its operator\n"))
    expect("a command's output", output("echo back"), "back")


def a_purge_leaves_nothing_and_can_be_repeated():
    shell("dpkg --purge shelly-executor")
    for path in CONFIG.parent, pathlib.Path("/var/lib/shelly-executor"), pathlib.Path(SOCKET).parent:
        expect_true(f"{path} is gone", not path.exists())
    expect("processes", shell("pgrep --list-full shelly || true"), "")
    expect("units", shell("systemctl list-units --all --plain --no-legend 'shelly*'"), "")
    shell("dpkg --purge shelly-executor")


INSTALLATION = [
    the_package_installs_and_the_service_is_active,
    shellyctl_runs_a_command,
    curl_runs_a_command,
    the_socket_belongs_to_root_and_shelly,
    the_group_may_call_and_others_may_not,
]
COMMANDS = [
    a_command_has_a_cgroup_of_its_own,
    a_timeout_kills_the_whole_cgroup,
    nothing_that_the_unit_gives_the_daemon_reaches_a_command,
]
CONFIGURATION = [
    the_journal_has_one_record_of_each_execution,
    a_reload_takes_up_a_change,
    a_change_on_disk_is_taken_up_without_a_reload,
    a_reload_of_an_invalid_file_succeeds_and_keeps_the_old_one,
    access_is_what_the_configuration_says,
    what_is_untrusted_runs_in_the_sandbox,
    what_is_untrusted_runs_in_another_runtime,
]
SUPERVISION = [
    the_watchdog_restarts_a_daemon_that_hangs,
    idle_connections_do_not_starve_the_watchdog,
    a_stop_lets_a_running_command_finish,
    a_stop_kills_what_does_not_end,
    a_call_starts_a_stopped_service,
    nothing_survives_a_killed_daemon,
    what_is_cut_off_the_audit_trail_while_nobody_looks_is_missed,
]
REMOVAL = [
    an_upgrade_keeps_the_configuration_and_the_socket,
    removal_takes_the_service_and_leaves_the_configuration,
    it_installs_again_after_removal,
    a_purge_leaves_nothing_and_can_be_repeated,
]

if __name__ == "__main__":
    run_checks(INSTALLATION + COMMANDS + CONFIGURATION + SUPERVISION + REMOVAL)
