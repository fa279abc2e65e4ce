#!/usr/bin/env python3
"""Talks gRPC to the daemon with grpcio: client.py SOCKET CONTRACT-DIR EXCHANGE.json

Makes its code of the contract, replays the recorded exchange, and tries what a client relies on: streams, deadlines,
cancelling, health, reflection. Ends with the line "all of it".
"""

import json
import sys
import tempfile
import threading

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status
from grpc_tools import protoc

socket, contract, exchange = sys.argv[1:]
generated = tempfile.TemporaryDirectory()
made = protoc.main(
    [
        "protoc",
        f"-I{contract}",
        f"--python_out={generated.name}",
        f"--grpc_python_out={generated.name}",
        "shelly/executor/v1/executor.proto",
    ]
)
assert made == 0, "the contract cannot be compiled"
sys.path.insert(0, generated.name)
from shelly.executor.v1 import executor_pb2 as messages  # noqa: E402
from shelly.executor.v1 import executor_pb2_grpc as services  # noqa: E402

# Without the option grpcio makes a host name of the socket's path, with escapes that HTTP allows in none.
channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")])
tools = services.ToolExecutorStub(channel)


def bash(command, **members):
    return messages.ExecuteToolRequest(tool_name="bash", input_json=json.dumps({"command": command}), **members)


def refused(work):
    try:
        work()
    except grpc.RpcError as error:
        return error
    raise AssertionError("it was not refused")


def problem(error):
    problem = messages.Problem()
    for detail in rpc_status.from_call(error).details:
        if detail.Unpack(problem):
            return problem
    raise AssertionError(f"no problem in {error}")


def check(recorded, message, at):
    """Every field as it was recorded; null is one that is absent, "*" one that is there."""
    fields = {field.name: field for field in message.DESCRIPTOR.fields}
    assert recorded.keys() == fields.keys(), f"{at}: {recorded.keys() ^ fields.keys()}"
    for name, value in recorded.items():
        field, here = fields[name], f"{at}.{name}"
        got = getattr(message, name)
        if value is None:
            assert not message.HasField(name), f"{here} is {got!r}"
        elif value == "*":
            assert not field.has_presence or message.HasField(name), f"{here} is not there"
        elif isinstance(value, dict):
            check(value, got, here)
        elif isinstance(value, list):
            assert list(got) == value, f"{here} is {got!r}"
        else:
            assert got == value, f"{here} is {got!r}, not {value!r}"


with open(exchange, encoding="utf-8") as file:
    for recorded in json.load(file):
        kind = {"GetTool": messages.GetToolRequest, "ExecuteTool": messages.ExecuteToolRequest}[recorded["method"]]
        request, method = kind(**recorded["request"]), getattr(tools, recorded["method"])
        if "answer" in recorded:
            check(recorded["answer"], method(request), recorded["method"])
        else:
            error = refused(lambda: method(request))
            assert error.code().name == recorded["status"], error
            check(recorded["problem"], problem(error), recorded["status"])
            info = error_details_pb2.ErrorInfo()
            assert rpc_status.from_call(error).details[0].Unpack(info)
            assert info.reason == recorded["problem"]["code"].upper() and info.domain == "shelly-executor", info

names = [tool.name for tool in tools.ListTools(messages.ListToolsRequest()).tools]
assert "bash" in names, names

# A stream, and what it says before its end.
events = tools.ExecuteToolStream(bash("echo one; read word; echo $word >&2", stdin="two\n"))
output, kinds = {"stdout": b"", "stderr": b""}, []
for event in events:
    kinds.append(event.WhichOneof("event"))
    if kinds[-1] == "output":
        assert event.output.offset == len(output[event.output.stream])
        output[event.output.stream] += event.output.data
assert kinds[0] == "started" and kinds[-1] == "result" and set(kinds[1:-1]) == {"output"}, kinds
assert output == {"stdout": b"one\n", "stderr": b"two\n"}, output

# An answer of several hundred KiB, and one that the usual bound of a client just holds.
assert tools.ExecuteTool(bash("head -c 1000000 /dev/zero | tr '\\0' x")).stdout_bytes == 1000000

# Deadlines: of the client, and of the call.
assert refused(lambda: tools.ExecuteTool(bash(": deadline; sleep 600"), timeout=8)).code() == grpc.StatusCode.DEADLINE_EXCEEDED
error = refused(lambda: tools.ExecuteTool(bash("echo so far; sleep 600", timeout_secs=2)))
assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
assert problem(error).partial.content == "[stdout]\nso far\n\n[timeout]\n2s", error

# What is long and not of ASCII still fits into a status.
error = refused(lambda: tools.ExecuteTool(bash("yes ü | head -c 200000; sleep 600", timeout_secs=2)))
assert len(problem(error).partial.content) > 500, error

# Cancelling, from another thread as programs do.
events = tools.ExecuteToolStream(bash(": cancelled; sleep 600"))
execution = next(events).started.execution_id
assert execution
threading.Thread(target=events.cancel).start()
assert refused(lambda: next(events)).code() == grpc.StatusCode.CANCELLED

# Too large for the daemon.
error = refused(lambda: tools.ExecuteTool(bash("true", stdin="x" * (17 << 20))))
assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and problem(error).code == "payload_too_large", error

health = health_pb2_grpc.HealthStub(channel)
for name in ["", "shelly.executor.v1.ToolExecutor"]:
    answer = health.Check(health_pb2.HealthCheckRequest(service=name))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer

reflected = ProtoReflectionDescriptorDatabase(channel)
assert "shelly.executor.v1.ToolExecutor" in reflected.get_services()
contract = reflected.FindFileContainingSymbol("shelly.executor.v1.ToolExecutor")
assert [service.name for service in contract.service] == ["ToolExecutor"], contract

print("all of it")
