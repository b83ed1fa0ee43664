"""The command lines: every command with every flag, its name in the environment and its default; the exit codes."""

import argparse
import ast
import inspect
from collections.abc import Iterator
from typing import Final

import click

from builtin_controller.flags import parser as builtin_parser
from docs.generator.markdown import code, table
from multimirror.cli import errors, extensions
from multimirror.cli.main import cli

_OPENING: Final = """# Commands

For whoever runs `multimirror`, by hand or in scripts. `multimirror COMMAND --help` says the same, shorter.
"""
_ADDED: Final = "Comes with the fleets: `pip install 'multimirror[fleets]'`.\n"
_BUILTIN_OPENING: Final = """# Flags of builtin-controller

For whoever runs the Job controller as a process. What it does, and when to use it:
[builtin-controller](../builtin-controller.md).
"""


def page() -> str:
    """All commands of `multimirror`."""
    root = click.Context(cli, info_name="multimirror", **cli.context_settings)
    commands = list(_walk(cli, root))
    parts = [_OPENING, "## Exit codes\n", _exit_codes()]
    added = extensions.added()
    for command, context in commands:
        parts += [_section(command, context)]
        if context.parent is root and context.info_name in added:
            parts += [_ADDED]
    return "\n".join(parts)


def _walk(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context, **command.context_settings)
        yield command, inner
        if isinstance(command, click.Group):
            yield from _walk(command, inner)


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## {context.command_path}\n", f"```\n{context.command_path} {usage}\n```\n", _plain(command.help) + "\n"]
    options = [p for p in command.get_params(context) if isinstance(p, click.Option) and not _is_help(p)]
    if options:
        variables = [_variable(option, context) for option in options]
        with_environment = any(variables)
        titles = ["flag", "environment", "default", ""] if with_environment else ["flag", "default", ""]
        rows = []
        for option, variable in zip(options, variables, strict=True):
            row = [_flag(option, context), _default(option, context), _text(option)]
            rows.append([row[0], code(variable), *row[1:]] if with_environment else row)
        parts.append(table(titles, rows))
    if command.epilog:
        parts.append(_examples(command.epilog))
    return "\n".join(parts)


def _is_help(option: click.Option) -> bool:
    return "--help" in option.opts


def _flag(option: click.Option, context: click.Context) -> str:
    names = ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])
    kind = "" if option.is_flag else option.make_metavar(context)
    return f"{names} {code(kind)}".rstrip()


def _variable(option: click.Option, context: click.Context) -> str:
    if option.envvar is not None:
        return option.envvar if isinstance(option.envvar, str) else ", ".join(option.envvar)
    if context.auto_envvar_prefix and option.allow_from_autoenv and option.name:
        return f"{context.auto_envvar_prefix}_{option.name.upper()}"
    return ""


def _default(option: click.Option, context: click.Context) -> str:
    said = (option.help or "").rpartition("[default: ")[2]
    if (option.help or "").endswith("]") and said != option.help:
        return said.removesuffix("]")
    if otherwise := getattr(option, "otherwise", ""):
        return str(otherwise)
    value = option.get_default(context)
    if option.is_flag or value in (None, (), "") or type(value).__name__ == "Sentinel":
        return ""
    return code(str(value))


def _text(option: click.Option) -> str:
    text = (option.help or "").rpartition("[default: ")
    return (text[0] or text[2]).strip() + (" May be given several times." if option.multiple else "")


def _plain(text: str | None) -> str:
    return inspect.cleandoc(text or "").replace("\b\n", "").replace("\f", "")


def _examples(epilog: str) -> str:
    lines = [line for line in _plain(epilog).splitlines() if line.strip() and not line.startswith("Examples")]
    return "```\n" + "\n".join(line.removeprefix("  ") for line in lines) + "\n```\n"


def _exit_codes() -> str:
    """From the enumeration, with what its docstrings say."""
    texts = {"OK": "Done.", "INTERRUPTED": "Ctrl-C."}
    source = ast.parse(inspect.getsource(errors.Exit)).body[0]
    assert isinstance(source, ast.ClassDef)
    for first, second in zip(source.body, source.body[1:], strict=False):
        if isinstance(first, ast.Assign) and isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant):
            assert isinstance(first.targets[0], ast.Name)
            texts[first.targets[0].id] = str(second.value.value)
    return table(["code", "means"], [[str(int(each)), texts[each.name]] for each in errors.Exit])


def builtin_controller_page() -> str:
    """The flags of the Job controller."""
    rows = []
    for action in builtin_parser()._actions:  # argparse has no public way to list its flags
        if isinstance(action, argparse._HelpAction):
            continue
        names = ", ".join(code(name) for name in action.option_strings)
        default = "" if action.default in (None, [], False) else code(str(action.default))
        choices = f"One of {', '.join(action.choices)}." if action.choices else ""
        rows.append([names, default, (action.help or choices).replace("%%", "%")])
    return "\n".join([_BUILTIN_OPENING, table(["flag", "default", ""], rows)])
