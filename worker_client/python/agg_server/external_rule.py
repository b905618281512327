"""A combination rule of one's own, which decides the rounds of a live job.

    import numpy as np
    import agg_server as agg

    def decide(gram, info):                     # the mean of unit gradients
        return 1 / (len(gram) * np.sqrt(np.diag(gram)))

    agg.serve_rule(decide, "host:50051")

The job's configuration has `combination { rule: "external" }`, or an external
rule among its shadow_rules, which is compared and changes nothing.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

import numpy as np

from agg_server import _abi
from agg_server.errors import ManifestError, error_of
from agg_server.options import ClientOptions, fields_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger("agg_server")

_NOT_FOUND, _INVALID_ARGUMENT = 5, 3
_REFUSED = "the answer is refused"
# How often a wait looks for Ctrl-C and `stop`.
_LOOK_SECONDS = 0.5
# When a function that fails again and again is spoken of again.
_SAY_AGAIN_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class RuleInfo:
    """What is known of a round beside its Gram matrix. Rows are those that
    count in the round, P of them, in the order of the ranks.

    Attributes:
      round: the version of the parameters that the rows were computed on.
      epoch: the job's; a new one begins when it has lost a process.
      ranks: int32, P: the workers' ranks.
      examples: int64, P: how many examples each row is the mean of.
      accumulation: int32, P: how many micro-batches each row is the mean of.
      losses: float64, P: the mean loss that came with the row; NaN: none did.
      tensor: whose gradients the rows are, with scope "per_tensor"; "": the
        rows are of the whole model.
      shadow: the weights are compared with the applied ones, and not applied.
      state: what the last applied decision about this tensor, or the model,
        has left; b"" at first. It is saved with the job's checkpoints.
    """
    round: int
    epoch: int
    ranks: np.ndarray
    examples: np.ndarray
    accumulation: np.ndarray
    losses: np.ndarray
    tensor: str
    shadow: bool
    state: bytes


@dataclasses.dataclass(frozen=True)
class RuleDecision:
    """What a function may return in place of weights alone.

    Attributes:
      weights: P numbers, finite: the result is sum_i weights[i] * row_i.
      step_scale: multiplies the learning rate; finite, > 0. Other than 1 only
        with scope "global", and with step_scale.kind "none".
      state: for the next round; None: as it was. At most 65536 bytes, over all
        tensors.
    """
    weights: Any
    step_scale: float = 1.0
    state: Optional[bytes] = None


Decide = Callable[[np.ndarray, RuleInfo], Union[RuleDecision, Any]]


def _checked(returned: Any, info: RuleInfo) -> RuleDecision:
    """What was returned, with the state that it leaves. ValueError names what
    is wrong, since the server would refuse it."""
    decision = (returned if isinstance(returned, RuleDecision)
                else RuleDecision(returned))
    weights = np.ascontiguousarray(decision.weights, dtype=np.float64)
    if weights.shape != info.ranks.shape:
        raise ValueError(f"weights have the shape {weights.shape}; allowed: "
                         f"{info.ranks.shape}, one for each row")
    if not np.isfinite(weights).all():
        bad = int(np.flatnonzero(~np.isfinite(weights))[0])
        raise ValueError(f"weights[{bad}] is {weights[bad]}; allowed: finite")
    step_scale = float(decision.step_scale)
    if not (math.isfinite(step_scale) and step_scale > 0):
        raise ValueError(f"step_scale is {step_scale}; allowed: finite, > 0")
    state = info.state if decision.state is None else bytes(decision.state)
    return RuleDecision(weights, step_scale, state)


def _array(pointer: Any, count: int, shape: Any = None) -> np.ndarray:
    """A copy of what the library has until the next round."""
    return np.ctypeslib.as_array(pointer, (count,)).reshape(
        shape or count).copy()


class _RuleServer:
    """A handle of agg_rule.h. Used by one thread."""

    def __init__(self, decide: Decide, coordinator: str, name: str,
                 options: ClientOptions) -> None:
        self._lib = _abi.load()
        self._decide = decide
        self._said, self._said_at = "", 0.0
        c = _abi.Options()
        self._lib.agg_options_init(_abi.byref(c), c.size)
        c.coordinator = coordinator.encode()
        for option, value in fields_of(options).items():
            setattr(c, option, value)
        self._handle = self._lib.agg_rule_new(_abi.byref(c), name.encode())
        if not self._handle:
            raise ManifestError(_abi.text(self._lib.agg_error()),
                                "INVALID_ARGUMENT")

    def close(self) -> None:
        handle, self._handle = self._handle, None
        self._lib.agg_rule_free(handle)

    def serve(self) -> bool:
        """Decides the next round, if one comes soon; False: the job has
        finished."""
        round_ = _abi.RuleRound()
        code = int(self._lib.agg_rule_next(self._handle, _LOOK_SECONDS,
                                           _abi.byref(round_)))
        if code == _NOT_FOUND:
            return True
        if code != 0:
            message = _abi.text(self._lib.agg_error())
            if code == _INVALID_ARGUMENT and _REFUSED in message:
                self._complain(message)  # the round has its fallback
                return True
            raise error_of(code, message, False, False, None)
        if round_.finished:
            return False
        try:
            decisions, step_scale = self._decisions(round_)
        except Exception as error:  # pylint: disable=broad-except
            text = f"{type(error).__name__}: {error}"
            self._complain(f"round {round_.round} has its fallback: {text}",
                           error)
            self._check(self._lib.agg_rule_fail(self._handle, text.encode()))
            return True
        weights = (_abi.RuleWeights * len(decisions))()
        for segment, decision in zip(weights, decisions):
            segment.weights = decision.weights.ctypes.data_as(
                ctypes.POINTER(ctypes.c_double))
            segment.state = decision.state
            segment.state_size = len(decision.state or b"")
        self._check(self._lib.agg_rule_answer(
            self._handle, weights, len(decisions), round_.num_rows,
            step_scale))
        return True

    def _check(self, code: int) -> None:
        if code != 0:
            raise error_of(code, _abi.text(self._lib.agg_error()), False,
                           False, None)

    def _decisions(self, round_: Any) -> tuple[list[RuleDecision], float]:
        rows = int(round_.num_rows)
        ranks = _array(round_.ranks, rows)
        examples = _array(round_.examples, rows)
        accumulation = _array(round_.accumulation, rows)
        losses = _array(round_.losses, rows)
        decisions, step_scale = [], 1.0
        for s in range(round_.num_segments):
            segment = round_.segments[s]
            info = RuleInfo(
                round_.round, round_.epoch, ranks, examples, accumulation,
                losses, _abi.text(segment.tensor), bool(round_.shadow),
                ctypes.string_at(segment.state, segment.state_size))
            gram = _array(segment.gram, rows * rows, (rows, rows))
            decisions.append(_checked(self._decide(gram, info), info))
            if decisions[-1].step_scale == 1.0:
                continue
            if info.tensor:
                raise ValueError(
                    f"step_scale of tensor {info.tensor!r} is "
                    f"{decisions[-1].step_scale}; allowed: 1 with scope "
                    "\"per_tensor\"")
            step_scale = decisions[-1].step_scale
        return decisions, step_scale

    def _complain(self, text: str, error: Optional[Exception] = None) -> None:
        # The number of the round is no news.
        said, now = text.partition(": ")[2], time.monotonic()
        if said == self._said and now < self._said_at + _SAY_AGAIN_SECONDS:
            return
        self._said, self._said_at = said, now
        _log.error("%s", text, exc_info=error)


def serve_rule(decide: Decide, coordinator: str = "127.0.0.1:50051", *,
               name: str = "external", stop: Optional[threading.Event] = None,
               **options: Unpack[ClientOptions]) -> None:
    """Decides the rounds of an external rule, until the job has finished.

    Each round the server has the Gram matrix of the workers' gradients,
    gram[i, j] = <row_i, row_j>, and waits for this process for
    `external.timeout_seconds`. A round that gets no weights in time, or for
    which `decide` raises, is combined by `external.fallback`; that is said in
    its outcome, and counted. `decide` is called again for a round that the
    server has to try again; its weights are part of the round once they are
    applied, and a job that goes on after a failure does not ask for them again.

    Args:
      decide: gets gram (float64, P x P) and a RuleInfo; returns P weights, or a
        RuleDecision. With scope "per_tensor" it is called for each tensor. It
        is called by the thread that calls serve_rule.
      coordinator: "host:port" of shard 0.
      name: which rule of the job: `external.name`.
      stop: ends this, when it is set, within a moment.
      options: as ClientOptions has them; client_name, connect_timeout,
        recovery_window, tls and token_file count.

    Raises:
      NotAllowed: the identity lacks the role "rule".
      Superseded: a process that began later decides this rule.
      ShardLost: the coordinator was away for longer than recovery_window.
      ManifestError: an argument is not allowed.
    """
    server = _RuleServer(decide, coordinator, name, options)
    try:
        while stop is None or not stop.is_set():
            if not server.serve():
                return
    finally:
        server.close()


__all__ = ["Decide", "RuleDecision", "RuleInfo", "serve_rule"]
