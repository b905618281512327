"""Plain values: what goes with a row, how a round ended, how the job is set up."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional, Protocol, Union

from agg_server import _abi
from agg_server._shown import shown
from agg_server.errors import ManifestError

_KINDS = ("applied", "skipped", "seeded", "rewound")
_DTYPES = {_abi.F32: "f32", _abi.BF16: "bf16", _abi.F16: "f16",
           _abi.I8: "int8"}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a round ended.

    Attributes:
      round: its number; it computed on the version of that number.
      version: that it published.
      kind: "applied"; "skipped" (no row was finite: nothing changed);
        "seeded"; "rewound" (the job has gone back to `version`).
      included: this worker's row is in the result.
      ranks: of the workers whose rows are in it.
      excluded_ranks: not finite, or left out; `message` says why.
      learning_rate: Learning rate that was applied. Schedule and step scale are
        in it.
      gain: AdaScale's gain: one-worker steps that this round was worth. From 1
        to the number of rows, whatever the step scale.
      tau: Tau: one-worker steps that the rounds were worth. The clock of
        schedules.
      orthogonality: Squared norm of Adasum's result over the sum of squared
        gradient norms: 1 where gradients are orthogonal, 1/P where all P are
        parallel and of one length. Less where they cancel or differ in length;
        NaN: undefined.
      loss: Mean training loss that the workers sent, by examples. NaN: nobody
        did.
      combined_norm: Norm of the combined gradient over all tensors, after
        clipping.
      rule, scope, step_scale: in effect in the round.
      finished: no round follows.
      message: why skipped, which fallback; "" if there is nothing to say.
      absent_tensors: places in the manifest of those that no row of `ranks` had
        (find_unused).
      differing_ranks: in modes "combine" and LocalSteps: of the workers whose
        parameters were others than those of the most before the round; where
        no majority has the same, all of them. The message says more.
    """

    round: int
    version: int
    kind: str
    included: bool
    ranks: tuple[int, ...]
    excluded_ranks: tuple[int, ...]
    learning_rate: float
    gain: float
    tau: float
    orthogonality: float
    loss: float
    combined_norm: float
    rule: str
    scope: str
    step_scale: str
    finished: bool
    message: str
    absent_tensors: tuple[int, ...] = ()
    differing_ranks: tuple[int, ...] = ()

    @property
    def applied(self) -> bool:
        """The result changed something: only then step an optimizer."""
        return self.kind == "applied"

    def as_dict(self) -> dict[str, float]:
        """The numbers, without those that are not finite: for tqdm, wandb."""
        values = {name: float(getattr(self, name)) for name in (
            "version", "loss", "learning_rate", "gain", "tau",
            "orthogonality", "combined_norm")}
        return {k: v for k, v in values.items() if math.isfinite(v)}


def outcome_of(c: Any) -> Outcome:
    """Copies an agg_outcome."""
    return Outcome(
        round=c.round, version=c.version, kind=_KINDS[c.kind],
        included=bool(c.included), ranks=tuple(c.ranks[:c.num_ranks]),
        excluded_ranks=tuple(c.excluded_ranks[:c.num_excluded_ranks]),
        learning_rate=c.learning_rate, gain=c.gain, tau=c.tau,
        orthogonality=c.orthogonality, loss=c.loss,
        combined_norm=c.combined_norm, rule=_abi.text(c.rule),
        scope=_abi.text(c.scope), step_scale=_abi.text(c.step_scale),
        finished=bool(c.finished), message=shown(_abi.text(c.message)),
        absent_tensors=tuple(c.absent_tensors[:c.num_absent_tensors]),
        differing_ranks=tuple(c.differing_ranks[:c.num_differing_ranks]))


@dataclasses.dataclass(frozen=True)
class Job:
    """How the job is set up, as the server said when this client joined.

    Attributes:
      name: of the job.
      rule, scope, step_scale: in effect.
      optimizer: its kind, "adamw"; "none": pulls give combined gradients.
      workers: expected.
      shards: addresses by ordinal.
      transports: how bytes travel to each shard, when this was asked: "shm",
        "unix" or "tcp", and "cuda" once a tensor was pushed or pulled whose
        device has mapped the row that the shard shares.
      push_dtype, pull_dtype: "f32", "bf16" or "f16".
      num_tensors: of the manifest.
    """

    name: str
    rule: str
    scope: str
    step_scale: str
    optimizer: str
    workers: int
    shards: tuple[str, ...]
    transports: tuple[str, ...]
    push_dtype: str
    pull_dtype: str
    num_tensors: int


def job_of(c: Any) -> Job:
    """Copies an agg_job."""
    return Job(
        name=_abi.text(c.job), rule=_abi.text(c.rule),
        scope=_abi.text(c.scope), step_scale=_abi.text(c.step_scale),
        optimizer=_abi.text(c.optimizer), workers=c.workers,
        shards=tuple(_abi.text(c.shards[i]) for i in range(c.num_shards)),
        transports=tuple(_abi.text(c.transports[i])
                         for i in range(c.num_shards)),
        push_dtype=_DTYPES[c.push_dtype], pull_dtype=_DTYPES[c.pull_dtype],
        num_tensors=c.num_tensors)


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """A tensor of the manifest: which is the same on all workers.

    Attributes:
      name: unique.
      shape: () is a scalar.
      group: of the server's hyperparameters; "" is the default one.
      optional: may be missing from a push, and then counts as zero.
    """

    name: str
    shape: tuple[int, ...]
    group: str = ""
    optional: bool = False

    @property
    def num_elements(self) -> int:
        """1 for a scalar."""
        return math.prod(self.shape)


class _OneNumber(Protocol):
    """A tensor or an array of one number."""

    def item(self) -> Any:
        """The number."""


Loss = Union[float, _OneNumber, None]


class Info:
    """What goes with a row; Worker.step has what the arguments mean."""

    def __init__(self, loss: Loss = None, examples: int = 1,
                 accumulation: int = 1, loss_scale: float = 1.0,
                 norm_squared_sum: Optional[float] = None) -> None:
        for name, value in (("examples", examples),
                            ("accumulation", accumulation)):
            if int(value) != value or value < 1:
                raise ManifestError(
                    f"{name} is {value}; allowed: 1 or more"
                    + ("; a worker without a batch calls sit_out()"
                       if name == "examples" and value == 0 else ""))
        if not loss_scale > 0:
            raise ManifestError(f"loss_scale is {loss_scale}; allowed: > 0")
        # A tensor of one element is a number, too.
        try:
            self.loss: Optional[float] = (
                None if loss is None else
                float(loss.item() if hasattr(loss, "item") else loss))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ManifestError(f"loss is {loss!r}; allowed: a number, or a "
                                "tensor of one") from error
        self.examples, self.accumulation = int(examples), int(accumulation)
        self.loss_scale = float(loss_scale)
        self.norm_squared_sum = norm_squared_sum
        # Of the parameters that the row was computed on; 0: not said.
        self.parameters_digest = 0


def push_info_of(info: Info) -> Any:
    """As the C ABI has it."""
    c = _abi.PushInfo(examples=info.examples, accumulation=info.accumulation,
                      loss_scale=info.loss_scale,
                      parameters_digest=info.parameters_digest)
    if info.loss is not None:
        c.has_loss, c.loss = 1, info.loss
    if info.norm_squared_sum is not None:
        c.has_norm_sum = 1
        c.micro_norm_squared_sum = info.norm_squared_sum
    return c
