"""How long files and functions may be.

A file of code has at most 400 lines. In production code a header has at most
120, a source 300, and the body of a function 40. What is longer for a reason is
named here, with the reason: a class is not cut for its length.
"""

import re

_MAX_LINES = 400
_MAX_HEADER = 120
_MAX_SOURCE = 300
_MAX_BODY = 40

_CODE = (".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".sh", ".bzl")
_CPP = (".h", ".cc", ".cu", ".cuh")

_ONE_LOCK = "one lock guards all of it, and one class holds it"
_PAGE = "one page that a reader takes in as a whole"
LONG_FILES = {
    "kernels/backend.h": "the contract of all backends: " + _PAGE,
    "kernels/cuda/gram_schedule.h": "which lane does what: " + _PAGE,
    "kernels/cuda/cuda_update.cc": "one class runs all waves of an update",
    "kernels/cuda/update_kernel.cu": "the kernels of one pass, which share parts",
    "server/config/options.cc": "one function for each group of fields: " + _PAGE,
    "server/coordinator/coordinator.cc": _ONE_LOCK,
    "server/coordinator/coordinator.h": _ONE_LOCK,
    "server/coordinator/coordinator_state.cc": _ONE_LOCK,
    "server/coordinator/coordinator_state.h": _ONE_LOCK,
    "server/coordinator/coordinator_types.h": "what a call takes and gives",
    "server/coordinator/job_state.h": "the protocol of one epoch: " + _PAGE,
    "server/coordinator/round_engine.h": "the phases of a round: " + _PAGE,
    "server/ingest/arrival_ledger.h": "all that is known of a slice: " + _PAGE,
    "server/coordinator/coordinator_restore.cc":
        "which checkpoint, and a person's word on it: " + _PAGE,
    "server/coordinator/recovery_plan.cc": "one decision: " + _PAGE,
    "server/params/parameter_store.cc": "one class holds a shard's parameters",
    "server/shard/checkpoint_keeper.h": "all that a shard does with its folders",
    "server/params/parameter_store.h": "one class holds a shard's parameters",
    "server/params/snapshot.h": "who reads a version, and when its memory is free",
    "server/params/snapshot.cc": "one pool, and who may have its memory",
    "server/round/phase.h": "all phases and what they carry: " + _PAGE,
    "server/round/round_report.h": "all that a round reports: " + _PAGE,
    "server/round/shard_peer.h": "all that a shard is asked for: " + _PAGE,
    "server/rpc/admin_service.cc": "one method for each call",
    "tests/server/rpc/conversion_test.cc": "all messages between shards",
    "server/access/identities.h": "whom a job knows, and how: " + _PAGE,
    "server/rpc/coordinator_service.cc": "one method for each call",
    "server/rpc/rpc_server.cc": "one class holds a server's services",
    "server/server.cc": "one class holds all parts of a process",
    "server/rpc/shard_control_service.cc":
        "the Attach stream and what it leads to",
    "server/rpc/shard_control_service.h": "all calls of one service",
    "server/rpc/shard_link.cc": "one class holds all streams of an epoch",
    "server/server_main.cc": "what a process does with its limits and its end",
    "server/shard/shard_recovery.cc": "one step of a recovery after the other",
    "server/rpc/bidi_stream.h": "a template: its code has to be in the header",
    "server/rpc/open_connections.h": "all that is known of a connection: " + _PAGE,
    "server/server.cc": "one class starts all parts of a process",
    "server/rpc/phase_conversion.cc": "every field of a phase and its answer",
    "server/server.h": "one class holds all parts of a process",
    "tests/e2e/tls_test.cc": "one fixture makes certificates and jobs",
    "tests/e2e/chaos.py": "what happens to a job, and what it may not do then",
    "tests/server/shard/shard_regions_test.cc": "one fixture grants rows",
    "tests/server/round/restore_test.cc": "one fixture tears folders",
    "tests/sim/job_simulation.cc": "one class runs a complete job",
    "tests/sim/protocol_steps.py": "all steps of the model: " + _PAGE,
    "server/shard/open_round.cc": _ONE_LOCK,
    "server/shard/open_round.h": _ONE_LOCK,
    "server/shard/shard_compute.h": "one class has all memory of a shard",
    "server/shard/shard_engine.h": _ONE_LOCK,
    "tests/server/metrics/metrics_test.cc": "all series of a scrape",
    "tests/server/rpc/remote_neighbour_peer_test.cc": "both ends of two calls",
    "worker_client/agg_client.h": "all of the client that its users see",
    "worker_client/c/agg_types.h": "all structs of the C ABI: " + _PAGE,
    "worker_client/client_core.h": "one class holds what a client's calls share",
    "worker_client/client_types.h": "all plain types that its users see",
    "tests/server/metrics/metrics_test.cc": "one scrape, and all that is in it",
    "worker_client/client_pull.cc": "one class holds what a client's calls share",
    "worker_client/growing_row.h": "a row from its first tensor to its outcome",
    "worker_client/membership.cc": "one class holds a client's place in its job",
    "worker_client/membership.h": "one class holds a client's place in its job",
    "worker_client/row_pusher.h": "one class polls the streams of all shards",
    "worker_client/shard_stream.h": "the states of one call: " + _PAGE,
    "tests/python/process_test.py": "each test is a process of its own",
    "tests/python/package_test.py": "a class for each part without a server",
    "tests/python/launch_test.py": "each test is a run of the program",
    "tests/python/client_test.py": "one class is all of a client",
    "tests/python/torch/worker_test.py": "one class is all of a worker",
    "tests/python/torch/overlap_test.py": "one model and one loop for all of it",
    "tests/python/torch/optimizers_test.py": "all that the facades do",
    "tests/python/torch/replica_test.py": "all ways in which replicas part",
    "tests/python/client_test.py": "all that a numpy worker does",
    "tests/python/torch/worker_test.py": "one model and one loop for all of it",
    "tests/server/metrics/metrics_test.cc": "every family that is sampled",
    "server/metrics/status_families.cc": "every family of a status: " + _PAGE,
    "worker_client/c/agg.cc": "all calls of the C ABI: " + _PAGE,
    "worker_client/c/c_structs.cc": "all structs of the C ABI: " + _PAGE,
    "worker_client/growing_row.h": "one class takes and gives a row",
    "worker_client/c/agg.h": "all calls of the C ABI: " + _PAGE,
    "worker_client/python/agg_server/client.py": "a worker and an observer",
    "worker_client/python/agg_server/worker.py":
        "one class is all of a worker: " + _PAGE,
}
# "path: first line of the function", up to the parameters.
LONG_FUNCTIONS = {
    "server/coordinator/coordinator_recovery.cc: "
    "absl::StatusOr<std::string> Coordinator::ReadCheckpoint":
        "one shard after the other is asked for the same file",
    "server/coordinator/coordinator_state.cc: "
    "bool CoordinatorState::BeginEpoch":
        "one line for each thing that an epoch begins anew",
    "server/server.cc: absl::Status Server::StartRpc":
        "all that gRPC's server is told, in one list",
    "kernels/cpu/gram_tiles-inl.h: void ComputeTile":
        "one loop over registers, which a call would spill",
    "server/shard/shard_phases.cc: "
    "absl::StatusOr<PhaseResult> ShardEngine::Dispatch":
        "one case for each phase",
    "server/coordinator/coordinator_status.cc: "
    "JobStatus CoordinatorState::Status":
        "one line for each field",
    "server/coordinator/coordinator_epochs.cc: void Coordinator::BeginEpoch":
        "what follows from an epoch's beginning, in its order",
    "server/coordinator/coordinator_recovery.cc: "
    "absl::Status Coordinator::Recover":
        "the steps of a recovery, in their order (P19)",
    "server/coordinator/coordinator_restart.cc: "
    "absl::Status Coordinator::FillStart":
        "what a job goes on from, field by field",
    "server/coordinator/coordinator_restore.cc: "
    "CheckpointChoice Coordinator::Choose":
        "whose word counts before whose",
    "server/coordinator/coordinator_restore.cc: "
    "RecoveryDecision Coordinator::Decide":
        "whose word counts before whose",
    "server/coordinator/recovery_plan.cc: RecoveryDecision DecideRecovery":
        "one decision, in the order of P18",
    "worker_client/tools/aggctl_flags.cc: std::vector<Program> OtherCommands":
        "one entry for each command",
}

_BEGINS = re.compile(r"^( {0,2})[A-Za-z_~]")
_NO_FUNCTION = re.compile(
    r"^ {0,2}(case|class|default|do|else|enum|extern|for|if|namespace|private|"
    r"protected|public|return|struct|switch|typedef|union|using|while)\b")


def functions(lines):
    """(first line's number, name, lines of the body) of each function.

    Goes by clang-format's layout: a function outside a class begins in the
    first column, one inside at the third, and its brace closes there.
    """
    i = 0
    while i < len(lines):
        begin = _BEGINS.match(lines[i])
        if not begin or _NO_FUNCTION.match(lines[i]):
            i += 1
            continue
        last = i
        while last + 1 < len(lines) and not lines[last].endswith(
                ("{", ";", "}", ":")):
            last += 1
        head = " ".join(line.strip() for line in lines[i:last + 1])
        end = last + 1
        if head.endswith("{") and "(" in head and not head.endswith("= {"):
            while end < len(lines) and not lines[end].startswith(
                    begin.group(1) + "}"):
                end += 1
            name = re.sub(r"^template <.*?> (?=\w)", "", head).split("(")[0]
            yield i + 1, name, end - last - 1
        i = end


def _limit(path):
    if not path.endswith(_CPP) or path.startswith("tests/"):
        return _MAX_LINES
    # A Highway "-inl.h" file is compiled once per target: a source.
    header = path.endswith(".h") and not path.endswith("-inl.h")
    return _MAX_HEADER if header else _MAX_SOURCE


def _check_functions(path, lines):
    for number, name, length in functions(lines):
        key = "%s: %s" % (path, name)
        if length > _MAX_BODY and key not in LONG_FUNCTIONS:
            yield "%s:%d: %s has %d lines (at most %d; or name it in " \
                "tests/lint/lengths.py)" % (path, number, name, length,
                                            _MAX_BODY)


def check(files):
    """All findings, for lint.py."""
    for path, lines in files.items():
        if not path.endswith(_CODE):
            continue
        if path not in LONG_FILES and len(lines) > _limit(path):
            yield "%s has %d lines (at most %d; or name it in " \
                "tests/lint/lengths.py)" % (path, len(lines), _limit(path))
        if path.endswith(_CPP) and not path.startswith("tests/"):
            yield from _check_functions(path, lines)
