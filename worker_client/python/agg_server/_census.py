"""Whether a model still has the tensors that its worker exchanges."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch

from agg_server._tensors import canonical_name
from agg_server.errors import ManifestError


class Census:
    """Of one model and the worker that was made of it.

    A parameter that is replaced, or that learns only later, is none of the
    worker's: what it learned would be this process's alone.
    """

    def __init__(self, model: torch.nn.Module,
                 tensors: Mapping[str, torch.Tensor]) -> None:
        """tensors: the worker's, by name."""
        self._model = model
        self._tensors = dict(tensors)
        self._known = {id(t) for t in self._tensors.values()}
        self._places: list[tuple[dict[str, Any], str, Any]] = []
        self._sizes: list[tuple[dict[str, Any], int]] = []
        self._outside: list[torch.Tensor] = []
        self._look()

    def parameters(self) -> list[torch.Tensor]:
        """All of the model's, those that do not learn included, in an order
        that all workers have."""
        return list(self._model.parameters())

    def name_of(self, tensor: torch.Tensor) -> str:
        """In the model; "": it is not there."""
        for name, parameter in self._model.named_parameters():
            if parameter is tensor:
                return canonical_name(name)
        return ""

    def check(self) -> None:
        """ManifestError: one of the worker's tensors is not in the model any
        more, by name."""
        # Most calls find nothing new, and lists cost less than loops.
        if False not in [where.get(key) is what
                         for where, key, what in self._places] and \
                False not in [len(where) == size for where, size in self._sizes]:
            return
        found = {id(p) for p in self._model.parameters()}
        lost = [name for name, t in self._tensors.items()
                if id(t) not in found]
        if lost:
            more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            raise ManifestError(
                f'parameter "{lost[0]}"{more} of the model is another tensor '
                "than when the Worker was made, which would go on with the old "
                "one; allowed: the same tensors. Load without assign=True, tie "
                "weights and replace layers before Worker(...), or make a new "
                "Worker")
        self._look()

    def check_gradients(self) -> None:
        """ManifestError: one that is not the worker's has a gradient, by name.
        """
        for parameter in self._outside:
            if parameter.requires_grad and parameter.grad is not None:
                raise ManifestError(outside_complaint(
                    f'parameter "{self.name_of(parameter)}"'))

    def _look(self) -> None:
        self._places, self._sizes = [], []
        for module in self._model.modules():
            # Their own dictionaries: attributes may be a wrapper's.
            for kind in ("_parameters", "_modules"):
                where = vars(module).get(kind)
                if not isinstance(where, dict):
                    continue  # of torch.jit, whose parameters stay
                self._sizes.append((where, len(where)))
                self._places.extend((where, key, what)
                                    for key, what in where.items())
        self._outside = [p for p in self._model.parameters()
                         if id(p) not in self._known]


def outside_complaint(what: str) -> str:
    """For what has a gradient of which no round would hear."""
    return (f"{what} has a gradient and is none of the Worker's tensors: it did "
            "not require one, or was not there, when the Worker was made. "
            "Allowed: let all that will ever learn require gradients when the "
            "Worker is made, with find_unused=True, and freeze it after that; "
            "or make a new Worker")


def check_groups(groups: Sequence[Mapping[str, Any]],
                 known: Mapping[int, str], names: Any,
                 learns: bool = False) -> None:
    """ManifestError: a parameter of an optimizer's groups that learns is none
    of `known`, by id. names: of a tensor, "" if it has none. learns: those
    without a gradient do not count."""
    for number, group in enumerate(groups):
        for place, parameter in enumerate(group["params"]):
            if id(parameter) in known or not parameter.requires_grad or \
                    (learns and parameter.grad is None):
                continue
            name = names(parameter)
            what = (f'parameter "{name}"' if name else
                    f"parameter {place} of group {number}, of shape "
                    f"{tuple(parameter.shape)},")
            raise ManifestError(
                f"{what} of the optimizer is none of the Worker's tensors: it "
                "would be stepped with this process's gradient alone. Allowed: "
                "parameters that required gradients, and were in the model, "
                "when the Worker was made")
