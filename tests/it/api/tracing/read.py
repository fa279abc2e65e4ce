"""Reads a request of OTLP with the messages of Python's opentelemetry-proto, and says in JSON what is in it."""

import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def attributes(of):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in of.attributes}


request = ExportTraceServiceRequest.FromString(sys.stdin.buffer.read())
assert request.IsInitialized() and len(UnknownFieldSet(request)) == 0
[resource] = request.resource_spans
[scope] = resource.scope_spans
spans = []
for span in scope.spans:
    assert len(UnknownFieldSet(span)) == 0
    spans.append({
        "name": span.name,
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex(),
        "kind": span.kind,
        "status": span.status.code,
        "nanos": span.end_time_unix_nano - span.start_time_unix_nano,
        "attributes": attributes(span),
    })
json.dump({"resource": attributes(resource.resource), "scope": scope.scope.name, "spans": spans}, sys.stdout)
