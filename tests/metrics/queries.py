#!/usr/bin/python3
"""Prints every query of a Grafana dashboard as Prometheus takes it, one a line: queries.py DASHBOARD."""

import json
import sys

# What Grafana puts in the place of its variables.
VARIABLES = {"$__rate_interval": "5s", "$__range": "1m", "$instance": ".*"}

with open(sys.argv[1]) as file:
    dashboard = json.load(file)
for panel in dashboard["panels"]:
    for target in panel["targets"]:
        query = target["expr"]
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        print(query)
