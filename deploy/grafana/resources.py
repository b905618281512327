"""What the dashboard about transport and resources shows.

Apart from dashboards.py, whose names it uses.
"""

from deploy.grafana.dashboards import (BY_SHARD, EARLY, J, JOB_VARIABLE,
                                       NAMESPACE_VARIABLE, RATE, SHARD,
                                       SHARD_VARIABLE)
from deploy.grafana.panels import (dashboard, instant, lines, query, row, stat,
                                   states)


def resources():
    panels = [
        stat("Shards", "That Prometheus can read, and that the job has.",
             [instant(f"count(aggserver_build_info{J})", "up"),
              instant(f"max(aggserver_shards{J})", "of")]),
        stat("Build", "More than one: a half-done upgrade.",
             [instant(f"count by (version) (aggserver_build_info{SHARD})", "{{version}}")], name=True),
        stat("Backend", "Who computes.",
             [instant(f"count by (backend) (aggserver_backend_info{SHARD})", "{{backend}}")], name=True),
        stat("Parameters", "Of the model.",
             [instant(f"sum(aggserver_elements{J})", "")], unit="short"),
        stat("Tensors", "Of the manifest.",
             [instant(f"aggserver_tensors{J}", "")]),
        stat("Up since", "Start of the oldest process.",
             [instant(f"1000 * min(aggserver_start_time_seconds{SHARD})",
                      "")], unit="dateTimeFromNow"),
        row("Transport"),
        lines("Gradients in", "Bytes that landed.",
              [query(f"rate(aggserver_push_bytes_total{SHARD}{RATE})",
                     BY_SHARD),
               query(f"rate(aggserver_push_in_place_bytes_total{SHARD}{RATE})",
                     "in shared memory, " + BY_SHARD),
               query(f"rate(aggserver_push_on_device_bytes_total{SHARD}{RATE})",
                     "on the card, " + BY_SHARD)], unit="Bps"),
        lines("Parameters out", "Bytes handed to the transport.",
              [query(f"rate(aggserver_pull_bytes_total{SHARD}{RATE})",
                     BY_SHARD),
               query(f"rate(aggserver_pull_in_place_bytes_total{SHARD}{RATE})",
                     "in shared memory, " + BY_SHARD),
               query(f"rate(aggserver_pull_on_device_bytes_total{SHARD}{RATE})",
                     "on the card, " + BY_SHARD)], unit="Bps"),
        lines("Dropped gradients",
              "Duplicates and closed rounds: workers that retry or come late.",
              [query(f"rate(aggserver_duplicate_bytes_total{SHARD}{RATE})",
                     BY_SHARD)], unit="Bps"),
        lines("Workers and shards", "Pairs, by how their bytes travel.",
              [query(f"sum by (transport) (aggserver_worker_links{J})", "{{transport}}")]),
        lines("Errors",
              "Checksums that did not match: memory or network. Revoked "
              "snapshots: pullers slower than rounds. Overtaken pulls: those of "
              "pullers that took nothing. Backend: calls that failed. Log lines: "
              "dropped, since nobody reads the process's stderr, or held back, since "
              "others of the same minute say it. Audit: lines missing from its file.",
              [query(f"aggserver_crc_errors_total{SHARD}", "checksums, " + BY_SHARD),
               query(f"aggserver_overtaken_pulls_total{SHARD}", "overtaken pulls, " + BY_SHARD),
               query(f"aggserver_log_lines_dropped_total{SHARD}",
                     "log lines dropped, " + BY_SHARD),
               query(f"aggserver_log_lines_held_back_total{SHARD}",
                     "log lines held back, " + BY_SHARD),
               query(f"aggserver_audit_errors_total{SHARD}", "audit, " + BY_SHARD),
               query(f"aggserver_backend_errors_total{SHARD}", "backend, " + BY_SHARD),
               query(f"aggserver_revoked_snapshots_total{SHARD}", "snapshots, " + BY_SHARD),
               query(f"aggserver_shared_memory_fallbacks_total{SHARD}",
                     "{{use}} not shared, {{reason}}, " + BY_SHARD),
               query(f"aggserver_staged_buffers_total{SHARD}",
                     "{{use}} staged for the device, " + BY_SHARD),
               query(f"aggserver_phase_timeouts_total{J}",
                     "phases that shard {{late_shard}} did not answer")]),
        lines("gRPC calls in a second",
              "By method and code, when they end. CANCELLED: callers that have gone; ABORTED: "
              "clients of an epoch that is over.",
              [query("sum by (method, code) (rate(aggserver_grpc_calls_total"
                     f"{SHARD}{RATE}))", "{{method}} {{code}}")],
              width=24, height=6),
        lines("Round log", "Records written, and those that a full disk or "
              "another error kept out. Both stay 0 without round_log.",
              [query(f"aggserver_round_log_records_total{J}", "records"),
               query(f"aggserver_round_log_errors_total{J}", "errors")], width=24, height=6),
        row("Who may call"),
        lines("Refused calls in a second",
              "For who made them, or by a limit. bad_token: a token that was replaced, or "
              "a guess. max_ and joins_per_second: the limit that was reached.",
              [query(f"sum by (reason) (rate(aggserver_denied_total{SHARD}{RATE}))",
                     "{{reason}}")]),
        lines("Guards",
              "Identities of the configuration; 0: whoever reaches a port may do everything. "
              "Insecure is 1 where other hosts reach a port without TLS.",
              [query(f"aggserver_identities{SHARD}", "identities, " + BY_SHARD),
               query(f"aggserver_insecure{SHARD}", "insecure, " + BY_SHARD)]),
        lines("Certificates",
              "Time until what security.tls has in use expires. Alerts come at "
              "14 days and at one.",
              [query(f"aggserver_certificate_expiry_timestamp_seconds{SHARD} - time()",
                     "{{file}}, " + BY_SHARD)], unit="s", width=24, height=6),
        row("Resources"),
        lines("Memory", "Planned at the manifest, what the process has, and the limit "
              "of its container (0: none), at which the kernel ends it.",
              [query(f"aggserver_memory_planned_bytes{SHARD}", "planned, " + BY_SHARD),
               query(f"aggserver_memory_resident_bytes{SHARD}", "resident, " + BY_SHARD),
               query(f"aggserver_memory_limit_bytes{SHARD}", "limit, " + BY_SHARD)],
              unit="bytes"),
        lines("Memory of the budget",
              "Near 1: another worker or tensor will not fit.",
              [query(f"aggserver_memory_planned_bytes{SHARD} / aggserver_memory_budget_bytes{SHARD}",
                     "planned, " + BY_SHARD),
               query(f"aggserver_memory_resident_bytes{SHARD} / aggserver_memory_budget_bytes{SHARD}",
                     "resident, " + BY_SHARD)], unit="percentunit"),
        lines("Device memory", "Planned at the manifest, and what is used of "
              "the device, by whomever. 0: a backend without a device.",
              [query(f"aggserver_device_memory_planned_bytes{SHARD}",
                     "planned, " + BY_SHARD),
               query(f"aggserver_device_memory_used_bytes{SHARD}",
                     "in use, " + BY_SHARD),
               query(f"aggserver_device_memory_total_bytes{SHARD}",
                     "there is, " + BY_SHARD)], unit="bytes"),
        lines("Device memory of the budget",
              "Near 1: another worker or tensor will not fit. 0: a backend "
              "without a device.",
              [query(f"aggserver_device_memory_planned_bytes{SHARD} / clamp_min("
                     f"aggserver_device_memory_budget_bytes{SHARD}, 1)",
                     BY_SHARD)], unit="percentunit"),
        lines("CPUs in use", "By process.",
              [query(f"rate(aggserver_cpu_seconds_total{SHARD}{RATE})",
                     BY_SHARD)]),
        lines("Open files", "File descriptors, connections included, and how "
              "many the process may have.",
              [query(f"process_open_fds{SHARD}", "open, " + BY_SHARD),
               query(f"process_max_fds{SHARD}", "allowed, " + BY_SHARD)],
              log=True),
        lines("Grams hidden behind the network",
              "Share of slices whose Gram was there when the round closed.",
              [query("sum by (shard) (rate(aggserver_slice_grams_total"
                     f"{EARLY}{RATE})) / sum by (shard) "
                     f"(rate(aggserver_slice_grams_total{SHARD}{RATE}))",
                     BY_SHARD)], unit="percentunit"),
        lines("Parameters and slices", "Much unequal: one huge slice.",
              [query(f"aggserver_elements{SHARD}", "parameters, " + BY_SHARD),
               query(f"aggserver_slices{SHARD}", "slices, " + BY_SHARD)],
              log=True),
        row("Epoch"),
        lines("Version that a shard serves",
              "Shards that differ for long: one hangs.",
              [query(f"aggserver_version{SHARD}", BY_SHARD)]),
        states("Attached",
               "The coordinator has the shard in its epoch.",
               [query(f"aggserver_attached{SHARD}", BY_SHARD)],
               {0: ("no", "red"), 1: ("yes", "green")}),
        states("Stopping",
               "The process was told to stop, in good order. A series that ends without it "
               "is one that has crashed, or cannot be reached.",
               [query(f"aggserver_stopping{SHARD}", BY_SHARD)],
               {0: ("no", "green"), 1: ("yes", "blue")}),
        lines("Epoch", "A change: the job's servers started anew.",
              [query(f"aggserver_epoch{SHARD}", BY_SHARD)], width=24,
              height=6),
    ]
    return dashboard("agg-resources", "agg_server: transport and resources",
                     "What moves, and what it takes.",
                     [NAMESPACE_VARIABLE, JOB_VARIABLE, SHARD_VARIABLE], panels)


DASHBOARDS = {"resources.json": resources}
