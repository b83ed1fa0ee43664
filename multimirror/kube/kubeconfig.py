"""Reading kubeconfigs: what a person's own file may say, and what one that came from an API object may not.

A kubeconfig is code: it can run programs, read files of whoever loads it, and switch TLS verification off. From a
person at a terminal that is wanted. From a Secret it would let anyone who can write Secrets run programs in, and read
files of, our pod. So `parse_strict` takes only what is self-contained, and refuses all else by the name of the field;
unknown fields too, because a field that we do not know may mean something to the server's administrator that we would
silently not do. It is small (64 KiB), and written in plain YAML or JSON: no anchors, aliases, tags or merge keys
(yaml_text.py), so that reading it costs milliseconds, whoever wrote it.
"""

import base64
import binascii
import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import yaml

from .errors import ConfigError
from .yaml_text import NotPlain, load_own, load_plain

LARGEST: Final = 64 * 1024
"""Bytes of a kubeconfig from an API object, or from a file that one names."""
_LARGEST_OWN: Final = 1024 * 1024
_PATHS: Final = "a path would be read from this process's own disk; put the content inline, in"
_REFUSED: Final = {
    "cluster": {
        "certificate-authority": f"{_PATHS} certificate-authority-data",
        "insecure-skip-tls-verify": "TLS verification cannot be switched off; put the CA in certificate-authority-data",
        "proxy-url": "proxies are not allowed",
    },
    "user": {
        "exec": "programs are never run for a kubeconfig from the API; use a token or a client certificate",
        "auth-provider": "auth providers are not supported; use a token or a client certificate",
        "username": "basic auth is not supported; use a token or a client certificate",
        "password": "basic auth is not supported; use a token or a client certificate",
        "tokenFile": f"{_PATHS} token",
        "client-certificate": f"{_PATHS} client-certificate-data",
        "client-key": f"{_PATHS} client-key-data",
    },
}
_ALLOWED: Final = {
    "cluster": {"server", "certificate-authority-data", "tls-server-name", "disable-compression", "extensions"},
    "user": {
        "token",
        "client-certificate-data",
        "client-key-data",
        "as",
        "as-uid",
        "as-groups",
        "as-user-extra",
        "extensions",
    },
}
_HEADERS: Final = {"token", "as", "as-uid"}
"""What is sent as a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One context of a kubeconfig, resolved: where to go and who to be."""

    context: str
    server: str
    namespace: str = "default"
    ca: bytes | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = None
    token: str | None = None
    token_file: Path | None = None
    exec: Mapping[str, Any] | None = None
    auth_provider: Mapping[str, Any] | None = None
    basic: tuple[str, str] | None = None
    impersonate: Mapping[str, Any] | None = None


def parse_strict(source: Mapping[str, Any] | bytes | str, *, plain_http: bool = False) -> Access:
    """The kubeconfig from an API object: self-contained, or refused with a ConfigError that names the field.

    `plain_http` is for clusters inside this process (simulations and tests); nothing that is shipped asks for it.
    """
    config = _mapping(source, strict=True)
    for kind in ("cluster", "user"):
        for entry, path in _entries(config, f"{kind}s", kind):
            for field in entry:
                if field in _REFUSED[kind]:
                    if field == "insecure-skip-tls-verify" and entry[field] is False:
                        continue
                    raise ConfigError(_REFUSED[kind][field], field=f"{path}.{field}")
                if field not in _ALLOWED[kind]:
                    raise ConfigError("this field is not supported here; remove it", field=f"{path}.{field}")
    access = _resolve(config, None, base=None)
    # This host too: what listens there is a neighbour's sidecar, or whatever a port was forwarded to.
    if urlsplit(access.server).scheme != "https" and not plain_http:
        raise ConfigError("must be an https:// address", field="clusters[].cluster.server")
    return access


def with_token(source: bytes | str, token: str) -> str:
    """The same kubeconfig with another token for the user of its current context."""
    _check_header(token, "token")
    config: dict[str, Any] = copy.deepcopy(dict(_mapping(source, strict=True)))
    current = config.get("current-context") or config["contexts"][0]["name"]
    chosen, _, _ = _find(config, "contexts", "context", current)
    for entry in config.get("users") or ():
        if entry["name"] == chosen.get("user"):
            entry["user"] = {**(entry.get("user") or {}), "token": token}
    return yaml.safe_dump(config, sort_keys=False)


