"""Writes the progress page, the memory in which a rank reports to its ddprun where it is. base/progress/page.h has the layout.

Standard library only. A word is stored whole, as aligned stores of 8 bytes are. Threads take turns by the interpreter's lock.
"""

import ctypes
import fcntl
import itertools
import mmap
import os
import platform
import struct
import threading
from time import monotonic_ns

_VARIABLE = "DDPRUN_PROGRESS_FD"
_GREETING = int.from_bytes(b"ddprPage", "little")
_VERSION = 1

PHASES = ("start", "between phases", "data", "forward", "backward", "optimizer", "checkpoint", "evaluation", "closing", "user")
OTHER = 1
_USER = 9

# The sizes of fields, in words.
_VERSION_AT, _BYTES, _PROCESS, _STEP, _ACTIVITY, _PHASE, _SPENT, _NEXT, _RING = 1, 2, 3, 4, 5, 6, 7, 23, 24
_KINDS, _ENTRIES, _ENTRY_WORDS, _SIGNATURE_WORDS = 16, 1000, 21, 14
_GROUPS = _RING + _ENTRIES * _ENTRY_WORDS
_GROUP_ENTRIES, _GROUP_WORDS, _PATH_WORDS = 32, 12, 8
_NAMES = _GROUPS + _GROUP_ENTRIES * _GROUP_WORDS
_NAME_ENTRIES, _NAME_WORDS = 24, 4
_VALUES = _NAMES + _NAME_ENTRIES * (1 + _NAME_WORDS)
_VALUE_ENTRIES, _VALUE_WORDS = 8, 6
_STACK = _VALUES + _VALUE_ENTRIES * _VALUE_WORDS
_STACK_COUNT = _STACK + 2
_WAITED = _STACK + 67
_ACCOUNT = _WAITED + _KINDS
_NAMED = _ACCOUNT + 3 + 2 * _KINDS
_NAMED_ACCOUNT = _NAMED + 2 * _NAME_ENTRIES
WORDS = _NAMED_ACCOUNT + 2 * _NAME_ENTRIES

_OPEN = 1 << 63
_MESSAGE = 1 << 32
_SINCE = (1 << 48) - 1
# In the count of a stack's frames: the writer is in Python, and leaves no stacks here.
_IS_PYTHON = (1 << 64) - 1

_store_entry = struct.Struct("6Q").pack_into
_lock = threading.Lock()


def _order_by_lock():
    """Stores before it are seen before stores after it: those before cannot pass the first release, those after not the second acquire."""
    _lock.acquire()
    _lock.release()
    _lock.acquire()
    _lock.release()


def _no_order():
    """x86 keeps the order of stores."""


order = _no_order if platform.machine() in ("x86_64", "AMD64") else _order_by_lock


def clock():
    """Microseconds of CLOCK_MONOTONIC."""
    return monotonic_ns() // 1000


def _padded(text, words):
    """The text in as many whole words as it takes, with at least one zero after it; cut off where there is no more room."""
    data = text.encode("utf-8", "replace")[: 8 * words - 1]
    return data + bytes(8 - len(data) % 8)


def prepared_signature(text):
    """The form in which PageWriter.begin() needs the text of a collective. It is made once for each text."""
    data = memoryview(_padded(text, _SIGNATURE_WORDS)).cast("Q")
    is_cut = len(text) >= 8 * _SIGNATURE_WORDS
    return len(text), _hash(text.encode()) if is_cut else 0, data, len(data)


def _hash(data):
    """FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def _map():
    """The launcher's memory if this process must write it, else None."""
    try:
        descriptor = int(os.environ.get(_VARIABLE, ""))
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        if not seals & fcntl.F_SEAL_SHRINK or os.fstat(descriptor).st_size < 8 * WORDS:
            return None
        memory = mmap.mmap(descriptor, 8 * WORDS)
    except (ValueError, OSError, OverflowError):
        return None
    words = memoryview(memory).cast("Q")
    owner = words[_PROCESS]
    if words[0] != _GREETING or (owner != 0 and _is_alive(owner)):
        return None
    words[_PROCESS] = os.getpid()
    if owner != 0:  # what the program before this one has left, in a rank that is a script
        words[_VERSION_AT] = 0
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory, 8 * _STEP)), 0, 8 * (WORDS - _STEP))
    fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    return words


def _is_alive(process):
    try:
        os.kill(process, 0)
    except OverflowError:
        return False
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


