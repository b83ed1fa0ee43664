"""One module for each command; each has a `command` (a click command). The table of them is in multimirror.cli.main."""
