#!/usr/bin/python3
"""Writes the dashboards (*.json) beside this file from the Python modules."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from deploy.grafana import dashboards, resources, survival  # noqa: E402


def rendered():
    """{file name: text}."""
    return {name: json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
            for name, make in (dashboards.DASHBOARDS
                               | resources.DASHBOARDS
                               | survival.DASHBOARDS).items()}


if __name__ == "__main__":
    for name, text in rendered().items():
        (HERE / name).write_text(text, encoding="utf-8")
