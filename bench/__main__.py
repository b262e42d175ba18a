"""``./dev bench``: measures this machine, and says which aims are missed."""

from pathlib import Path
from typing import Annotated

import typer

from bench import command, peers, subjects


def main(
    subject: Annotated[
        list[str] | None, typer.Argument(help="What to measure; all if none is named.", show_default=False)
    ] = None,
    limits: Annotated[
        bool, typer.Option("--limits", help="Beside hand-written SQL and Spark alone, in detail, instead of peers.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything, and no aims: does it run?")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only look whether Lakelog has become much slower.")] = False,
    draw: Annotated[bool, typer.Option("--draw", help="Only write the page and the picture again.")] = False,
    backend: Annotated[list[str] | None, typer.Option(help="With --limits: this database.", show_default=False)] = None,
    output: Annotated[Path, typer.Option(help="For results as JSON, Markdown and SVG.")] = Path("bench/results"),
) -> None:
    """Measure this machine: Lakelog beside DuckLake, Delta, Iceberg and the limit. Exit code 1 if an aim is missed."""
    known = subjects.SUBJECTS if limits else peers.SUBJECTS
    if unknown := [name for name in subject or () if name not in known]:
        _fail_with([f"no such subject: {name}; there are {', '.join(known)}" for name in unknown])
    if draw:
        command.draw(output)
    elif check:
        _fail_with(command.check())
    else:
        chosen = subject or list(known)
        if limits:
            missed = command.against_limits(chosen, backend or (), quick=quick, output=output)
        else:
            missed = command.compare(chosen, quick=quick, output=output)
        if missed:
            raise typer.Exit(1)


def _fail_with(messages: list[str]) -> None:
    for message in messages:
        typer.echo(f"bench: {message}", err=True)
    if messages:
        raise typer.Exit(1)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)

if __name__ == "__main__":
    app(prog_name="./dev bench")