def parse_lenient(source: Mapping[str, Any] | Path | None, context: str | None = None) -> Access:
    """A person's own kubeconfig: a mapping, a file, or what `KUBECONFIG` (then `~/.kube/config`) names."""
    if isinstance(source, Mapping):
        return _resolve(source, context, base=Path.cwd())
    paths = [source] if source is not None else _default_paths()
    found = [path for path in paths if path.is_file()]
    if not found:
        names = ", ".join(str(path) for path in paths)
        raise ConfigError(f"there is no kubeconfig at {names}; set KUBECONFIG or name one")
    return _resolve(_merge([(_read(path), path.resolve().parent) for path in found]), context, base=found[0].parent)


def has_kubeconfig() -> bool:
    """Whether somebody has set one up for whoever runs this: named it, or put it where kubectl looks."""
    return bool(os.environ.get("KUBECONFIG")) or any(path.is_file() for path in _default_paths())


def _default_paths() -> list[Path]:
    listed = os.environ.get("KUBECONFIG", "")
    return [_expanded(Path(p)) for p in listed.split(os.pathsep) if p] or [_expanded(Path("~/.kube/config"))]


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # a user without a home, as in a container: then there is nothing either
        return path


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            return _mapping(file.read(_LARGEST_OWN + 1))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _merge(configs: list[tuple[Mapping[str, Any], Path]]) -> Mapping[str, Any]:
    """Several files as one, by kubectl's rule: who says something first, wins. Paths are relative to their own file."""
    merged: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    for config, base in configs:
        if not merged.get("current-context"):
            merged["current-context"] = config.get("current-context")
        for listname in ("clusters", "users", "contexts"):
            known = {entry["name"] for entry in merged[listname]}
            for entry in config.get(listname) or ():
                if isinstance(entry, Mapping) and entry.get("name") not in known:
                    merged[listname].append({**entry, "_base": base})
    return merged


def _mapping(source: object, *, strict: bool = False) -> Mapping[str, Any]:
    if isinstance(source, (bytes, str)):
        largest = LARGEST if strict else _LARGEST_OWN
        if len(source) > largest:
            raise ConfigError(f"the kubeconfig is larger than {largest // 1024} KiB; keep only the contexts in use")
        try:
            source = _plain(source) if strict else load_own(source)
        except NotPlain as error:
            raise ConfigError(f"the kubeconfig {error}") from error
        except (yaml.YAMLError, ValueError) as error:
            where = getattr(error, "problem_mark", None)
            at = f" at line {where.line + 1}" if where is not None else ""
            raise ConfigError(f"the kubeconfig is not valid YAML{at}") from error  # its text may hold secrets
    if not isinstance(source, Mapping):
        raise ConfigError(f"a kubeconfig must be a mapping, not {type(source).__name__}")
    if source.get("kind", "Config") != "Config":
        raise ConfigError(f"must be Config, not {source['kind']!r}", field="kind")
    return source


def _plain(source: bytes | str) -> object:
    """JSON is YAML, and many times quicker to read."""
    if source.lstrip()[:1] in {b"{", "{"}:
        try:
            return orjson.loads(source)
        except orjson.JSONDecodeError:
            pass
    return load_plain(source)


def _entries(config: Mapping[str, Any], listname: str, inner: str) -> list[tuple[Mapping[str, Any], str]]:
    found = config.get(listname) or []
    if not isinstance(found, list):
        raise ConfigError("must be a list", field=listname)
    entries: list[tuple[Mapping[str, Any], str]] = []
    for index, entry in enumerate(found):
        path = f"{listname}[{index}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise ConfigError("must be a mapping with a name", field=path)
        body = entry.get(inner)
        if body is None:
            body = {}
        if not isinstance(body, Mapping):
            raise ConfigError("must be a mapping", field=f"{path}.{inner}")
        entries.append(({**body}, f"{path}.{inner}"))
    return entries


def _find(
    config: Mapping[str, Any], listname: str, inner: str, name: object
) -> tuple[Mapping[str, Any], str, Path | None]:
    entries = _entries(config, listname, inner)
    for entry, (body, path) in zip(config[listname] if entries else (), entries, strict=True):
        if entry["name"] == name:
            return body, path, entry.get("_base")
    raise ConfigError(f"there is no {inner} named {name!r}", field=listname)


