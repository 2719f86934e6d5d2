"""Disks that become full, and disks that fail: real ones, to the processes that write to them.

A full disk is a small file system of its own (tmpfs) whose size is set to what it holds. It is mounted where only the
soak and its processes see it, in a mount namespace, which ends with the last of them: root may make one, and so may
other users on systems that let them. A disk fails, for one process, when the system refuses every write of it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import threading
from pathlib import Path

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000  # of unshare(2)
_REMOUNT, _RECURSIVE, _PRIVATE = 0x20, 0x4000, 0x40000  # of mount(2)
_DETACH = 2  # of umount2(2)
ROOM_BYTES = 16 << 30  # while it is not full; only what is used takes memory
FILL_ATTEMPTS = 100  # somebody may write between two calls

_libc = ctypes.CDLL(None, use_errno=True)


class NotHere(Exception):
    """Why this system does not let us mount anything."""


def enter_namespace() -> None:
    """See mounts of our own from now on, with all that we start. NotHere: this is not allowed here."""
    if threading.active_count() > 1:
        raise NotHere("The program has other threads already.")
    user, group = os.getuid(), os.getgid()
    try:
        if user == 0:
            _call(_libc.unshare, _NEW_MOUNTS)
        else:
            _call(_libc.unshare, _NEW_MOUNTS | _NEW_USERS)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        _call(_libc.mount, b"none", b"/", None, _RECURSIVE | _PRIVATE, None)
    except OSError as error:
        raise NotHere(f"A mount namespace cannot be made: {error.strerror}.") from None


class SmallDisk:
    """A folder that is a file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._mount(0, ROOM_BYTES)
        except OSError as error:
            raise NotHere(f"A file system cannot be mounted: {error.strerror}.") from None

    def fill(self) -> None:
        """Leave no room beyond what is in use."""
        for _ in range(FILL_ATTEMPTS):
            now = os.statvfs(self.folder)
            try:
                self._mount(_REMOUNT, max(1, now.f_blocks - now.f_bfree) * now.f_frsize)
                return
            except OSError:
                continue
        raise RuntimeError(f"{self.folder} could not be filled: it grows all the time.")

    def free(self) -> None:
        self._mount(_REMOUNT, ROOM_BYTES)

    def drop(self) -> None:
        """Leave an empty folder."""
        _call(_libc.umount2, os.fsencode(self.folder), _DETACH)

    def keep(self) -> None:
        """Leave what is on it in an ordinary folder."""
        aside = self.folder.with_name(f"{self.folder.name}.kept")
        shutil.copytree(self.folder, aside)
        self.drop()
        self.folder.rmdir()
        aside.rename(self.folder)

    def _mount(self, flags: int, size: int) -> None:
        _call(_libc.mount, b"antiphon-soak", os.fsencode(self.folder), b"tmpfs", flags, b"size=%d" % size)


def fail_writes(pid: int) -> None:
    """Let every write of a running process to any file fail from now on."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def _call(function, *arguments: object) -> None:  # type: ignore[no-untyped-def]
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
