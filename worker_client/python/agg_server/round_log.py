"""A job's round log as numpy arrays."""

from __future__ import annotations

import functools
import importlib
import math
import os
from typing import (Any, Callable, Mapping, NamedTuple, Optional, Sequence,
                    TypeVar, Union)

import numpy as np

from agg_server._delimited import Message
from agg_server._log_file import LogFile, record_fields
from agg_server.errors import Error, ManifestError

# LoggedRow of proto/round_log.proto, by its names.
_ROW = np.dtype([
    ("rank", np.int32), ("examples", np.int64), ("accumulation", np.int32),
    ("loss_scale", np.float64), ("excluded", np.bool_),
    ("commit_delay_seconds", np.float64), ("norm", np.float64),
    ("mean_cosine", np.float64), ("coefficient", np.float64),
    ("session", np.uint64), ("attempt", np.uint32)])
_TIME = "finished_at_seconds"
# Rows of a round whose Gram matrix is in a record, at most.
_MATRIX_ROWS = 64
_NO_NUMBERS = np.empty(0)

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _kept(method: _Method) -> _Method:
    """A method without arguments whose result stays until rounds come."""

    @functools.wraps(method)
    def run(self: Any) -> Any:
        kept = self._results
        if method.__name__ not in kept:
            kept[method.__name__] = method(self)
        return kept[method.__name__]

    return run  # type: ignore[return-value]


class Shadow(NamedTuple):
    """What a shadow rule would have done, a value for each round; NaN: it did
    not run.

    norm: of its combination, before clipping.
    cosine: between it and the combination that was applied.
    """
    norm: np.ndarray
    cosine: np.ndarray


def layer_of(tensor: str) -> str:
    """What stands before the last "/" or "." of a tensor's name."""
    end = max(tensor.rfind("/"), tensor.rfind("."))
    return tensor[:end] if end > 0 else tensor


