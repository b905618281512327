"""Calls that torch.compile leaves alone.

Dynamo, which torch.compile traces Python with, would take a call of this
package for arithmetic: the addresses that it hands to C++ would be numbers of
torch, cut to 32 bits. So each public call, and each hook, is one that Dynamo
runs as it is, between two graphs.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any, Callable, Optional, Type, TypeVar, cast

_Call = TypeVar("_Call", bound=Callable[..., Any])
_Class = TypeVar("_Class")
_Self = TypeVar("_Self", bound="Closing")

# What a class's users call besides names without an underscore.
_SPECIAL = ("__init__", "__call__", "__enter__", "__exit__")


def untraced(call: _Call) -> _Call:
    """`call`, as torch.compiler.disable has it. Imports nothing: where Dynamo
    was not imported by somebody else, nobody traces."""
    disabled: list[Callable[..., Any]] = []  # one, once there is Dynamo

    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        if disabled:
            return disabled[0](*args, **kwargs)
        dynamo = sys.modules.get("torch._dynamo")
        disable = getattr(dynamo, "disable", None)
        if disable is None:  # not imported, or not all of it yet
            return call(*args, **kwargs)
        disabled.append(disable(call))
        return disabled[0](*args, **kwargs)

    return cast(_Call, run)


def untraced_calls(cls: Type[_Class]) -> Type[_Class]:
    """A class's decorator: its own public methods and properties are
    untraced."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isinstance(value, property):
            assert value.fget is not None
            setattr(cls, name, property(untraced(value.fget), value.fset,
                                        value.fdel, value.__doc__))
        elif isinstance(value, types.FunctionType):
            setattr(cls, name, untraced(value))
    return cls


@untraced_calls
class Closing:
    """What a `with` statement closes at its end."""

    def close(self) -> None:
        """Again: nothing."""
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[types.TracebackType]) -> None:
        self.close()


__all__ = ["Closing", "untraced", "untraced_calls"]
