"""TLS to a job's servers."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional, Union

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Tls:
    """Paths of PEM files, which are read again when they change.

        agg.Client({"w": w}, coordinator="host:50051", rank=0,
                   tls=agg.Tls("ca.pem", "worker.pem", "worker.key"))

    What is None comes from AGG_TLS_CA, AGG_TLS_CERTIFICATE, AGG_TLS_KEY and
    AGG_TLS_SERVER_NAME; with these set no argument is needed at all.
    """

    ca: Optional[Path] = None  #: of the servers' certificates
    certificate: Optional[Path] = None  #: this process's, with its key
    key: Optional[Path] = None
    #: that the servers' certificates have, if not the host of their addresses
    server_name: Optional[str] = None


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of agg_options: `tls` as its parts."""
    fields = dict(options)
    tls = fields.pop("tls", None)
    if tls is None:
        return fields
    if not isinstance(tls, Tls):
        raise TypeError(f"tls is {tls!r}; allowed: agg_server.Tls(..)")
    for field in dataclasses.fields(tls):
        value = getattr(tls, field.name)
        fields["tls_" + field.name] = (None if value is None
                                       else os.fspath(value))
    return fields