def _resolve(config: Mapping[str, Any], context: str | None, *, base: Path | None) -> Access:
    contexts = _entries(config, "contexts", "context")
    name = context or config.get("current-context")
    if not name:
        if len(contexts) != 1:
            problem = "several contexts and no current one" if contexts else "there is no context"
            raise ConfigError(f"{problem}; say which with current-context", field="current-context")
        name = config["contexts"][0]["name"]
    chosen, where, _ = _find(config, "contexts", "context", name)
    if not isinstance(chosen.get("cluster"), str):
        raise ConfigError("is missing", field=f"{where}.cluster")
    cluster, cluster_path, cluster_base = _find(config, "clusters", "cluster", chosen["cluster"])
    user: Mapping[str, Any] = {}
    user_path, user_base = "", None
    if chosen.get("user"):
        user, user_path, user_base = _find(config, "users", "user", chosen["user"])
    inline = _Inline(cluster, cluster_path, cluster_base or base)
    own = _Inline(user, user_path, user_base or base)
    server_name = inline.text("tls-server-name")
    if server_name is not None and not _is_host(server_name):
        raise ConfigError("is no name of a host", field=f"{cluster_path}.tls-server-name")
    access = Access(
        context=str(name),
        server=parse_server(cluster.get("server"), f"{cluster_path}.server"),
        namespace=str(chosen.get("namespace") or "default"),
        ca=inline.pem("certificate-authority"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=server_name,
        proxy_url=inline.text("proxy-url"),
        client_certificate=own.pem("client-certificate"),
        client_key=own.pem("client-key"),
        token=own.text("token"),
        token_file=own.path("tokenFile"),
        exec=own.mapping("exec"),
        auth_provider=own.mapping("auth-provider"),
        basic=_basic(own),
        impersonate=_impersonation(own),
    )
    if (access.client_certificate is None) != (access.client_key is None):
        raise ConfigError("a client certificate needs its key, and a key its certificate", field=user_path)
    return access


@dataclass(frozen=True, slots=True)
class _Inline:
    """One entry's fields, each read with its type checked and its name at hand."""

    entry: Mapping[str, Any]
    where: str
    base: Path | None

    def text(self, field: str) -> str | None:
        value = self.entry.get(field)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise ConfigError(f"must be a string, not {type(value).__name__}", field=f"{self.where}.{field}")
        if field in _HEADERS:
            _check_header(value, f"{self.where}.{field}")
        return value

    def mapping(self, field: str) -> Mapping[str, Any] | None:
        value = self.entry.get(field)
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError("must be a mapping", field=f"{self.where}.{field}")
        return value

    def path(self, field: str) -> Path | None:
        value = self.text(field)
        return None if value is None else (self.base or Path()) / Path(value).expanduser()

    def pem(self, field: str) -> bytes | None:
        data = self.text(f"{field}-data")
        if data is not None:
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError) as error:
                raise ConfigError("is not valid base64", field=f"{self.where}.{field}-data") from error
        path = self.path(field)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}", field=f"{self.where}.{field}") from error


def _basic(user: _Inline) -> tuple[str, str] | None:
    name, password = user.text("username"), user.text("password")
    return (name, password) if name is not None and password is not None else None


def _impersonation(user: _Inline) -> dict[str, Any] | None:
    """All of it becomes headers: a line break in one would begin another."""
    found: dict[str, Any] = {field: user.text(field) for field in ("as", "as-uid")}
    groups, extra = user.entry.get("as-groups"), user.mapping("as-user-extra")
    if groups is not None and not isinstance(groups, list):
        raise ConfigError("must be a list", field=f"{user.where}.as-groups")
    for index, group in enumerate(groups or ()):
        _check_header(group, f"{user.where}.as-groups[{index}]")
    for key, values in (extra or {}).items():
        where = f"{user.where}.as-user-extra"
        if not isinstance(values, list):
            raise ConfigError("must be lists of strings", field=where)
        for value in (key, *values):
            _check_header(value, where)
    found |= {"as-groups": groups, "as-user-extra": extra}
    return {field: value for field, value in found.items() if value} or None


def _check_header(value: object, field: str) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"must be a string, not {type(value).__name__}", field=field)
    if not value.isascii() or not value.isprintable():
        raise ConfigError("holds line breaks, control characters or others that no HTTP header can hold", field=field)


def parse_server(value: object, field: str) -> str:
    """The address of an API server. Raises ConfigError."""
    if not isinstance(value, str) or not value:
        raise ConfigError("is missing; it is the address of the API server, https://host:port", field=field)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{value!r} is not a URL: {error}", field=field) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ConfigError(f"{value!r} is not an address of an API server, https://host:port", field=field)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError("must hold no user, password, query or fragment", field=field)
    if not value.isascii() or not value.isprintable() or " " in value:  # it becomes a part of every request's head
        raise ConfigError(f"{value!r} holds spaces, control characters or letters that are not ASCII", field=field)
    if not _is_host(parts.hostname):
        raise ConfigError(f"{value!r} has a name in it that no host can have", field=field)
    return value.rstrip("/")


def _is_host(name: str) -> bool:
    """Or an address: what Python's resolver and TLS take without an error that is none of a connection."""
    labels = name.removesuffix(".").split(".")
    return name.isascii() and name.isprintable() and " " not in name and all(0 < len(each) < 64 for each in labels)
