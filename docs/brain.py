#!/usr/bin/env python3
"""A brain: a model, the tools of Shelly Executor, and a loop. Usage: brain.py 'How full are the disks?'"""
import http.client, json, os, socket, sys, urllib.request

class Executor(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ.get("SHELLY_SOCKET", "/run/shelly-executor/executor.sock"))

def executor(method, path, body=None):
    connection = Executor("shelly")
    connection.request(method, path, body and json.dumps(body))
    return json.load(connection.getresponse())  # a problem is JSON too, with the same members

def model(messages):
    url = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com") + "/v1/messages"
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": os.environ["ANTHROPIC_API_KEY"]}
    body = {"model": os.environ.get("MODEL", "claude-sonnet-4-5"), "max_tokens": 4096, "tools": executor("GET", "/tools"), "messages": messages}
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))

messages, results = [{"role": "user", "content": " ".join(sys.argv[1:])}], True
while results:
    content, results = model(messages)["content"], []
    for block in content:
        if block["type"] == "text":
            print(block["text"], flush=True)
        elif block["type"] == "tool_use":
            answer = executor("POST", "/execute", block)  # as it is
            results.append({"type": "tool_result", "tool_use_id": block["id"], "content": answer["content"], "is_error": answer["is_error"]})
    messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
