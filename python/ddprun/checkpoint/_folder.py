"""The checkpoint folders of ddprun's CheckpointManager on disk: found, opened, and committed whole or not at all.

Needs torch alone. What is in the files is ddprun.checkpoint's.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import secrets
import shutil
import socket

from ._headers import content_of_lost, tensors_between
from ._manifest import (
    BLOCK, MANIFEST, STEP, DamagedCheckpoint, check_blocks, crc32c, crc32c_blocks, file_bytes, format_manifest, open_regular, parse_manifest,
    read_blocks, read_manifest, refuse_unread, regular_bytes,
)  # fmt: skip
from ._shards import BLOCKS, owner

_REPLACED = re.compile(r"(step-\d{8,})\.old-[0-9a-f]+$")
_TEMPORARY = re.compile(r"(step-\d{8,}|latest)\.tmp-")

# Not the checkpoint, but something else is in the place of its manifest. With other errors the manifest may be whole.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EINVAL)
# More saves than a run makes. A manifest that cannot be read now may have a number above all others.
_UNREAD_SEQUENCES = 1_000_000


@contextlib.contextmanager
def opened(folder: pathlib.Path, verify=True, files=None):
    """The manifest of a checkpoint's folder as a dict, and the paths of its files by name: within the block they can be read though
    a writer removes the folder meanwhile. With `verify` every byte is compared with its checksum. `files` are some of the manifest's."""
    manifest = read_manifest(folder)
    files = manifest["files"] if files is None else files
    with contextlib.ExitStack() as stack:
        paths = {}
        for name, (size, _) in files.items():
            try:
                descriptor = open_regular(folder / name)
            except FileNotFoundError:
                raise DamagedCheckpoint(f"{folder / name}{owner(name)} is missing; it holds {content_of_lost(folder, manifest['files'], name)}") from None
            except OSError as error:
                held = content_of_lost(folder, manifest["files"], name)
                refuse_unread(error, f"{folder / name}{owner(name)} cannot be read: {error.strerror}; it holds {held}")
            stack.callback(os.close, descriptor)
            found = os.fstat(descriptor).st_size
            if found != size:
                lost = tensors_between(folder / name, found, size, size)
                lost = f"lacks {lost}" if lost else f"held {content_of_lost(folder, manifest['files'], name)}"
                raise DamagedCheckpoint(f"{folder / name}{owner(name)} has {found} bytes, but the manifest says {size}; it {lost}")
            held = pathlib.Path(f"/proc/self/fd/{descriptor}")
            paths[name] = held if held.exists() else folder / name
        for name, (_, crc) in files.items():
            if verify and crc32c(file_bytes(paths[name])) != crc:
                text = _damaged_tensors(paths, manifest["files"], name) or f"; the file holds {content_of_lost(folder, manifest['files'], name)}"
                raise DamagedCheckpoint(f"{folder / name}{owner(name)} is damaged: its checksum differs from the manifest's{text}")
        if verify and BLOCKS in files:
            try:
                check_blocks(paths[BLOCKS], manifest["files"])
            except ValueError as error:
                raise DamagedCheckpoint(f"{folder} is damaged: {BLOCKS} {error}") from error
        try:
            yield manifest, paths
        except DamagedCheckpoint as error:
            if str(folder) in str(error):
                raise
            raise DamagedCheckpoint(f"{folder}: {error}") from error


def _damaged_tensors(paths, files, name):
    """"; the first damaged bytes hold 'fc.weight'", where the checkpoint has checksums of the file's blocks."""
    try:
        expected = read_blocks(paths[BLOCKS], files)[name]
        found = crc32c_blocks(file_bytes(paths[name]))
        block = next(number for number, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1])
    except (OSError, ValueError, KeyError, StopIteration):
        return ""
    tensors = tensors_between(paths[name], block * BLOCK, (block + 1) * BLOCK, paths[name].stat().st_size)
    return tensors and f"; the first damaged bytes hold {tensors}"


def is_checkpoint(folder):
    """Whether it is the folder of one checkpoint, by its name or its manifest, however damaged."""
    return STEP.match(folder.name) is not None or os.path.lexists(folder / MANIFEST)


def _identity(folder):
    with contextlib.suppress(OSError):
        status = folder.stat()
        return status.st_dev, status.st_ino, status.st_ctime_ns
    return None


def _numbered(run):
    """The folders of a run's checkpoints, each with the number of its save, or why that cannot be read, and its step. One that is
    being replaced counts under the name that it was moved to while its place is empty, as in C++."""
    for path in run.iterdir():
        match = STEP.match(path.name)
        if not match and (replaced := _REPLACED.match(path.name)) and not os.path.lexists(run / replaced[1]):
            match = STEP.match(replaced[1])
        if not match:
            continue
        try:
            sequence = parse_manifest(path).get("sequence", 0)
        except DamagedCheckpoint as error:
            sequence = error
        yield sequence, int(match[1]), path


