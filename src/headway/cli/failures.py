"""The end of a command that fails: one message on standard error, and an exit code."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

from headway.errors import HeadwayError, RunError, UserError, is_out_of_memory, printable


@contextmanager
def failures_told(spell: Callable[[str], str]) -> Iterator[None]:
    """Within this context a mistake of the user's ends the process with 2, and work that failed with 1.

    Besides the errors that headway raises on purpose, the latter are files that cannot be read or written, and memory
    that is not there. Whatever else is raised is a mistake of ours, and keeps its traceback.

    Args:
        spell: writes an option, given by its key, as the command line has it.
    """
    try:
        if sys.stdout is None:
            raise UserError("standard output is closed", allowed="a file, a pipe, a terminal or /dev/null")
        try:
            yield
        except typer.Exit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except HeadwayError as error:
        _fail(error.spelled(spell), error.exit_code)
    except TyperException as error:  # a wrong command line
        context = getattr(error, "ctx", None)
        help_page = "" if context is None else f"; {_place_of(error, context)}"
        _fail(f"{error.format_message().rstrip('.')}{help_page}", error.exit_code)
    except OSError as error:
        if error.errno == errno.EPIPE:  # who reads has had enough, and typer ends in silence
            raise
        _forget_output()
        file = "a file or a pipe " if error.filename is None else f"{error.filename}: "
        _fail(f"{file}cannot be read or written ({error.strerror or error})", RunError.exit_code)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _fail(f"out of memory ({str(error).strip() or 'there is no more'})", RunError.exit_code)


@contextmanager
def interruption_kept() -> Iterator[None]:
    """Within this context an error that Ctrl-C has caused ends the process in silence with 130, as Ctrl-C itself does.

    Libraries that are not written in Python may turn what a signal raises into errors of their own: pydantic does while
    it builds a class. Where SIGINT is handled otherwise, or ignored, it stays so.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupted = False

    def note(number: int, frame: Any) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception:
        if interrupted:
            sys.exit(128 + signal.SIGINT)
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _place_of(error: TyperException, context: Any) -> str:
    """Where an unknown option belongs, if it is one of all commands; else which page says what there is."""
    name, root = getattr(error, "option_name", None), context.find_root()
    if any(name in parameter.opts for parameter in root.command.params):
        return f"it stands before the command: {root.info_name} {name} ..."
    return f"see {context.command_path} --help"


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(printable(f"error: {message}"), err=True)
    raise typer.Exit(code) from None


def _forget_output() -> None:
    """Drop what could not be written to standard output, so that the end of the process does not try it again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
