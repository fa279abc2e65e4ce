#!/usr/bin/env python3
"""A brain: a model, the tools of Shelly Executor, and a loop. Usage: brain.py 'How full are the disks?'"""
import http.client, json, os, socket, sys, urllib.request

SOCKET = os.environ.get("SHELLY_SOCKET") or "/run/shelly-executor/executor.sock"
MODEL = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com") + "/v1/messages"
HEADERS = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "")}

class Executor(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)

def answer_of(whom, ask):
    try:
        return json.load(ask())
    except (OSError, http.client.HTTPException) as error:
        said = error.read().decode(errors="replace") if hasattr(error, "read") else ""
        sys.exit(f"brain: no answer from {whom}: {error} {said}".rstrip())

def executor(method, path, body=None):
    connection = Executor("shelly")
    ask = lambda: connection.request(method, path, body and json.dumps(body)) or connection.getresponse()
    return answer_of(f"the daemon on {SOCKET}", ask)  # a problem is JSON too, with the same members

def model(messages):
    body = {"model": os.environ.get("MODEL", "claude-sonnet-4-5"), "max_tokens": 4096, "tools": executor("GET", "/tools"), "messages": messages}
    return answer_of(f"the model at {MODEL}", lambda: urllib.request.urlopen(urllib.request.Request(MODEL, json.dumps(body).encode(), HEADERS)))

messages, turn = [{"role": "user", "content": " ".join(sys.argv[1:]) or sys.exit(__doc__)}], {"stop_reason": "tool_use"}
while turn["stop_reason"] == "tool_use":  # not after "max_tokens", where a call may be cut off in the middle
    turn, results = model(messages), []
    for block in turn["content"]:
        if block["type"] == "text":
            print(block["text"], flush=True)
        elif block["type"] == "tool_use" and turn["stop_reason"] == "tool_use":
            answer = executor("POST", "/execute", block)  # for a time limit of its own: {**block, "timeout_secs": 600}
            results.append({"type": "tool_result", "tool_use_id": block["id"], "content": answer["content"], "is_error": answer["is_error"]})
    messages += [{"role": "assistant", "content": turn["content"]}, {"role": "user", "content": results}]
