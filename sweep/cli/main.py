"""The console script: finds the command, and turns errors into messages and exit codes.

Exit codes, the same for every command (docs/exit-codes.md):
0 done · 1 done, but something could not be measured or is invalid · 2 usage or catalog error ·
3 the environment cannot sweep · 4 a --fail-on condition was met · 130 interrupted
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from sweep import __version__
from sweep.errors import SweepError
from sweep.logs import JsonLines
from sweep.secrets import RedactingFormatter, redact

COMMANDS: dict[str, str] = {
    # In the order of the help. A command's module imports its work only when it is called.
    "setup": "sweep.cli.setup:setup_command",
    "doctor": "sweep.cli.doctor:doctor_command",
    "run": "sweep.cli.run:run_command",
    "status": "sweep.cli.status:status_command",
    "model": "sweep.cli.model:model_command",
    "triage": "sweep.cli.triage:triage_command",
    "evaluate": "sweep.cli.evaluate:evaluate_command",
    "worker": "sweep.cli.worker:worker_command",
    "inspect": "sweep.cli.inspect:inspect_command",
    "catalog": "sweep.cli.catalog:catalog_app",
    "validate": "sweep.cli.validate:validate_command",
    "releases": "sweep.cli.releases:releases_command",
    "release-sweep": "sweep.cli.release_sweep:release_sweep_command",
    "merge": "sweep.cli.merge:merge_command",
    "diff": "sweep.cli.diff:diff_command",
    "report": "sweep.cli.report:report_command",
    "card": "sweep.cli.card:card_command",
    "site": "sweep.cli.site:site_command",
    "serve": "sweep.cli.serve:serve_command",
    "export": "sweep.cli.export:export_command",
    "import": "sweep.cli.import_:import_command",
}
"""Name of each command → where its function (or its Typer app of subcommands) is defined."""

INTERRUPTED = 130

CONTEXT = {"help_option_names": ["-h", "--help"]}


class LazyCommands(TyperGroup):
    """The commands of the table; only the one that is called is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False, context_settings=CONTEXT)
            found.command(cmd_name)(function)
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="litertjs-sweep",
    cls=LazyCommands,
    help="Measure whether .tflite models load, run, delegate and give the right numbers in "
    "browsers through LiteRT.js.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)

log = logging.getLogger("sweep")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"litertjs-sweep {__version__}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on stderr what is being done.")
    ] = False,
    log_file: Annotated[
        Path | None,
        typer.Option(help="Append a detailed log to this file, one JSON object per line."),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options that go before the command."""
    log.setLevel(logging.DEBUG)
    screen = logging.StreamHandler()
    screen.setLevel(logging.DEBUG if verbose else logging.WARNING)
    screen.setFormatter(RedactingFormatter("%(message)s"))
    log.addHandler(screen)
    if log_file is not None:
        try:
            file = logging.FileHandler(log_file, encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--log-file") from error
        file.setFormatter(JsonLines())
        log.addHandler(file)


def main() -> None:
    """Entry point of the console script. Never shows a traceback, unless asked to."""
    stderr = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        app()
    except SweepError as error:
        log.debug("", exc_info=error)
        stderr.print(f"[bold red]error:[/] {escape(redact(str(error)))}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, asyncio.CancelledError):
        stderr.print("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as error:  # the last line of defence
        log.debug("", exc_info=error)
        # A bare assertion has no words of its own.
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        stderr.print(
            f"[bold red]internal error:[/] {escape(redact(words))}\n"
            "This is a bug in litertjs-sweep: please report it, with the output of the same "
            "command after `litertjs-sweep --verbose`."
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
