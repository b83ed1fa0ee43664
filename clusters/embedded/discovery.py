"""What is served: versions, groups and resources, in the plain and in the aggregated form."""

import re
from collections.abc import Iterable
from typing import Any, Final

from clusters.embedded import errors
from clusters.embedded.http import Request, Response
from clusters.embedded.kinds import Kind, Kinds

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.4+embedded",
    "gitCommit": "embedded",
    "gitTreeState": "clean",
    "buildDate": "2026-11-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
_AGGREGATED: Final = re.compile(r"g=apidiscovery\.k8s\.io;v=(v2|v2beta1);as=APIGroupDiscoveryList")
_SUBRESOURCES: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, str, str] | None]]] = {
    "status": ("", ("get", "patch", "update"), None),
    "finalize": ("", ("update",), None),
    "log": ("", ("get",), None),
    "binding": ("Binding", ("create",), None),
    "eviction": ("Eviction", ("create",), ("policy", "v1", "Eviction")),
    "token": ("TokenRequest", ("create",), ("authentication.k8s.io", "v1", "TokenRequest")),
}


class Discovery:
    """Answers what is served."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._made: dict[str, Response] = {}
        kinds.on_change.append(self._made.clear)

    def answer(self, request: Request) -> Response | None:
        """The answer to a discovery request; None if it is none."""
        accept = request.headers.get("accept", "")
        version = _AGGREGATED.search(accept)
        key = f"{request.path.rstrip('/')} {version[1] if version else ''}"
        made = self._made.get(key)
        if made is None:
            made = self._make(request.path.rstrip("/"), version[1] if version else "")
            if made is not None:
                self._made[key] = made
        return made

    def _make(self, path: str, aggregated: str) -> Response | None:
        parts = path.split("/")[1:]
        match parts:
            case []:
                return Response.json(200, {"paths": self._paths()})
            case ["api"] if aggregated:
                return self._aggregated([""], aggregated)
            case ["api"]:
                address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
                body = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": address}
                return Response.json(200, body)
            case ["apis"] if aggregated:
                return self._aggregated(self._groups(), aggregated)
            case ["apis"]:
                groups = [self._group(group) for group in self._groups()]
                return Response.json(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            case ["apis", group]:
                if group not in self._groups():
                    raise errors.no_such_path()
                return Response.json(200, {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)})
            case ["api", version]:
                return self._resources("", version)
            case ["apis", group, version]:
                return self._resources(group, version)
        return None

    def _paths(self) -> list[str]:
        groups = [f"/apis/{group}" for group in self._groups()]
        versions = [f"/apis/{group}/{each}" for group in self._groups() for each in self._versions(group)]
        others = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
        return sorted(others + groups + versions)

    def _groups(self) -> list[str]:
        return list(dict.fromkeys(kind.group for kind in self._kinds if kind.group and kind.served))

    def _versions(self, group: str) -> list[str]:
        return list(dict.fromkeys(kind.version for kind in self._kinds if kind.group == group and kind.served))

    def _group(self, group: str) -> dict[str, Any]:
        versions = [{"groupVersion": f"{group}/{each}", "version": each} for each in self._versions(group)]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _of(self, group: str, version: str) -> list[Kind]:
        return [kind for kind in self._kinds if (kind.group, kind.version) == (group, version) and kind.served]

    def _resources(self, group: str, version: str) -> Response:
        kinds = self._of(group, version)
        if not kinds:
            raise errors.no_such_path()
        name = f"{group}/{version}" if group else version
        resources = [entry for kind in kinds for entry in _plain_entries(kind)]
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}
        return Response.json(200, body)

    def _aggregated(self, groups: Iterable[str], version: str) -> Response:
        items = [
            {
                "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
                "versions": [
                    {
                        "version": each,
                        "resources": [_aggregated_entry(kind) for kind in self._of(group, each)],
                        "freshness": "Current",
                    }
                    for each in self._versions(group)
                ],
            }
            for group in groups
        ]
        body = {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }
        response = Response.json(200, body)
        response.content_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        return response


def _plain_entries(kind: Kind) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    entries = [entry]
    for name in kind.subresources:
        other, verbs, gvk = _SUBRESOURCES[name]
        sub: dict[str, Any] = {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": other or kind.kind,
            "verbs": list(verbs),
        }
        if gvk:
            sub |= {"group": gvk[0], "version": gvk[1]}
        entries.append(sub)
    return entries


def _aggregated_entry(kind: Kind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [_aggregated_subresource(kind, name) for name in kind.subresources]
    return entry


def _aggregated_subresource(kind: Kind, name: str) -> dict[str, Any]:
    other, verbs, gvk = _SUBRESOURCES[name]
    group, version, named = gvk or (kind.group, kind.version, other or kind.kind)
    response = {"group": group, "version": version, "kind": named}
    return {"subresource": name, "responseKind": response, "verbs": list(verbs)}
