"""The command line: a verb a stage, ``new``, ``run``, ``status``, ``options``, tool groups.

Only this package prints, and only this module exits. Data goes to stdout, progress and notices to
stderr; an error is one line. Nothing heavy is imported before a command needs it.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import groupby
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hgld import __version__
from hgld.cli import commands, evaluations, labels, reviews, shards, supercategories
from hgld.cli.arguments import require_names
from hgld.cli.output import open_streams, print_wrapped
from hgld.cli.stage_commands import add_stage_commands
from hgld.errors import DISK_FULL, HgldError, Resumable, shortage
from hgld.stopping import handle_with, ignore_requests

__all__ = ["app", "guarded", "main"]

INTERRUPTED = 130
REPEATED_S = 0.05  # until a request to stop that was dropped is sent again


class CommandsHelp(TyperGroup):
    """The help of ``hgld``: its commands below the headings of their panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a list of commands for each heading."""
        listed: list[Any] = [*self.commands.values()]
        width = max(len(command.name) for command in listed)
        for panel, part in groupby(listed, key=lambda command: command.rich_help_panel):
            with formatter.section(panel):
                formatter.write_dl([(f"{c.name:<{width}}", c.get_short_help_str(80)) for c in part])


app = typer.Typer(
    name="hgld",
    cls=CommandsHelp,
    help="Hierarchical image retrieval data, and its exact measurement.\n\n"
    "Try: hgld run pipelines/quickstart.toml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def show_version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version if it is asked for; else check the current folder and the arguments."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
    require_names(sys.argv[1:])


for _command in (commands.new, commands.run, commands.status, commands.accept):
    app.command(rich_help_panel="Whole pipelines")(_command)
add_stage_commands(app, "Stages, in order")
for _tool in (commands.options, commands.doctor):
    app.command(rich_help_panel="Tools")(_tool)
for _group in (evaluations.app, labels.app, reviews.app, shards.app, supercategories.app):
    app.add_typer(_group, rich_help_panel="Tools")


def main() -> None:
    """Entry point: run a command; an error is one line on stderr and an exit code."""
    open_streams()
    handle_with(_stop, (signal.SIGTERM, signal.SIGHUP))
    sys.unraisablehook = _repeat_dropped
    code = guarded(app)
    ignore_requests()  # as Python ends, any other handler is undone
    # Python takes threads as ended whose join a stop request interrupted. Before Python 3.13 it
    # would end beneath them: they abort the process, or leak semaphores.
    while any(not (one.daemon or one.is_alive()) for one in threading.enumerate()):
        time.sleep(0.02)
    # All that Python does as it ends but for its search of all objects for garbage: with torch it
    # takes 1.4 s, and if they are frozen before, DuckDB reports each of its own as leaked.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(guarded(_flush) or code)


class _Stopped(SystemExit):
    """SIGTERM or SIGHUP came. Not an Exception, which a library might catch and ignore."""

    code = Resumable.exit_code


def _stop(number: int, _: object) -> None:
    raise _Stopped(f"stopped by {signal.Signals(number).name}")


def _repeat_dropped(found: "sys.UnraisableHookArgs") -> None:
    """Repeat a request to stop that came within a callback or finalizer, where Python drops it."""
    if not isinstance(found.exc_value, _Stopped | KeyboardInterrupt):
        sys.__unraisablehook__(found)
        return
    number = signal.SIGTERM if isinstance(found.exc_value, _Stopped) else signal.SIGINT
    again = threading.Timer(REPEATED_S, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _flush() -> None:
    """Flush stdout; if its reader has gone (``| head -1``), end silently."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)  # as Typer and rich do


def guarded(command: Callable[[], object]) -> int:
    """Run a command and return its exit code; an error is printed in one line."""
    try:
        command()
    except HgldError as error:
        print_wrapped(f"hgld: {error}", 6, err=True)
        return error.exit_code
    except (OSError, MemoryError, ImportError, RuntimeError) as error:
        if lack := shortage(error):
            what = f"{lack} and run the same command again"
        elif isinstance(error, OSError):
            what = error.strerror or str(error)
        else:
            raise
        where = None
        if isinstance(error, OSError):  # a copy has two names; the disk of the second one is full
            where = (error.errno in DISK_FULL and error.filename2) or error.filename
        typer.echo(f"hgld: {where}: {what}" if where else f"hgld: {what}", err=True)
        return Resumable.exit_code if lack else 1
    except _Stopped as stop:
        typer.echo(f"hgld: {stop}; the same command goes on from here", err=True)
        return Resumable.exit_code
    except SystemExit as done:  # how Typer ends
        if done.code == INTERRUPTED:
            typer.echo("hgld: interrupted; the same command goes on from here", err=True)
        return done.code if isinstance(done.code, int) else 0
    return 0
