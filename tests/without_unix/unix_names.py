"""What Windows lacks of Python's own modules, as far as headway could meet it."""

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
SIGNALS = (
    "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGUSR1",
    "SIGUSR2", "alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "siginterrupt", "sigwait",
)  # fmt: skip
SYSTEM = (
    "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "O_TMPFILE", "chown", "chroot",
    "fchmod", "fchown", "fork", "forkpty", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp",
    "getpriority", "getresuid", "getsid", "getuid", "killpg", "lchown", "mkfifo", "mknod", "nice", "openpty",
    "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "pwritev",
    "readv", "sched_getaffinity", "sched_setaffinity", "sendfile", "setgid", "setpgid", "setpriority", "setsid",
    "setuid", "statvfs", "sysconf", "tcgetpgrp", "ttyname", "uname", "wait", "wait3", "wait4", "waitid", "writev",
)  # fmt: skip
