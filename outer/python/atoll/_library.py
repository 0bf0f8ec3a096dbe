# SPDX-License-Identifier: Apache-2.0
"""libatoll by ctypes: the functions of atoll.h as a class. No other package is needed."""
import contextlib
import ctypes
import dataclasses
import logging
import math
import os
import pathlib
import threading

STOPPED = 75
F32, BF16 = 0, 1
DIMS_MAX = 8


_LOGGER = logging.getLogger("atoll")
_LEVELS = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)  # of libatoll's levels 0 to 4


class Error(Exception):
    """A call of libatoll failed. `code`: the exit code of the program `atoll` for the same error: 4 where the call, the configuration
    or a file is wrong, 2 where the other side cannot be reached or refuses, 1 where something broke. runbook.md lists all."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


class Stopped(Error):
    """A wait ended because stop() was called. Save a checkpoint of Site.step, close, and start again later."""


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dims", ctypes.c_int32), ("dtype", ctypes.c_int32),
                ("shape", ctypes.c_int64 * DIMS_MAX), ("data", ctypes.c_void_p)]


class _Place(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("first", ctypes.c_int64), ("rows", ctypes.c_int64), ("transposed", ctypes.c_int32)]


FLOATS = ctypes.POINTER(ctypes.c_float)
_READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t, FLOATS)
_BROADCAST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
_EACH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Tensor), ctypes.POINTER(_Place), ctypes.c_size_t)


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("config", ctypes.c_char_p), ("config_text", ctypes.c_char_p),
                ("settings", ctypes.POINTER(ctypes.c_char_p)), ("setting_count", ctypes.c_size_t),
                ("tensors", ctypes.POINTER(_Tensor)), ("tensor_count", ctypes.c_size_t),
                ("read", _READ), ("write", _READ), ("rank", ctypes.c_int32), ("ranks", ctypes.c_int32),
                ("broadcast", _BROADCAST), ("log", _LOG), ("self", ctypes.c_void_p)]


class _Report(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("loss", ctypes.c_double), ("tokens_per_second", ctypes.c_double)]


class _Status(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("step", ctypes.c_int64), ("steps", ctypes.c_int64),
                ("rounds", ctypes.c_uint64), ("rounds_all", ctypes.c_uint64),
                ("up_bytes", ctypes.c_uint64), ("down_bytes", ctypes.c_uint64),
                ("waited_s", ctypes.c_double), ("flight_s", ctypes.c_double),
                ("included", ctypes.c_uint32), ("sites", ctypes.c_uint32)]


def _find():
    """The library: ATOLL_LIBRARY, else next to this file (a wheel), else where the loader looks."""
    given = os.environ.get("ATOLL_LIBRARY")
    bundled = pathlib.Path(__file__).parent / "lib" / "libatoll.so.0"
    return given or (str(bundled) if bundled.exists() else "libatoll.so.0")


def _load():
    path = _find()
    try:
        lib = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libatoll cannot be loaded ({error}); install the wheel, or set ATOLL_LIBRARY to the path of "
                          "libatoll.so") from None
    pointer = ctypes.POINTER
    handle, step = ctypes.c_void_p, pointer(ctypes.c_int64)
    for name, result, arguments in (
            ("version", ctypes.c_char_p, []), ("error", ctypes.c_char_p, []),
            ("tensors", ctypes.c_int, [pointer(_Options), ctypes.c_void_p, _EACH]),
            ("open", ctypes.c_int, [pointer(handle), pointer(_Options)]), ("start", ctypes.c_int, [handle, step]),
            ("steps", ctypes.c_int64, [handle]), ("due", ctypes.c_int, [handle, ctypes.c_int64]),
            ("step", ctypes.c_int, [handle, step, pointer(_Report)]), ("saving", ctypes.c_int, [handle, ctypes.c_int64]),
            ("saved", ctypes.c_int, [handle, ctypes.c_int64]), ("outer", ctypes.c_int, [handle, ctypes.c_int64]),
            ("status", ctypes.c_int, [handle, pointer(_Status)]), ("digest", ctypes.c_int, [handle, ctypes.c_char_p]),
            ("stop", None, [handle]), ("close", ctypes.c_int, [handle])):
        function = getattr(lib, "atoll_" + name)
        function.restype, function.argtypes = result, arguments
    return lib


_lib = _load()
__version__ = _lib.atoll_version().decode()


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a tensor of a Hugging Face model lies in one of the run's: these rows, or their transpose."""
    name: str
    first: int
    rows: int
    transposed: bool


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of the run. places: in a Hugging Face model of the same family; empty where there is none."""
    name: str
    shape: tuple
    places: tuple = ()


@dataclasses.dataclass(frozen=True)
class Status:
    """struct atoll_status of atoll.h: bytes of payload, seconds."""
    step: int
    steps: int
    rounds: int
    rounds_all: int
    up_bytes: int
    down_bytes: int
    waited_s: float
    flight_s: float
    included: int
    sites: int


def _check(code):
    if code:
        text = _lib.atoll_error().decode(errors="replace")
        raise (Stopped if code == STOPPED else Error)(text, code)


def _options(config, settings):
    """The options that name a configuration, and what must stay alive with them."""
    words = [f"{key}={_text(value)}".encode() for key, value in (settings or {}).items()]
    array = (ctypes.c_char_p * max(len(words), 1))(*words)
    options = _Options(size=ctypes.sizeof(_Options), settings=array, setting_count=len(words))
    if isinstance(config, os.PathLike) or "\n" not in config:
        options.config = os.fsencode(config)
    else:
        options.config_text = config.encode()
    return options, array


def _text(value):
    """A setting's value as the configuration has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(_text, value)) if isinstance(value, (list, tuple)) else os.fspath(value) if isinstance(
        value, os.PathLike) else str(value)


