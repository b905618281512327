"""A client's options. A line of ClientOptions is all that Python has of one:
agg_options, its values and the documents of each client are made of it."""

import ctypes
import dataclasses
import inspect
import math
import operator
import os
import textwrap
from typing import (Annotated, Any, Callable, NamedTuple, Optional, TypedDict,
                    TypeVar, get_args, get_type_hints)

from agg_server.describe import describe_run
from agg_server.tls import Path, Tls

_Init = TypeVar("_Init", bound=Callable[..., None])


class ClientOptions(TypedDict, total=False):
    """Options of a Client, a Worker and an Observer, by name: each with its
    type, its default and what it means. None: the default. The order is that
    of agg_options in worker_client/c/agg_types.h."""

    client_name: Annotated[
        Optional[str], None,
        "in the server's logs; None: describe_run()."]
    connect_timeout: Annotated[
        Optional[float], 30.0,
        "seconds until the coordinator answers and lets this client in."]
    call_timeout: Annotated[
        Optional[float], 10.0,
        "limit in seconds of short calls, which wait for no other worker."]
    transfer_timeout: Annotated[
        Optional[float], 600.0,
        "limit in seconds of one push, or of one pull's bytes, including "
        "pending work of the tensors' devices."]
    round_timeout: Annotated[
        Optional[float], math.inf,
        "limit in seconds of waits for other workers."]
    reconnect_window: Annotated[
        Optional[float], 3.0,
        "seconds for which a broken connection is tried again."]
    recovery_window: Annotated[
        Optional[float], 900.0,
        "seconds for which the job is waited for when it has lost a process; "
        "0: calls fail, and this client is over."]
    channels_per_shard: Annotated[
        Optional[int], 1,
        "connections to each shard, 1 or 2: with 2, pulls can overlap pushes."]
    local_sockets: Annotated[
        Optional[bool], True,
        "False: TCP also where a shard of this host has a Unix socket."]
    tune_malloc: Annotated[
        Optional[bool], False,
        "True: glibc keeps freed memory, which about doubles the throughput of "
        "large pulls, and changes the complete process."]
    audit_log: Annotated[
        Optional[Path], None,
        "path of a file that gets a line for each row whose outcome is known, "
        "for `agg_report --audit`."]
    shared_memory: Annotated[
        Optional[bool], True,
        "False: rows and parameters go over sockets also where a shard of this "
        "host shares its memory."]
    error_feedback: Annotated[
        Optional[bool], None,
        "True: what rounding to the job's push_dtype leaves out of a row goes "
        "into the next one; False: it is lost; None: True for int8 alone."]
    copy_threads: Annotated[
        Optional[int], 1,
        "threads that share a copy to or from shared memory, 1 to 16."]
    tls_ca: Annotated[Optional[Path], None, "as tls.ca."]
    tls_certificate: Annotated[Optional[Path], None, "as tls.certificate."]
    tls_key: Annotated[Optional[Path], None, "as tls.key."]
    tls_server_name: Annotated[Optional[str], None, "as tls.server_name."]
    token_file: Annotated[
        Optional[Path], None,
        "path of a file whose first line is this client's bearer token, where "
        "the job has identities; None: the one that AGG_TOKEN_FILE names."]
    cuda_rows: Annotated[
        Optional[bool], True,
        "False: tensors of CUDA devices are copied to the host, and what is "
        "pulled from there, by torch; the client sees copies alone."]
    # Behind the fields of agg_options: it is several of them.
    tls: Annotated[
        Optional[Tls], None,
        "for a job with TLS; None: the environment's."]


class _Option(NamedTuple):
    """A line of ClientOptions."""

    c_type: Any  # in agg_options; None: it has no such field
    type: Any
    default: Any
    meaning: str


_C_TYPES = {float: ctypes.c_double, int: ctypes.c_int32, bool: ctypes.c_int32,
            str: ctypes.c_char_p}
OPTIONS: dict[str, _Option] = {
    name: _Option(_C_TYPES.get(get_args(hint.__origin__)[0]), hint.__origin__,
                  *hint.__metadata__)
    for name, hint in get_type_hints(ClientOptions, include_extras=True).items()}


def _value_of(name: str, value: Any) -> Any:
    c_type = OPTIONS[name].c_type
    text = isinstance(value, (str, os.PathLike))
    try:
        if c_type is ctypes.c_char_p:
            allowed = "a str or a path"
            if text:
                return c_type(os.fsencode(value))
        elif c_type is ctypes.c_int32:
            # ctypes would cut what does not fit.
            allowed = "a whole number of 32 bits"
            if c_type(operator.index(value)).value == value:
                return c_type(value)
        else:
            allowed = "a number"
            if not text:
                return c_type(value)
    except TypeError:
        pass
    raise TypeError(f"{name} is {value!r}; allowed: {allowed}")


def fields_of(options: ClientOptions) -> dict[str, Any]:
    """The fields of agg_options that are given, as values of ctypes. TypeError
    names an option that does not exist, or whose value is of a wrong type."""
    given: dict[str, Any] = dict(options)
    for name in given:
        if name not in OPTIONS:
            raise TypeError(f"{name} is no option of a client; allowed: "
                            + ", ".join(OPTIONS))
    tls = given.pop("tls", None)
    if tls is not None:
        if not isinstance(tls, Tls):
            raise TypeError(f"tls is {tls!r}; allowed: agg_server.Tls(..)")
        given.update({"tls_" + field.name: getattr(tls, field.name)
                      for field in dataclasses.fields(tls)})
    if given.get("client_name") is None:
        given["client_name"] = describe_run()
    return {name: _value_of(name, value) for name, value in given.items()
            if value is not None}


def shows_options(init: _Init) -> _Init:
    """Decorates an __init__ with `**options: Unpack[ClientOptions]`, so that
    help() and inspect see each option with its type, default and meaning."""
    signature = inspect.signature(init)
    parameters = [each for each in signature.parameters.values()
                  if each.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY,
                          default=option.default, annotation=option.type)
        for name, option in OPTIONS.items()]
    setattr(init, "__signature__", signature.replace(parameters=parameters))
    init.__annotations__ = {each.name: each.annotation for each in parameters
                            if each.annotation is not inspect.Parameter.empty}
    init.__annotations__["return"] = None
    before, line, after = (init.__doc__ or "").partition(
        "          options: as ClientOptions has them.\n")
    if line:  # `python -OO` has no documents
        init.__doc__ = before + "".join(
            textwrap.fill(f"{name}: {option.meaning}", 80,
                          initial_indent=" " * 10,
                          subsequent_indent=" " * 12) + "\n"
            for name, option in OPTIONS.items()) + after
    return init


__all__ = ["ClientOptions", "OPTIONS", "fields_of", "shows_options"]
