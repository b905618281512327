"""What can hear each outcome of a worker: worker.add_listener(...)."""

from __future__ import annotations

import importlib
from typing import Any

from agg_server.outcome import Outcome


class TensorBoardLog:
    """Writes each outcome's finite numbers to a SummaryWriter.

        worker.add_listener(agg.TensorBoardLog(SummaryWriter()))
    """

    def __init__(self, writer: Any, prefix: str = "agg/") -> None:
        """writer: has add_scalar(name, value, step); the caller closes it."""
        self._writer, self._prefix = writer, prefix

    def __call__(self, outcome: Outcome) -> None:
        for name, value in outcome.as_dict().items():
            if name != "version":
                self._writer.add_scalar(self._prefix + name, value,
                                        outcome.version)


class WandbLog:
    """Logs each outcome's finite numbers to a run of Weights & Biases.

        worker.add_listener(agg.WandbLog())   # the run that wandb.init began
    """

    def __init__(self, run: Any = None, prefix: str = "agg/") -> None:
        """run: has log(dict); None: wandb's current one, found at the first
        outcome."""
        self._run, self._prefix = run, prefix

    def __call__(self, outcome: Outcome) -> None:
        if self._run is None:
            self._run = importlib.import_module("wandb").run
        self._run.log({self._prefix + name: value
                       for name, value in outcome.as_dict().items()})
