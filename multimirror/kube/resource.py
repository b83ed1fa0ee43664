"""What kinds of object there are, and where the API serves them."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Object = dict[str, Any]
"""An API object as the server sent it: raw JSON, so that fields newer than us survive."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object. `Resource("batch", "v1", "jobs", "Job")`; the core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As it stands in an object's apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """As people write it: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of one object, or of the collection (in all namespaces when none is given)."""
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace is not None and self.namespaced:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.plural}"
        if name is not None:
            if not name:
                raise ValueError(f"the name of a {self.kind} must not be empty")
            if self.namespaced and namespace is None:
                raise ValueError(f"{self.kind} {name!r} needs a namespace")
            path += f"/{quote(name, safe='')}"
        if subresource is not None:
            path += f"/{subresource}"
        return path


def key_of(obj: Object) -> str:
    """`namespace/name`, or just `name` for what has no namespace."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def split_key(key: str) -> tuple[str | None, str]:
    """The namespace (None for what has none) and the name."""
    namespace, _, name = key.rpartition("/")
    return namespace or None, name
