#!/usr/bin/env python3
"""A brain: a model, the tools of Shelly Executor, and a loop. Usage: brain.py 'How full are the disks?'"""
import http.client, json, os, socket, sys, urllib.request

KEY = os.environ.get("ANTHROPIC_API_KEY") or sys.exit("brain: ANTHROPIC_API_KEY is not set")
OWN = (os.environ.get("XDG_RUNTIME_DIR") or "/run") + "/shelly-executor/executor.sock"  # a daemon of one's own comes first
SOCKET = os.environ.get("SHELLY_SOCKET") or (OWN if os.path.exists(OWN) else "/run/shelly-executor/executor.sock")

class Executor(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)

def executor(method, path, body=None):
    try:
        connection = Executor("shelly")
        connection.request(method, path, body and json.dumps(body))
        response = connection.getresponse()
        return response.status, json.load(response)  # a problem is JSON too, with the same members
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"brain: no answer from the daemon on {SOCKET}: {error} (`shellyctl status` says more)")

def model(messages):
    url = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com") + "/v1/messages"
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": KEY}
    body = {"model": os.environ.get("MODEL", "claude-sonnet-4-5"), "max_tokens": 4096, "tools": tools, "messages": messages}
    try:
        return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))
    except OSError as error:
        sys.exit(f"brain: no answer from the model at {url}: {error}")

status, tools = executor("GET", "/tools")
if status != 200:
    sys.exit(f"brain: the daemon does not list its tools: {tools['detail']}")
messages, reason = [{"role": "user", "content": " ".join(sys.argv[1:]) or sys.exit(__doc__)}], "tool_use"
while reason == "tool_use":
    turn, results = model(messages), []
    reason = turn["stop_reason"]
    for block in turn["content"]:
        if block["type"] == "text":
            print(block["text"], flush=True)
        elif block["type"] == "tool_use" and reason == "tool_use":  # otherwise it may be cut off in the middle
            call = block  # as it is; for another time limit: {**block, "timeout_secs": 600}
            _, answer = executor("POST", "/execute", call)
            results.append({"type": "tool_result", "tool_use_id": block["id"], "content": answer["content"], "is_error": answer["is_error"]})
    messages += [{"role": "assistant", "content": turn["content"]}, {"role": "user", "content": results}]
if reason != "end_turn":
    sys.exit(f"brain: the model stopped early: {reason}")
