"""What a skill in Python needs: its input, its answer, and calls of other tools.

Standard library only. Put a copy beside your program, which then is all there is to install:

    import shelly_skill

    def main(input):
        listing = shelly_skill.output("list_dir", {"dir_path": input["dir"]})
        return {"paths": [entry["path"] for entry in listing["entries"]]}

    shelly_skill.run(main)
"""

import http.client
import json
import os
import socket
import sys
import urllib.parse


class CallFailed(Exception):
    """A call that the daemon refused or could not carry out; `body` is what it answered."""

    def __init__(self, status, body):
        super().__init__(body.get("detail") or body.get("content") or "status %d" % status)
        self.status = status
        self.code = body.get("code")
        self.body = body


class _Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(os.environ["SHELLY_SOCKET"])


_NOTHING = object()


def _request(method, path, body=_NOTHING):
    connection = _Connection("localhost")
    headers = {"Authorization": "Bearer " + os.environ["SHELLY_CAPABILITY"]}
    text = None
    if body is not _NOTHING:
        text = json.dumps(body)
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, text, headers)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    answer = json.loads(text) if text else None
    if response.status >= 300:
        raise CallFailed(response.status, answer or {})
    return answer


def call(tool, input=None, **options):
    """Calls another tool and returns the answer: `content`, `is_error`, and `output` if it has one.

    A command that fails is an answer, too; what the daemon refuses raises CallFailed. Options are
    those of a call: timeout_secs, working_dir, env, stdin, tool_version.
    """
    return _request("POST", "/execute", dict(options, name=tool, input=input or {}))


def output(tool, input=None, **options):
    """As `call`, but returns the structured output alone; raises CallFailed when the tool failed."""
    answer = call(tool, input, **options)
    if answer["is_error"]:
        raise CallFailed(200, answer)
    return answer.get("output")


def values(scope):
    """The values of a scope, by name: `memory`, `config`, `session` or `scratch`. Skills that one call leads to share them."""
    return _request("GET", _place(scope))


def value(scope, name, default=None):
    """One of them; `default` where there is none."""
    try:
        return _request("GET", _place(scope, name))
    except CallFailed as error:
        if error.code != "not_found":
            raise
        return default


def keep(scope, name, value):
    """Keeps a value: in `scratch` until the outermost call ends, in `session` as long as the daemon knows its id."""
    _request("PUT", _place(scope, name), value)


def drop(scope, name):
    """Forgets a value. One that is not there raises CallFailed."""
    _request("DELETE", _place(scope, name))


def _place(*parts):
    return "/context/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def passed_on(*names):
    """The variables of these names that are set here, for the `env` of a call: it begins without them."""
    return {name: os.environ[name] for name in names if name in os.environ}


def fail(message):
    """Ends the skill as failed: whoever called it reads the message."""
    print(message, file=sys.stderr)
    sys.exit(1)


def run(main):
    """Gives `main` the input, and writes what it returns as the answer."""
    try:
        answer = main(json.load(sys.stdin))
    except CallFailed as error:
        fail("a call failed: %s" % error)
    json.dump(answer, sys.stdout)
    print()