class PageWriter:
    """The page of this process. What a process forks writes into memory of its own instead, as it is not the rank."""

    def __init__(self, words):
        self._words = words
        self._names, self._values = {}, {}
        self._groups = itertools.count()
        self._count = itertools.count()
        self._totals_time = 0
        now = clock()
        words[_BYTES] = 8 * WORDS
        words[_ACTIVITY] = now
        words[_PHASE] = now & _SINCE
        words[_STACK_COUNT] = _IS_PYTHON
        order()
        words[_VERSION_AT] = _VERSION
        os.register_at_fork(after_in_child=self._become_private)

    def _become_private(self):
        self._words = memoryview(bytearray(8 * WORDS)).cast("Q")

    def enter(self, name):
        """Enters a phase, one of PHASES or of the program's own; returns what was there, for restore()."""
        kind = _KIND_OF.get(name)
        if kind is not None:
            return self._change(kind << 8)
        number = self._names.get(name)
        if number is None:
            number = self._add_name(name)
        return self._change(_USER << 8 | number)

    def _add_name(self, name):
        if len(self._names) >= _NAME_ENTRIES:
            return 0
        number = self._names[name] = len(self._names) + 1
        at = _NAMES + (number - 1) * (1 + _NAME_WORDS)
        self._store(at + 1, _padded(name, _NAME_WORDS))
        order()
        self._words[at] = 1
        return number

    def restore(self, phase):
        self._change(phase)

    def _change(self, phase):
        words = self._words
        now = monotonic_ns() // 1000
        before = words[_PHASE]
        words[_PHASE] = phase << 48 | now & _SINCE
        took = now - (before & _SINCE)
        if took > 0:
            kind = before >> 56
            words[_SPENT + kind % _KINDS] += took
            if kind == _USER:
                named = self._named(before)
                if named is not None:
                    words[_NAMED + named] += took
        words[_ACTIVITY] = now
        return before >> 48

    @staticmethod
    def _named(phase):
        """The index of a phase of the program's own that has a name."""
        number = phase >> 48 & 0xFF
        return number - 1 if phase >> 56 == _USER and 0 < number <= _NAME_ENTRIES else None

    def finish_step(self):
        words = self._words
        now = clock()
        steps = words[_STEP] + 1
        words[_STEP] = steps
        words[_ACTIVITY] = now
        # The totals are written every 4 ms at most: that costs less.
        if now - self._totals_time >= 4000:
            self._totals_time = now
            self._write_step_totals(steps, now)

    def _write_step_totals(self, steps, now):
        words = self._words
        phase = words[_PHASE]
        took = max(0, now - (phase & _SINCE))
        sequence = words[_ACCOUNT] | 1
        words[_ACCOUNT] = sequence
        order()
        words[_ACCOUNT + 1] = steps
        words[_ACCOUNT + 2] = now
        spent, waited = _ACCOUNT + 3, _ACCOUNT + 3 + _KINDS
        words[spent : spent + _KINDS] = words[_SPENT : _SPENT + _KINDS]
        words[spent + (phase >> 56) % _KINDS] += took
        words[waited : waited + _KINDS] = words[_WAITED : _WAITED + _KINDS]
        words[_NAMED_ACCOUNT : _NAMED_ACCOUNT + 2 * _NAME_ENTRIES] = words[_NAMED : _NAMED + 2 * _NAME_ENTRIES]
        named = self._named(phase)
        if named is not None:
            words[_NAMED_ACCOUNT + named] += took
        order()
        words[_ACCOUNT] = sequence + 1

    def add_wait(self, microseconds):
        """The rank has waited for others in the phase that it is in."""
        words = self._words
        phase = words[_PHASE]
        words[_WAITED + (phase >> 56) % _KINDS] += microseconds
        named = self._named(phase)
        if named is not None:
            words[_NAMED + _NAME_ENTRIES + named] += microseconds

    def value(self, name, number):
        at = self._values.get(name)
        is_new = at is None
        if is_new:
            if len(self._values) >= _VALUE_ENTRIES:
                return
            at = self._values[name] = _VALUES + len(self._values) * _VALUE_WORDS
            self._store(at + 2, _padded(name, _NAME_WORDS))
        self._words[at + 1] = struct.unpack("Q", struct.pack("d", number))[0]
        if is_new:
            order()
            self._words[at] = 1

    def group(self, path, rank, size, leader):
        """The index of a new process group, which is named by its path and by the rank in the job of its rank 0. Those beyond the 32nd share one."""
        index = next(self._groups)
        if index >= _GROUP_ENTRIES:
            return _GROUP_ENTRIES - 1
        at = _GROUPS + index * _GROUP_WORDS
        self._words[at + 1 : at + 4] = memoryview(struct.pack("3Q", size, rank, leader)).cast("Q")
        self._store(at + 4, _padded(path, _PATH_WORDS))
        order()
        self._words[at] = 1
        return index

    def begin(self, group, number, signature, is_message=False):
        """A collective, or a message between two ranks, begins; returns what finish() and reopen() want. `signature` is prepared_signature()'s."""
        words = self._words
        index = next(self._count)
        at = _RING + index % _ENTRIES * _ENTRY_WORDS
        length, whole_hash, data, size = signature
        now = monotonic_ns() // 1000
        words[at] = 2 * index + 1
        order()
        words[_NEXT] = index + 1
        _store_entry(words, 8 * at + 8, number, now, _OPEN | index, group | _MESSAGE if is_message else group, whole_hash, length)
        words[at + 7 : at + 7 + size] = data
        order()
        words[at] = 2 * index + 2
        words[_ACTIVITY] = now
        return index

    def finish(self, index, waited=True):
        """Without effect when a thousand others have begun since. `waited`: the rank did nothing else meanwhile."""
        words = self._words
        at = _RING + index % _ENTRIES * _ENTRY_WORDS
        now = monotonic_ns() // 1000
        if words[at + 3] == _OPEN | index:
            words[at + 3] = now
            if waited:
                self.add_wait(max(0, now - words[at + 2]))
        words[_ACTIVITY] = now

    def reopen(self, index):
        """The rank now waits for a collective that has begun before."""
        words = self._words
        at = _RING + index % _ENTRIES * _ENTRY_WORDS
        if words[at] == 2 * index + 2:
            words[at + 2] = clock()
            order()
            words[at + 3] = _OPEN | index

    def _store(self, at, data):
        self._words[at : at + len(data) // 8] = memoryview(data).cast("Q")


_KIND_OF = {name: kind for kind, name in enumerate(PHASES) if kind not in (0, _USER)}


def open_page():
    """The page of this process, or None where no ddprun has given it one, or another process writes it."""
    words = _map()
    return PageWriter(words) if words is not None else None
