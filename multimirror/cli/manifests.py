"""The manifests in deploy/, wherever the package is: one source for commands, documentation and `kubectl apply`.

An installed package carries them as `multimirror/deploy`; in a checkout they are beside it.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable

import yaml

from multimirror.batch import Json


def manifest(name: str) -> list[Json]:
    """The documents of one file in deploy/, such as `worker/worker.yaml`."""
    return [document for document in yaml.safe_load_all((directory() / name).read_text()) if document]


def directory() -> Traversable:
    installed = files("multimirror") / "deploy"
    return installed if installed.is_dir() else files("multimirror") / ".." / "deploy"