def steps(run: pathlib.Path):
    """The folders of a run's checkpoints, the one that was saved last first, whether they are whole or not. Those without a readable
    manifest, of which the number is unknown, are in front, so that none is overlooked."""
    found = [(2**63 if isinstance(sequence, DamagedCheckpoint) else sequence, step, path) for sequence, step, path in _numbered(run)
             if not isinstance(sequence, DamagedCheckpoint) or os.path.lexists(path)]  # fmt: skip
    return [path for _, _, path in sorted(found, reverse=True)]


def _last_sequence(run):
    """An upper bound of the numbers of the saves in a run; 0 without any."""
    last, is_complete = 0, True
    for sequence, _, _ in _numbered(run):
        if not isinstance(sequence, DamagedCheckpoint):
            last = max(last, sequence)
        elif isinstance(sequence.__cause__, OSError) and sequence.__cause__.errno not in _NOT_THERE:
            is_complete = False
    return last if is_complete or last >= 2**63 - 1 - _UNREAD_SEQUENCES else last + _UNREAD_SEQUENCES


def listing(run: pathlib.Path):
    """The steps() of a run, each with a value that distinguishes it from a later one of the same name."""
    return [(folder, _identity(folder)) for folder in steps(run)]


# -- Committing -------------------------------------------------------------------------------------------------------


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def naming(path):
    """Adds the path to errors that name no file, as those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _remove_leftovers(run):
    """Removes the temporary folders that killed saves have left, as far as possible."""
    for path in run.iterdir():
        with contextlib.suppress(OSError):
            if _TEMPORARY.match(path.name):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            elif replaced := _REPLACED.match(path.name):
                target = run / replaced[1]
                if target.exists():
                    shutil.rmtree(path)
                elif not target.is_symlink():
                    path.rename(target)


@contextlib.contextmanager
def _only_writer(run):
    """Holds the lock of a run's folder, as a C++ writer does."""
    path = run / "writer.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 400).decode("ascii", "replace").strip() or "another process"
            raise RuntimeError(f"{run} is already in use for saving by {holder}; end that, or save into another folder") from None
        except OSError:
            pass  # a file system without locks
        else:
            os.ftruncate(descriptor, 0)
            with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}, Python\n".encode())
            _remove_leftovers(run)
        yield
    finally:
        os.close(descriptor)


def commit(run: pathlib.Path, step, world_size, metrics, write_files):
    """Writes the checkpoint of `step` into the folder of a run: `write_files(folder)` writes its files. Returns its folder. Raises as
    staged() does."""
    with staged(run, step) as new, naming(new.folder):
        write_files(new.folder)
        return new.commit(world_size, metrics)


@contextlib.contextmanager
def staged(run: pathlib.Path, step):
    """A new checkpoint of `step` in the folder of a run: files are written into its `folder`, and commit() makes it appear whole, in
    place of an earlier one of the same step; without that nothing remains. Raises RuntimeError when somebody else saves into that run."""
    if step < 0:
        raise ValueError(f"a checkpoint's step must not be negative, but is {step}")
    run.mkdir(parents=True, exist_ok=True)
    with _only_writer(run):
        new = _Staged(run, step)
        try:
            yield new
        finally:
            shutil.rmtree(new.folder, ignore_errors=True)


class _Staged:
    def __init__(self, run, step):
        self._run, self._step, self._suffix = run, step, secrets.token_hex(8)
        self._target = run / f"step-{step:08d}"
        self.folder = run / f"{self._target.name}.tmp-{self._suffix}"
        self.folder.mkdir()

    def commit(self, world_size, metrics, known=()):
        """Renames the folder and returns its path. `known` are size and checksum of files that are on the disk already, by name."""
        files = dict(known)
        for path in sorted(self.folder.iterdir()):
            if path.name not in files:
                files[path.name] = (path.stat().st_size, crc32c(file_bytes(path)))
                sync(path)
        text = format_manifest(self._step, 1 + _last_sequence(self._run), world_size, metrics, files)
        (self.folder / MANIFEST).write_text(text)
        sync(self.folder / MANIFEST)
        sync(self.folder)
        replaced = self._run / f"{self._target.name}.old-{self._suffix}"
        if self._target.exists():
            self._target.rename(replaced)
        self.folder.rename(self._target)
        sync(self._run)
        hint = self._run / f"latest.tmp-{self._suffix}"
        hint.write_text(self._target.name + "\n")
        hint.rename(self._run / "latest")
        shutil.rmtree(replaced, ignore_errors=True)
        return self._target
