"""Restricts the system calls of a reader process, by seccomp, a mechanism of Linux (libseccomp and pyseccomp).

A refused call returns an error and does not kill the process, because libraries try some of these calls and manage
without them. The filter lists the calls to refuse, not the calls to allow: those that a reader needs change with the C
library, Python and ONNX Runtime, and with a list of allowed calls a harmless model would fail after an update of one of
these.
"""

import errno
import os
import sys
from dataclasses import dataclass
from typing import Any

from costmodel.errors import MissingExtraError
from costmodel.serving.isolation.files import UnavailableError

__all__ = ["REFUSED", "Filter", "UnavailableError", "prepared"]

REFUSED = (
    # Sockets of any kind: without a socket a process can neither connect nor send.
    "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4",
    # New processes and programs; `prepared` allows threads.
    "fork", "vfork", "execve", "execveat",
    # Access to other processes.
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_open",
    "pidfd_getfd", "pidfd_send_signal", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "setpgid", "setsid",
    "setpriority", "ioprio_set", "migrate_pages", "move_pages",
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
    # Ways around the filter, or into rarely used parts of the kernel.
    "io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "userfaultfd", "perf_event_open", "seccomp",
    "memfd_create", "memfd_secret", "keyctl", "add_key", "request_key", "personality", "modify_ldt", "iopl", "ioperm",
    "fanotify_init", "inotify_init", "inotify_init1", "name_to_handle_at", "open_by_handle_at", "vmsplice",
    # The system itself.
    "mount", "umount", "umount2", "pivot_root", "chroot", "unshare", "setns", "move_mount", "open_tree", "fsopen",
    "fsconfig", "fsmount", "fspick", "mount_setattr", "swapon", "swapoff", "reboot", "kexec_load", "kexec_file_load",
    "init_module", "finit_module", "delete_module", "acct", "quotactl", "quotactl_fd", "syslog", "sethostname",
    "setdomainname", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "nfsservctl", "vhangup",
    # Not covered by Landlock: permissions, owners and times of files, and links to files.
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "setxattr", "lsetxattr",
    "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "utime", "utimes", "utimensat", "futimesat",
    "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat",
)  # fmt: skip

_CLONE_THREAD = 0x0001_0000
_NAMESPACES = (0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000)
_PR_SET_PDEATHSIG = 1
_TIOCSTI = 0x5412  # injects input into the terminal that a service may have been started from
_LOW_HALF = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Filter:
    """A seccomp filter that is ready to be applied, even by a process that may open no files any more.

    Attributes:
        unknown: Names of the system calls that the installed libseccomp does not know and the filter therefore does not
            refuse.
    """

    unknown: tuple[str, ...]
    _rules: Any

    def load(self) -> None:
        """Applies the filter to this process and all its threads.

        Raises:
            UnavailableError: The kernel does not accept seccomp filters.
        """
        try:
            self._rules.load()
        except OSError as error:
            raise UnavailableError(f"this kernel takes no filter ({error.strerror})") from error


def prepared() -> Filter:
    """Returns the filter of dangerous system calls for this process, which is not applied yet.

    Raises:
        UnavailableError: The platform has no seccomp, or pyseccomp or libseccomp is missing or fails.
    """
    if sys.platform != "linux":
        raise UnavailableError(f"{sys.platform} has no seccomp")
    try:
        import pyseccomp
    except ImportError as error:
        raise UnavailableError(f"pyseccomp is not installed, {MissingExtraError.installation_of('serve')}") from error
    except RuntimeError as error:
        raise UnavailableError("libseccomp is not installed, install the system's package of it") from error
    refuse = pyseccomp.ERRNO(errno.EPERM)
    unknown = []
    try:
        rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
        for name in REFUSED:
            try:
                rules.add_rule(refuse, name)
            except OSError:
                unknown.append(name)
        # The arguments of clone3 are in memory, which a filter cannot inspect; after ENOSYS the C library uses clone.
        rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
        rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_THREAD, 0))
        for flag in _NAMESPACES:
            rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
        # A library that aborts sends a signal to its own process, which stays allowed.
        for name in ("kill", "tgkill"):
            rules.add_rule(refuse, name, pyseccomp.Arg(0, pyseccomp.NE, os.getpid()))
        rules.add_rule(refuse, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, 0))
        rules.add_rule(refuse, "prctl", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _LOW_HALF, _PR_SET_PDEATHSIG))
        rules.add_rule(refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, _LOW_HALF, _TIOCSTI))
        rules.set_attr(pyseccomp.Attr.CTL_TSYNC, 1)
    except OSError as error:
        raise UnavailableError(f"libseccomp does not make a filter here ({error.strerror})") from error
    return Filter(tuple(unknown), rules)
