"""Queries of the dashboards and rules, as Prometheus would get them."""

import json
import pathlib
import re

GRAFANA = pathlib.Path("deploy/grafana")
_METRIC = re.compile(r"\b(?:aggserver|process)_[a-z0-9_]+")
_SERIES_OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")


def dashboards():
    """{file name: dashboard}."""
    return {path.name: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(GRAFANA.glob("*.json"))}


def panels(dashboard):
    """Those with queries."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def substituted(expr, job, rate_interval):
    """The query with all variables at their first values: All, and one job."""
    # Off Kubernetes series have no namespace, which "" matches.
    for name, value in (("$__rate_interval", rate_interval),
                        ("$namespace", ""), ("$job", job),
                        ("$tensor", ".+"), ("$shard", ".*"),
                        ("$worker", ".*")):
        expr = expr.replace(name, value)
    if "$" in expr:
        raise ValueError(f"a variable without a value: {expr}")
    return expr


def metrics_of(expr):
    """The families that a query names."""
    return {_SERIES_OF_HISTOGRAMS.sub("", name)
            for name in _METRIC.findall(expr)}


def documented():
    """The families that server/metrics/README.md lists."""
    text = pathlib.Path("server/metrics/README.md").read_text(encoding="utf-8")
    return {part for part in re.findall(
        r"`((?:aggserver|process)_[a-z0-9_]+)`", text)}
