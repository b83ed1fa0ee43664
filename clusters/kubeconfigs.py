"""Kubeconfigs as files."""

from pathlib import Path

import yaml

from clusters.fleet import Kubeconfig


def write_kubeconfig(path: Path, kubeconfig: Kubeconfig) -> Path:
    """For kubectl and other programs; readable by this user alone."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # whatever mode it had
    draft.touch(mode=0o600)
    draft.write_text(yaml.safe_dump(kubeconfig))
    return draft.replace(path)
