"""Tool groups of the command line: one module a group, each a Typer app that ``hgld.cli`` adds."""
