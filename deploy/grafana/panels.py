"""Building blocks of Grafana dashboards (JSON model of Grafana 9 and later)."""

SCHEMA_VERSION = 37  # Grafana 9.0; later ones migrate it when they load it
WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def query(expr, legend, **extra):
    """One target; `legend` in Grafana's {{label}} syntax."""
    return {"expr": expr, "legendFormat": legend, **extra}


def instant(expr, legend, **extra):
    """One target that asks for the last value alone."""
    return query(expr, legend, instant=True, range=False, **extra)


def panel(kind, title, text, queries, width=12, height=8, unit="none",
          options=None, custom=None, **defaults):
    """A panel without a place; `text` is its description.

    `custom` and the further arguments are of fieldConfig.defaults.
    """
    targets = []
    for i, target in enumerate(queries):
        targets.append({"datasource": DATASOURCE, "refId": chr(ord("A") + i),
                        "range": True, **target})
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": DATASOURCE,
        "targets": targets,
        "options": options or {},
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": custom or {}, **defaults},
            "overrides": [],
        },
        "width": width,
        "height": height,
    }


def lines(title, text, queries, log=False, stack=False, points=False,
          **kwargs):
    """Lines over time."""
    custom = {"lineWidth": 1, "fillOpacity": 20 if stack else 0,
              "showPoints": "auto" if points else "never",
              "spanNulls": False, "drawStyle": "line"}
    if log:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    if stack:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    options = {"legend": {"displayMode": "table", "placement": "right",
                          "showLegend": True, "calcs": ["lastNotNull"]},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, text, queries, options=options,
                 custom=custom, **kwargs)


def heatmap(title, text, queries, low, high, **kwargs):
    """A row per series, a colour per value in low..high."""
    options = {
        "calculate": False,  # the series are the rows
        "rowsFrame": {"layout": "auto", "value": "value"},
        "color": {"mode": "scheme", "scheme": "Turbo", "steps": 128,
                  "exponent": 0.5, "fill": "dark-orange", "reverse": False,
                  "scale": "exponential", "min": low, "max": high},
        "cellGap": 0,
        "filterValues": {"le": -1e9},
        "legend": {"show": True},
        "showValue": "never",
        "tooltip": {"show": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
    }
    return panel("heatmap", title, text, queries, options=options,
                 custom={"hideFrom": {"legend": False, "tooltip": False,
                                      "viz": False}}, **kwargs)


def stat(title, text, queries, name=False, width=4, height=4, steps=None,
         **kwargs):
    """A large number, or with `name` the legend; `steps`: (from, colour)."""
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                                 "values": False},
               "textMode": "name" if name else "auto",
               "colorMode": "value", "graphMode": "none",
               "justifyMode": "auto", "orientation": "auto"}
    thresholds = [{"color": colour, "value": start}
                  for start, colour in steps or [(None, "text")]]
    return panel("stat", title, text, queries, width=width, height=height,
                 options=options, color={"mode": "thresholds"},
                 thresholds={"mode": "absolute", "steps": thresholds},
                 **kwargs)


def states(title, text, queries, mappings, **kwargs):
    """Bars of states over time; `mappings`: {value: (text, colour)}."""
    options = {"mergeValues": True, "rowHeight": 0.9, "showValue": "never",
               "alignValue": "left",
               "legend": {"displayMode": "list", "placement": "bottom",
                          "showLegend": True},
               "tooltip": {"mode": "single", "sort": "none"}}
    shown = {str(value): {"text": name, "color": colour, "index": i}
             for i, (value, (name, colour)) in enumerate(mappings.items())}
    return panel("state-timeline", title, text, queries, options=options,
                 custom={"lineWidth": 0, "fillOpacity": 80},
                 color={"mode": "thresholds"},
                 thresholds={"mode": "absolute",
                             "steps": [{"color": "text", "value": None}]},
                 mappings=[{"type": "value", "options": shown}], **kwargs)


def row(title):
    """A heading; what follows it belongs to it."""
    return {"type": "row", "title": title, "collapsed": False, "panels": [],
            "width": WIDTH, "height": 1}


def variable(name, metric, label, text, every=None):
    """Values of a label. `every`: what All matches; one value without it."""
    definition = f"label_values({metric}, {label})"
    return {
        "type": "query", "name": name, "label": text,
        "datasource": DATASOURCE, "definition": definition,
        "query": {"query": definition, "refId": f"variable-{name}"},
        "refresh": 2,  # when the time range changes
        "sort": 7,     # natural
        "multi": every is not None, "includeAll": every is not None,
        "allValue": every, "hide": 0, "regex": "", "skipUrlSync": False,
        "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]}
                   if every is not None else {},
    }


def _datasource_variable():
    return {"type": "datasource", "name": "datasource", "label": "Prometheus",
            "query": "prometheus", "current": {}, "hide": 0, "regex": "",
            "multi": False, "includeAll": False, "refresh": 1, "options": [],
            "skipUrlSync": False}


def _placed(panels):
    """The panels with ids and places: left to right, then down."""
    placed, x, y, line_height = [], 0, 0, 0
    for i, item in enumerate(panels):
        item = dict(item)
        width, height = item.pop("width"), item.pop("height")
        if x + width > WIDTH:
            x, y, line_height = 0, y + line_height, 0
        placed.append({"id": i + 1, **item, "gridPos": {
            "x": x, "y": y, "w": width, "h": height}})
        x, line_height = x + width, max(line_height, height)
    return placed


def dashboard(uid, title, text, variables, panels):
    """The complete JSON model."""
    alerts = {"name": "Alerts", "enable": True, "iconColor": "red",
              "datasource": DATASOURCE, "step": "15s",
              "expr": 'ALERTS{namespace="$namespace",job="$job",'
                      'alertstate="firing"}',
              "titleFormat": "{{alertname}}", "tagKeys": "shard,worker"}
    others = {"type": "dashboards", "title": "agg_server", "asDropdown": True,
              "tags": ["agg_server"], "includeVars": True, "keepTime": True,
              "icon": "external link", "targetBlank": False, "tooltip": "",
              "url": ""}
    return {
        "uid": uid, "title": title, "description": text,
        "tags": ["agg_server"], "schemaVersion": SCHEMA_VERSION, "version": 1,
        "editable": True, "graphTooltip": 1, "timezone": "browser",
        "time": {"from": "now-30m", "to": "now"}, "refresh": "10s",
        "timepicker": {}, "fiscalYearStartMonth": 0, "weekStart": "",
        "annotations": {"list": [alerts]}, "links": [others],
        "templating": {"list": [_datasource_variable()] + variables},
        "panels": _placed(panels),
    }
