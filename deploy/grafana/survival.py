"""What the dashboard about copies and checkpoints shows.

Apart from dashboards.py, whose names it uses: this is about what would be lost,
the others about how training goes.
"""

from deploy.grafana.dashboards import (J, JOB_VARIABLE, NAMESPACE_VARIABLE,
                                       RATE)
from deploy.grafana.panels import (dashboard, instant, lines, query, row, stat,
                                   states)

_YES = {0: ("no", "transparent"), 1: ("yes", "blue")}


def survival():
    behind = (f"aggserver_job_version{J} - on (namespace, job) "
              f"aggserver_checkpoint_version{J}")
    panels = [
        stat("Recovering", "1: between two epochs; `aggctl status` says what "
             "is waited for.",
             [instant(f"aggserver_recovering{J}", "")],
             steps=[(None, "green"), (1, "red")]),
        stat("Copies", "Each part has two in memory; and whether it should.",
             [instant(f"aggserver_replicated{J}", "two"),
              instant(f"aggserver_replication_configured{J}", "configured")]),
        stat("Rewinds", "To a checkpoint, since the coordinator began.",
             [instant(f"aggserver_rewinds_total{J}", "")],
             steps=[(None, "green"), (1, "orange")]),
        stat("Checkpoint", "Version of the newest complete one; 0 without "
             "checkpoints.",
             [instant(f"aggserver_checkpoint_version{J}", "")]),
        stat("Its age", "0 without checkpoints.",
             [instant(f"aggserver_checkpoint_age_seconds{J}", "")], unit="s"),
        stat("Failed", "Checkpoints given up after an error.",
             [instant(f"aggserver_checkpoint_failed_total{J}", "")],
             steps=[(None, "green"), (1, "red")]),
        row("Copies"),
        states("Recovering, and two copies",
               "Two copies of each part: any one process may be killed.",
               [query(f"aggserver_recovering{J}", "recovering"),
                query(f"aggserver_replicated{J}", "two copies")], _YES),
        lines("Rewinds", "Each one costs the rounds since its checkpoint.",
              [query(f"aggserver_rewinds_total{J}", "rewinds")]),
        lines("History", "The epoch of the last seed or rewind. A change: "
              "versions count from a lower number again.",
              [query(f"aggserver_history{J}", "history")], width=24, height=6),
        row("Checkpoints"),
        lines("Age", "Of the newest complete one, against the interval. Far "
              "above it: writing is too slow, or fails.",
              [query(f"aggserver_checkpoint_age_seconds{J}", "age"),
               query(f"aggserver_checkpoint_interval_seconds{J}",
                     "interval")], unit="s"),
        lines("Rounds that a rewind would cost",
              "Published version less that of the checkpoint, against every_rounds.",
              [query(behind, "rounds"),
               query(f"aggserver_checkpoint_every_rounds{J}", "every")]),
        lines("Checkpoints in a second",
              "Skipped: due while one was being written.",
              [query(f"rate(aggserver_checkpoint_{name}_total{J}{RATE})", name)
               for name in ("sealed", "failed", "skipped")]),
        states("Being written", "Rounds go on meanwhile.",
               [query(f"aggserver_checkpoint_writing{J}", "writing")], _YES),
    ]
    return dashboard("agg-survival", "agg_server: copies and checkpoints",
                     "What a lost process would cost.",
                     [NAMESPACE_VARIABLE, JOB_VARIABLE], panels)


DASHBOARDS = {"survival.json": survival}