class RoundLog:
    """What a job's rounds did, in their order.

        log = agg.RoundLog("rounds.binlog")
        log.gain, log.tau, log.gradient_noise_scale   # one value a round
        log.orthogonality, log.tensor_orthogonality
        log.refresh()                                 # what has come since

    R rounds, T tensors of the model, W ranks. Each number of a round that the
    server has (`numbers` names them; server/round/round_numbers.cc says what
    they mean) is an attribute: float64 [R], NaN where it is undefined.

    It has the rounds that count: one that a rewind has given up is left out,
    and so are rounds of another model, and `notes` says how many. The file may
    be that of a job that runs: a record that is not complete yet comes with a
    later refresh(). Arrays are made when they are asked for, and must not be
    written to. Not thread-safe.

    Attributes:
      path: as given, the last one.
      job, config, server_version: the last run's; the configuration in text
        form with its defaults.
      workers, shards: that the last run expected.
      tensors: elements by the tensor's name, in the order of the manifest.
      clients: what the workers have said of themselves, by rank (describe_run):
        the last one of a rank. With config, it is what repeats the run.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"],
                 *later: Union[str, "os.PathLike[str]"]) -> None:
        """Reads what is there.

        Args:
          path: a job's round_log. A file that has no record yet is good.
          later: files that go on where the one before ends:
            RoundLog("rounds.binlog.1", "rounds.binlog").

        Raises RoundLogError: it cannot be read, is no round log, or damaged.
        """
        files = [LogFile(each) for each in (path, *later)]
        self.path = files[-1].path
        self.job = self.config = self.server_version = ""
        self.workers = self.shards = 0
        self.tensors: dict[str, int] = {}
        self.clients: dict[int, str] = {}
        self._file = files[-1]
        self._records: list[Message] = []
        self._history = 0
        self._given_up = self._restored = self._other_model = 0
        self._results: dict[str, Any] = {}
        for each in files:
            self._read(each)

    def refresh(self) -> int:
        """Reads what has come since. Returns how many records, those of
        rounds that replace others, too. Raises RoundLogError."""
        return self._read(self._file)

    def _read(self, file: LogFile) -> int:
        number = 0
        for record in file.records():
            # Each time, since what follows may be damaged, which raises.
            self._results = {}
            self._add(record)
            number += 1
        return number

    def _add(self, record: Message) -> None:
        if "run" in record:
            self._begin_run(record.pop("run"))
        version, history = record["version"], record["history"]
        if history > self._history or (
                not record["restored"] and self._records
                and version <= self._records[-1]["version"]):
            self._give_up(version)
        self._history = max(history, self._history)
        if record["restored"]:
            self._restored += 1
            return
        record["rows"] = np.array(
            [tuple(row[name] for name in _ROW.names or ())
             for row in record.get("rows", [])], _ROW)
        # For the audit, and larger than all else.
        record.pop("shards", None)
        self._records.append(record)

    def _begin_run(self, run: Message) -> None:
        tensors = {each["name"]: each["elements"]
                   for each in run.get("tensors", [])}
        if tensors != self.tensors and self._records:
            self._other_model += len(self._records)
            self._records = []
        self.tensors = tensors
        self.job, self.config = run["job"], run["config"]
        self.server_version = run["server_version"]
        self.workers, self.shards = run["workers"], run["shards"]
        self.clients.update({each["rank"]: each["client"]
                             for each in run.get("joined", [])})

    def _give_up(self, version: int) -> None:
        """The job has gone back: what is from `version` on does not count."""
        keep = len(self._records)
        while keep > 0 and self._records[keep - 1]["version"] >= version:
            keep -= 1
        self._given_up += len(self._records) - keep
        del self._records[keep:]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        versions = (f", versions {self._records[0]['version']} to "
                    f"{self._records[-1]['version']}" if self._records else "")
        return (f'<RoundLog of "{self.job}": {len(self)} rounds{versions}'
                + "".join(f"; {note}" for note in self.notes) + ">")

    @property
    def notes(self) -> list[str]:
        """What is left out, and what is missing, in words."""
        notes = [f"{number} {what}" for number, what in (
            (self._given_up, "rounds left out that were given up (rewinds)"),
            (self._restored, "records left out that have no numbers (restored "
             "after a recovery)"),
            (self._other_model, "rounds left out of another model"),
            (self._file.unread, "bytes at the end are of a record that is not "
             "complete")) if number]
        steps = np.diff(self.version)
        gaps = np.flatnonzero(steps > 1)
        if len(gaps):
            first = int(self.version[gaps[0]]) + 1
            notes.append(f"{int((steps[gaps] - 1).sum())} versions are missing "
                         f"in the log, from {first} on")
        return notes

    # --- Of each round -------------------------------------------------------

    def _column(self, name: str, kind: Any) -> np.ndarray:
        return np.array([record[name] for record in self._records], kind)

    @property
    def round(self) -> np.ndarray:
        """Its number. int64 [R]."""
        return self._column("round", np.int64)

    @property
    @_kept
    def version(self) -> np.ndarray:
        """Of the parameters that it made. int64 [R]."""
        return self._column("version", np.int64)

    @property
    def epoch(self) -> np.ndarray:
        """In which it was. uint64 [R]."""
        return self._column("epoch", np.uint64)

    @property
    def finished_at(self) -> np.ndarray:
        """Unix time of its publication, in seconds. float64 [R]."""
        return self._column(_TIME, np.float64)

    @property
    def applied(self) -> np.ndarray:
        """False: skipped, the parameters are unchanged. bool [R]."""
        return self._column("applied", np.bool_)

    @property
    def compensated(self) -> np.ndarray:
        """Whether coefficients came from compensated Gram matrices. bool [R].
        """
        return self._column("compensated", np.bool_)

    @property
    def message(self) -> list[str]:
        """Why it was skipped, which fallbacks there were; "": nothing."""
        return [record["message"] for record in self._records]

    @property
    def rule(self) -> list[str]:
        """In effect in the round."""
        return [record["rule"] for record in self._records]

    @property
    def scope(self) -> list[str]:
        """In effect in the round: "per_tensor" or "global"."""
        return [record["scope"] for record in self._records]

    @property
    def step_scale(self) -> list[str]:
        """In effect in the round."""
        return [record["step_scale"] for record in self._records]

    @property
    @_kept
    def numbers(self) -> tuple[str, ...]:
        """The names of the rounds' numbers."""
        names = [name for name in record_fields("double") if name != _TIME]
        for record in self._records:
            names += [name for name in record.get("numbers", {})
                      if name not in names]
        return tuple(names)

    def __getitem__(self, name: str) -> np.ndarray:
        """A number of each round. float64 [R]. KeyError: there is none."""
        if name not in self.numbers:
            raise KeyError(f'"{name}" is no number of a round; allowed: '
                           + ", ".join(self.numbers))
        if name not in self._results:
            own = name in record_fields("double")
            self._results[name] = np.array(
                [record[name] if own else
                 record.get("numbers", {}).get(name, np.nan)
                 for record in self._records], np.float64)
        result: np.ndarray = self._results[name]
        return result

    def __getattr__(self, name: str) -> np.ndarray:
        # Only for what is no attribute. Names of its own come from __init__.
        if not name.startswith("_") and name in self.numbers:
            return self[name]
        raise AttributeError(f'a RoundLog has no "{name}"')

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.numbers]

    # --- Of each tensor and layer --------------------------------------------

    @property
    @_kept
    def tensor_orthogonality(self) -> np.ndarray:
        """||Adasum||^2 / sum ||row||^2 of each tensor (server/combine/README.md
        3.6): 1 where they are orthogonal, 1/P where all P are parallel and of
        one length. float64 [R, T], of float32's digits; NaN: undefined."""
        return self._by_tensor("tensor_orthogonality")

    @property
    @_kept
    def tensor_norms(self) -> np.ndarray:
        """The root of the mean squared norm that the included rows have in
        each tensor. float64 [R, T], of float32's digits; NaN for the records
        of a server that is older than this number."""
        return self._by_tensor("tensor_norms")

    @property
    @_kept
    def layers(self) -> dict[str, list[str]]:
        """Tensors by their layer, in the order of the manifest: what stands
        before the last "/" or "." of their names."""
        result: dict[str, list[str]] = {}
        for tensor in self.tensors:
            result.setdefault(layer_of(tensor), []).append(tensor)
        return result

    @property
    @_kept
    def layer_orthogonality(self) -> np.ndarray:
        """Of each layer's tensors together: sum ||Adasum||^2 / sum ||row||^2
        over them. float64 [R, layers]; NaN where it is undefined, and where
        tensor_norms are not known."""
        return self.orthogonality_of(list(self.layers.values()))

    def orthogonality_of(self, groups: Sequence[Sequence[str]]) -> np.ndarray:
        """The same for groups of tensors. float64 [R, groups].

        Raises ManifestError: the model has no such tensor.
        """
        result = np.full((len(self), len(groups)), np.nan)
        # A tensor of zeros has no orthogonality, and no weight.
        weights = np.square(self.tensor_norms)
        parts = np.where(weights == 0, 0.0,
                         weights * self.tensor_orthogonality)
        for column, names in enumerate(groups):
            indices = [self._tensor(name) for name in names]
            total = weights[:, indices].sum(axis=1)
            np.divide(parts[:, indices].sum(axis=1), total,
                      out=result[:, column], where=total > 0)
        return result

    def _tensor(self, name: str) -> int:
        if name not in self.tensors:
            raise ManifestError(f'the model has no tensor "{name}"; it has '
                                + ", ".join(self.tensors))
        return list(self.tensors).index(name)

    def _by_tensor(self, field: str) -> np.ndarray:
        result = np.full((len(self), len(self.tensors)), np.nan)
        for values, record in zip(result, self._records):
            logged = record.get(field, _NO_NUMBERS)[:len(values)]
            values[:len(logged)] = logged
        return result

    # --- Of each row ---------------------------------------------------------

    @property
    @_kept
    def ranks(self) -> np.ndarray:
        """Those that have committed a row, ascending. int32 [W]."""
        return np.unique(np.concatenate(
            [np.empty(0, np.int32),
             *(record["rows"]["rank"] for record in self._records)]))

    def rows(self, name: str) -> np.ndarray:
        """A number of each rank's row in each round. float64 [R, W]; NaN: the
        rank was not in the round.

        Args:
          name: "norm", "mean_cosine" (to the other rows), "coefficient" (loss
            scale removed, the mean over the tensors), "examples",
            "accumulation", "loss_scale" or "commit_delay_seconds".

        Raises ManifestError: another name.
        """
        allowed = [each for each in _ROW.names or ()
                   if each not in ("rank", "session", "attempt")]
        if name not in allowed:
            raise ManifestError(f'name is "{name}"; allowed: '
                                + ", ".join(allowed))
        result = np.full((len(self), len(self.ranks)), np.nan)
        for values, record in zip(result, self._records):
            rows = record["rows"]
            values[np.searchsorted(self.ranks, rows["rank"])] = rows[name]
        return result

    @property
    @_kept
    def included(self) -> np.ndarray:
        """Whether the rank's row is in the round's combination. bool [R, W]."""
        result: np.ndarray = np.equal(self.rows("excluded"), 0)  # NaN is not
        return result

    @property
    @_kept
    def examples(self) -> np.ndarray:
        """Of all included rows: the round's batch. float64 [R]."""
        result: np.ndarray = np.sum(self.rows("examples"), axis=1, where=self.included)
        return result

    @property
    @_kept
    def num_included(self) -> np.ndarray:
        """Rows in the combination. int64 [R]."""
        result: np.ndarray = np.count_nonzero(self.included, axis=1)
        return result

    def ranks_of(self, index: int) -> np.ndarray:
        """The ranks whose rows were committed in a round, ascending: the order
        of gram(), cosines() and coefficients(). int32."""
        rows: np.ndarray = self._records[index]["rows"]
        return rows["rank"].copy()

    # --- Matrices of a round -------------------------------------------------

    def gram(self, index: int, tensor: Optional[str] = None) -> np.ndarray:
        """The Gram matrix of a round's rows, loss scale removed.

        Args:
          index: of the round, 0 for the first one; -1: the last one.
          tensor: None: over all tensors. Else of this one, which rounds have
            that the job's round_log { grams: "per_tensor" every: N } names.

        Returns:
          float64, square, over the first ranks of ranks_of(index): 64 of them,
          or with a tensor as many as the server had room for (2^17 numbers for
          all tensors of a round). NaN for rows that are excluded. 0 x 0: the
          round has none.

        Raises ManifestError: the model has no such tensor.
        """
        record = self._records[index]
        if tensor is None:
            side = min(len(record["rows"]), _MATRIX_ROWS)
            return _square(record.get("gram", _NO_NUMBERS), side)
        place = self._tensor(tensor)
        packed = record.get("tensor_grams", _NO_NUMBERS)
        size = len(packed) // len(self.tensors)
        # size = side (side + 1) / 2
        side = (math.isqrt(8 * size + 1) - 1) // 2
        return _square(packed[place * size:(place + 1) * size], side)

    def cosines(self, index: int, tensor: Optional[str] = None) -> np.ndarray:
        """The cosines between the rows of a round, as gram(). NaN for rows of
        zeros, too."""
        gram = self.gram(index, tensor)
        with np.errstate(invalid="ignore", divide="ignore"):
            norms = np.sqrt(np.diagonal(gram))
            cosines = gram / norms[:, None] / norms[None, :]
        result: np.ndarray = np.clip(cosines, -1.0, 1.0)
        return result

    def coefficients(self, index: int) -> np.ndarray:
        """As applied, clipping and 1 / loss scale included: float64, one line
        for each tensor under the scope "per_tensor", else one line; a column
        for each rank of ranks_of(index). No line where a round has more than
        4096 of them: rows("coefficient") has their means."""
        record = self._records[index]
        values = np.asarray(record.get("coefficients", _NO_NUMBERS),
                            np.float64)
        columns = len(record["rows"])
        lines = len(values) // columns if columns else 0
        return values[:lines * columns].reshape(lines, columns)

    @property
    @_kept
    def shadows(self) -> Mapping[str, Shadow]:
        """The shadow rules: by "RULE/SCOPE", in the order of the job. Further
        ones of the same rule and scope, with other options, are "RULE/SCOPE#2",
        "RULE/SCOPE#3", and so on."""
        result: dict[str, Shadow] = {}
        for index, record in enumerate(self._records):
            times: dict[str, int] = {}
            for each in record.get("shadows", []):
                name = f"{each['rule']}/{each['scope']}"
                times[name] = times.get(name, 0) + 1
                if times[name] > 1:
                    name += f"#{times[name]}"
                if name not in result:
                    result[name] = Shadow(np.full(len(self), np.nan),
                                          np.full(len(self), np.nan))
                result[name].norm[index] = each["norm"]
                result[name].cosine[index] = each["cosine"]
        return result

    # --- With pandas ---------------------------------------------------------

    def frame(self, of: str = "rounds") -> Any:
        """A pandas DataFrame.

        Args:
          of: "rounds": a line for each round, with its names, numbers and
            shadows. "rows": a line for each row that was committed, with its
            version. "tensors", "layers": orthogonality, a line for each round
            and a column for each tensor or layer.

        Raises ManifestError: another word. Error: pandas is not installed.
        """
        makers: dict[str, Callable[[], Mapping[str, Any]]] = {
            "rounds": self._round_columns, "rows": self._row_columns,
            "tensors": lambda: dict(zip(self.tensors,
                                        self.tensor_orthogonality.T)),
            "layers": lambda: dict(zip(self.layers,
                                       self.layer_orthogonality.T))}
        if of not in makers:
            raise ManifestError(f'of is "{of}"; allowed: '
                                + ", ".join(makers))
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise Error(f"pandas cannot be imported ({error}); pip install "
                        "pandas, or use the arrays") from error
        columns = makers[of]()
        if of == "rows":
            return pandas.DataFrame(columns)
        return pandas.DataFrame(columns, index=pandas.Index(
            self.version, name="version"))

    def _round_columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {
            name: getattr(self, name) for name in (
                "round", "epoch", "finished_at", "applied", "message", "rule",
                "scope", "step_scale", "num_included", "examples",
                *self.numbers)}
        for name, shadow in self.shadows.items():
            columns[f"{name} norm"] = shadow.norm
            columns[f"{name} cosine"] = shadow.cosine
        return columns

    def _row_columns(self) -> dict[str, Any]:
        rows = np.concatenate([np.empty(0, _ROW),
                               *(each["rows"] for each in self._records)])
        versions = np.repeat(self.version,
                             [len(each["rows"]) for each in self._records])
        return {"version": versions,
                **{name: rows[name] for name in _ROW.names or ()}}


def _square(packed: np.ndarray, side: int) -> np.ndarray:
    """A symmetric matrix of its upper triangle, row by row; empty if that is
    of another size."""
    if len(packed) != side * (side + 1) // 2:
        return np.empty((0, 0))
    result = np.empty((side, side))
    above = np.triu_indices(side)
    result[above] = packed
    result.T[above] = packed
    return result


__all__ = ["RoundLog", "Shadow", "layer_of"]
