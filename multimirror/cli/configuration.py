"""Flags that also come from a file and from the environment, for a command that runs for months.

A flag wins over the environment, the environment over the file, the file over the default. The file is YAML; its keys
are the flags' names without the dashes in front. What is in it is checked before anything is started: a key that does
not exist is answered with the nearest one that does, a value of the wrong type with what it should be, and both with
the file and the key.
"""

import difflib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml
from click.core import ParameterSource

from multimirror.cli.errors import CommandError, Exit

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SOURCES: Final = {
    ParameterSource.COMMANDLINE: "flag",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "file",
}
_WIDEST: Final = 32


class Setting(click.Option):
    """A flag that can be configured. `group`: its heading in the help; `otherwise`: what happens without it."""

    def __init__(self, *args: Any, group: str = "Options", otherwise: str = "", **kwargs: Any) -> None:
        if "/" not in args[0][0]:
            kwargs.setdefault("default", None)
        super().__init__(*args, **kwargs)
        self.group, self.otherwise = group, otherwise

    @property
    def key(self) -> str:
        return (self.name or "").replace("_", "-")

    @property
    def wanted(self) -> str:
        if isinstance(self.type, click.Choice):
            return f"one of {', '.join(self.type.choices)}"
        if isinstance(self.type, click.IntRange):
            return f"a whole number from {self.type.min}"
        return "true or false" if self.is_flag else "a text"

    def suits(self, value: object) -> bool:
        """Whether a value in a file is of the right type; YAML knows the difference, so it is asked for."""
        if self.is_flag:
            return isinstance(value, bool)
        if isinstance(self.type, click.IntRange):
            return isinstance(value, int) and not isinstance(value, bool)
        return isinstance(value, str)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The flag, or the variable that stood for it."""
        if ctx is not None and ctx.get_parameter_source(self.name or "") is ParameterSource.ENVIRONMENT:
            return f"'{ctx.auto_envvar_prefix}_{(self.name or '').upper()}'"
        return super().get_error_hint(ctx) if ctx is not None else f"'{self.opts[0]}'"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """One line for each: the name, what it is, and in brackets what it is by default."""
        if self.hidden:
            return None
        name = f"--[no-]{self.key}" if self.secondary_opts else ", ".join(reversed(self.opts))
        if not self.is_flag:
            name = f"{name} {self.metavar}"
        default = self.otherwise or self._default_in_words(ctx)
        return name, f"{self.help} [{default}]".lstrip() if default else self.help or ""

    def _default_in_words(self, ctx: click.Context) -> str:
        default = self.get_default(ctx)
        if isinstance(default, bool):
            return ("yes" if default else "no") if self.secondary_opts else ""
        return "" if default is None else str(_plain(default))


def setting(*names: str, **how: Any) -> Callable[[_Function], _Function]:
    return click.option(*names, cls=Setting, **how)


class Configurable(click.Command):
    """A command whose flags are Settings, with `--config` before them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = Setting(
            ["--config"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            is_eager=True,
            expose_value=False,
            callback=_read,
            help="YAML; its keys are the flags' names.",
            group="Configuration",
        )
        self.params.insert(0, config)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By group, names in a column wide enough for all of them."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(param, "group", "Configuration"), []).append(record)
        width = max(len(name) for group in groups.values() for name, _ in group)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=_WIDEST)


def effective(ctx: click.Context) -> Iterator[tuple[str, Any, str]]:
    """Key, value as a file would have it, and where it comes from."""
    for param in ctx.command.params:
        if isinstance(param, Setting) and param.expose_value and param.name in ctx.params:
            source = ctx.get_parameter_source(param.name)
            origin = _SOURCES.get(source, "default") if source is not None else "default"
            yield param.key, _plain(ctx.params[param.name]), origin


def as_yaml(ctx: click.Context) -> str:
    """The effective configuration as a file that can be given back, each line with where its value comes from."""
    lines = []
    for key, value, source in effective(ctx):
        if value is None:
            lines.append(f"# {key}: not set")
        else:
            lines.append(f"{yaml.safe_dump({key: value}).rstrip()}  # {source}")
    return "\n".join(lines)


def _plain(value: object) -> Any:
    if isinstance(value, tuple):  # an address
        host, port = value
        return f"{host}:{port}"
    return str(value) if isinstance(value, Path) else value


def _read(ctx: click.Context, _: click.Parameter, file: Path | None) -> Path | None:
    if file is None:
        return None
    settings = {each.key: each for each in ctx.command.params if isinstance(each, Setting) and each.expose_value}
    found = _document(file)
    chosen: dict[str, Any] = {}
    for key, value in found.items():
        setting = settings.get(str(key))
        if setting is None:
            raise _wrong(file, str(key), "there is no such key", _nearest(str(key), settings))
        if value is None:
            continue
        if not setting.suits(value):
            raise _wrong(file, str(key), f"must be {setting.wanted}, not {value!r}")
        try:
            setting.type.convert(value, setting, ctx)
        except click.BadParameter as error:
            raise _wrong(file, str(key), error.message) from error
        chosen[setting.name or ""] = value
    ctx.default_map = chosen
    return file


def _document(file: Path) -> dict[Any, Any]:
    try:
        found = yaml.safe_load(file.read_text())
    except OSError as error:
        raise CommandError(f"--config {file}: {error.strerror}", code=Exit.USAGE) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise CommandError(f"{file}: not YAML{where}: {getattr(error, 'problem', error)}", code=Exit.USAGE) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise CommandError(f"{file}: must be keys and values, such as `log-level: debug`", code=Exit.USAGE)
    return found


def _wrong(file: Path, key: str, message: str, remedy: str = "") -> CommandError:
    return CommandError(f"{file}: {key}: {message}", remedy, code=Exit.USAGE)


def _nearest(key: str, settings: dict[str, Setting]) -> str:
    near = difflib.get_close_matches(key.replace("_", "-").lower(), settings, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"There are {', '.join(settings)}."
