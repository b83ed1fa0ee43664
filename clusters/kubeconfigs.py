"""Kubeconfigs as files."""

from pathlib import Path

import yaml

from clusters.fleet import Kubeconfig


def write_kubeconfig(path: Path, kubeconfig: Kubeconfig) -> Path:
    """For kubectl and other programs; readable by this user alone."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(kubeconfig))
    return path
