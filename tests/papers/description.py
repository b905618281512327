"""What one job of the papers' experiments is: a plain value that says it all."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Mapping, Sequence

TASKS = ("fashion_mlp", "fashion_cnn", "regression", "kjv_transformer",
         "kjv_word2vec")
PUSHES = ("gradient", "unit", "delta")
UNIT_SCALES = ("none", "mean_norm")
STEPS = ("server", "oracle")
PARTS = ("test", "validation")


class RunError(ValueError):
    """A field of a Run has a value that is not allowed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One job. Two with the same key() are the same experiment.

    Attributes:
      task: of TASKS; tests.papers.tasks makes it.
      ranks: S, the workers of the job; with later_ranks those that begin it.
      seed: of the initial weights, of each rank's stream of batches, and of the
        random labels.
      batch: examples per rank and round.
      rounds: at most; with scale_invariant_iterations the server ends the job.
      rule, scope: of CombinationConfig; scope "" is the rule's own.
      push: what a rank pushes. "gradient"; "unit": the gradient divided by its
        norm over the whole model; "delta": the change that the rank's own
        optimizer makes, which the server combines and adds.
      unit_scale: of push="unit". "mean_norm": the ranks push unit gradients
        times the mean of all ranks' norms of the round, so that the server's
        mean of unit gradients has the size of a mean of gradients.
      optimizer: fields of OptimizerConfig; with push="delta" of each rank's own
        optimizer ("sgd", "adam" or "lamb").
      learning_rate: fields of LearningRateConfig, which the server follows, or,
        with push="delta", each rank.
      step_scale: of StepScaleConfig's kind.
      averaging: of StepScaleConfig; "" is the server's default.
      scale_invariant_iterations: 0 is no end.
      adacons: fields of CombinationConfig.AdaCons.
      random_labels: so many ranks, the first ones, have random labels.
      label_noise: of the task "regression".
      step: "oracle": the exact line search of the task "regression" on the
        combined gradient that was pulled, in each rank; the server's optimizer
        is "none".
      evaluate: which examples score the parameters.
      evaluate_every: rounds between points of the curve; 0: no curve.
      stop_at: the job ends when a point of the curve reaches it; 0: never.
      spans: so many equal spans of training, by tau if the server ends the job
        by it, by rounds otherwise, with a mean gain and orthogonality each.
      tensors: orthogonality per tensor, too.
      weights: what the combination weighs, of the unit gradients, and how near
        it is to the mean of unit gradients; the log of rounds has it.
      later_ranks: (part of training, S): from there on, S workers. By tau if the
        server ends the job by it, by rounds otherwise; parts rise. Workers join
        and leave the running job.
      shards: 0 is the engine's choice.
    """

    task: str
    ranks: int
    seed: int
    batch: int
    rounds: int
    rule: str = "mean"
    scope: str = ""
    push: str = "gradient"
    unit_scale: str = "none"
    optimizer: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: {"kind": "sgd"})
    learning_rate: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    step_scale: str = "none"
    averaging: str = ""
    scale_invariant_iterations: float = 0
    adacons: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    random_labels: int = 0
    label_noise: float = 0
    step: str = "server"
    evaluate: str = "test"
    evaluate_every: int = 0
    stop_at: float = 0
    spans: int = 0
    tensors: bool = False
    weights: bool = False
    later_ranks: Sequence[tuple[float, int]] = ()
    shards: int = 0

    def __post_init__(self) -> None:
        """Raises RunError: a field, its value and what is allowed."""
        for name, allowed in (("task", TASKS), ("push", PUSHES),
                              ("unit_scale", UNIT_SCALES), ("step", STEPS),
                              ("evaluate", PARTS)):
            value = getattr(self, name)
            if value not in allowed:
                raise RunError(f'{name} is "{value}"; allowed: '
                               + ", ".join(allowed))
        for name, least in (("ranks", 1), ("batch", 1), ("rounds", 1),
                            ("evaluate_every", 0), ("spans", 0),
                            ("shards", 0), ("random_labels", 0)):
            if getattr(self, name) < least:
                raise RunError(f"{name} is {getattr(self, name)}; allowed: "
                               f"{least} or more")
        parts = [part for part, _ in self.later_ranks]
        if parts != sorted(parts) or not all(0 < part < 1 for part in parts):
            raise RunError(f"later_ranks has the parts {parts}; allowed: rising, "
                           "between 0 and 1")
        if any(ranks < 1 for _, ranks in self.later_ranks):
            raise RunError(f"later_ranks is {self.later_ranks}; allowed: 1 rank "
                           "or more in each part")
        if self.later_ranks and (self.push == "delta" or self.random_labels
                                 or not self.task.startswith("fashion")):
            raise RunError("later_ranks needs a task of Fashion-MNIST, push "
                           '"gradient" or "unit" and no random labels')
        if self.random_labels > self.ranks:
            raise RunError(f"random_labels is {self.random_labels}; allowed: "
                           f"at most ranks, {self.ranks}")
        if self.step == "oracle" and self.task != "regression":
            raise RunError(f'step is "oracle" and task "{self.task}"; '
                           'allowed: "regression" alone')
        if self.unit_scale != "none" and self.push != "unit":
            raise RunError(f'unit_scale is "{self.unit_scale}" and push '
                           f'"{self.push}"; allowed: push "unit" alone')
        if self.step == "server" and "rate" not in self.learning_rate:
            raise RunError("learning_rate has no rate; allowed: a number > 0")
        if self.averaging and self.step_scale == "none":
            raise RunError(f'averaging is "{self.averaging}" and step_scale '
                           '"none"; allowed: with a step scale alone')
        if self.stop_at and not self.evaluate_every:
            raise RunError("stop_at needs evaluate_every > 0")

    @property
    def most_ranks(self) -> int:
        """At any time."""
        return max([self.ranks, *(ranks for _, ranks in self.later_ranks)])

    def ranks_at(self, part: float) -> int:
        """part: of training, 0 to 1."""
        now = self.ranks
        for begin, ranks in self.later_ranks:
            if part >= begin:
                now = ranks
        return now

    def as_dict(self) -> dict[str, Any]:
        """JSON values by field, those at their default left out."""
        values = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Mapping):
                value = dict(value)
            default = (field.default_factory()
                       if field.default_factory is not dataclasses.MISSING
                       else field.default)
            if value != default:
                values[field.name] = value
        return values

    def key(self) -> str:
        """Text that is the same for the same experiment, in every process.

        A field that is added later, at its default, changes no key.
        """
        values = self.as_dict()
        values.pop("shards", None)  # where parameters lie changes no result
        return json.dumps(values, sort_keys=True, separators=(",", ":"))
