"""libagg.so: its structs and calls, as worker_client/c/agg.h has them."""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import (POINTER, byref, c_char_p, c_double, c_int32, c_int64,
                    c_size_t, c_uint32, c_uint64, c_void_p, sizeof)
from typing import Any, Optional

from agg_server.errors import LibraryError
from agg_server.options import OPTIONS

ABI_VERSION = 1
# The calls that this package needs.
ABI_MINOR = 6
F32, BF16, F16, I8 = 1, 2, 3, 4


class Spec(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("group", c_char_p),
                ("shape", POINTER(c_int64)), ("num_dimensions", c_int32),
                ("optional", c_int32)]


class View(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("num_elements", c_int64),
                ("dtype", c_int32), ("in_row", c_int32)]


class Target(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("num_elements", c_int64)]


class _Sized(ctypes.Structure):
    """A struct that says how long it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.size = sizeof(self)


class Options(_Sized):
    _fields_ = [("size", c_size_t), ("coordinator", c_char_p),
                ("rank", c_int32), ("observer", c_int32),
                ("specs", POINTER(Spec)), ("num_specs", c_size_t),
                *((name, option.c_type) for name, option in OPTIONS.items()
                  if option.c_type is not None)]


class PushInfo(_Sized):
    _fields_ = [("size", c_size_t), ("examples", c_int64),
                ("accumulation", c_int32), ("has_norm_sum", c_int32),
                ("micro_norm_squared_sum", c_double), ("has_loss", c_int32),
                ("reserved", c_int32), ("loss", c_double),
                ("loss_scale", c_double), ("traceparent", c_char_p),
                ("parameters_digest", c_uint32), ("reserved2", c_uint32)]


class OutcomeStruct(_Sized):
    _fields_ = [("size", c_size_t), ("round", c_uint64),
                ("version", c_uint64), ("made", c_uint64), ("kind", c_int32),
                ("included", c_int32), ("finished", c_int32),
                ("num_ranks", c_int32), ("ranks", POINTER(c_int32)),
                ("excluded_ranks", POINTER(c_int32)),
                ("num_excluded_ranks", c_int32), ("reserved", c_int32),
                ("learning_rate", c_double), ("gain", c_double),
                ("tau", c_double), ("orthogonality", c_double),
                ("loss", c_double), ("combined_norm", c_double),
                ("message", c_char_p), ("rule", c_char_p),
                ("scope", c_char_p), ("step_scale", c_char_p),
                ("absent_tensors", POINTER(c_uint32)),
                ("differing_ranks", POINTER(c_int32)),
                ("num_absent_tensors", c_int32),
                ("num_differing_ranks", c_int32)]


class State(_Sized):
    _fields_ = [("size", c_size_t), ("version", c_uint64),
                ("session", c_uint64), ("seed_role", c_int32),
                ("finished", c_int32)]


class JobStruct(_Sized):
    _fields_ = [("size", c_size_t), ("job", c_char_p), ("rule", c_char_p),
                ("scope", c_char_p), ("step_scale", c_char_p),
                ("optimizer", c_char_p), ("workers", c_int32),
                ("num_shards", c_int32), ("shards", POINTER(c_char_p)),
                ("transports", POINTER(c_char_p)), ("push_dtype", c_int32),
                ("pull_dtype", c_int32), ("num_tensors", c_uint64)]


class EventStruct(_Sized):
    _fields_ = [("size", c_size_t), ("kind", c_int32), ("reserved", c_int32),
                ("version", c_uint64), ("num_dropped", c_uint64),
                ("message", c_char_p)]


class RuleSegment(ctypes.Structure):
    _fields_ = [("tensor", c_char_p), ("gram", POINTER(c_double)),
                ("state", c_void_p), ("state_size", c_size_t)]


class RuleRound(_Sized):
    _fields_ = [("size", c_size_t), ("epoch", c_uint64), ("round", c_uint64),
                ("finished", c_int32), ("shadow", c_int32),
                ("num_rows", c_uint64), ("ranks", POINTER(c_int32)),
                ("examples", POINTER(c_int64)),
                ("accumulation", POINTER(c_int32)),
                ("losses", POINTER(c_double)), ("num_segments", c_uint64),
                ("segments", POINTER(RuleSegment))]


class RuleWeights(ctypes.Structure):
    _fields_ = [("weights", POINTER(c_double)), ("state", c_char_p),
                ("state_size", c_size_t)]


_HANDLE, _VIEWS, _TARGETS = c_void_p, POINTER(View), POINTER(Target)
_OPERATION, _INDICES = POINTER(c_void_p), POINTER(c_uint64)
_CALLS: dict[str, tuple[Any, list[Any]]] = {
    "agg_abi_version": (c_int32, []),
    "agg_abi_minor": (c_int32, []),
    "agg_error": (c_char_p, []),
    "agg_has_cuda": (c_int32, []),
    "agg_crc32c": (c_uint32, [POINTER(c_void_p), POINTER(c_size_t), c_size_t]),
    "agg_options_init": (None, [POINTER(Options), c_size_t]),
    "agg_new": (c_void_p, [POINTER(Options)]),
    "agg_connect": (c_int32, [_HANDLE]),
    "agg_leave": (c_int32, [_HANDLE]),
    "agg_free": (None, [_HANDLE]),
    "agg_seed_or_pull": (c_int32, [_HANDLE, _TARGETS, c_size_t]),
    "agg_pull": (c_int32, [_HANDLE, c_uint64, _TARGETS, c_size_t, c_int32]),
    "agg_pull_latest": (c_int32, [_HANDLE, _TARGETS, c_size_t, c_int32,
                                  POINTER(c_uint64)]),
    "agg_latest_version": (c_int32, [_HANDLE, POINTER(c_uint64)]),
    "agg_push_pull": (c_int32, [_HANDLE, _VIEWS, c_size_t, POINTER(PushInfo),
                                _TARGETS, c_size_t, POINTER(OutcomeStruct)]),
    "agg_copy": (c_int32, [_TARGETS, _TARGETS, c_size_t]),
    "agg_interrupt": (c_int32, [_HANDLE]),
    "agg_resume_round": (c_int32, [_HANDLE, _OPERATION]),
    "agg_wait": (c_int32, [_HANDLE, c_uint64, POINTER(OutcomeStruct)]),
    "agg_get_state": (c_int32, [_HANDLE, POINTER(State)]),
    "agg_get_job": (c_int32, [_HANDLE, POINTER(JobStruct)]),
    "agg_get_spec": (c_int32, [_HANDLE, c_size_t, POINTER(Spec)]),
    "agg_next_event": (c_int32, [_HANDLE, c_double, POINTER(EventStruct)]),
    "agg_start_push": (c_int32, [_HANDLE, _INDICES, _VIEWS, c_size_t,
                                 _OPERATION]),
    "agg_start_round": (c_int32, [_HANDLE, _INDICES, _VIEWS, c_size_t,
                                  POINTER(PushInfo), _TARGETS, c_size_t,
                                  _OPERATION]),
    "agg_start_reduce": (c_int32, [_HANDLE, c_char_p, POINTER(c_double),
                                   c_size_t, _OPERATION]),
    "agg_operation_sums": (c_int32, [
        _HANDLE, POINTER(c_double), c_size_t, POINTER(POINTER(c_int32)),
        POINTER(c_size_t), POINTER(POINTER(c_int32)), POINTER(c_size_t)]),
    "agg_operation_done": (c_int32, [_HANDLE, c_double]),
    "agg_operation_end": (c_int32, [_HANDLE, POINTER(OutcomeStruct)]),
    "agg_operation_cancel": (c_int32, [_HANDLE]),
    "agg_operation_free": (None, [_HANDLE]),
    "agg_rule_new": (c_void_p, [POINTER(Options), c_char_p]),
    "agg_rule_next": (c_int32, [_HANDLE, c_double, POINTER(RuleRound)]),
    "agg_rule_answer": (c_int32, [_HANDLE, POINTER(RuleWeights), c_size_t,
                                  c_size_t, c_double]),
    "agg_rule_fail": (c_int32, [_HANDLE, c_char_p]),
    "agg_rule_free": (None, [_HANDLE]),
}

_loaded: Optional[ctypes.CDLL] = None


def library_path() -> pathlib.Path:
    """AGG_LIBRARY, or the library that came with this package."""
    named = os.environ.get("AGG_LIBRARY")
    path = (pathlib.Path(named) if named else
            pathlib.Path(__file__).parent / "_lib" / "libagg.so")
    if not path.is_file():
        raise LibraryError(f"{path} is not there; set AGG_LIBRARY to libagg.so "
                    "(bazel build -c opt //worker_client/c:libagg.so)")
    return path.resolve()


def _check_release(path: pathlib.Path, loaded: ctypes.CDLL) -> None:
    """Before any other call: another release may lack what is bound."""
    try:
        version = int(loaded.agg_abi_version())
    except AttributeError as error:
        raise LibraryError(f"{path} is no libagg.so: {error}") from error
    minor = int(loaded.agg_abi_minor()) if hasattr(loaded, "agg_abi_minor") \
        else 0
    if version != ABI_VERSION or minor < ABI_MINOR:
        raise LibraryError(
            f"{path} has version {version}.{minor} of the ABI; allowed: "
            f"{ABI_VERSION}.{ABI_MINOR} or a later {ABI_VERSION}.x; install "
            "one release of package and library")


def load() -> ctypes.CDLL:
    """The library, loaded at the first call. Raises LibraryError if it cannot
    be, or is another release's."""
    global _loaded
    if _loaded is not None:
        return _loaded
    # gRPC writes what it retries to stderr; errors come as exceptions.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Without RTLD_DEEPBIND Debian's protobuf and gRPC would use the symbols of
    # another copy that the process has loaded globally (TensorFlow's), and
    # crash. Checking mallocs and ASan want it off: AGG_DEEPBIND=0.
    deep = (os.RTLD_DEEPBIND if os.environ.get("AGG_DEEPBIND", "1") != "0"
            else 0)
    path = library_path()
    try:
        loaded = ctypes.CDLL(str(path),
                             mode=os.RTLD_NOW | os.RTLD_LOCAL | deep)
    except OSError as error:
        raise LibraryError(f"{path} cannot be loaded: {error}") from error
    _check_release(path, loaded)
    for name, (result, arguments) in _CALLS.items():
        call = getattr(loaded, name)
        call.restype, call.argtypes = result, arguments
    _loaded = loaded
    return loaded


def text(value: Optional[bytes]) -> str:
    """A C string."""
    return (value or b"").decode("utf-8", "replace")


__all__ = ["BF16", "F16", "F32", "EventStruct", "JobStruct", "Options",
           "OutcomeStruct", "PushInfo", "RuleRound", "RuleWeights", "Spec", "State", "Target", "View",
           "byref", "c_char_p", "c_int64", "c_uint64", "c_void_p",
           "library_path", "load", "text"]