def tensors(config, settings=None):
    """The tensors of a run, in order. config: a path, or the text of a configuration; settings: {"section.key": value}."""
    options, alive = _options(config, settings)
    found = []

    def each(_, t, places, count):
        t = t.contents
        found.append(Tensor(t.name.decode(), tuple(t.shape[:t.dims]), tuple(
            Place(p.name.decode(), p.first, p.rows, bool(p.transposed)) for p in places[:count])))
        return 0

    _check(_lib.atoll_tensors(ctypes.byref(options), None, _EACH(each)))
    del alive
    return found


class Site:
    """One site of a run. The trainer's values are read and written by two functions:

    read(number, first, count, values): values[:] becomes elements first .. first + count of tensor `number`, flattened.
    write(number, first, count, values): the other way.

    values is a ctypes array of count floats; numpy.ctypeslib.as_array(values) and torch.frombuffer(values, dtype=torch.float32)
    take it without a copy. rank, ranks, broadcast: of a site of several processes; broadcast(buffer) sends the bytes of rank 0 to
    all. log(level, line): what libatoll has to say; level 0 is debug, 2 information, 3 a warning, 4 an error. Without it the lines go
    to the logger "atoll" of `logging`, which shows warnings, such as what a wait is for.
    """

    def __init__(self, config, tensors, read, write, settings=None, rank=0, ranks=1, broadcast=None, log=None):
        self._failed = None  # what a callback raised
        options, self._alive = _options(config, settings)
        self._names = [t.name.encode() for t in tensors]
        self._tensors = (_Tensor * max(len(tensors), 1))()
        for entry, name, t in zip(self._tensors, self._names, tensors):
            if len(t.shape) > DIMS_MAX:
                raise ValueError(f"{t.name}: {len(t.shape)} dimensions, and {DIMS_MAX} at most")
            entry.name, entry.dims, entry.dtype = name, len(t.shape), F32
            entry.shape[:len(t.shape)] = list(t.shape)
        self._callbacks = (_READ(self._guard(self._values(read))), _READ(self._guard(self._values(write))),
                           _BROADCAST(self._guard(self._bytes(broadcast))) if broadcast else _BROADCAST(),
                           _LOG(self._line(log or (lambda level, line: _LOGGER.log(_LEVELS[level], line)))))
        options.tensors, options.tensor_count = self._tensors, len(tensors)
        options.read, options.write, options.broadcast, options.log = self._callbacks
        options.rank, options.ranks = rank, ranks
        self.step = 0
        self._last = {}  # what it had when it was closed
        self._handle = ctypes.c_void_p()
        self._call(_lib.atoll_open, ctypes.byref(self._handle), ctypes.byref(options))

    @staticmethod
    def _line(log):
        def call(_, level, line):
            try:
                log(level, line.decode(errors="replace"))
            except Exception:  # a log must not end a run
                _LOGGER.exception("log(level, line) failed")
        return call

    @staticmethod
    def _values(function):
        def call(_, number, first, count, values):
            function(number, first, count, (ctypes.c_float * count).from_address(ctypes.addressof(values.contents)))
        return call

    @staticmethod
    def _bytes(function):
        def call(_, address, count):
            function((ctypes.c_char * count).from_address(address))
        return call

    def _guard(self, function):
        """A callback of libatoll: 0, or 1 and the exception is raised by the call that it belongs to."""
        def call(*arguments):
            try:
                function(*arguments)
                return 0
            except BaseException as error:  # must not pass through C
                self._failed = error
                return 1
        return call

    def _call(self, function, *arguments):
        """A call that may wait: in a thread of its own, so that Ctrl-C reaches Python, and then stops the wait."""
        done, finished = [], threading.Event()

        def work():
            code = function(*arguments)
            done.append((code, _lib.atoll_error().decode(errors="replace")))
            finished.set()

        if threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=work, name="atoll", daemon=True)
            thread.start()
            interrupted = None
            while not finished.is_set():  # not join(): an interrupted one takes the thread for ended
                try:
                    finished.wait(0.5)
                except KeyboardInterrupt as error:
                    interrupted = error
                    self.stop()
            if interrupted and not done[0][0]:
                raise interrupted
        else:
            work()
        failed, self._failed = self._failed, None
        code, text = done[0]
        if failed:
            raise failed
        if code:
            raise (Stopped if code == STOPPED else Error)(text, code)

    def _open(self):
        """The handle; one that is closed must not reach libatoll."""
        if not self._handle:
            raise Error("this site is closed", 4)
        return self._handle

    def start(self, step=0):
        """Joins the run. step: that of the checkpoint whose values are in place, or 0, where the values become those that the
        run starts from. Returns the step to continue from."""
        where = ctypes.c_int64(step)
        self._call(_lib.atoll_start, self._open(), ctypes.byref(where))
        self.step = where.value
        return self.step

    @property
    def steps(self):
        """train.steps of the run, as amended so far."""
        return self._last["steps"] if self._last else _lib.atoll_steps(self._open())

    def due(self, step):
        """Does `step`, the current one or the next, need made()?"""
        return bool(_lib.atoll_due(self._open(), step))

    def made(self, step, loss=math.nan, tokens_per_second=math.nan):
        """After a step: sends, waits and merges where the run wants it. Returns the step to continue from."""
        if self.step >= self.steps:
            raise Error(f"the run has ended after train.steps = {self.steps}: train while step < steps", 4)
        where = ctypes.c_int64(step)
        report = _Report(ctypes.sizeof(_Report), loss, tokens_per_second)
        arguments = (self._open(), ctypes.byref(where), ctypes.byref(report))
        try:
            if self.due(step):
                self._call(_lib.atoll_step, *arguments)
            else:
                _check(_lib.atoll_step(*arguments))
        finally:
            self.step = where.value
        return self.step

    def saving(self, step):
        """Before a checkpoint of this step is written."""
        self._call(_lib.atoll_saving, self._open(), step)

    def saved(self, oldest):
        """A checkpoint is on disk; oldest: the step of the oldest one that is kept."""
        self._call(_lib.atoll_saved, self._open(), oldest)

    def outer(self, step):
        """The outer parameters take the place of the trainer's, which the caller puts back."""
        self._call(_lib.atoll_outer, self._open(), step)

    @property
    def status(self):
        if self._last:
            return self._last["status"]
        raw = _Status(size=ctypes.sizeof(_Status))
        _check(_lib.atoll_status(self._open(), ctypes.byref(raw)))
        return Status(**{f.name: getattr(raw, f.name) for f in dataclasses.fields(Status)})

    @property
    def digest(self):
        """SHA-256 of the outer state, hexadecimal: equal at all sites after the same rounds. "" on ranks but the first."""
        if self._last:
            return self._last["digest"]
        text = ctypes.create_string_buffer(65)
        _check(_lib.atoll_digest(self._open(), text))
        return text.value.decode()

    def stop(self):
        """Ends a wait, with Stopped. Any thread."""
        if self._handle:
            _lib.atoll_stop(self._handle)

    def close(self):
        """Leaves the run; digest, status and steps stay. Error with code 6: all steps are done, and some site's last work is in no
        state."""
        if not self._handle:
            return
        last = {"status": self.status, "steps": self.steps, "digest": ""}
        with contextlib.suppress(Error):  # it was not started, or has failed
            last["digest"] = self.digest
        self._last = last
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._call(_lib.atoll_close, handle)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.close()
        except Error:
            if kind is None:
                raise
