"""agg_server: workers push gradients, the server combines them (Adasum,
AdaCons, AdaScale), steps the optimizer and serves parameters.

    import agg_server as agg

    worker = agg.Worker(model, coordinator="host:50051", rank=rank)
    for x, y in loader:
        loss_fn(model(x), y).backward()
        if worker.step(examples=len(x)).finished:
            break
    worker.close()

`Client` and `Observer` need numpy alone. What needs torch is imported when it
is is first used. `agg_server.plot`, `agg_server.ray` and `agg_server.torchft` are
modules of their own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agg_server.advice import Advice, advise
from agg_server.checkpoint import read_checkpoint
from agg_server.client import Client, Observer
from agg_server.comparison import RuleScore, compare
from agg_server.describe import describe_run
from agg_server.errors import (Cancelled, EpochOver, Error, Evicted,
                               ForkedError, JobFinished, LeaseExpired,
                               LibraryError, ManifestError, NotAllowed, NotNow,
                               ResourceError, RoundLogError, ShardLost,
                               Superseded, Timeout, VersionGone)
from agg_server.external_rule import RuleDecision, RuleInfo, serve_rule
from agg_server.listeners import TensorBoardLog, WandbLog
from agg_server.local_server import LocalServer
from agg_server.offline import Combination, combine, combine_steps
from agg_server.outcome import Job, Outcome, TensorSpec
from agg_server.round_log import RoundLog
from agg_server.tls import Tls

if TYPE_CHECKING:
    from agg_server.local_steps import LocalSteps
    from agg_server.node import NodeState, node_hook
    from agg_server.optimizers import Combined, ServerOptimizer, TauSchedule
    from agg_server.worker import Worker, allreduce

__version__ = "0.1.0"

_TORCH = {
    "Combined": "optimizers", "LocalSteps": "local_steps",
    "NodeState": "node", "ServerOptimizer": "optimizers",
    "TauSchedule": "optimizers", "Worker": "worker", "allreduce": "worker",
    "node_hook": "node",
}

def __getattr__(name: str) -> Any:
    if name not in _TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("agg_server." + _TORCH[name])
    value = getattr(module, name)
    globals()[name] = value
    return value


__all__ = [
    "Advice", "Cancelled", "Client", "Combination", "Combined", "EpochOver",
    "Error", "Evicted", "ForkedError", "Job", "JobFinished", "LeaseExpired",
    "LibraryError", "LocalServer", "LocalSteps", "ManifestError", "NodeState",
    "NotAllowed", "NotNow", "Observer", "Outcome", "ResourceError", "RoundLog",
    "RoundLogError", "RuleDecision", "RuleInfo", "RuleScore",
    "ServerOptimizer", "ShardLost", "Superseded", "TauSchedule",
    "TensorBoardLog", "TensorSpec", "Timeout", "Tls", "VersionGone",
    "WandbLog", "Worker", "advise", "allreduce", "combine", "combine_steps",
    "compare", "describe_run", "node_hook", "read_checkpoint", "serve_rule",
]
