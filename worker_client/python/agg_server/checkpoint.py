"""Reads a job's checkpoint from its folder (server/checkpoint/README.md)."""

from __future__ import annotations

import json
import pathlib
from typing import Union

import numpy as np

from agg_server._untraced import untraced
from agg_server.errors import ManifestError


@untraced
def read_checkpoint(folder: Union[str, "pathlib.Path"], array: str =
                    "parameters") -> dict[str, np.ndarray]:
    """The tensors of a complete checkpoint, float32 by name.

    Args:
      folder: of one checkpoint, with its manifest.json.
      array: "parameters", or an array of the optimizer's state.

    Raises:
      ManifestError: the folder has no readable manifest (it is not complete),
        or no such array.
      OSError, ValueError: a part that cannot be read, or a wrong checksum.
    """
    path = pathlib.Path(folder)
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        specs = [(t["name"], t["shape"]) for t in manifest["tensors"]]
    except (OSError, ValueError, KeyError) as error:
        raise ManifestError(f"{path} is not a complete checkpoint: "
                            f"{error}") from error
    tensors = {name: np.zeros(shape, np.float32) for name, shape in specs}
    flat = [values.reshape(-1) for values in tensors.values()]
    missing = [values.size for values in flat]
    for part in manifest["parts"]:
        with np.load(path / part["file"], allow_pickle=False) as entries:
            for entry, values in entries.items():
                tensor, first, name = entry[1:].split(".")
                if name != array:
                    continue
                begin = int(first)
                flat[int(tensor)][begin:begin + len(values)] = values
                missing[int(tensor)] -= len(values)
    if any(missing):
        raise ManifestError(f'{path} has no complete array "{array}"')
    return tensors
