"""The chart in deploy/helm, rendered: `python -m clusters.chart` writes it to deploy/manifests as plain files.

The plain files are for those who do not use Helm: `kubectl apply --server-side -f`, and `multimirror install`, which
puts its flags into them (multimirror.cli.manifests). They are what Helm renders, without Helm's own labels.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clusters.local.helm import find_helm

DEPLOY: Final = Path(__file__).parents[1] / "deploy"
CHART: Final = DEPLOY / "helm" / "multimirror"
NAMESPACE: Final = "multimirror-system"

PLAIN: Final[Mapping[str, tuple[str, ...]]] = {
    "multimirror-webhook.yaml": ("admission=webhook", "admissionWebhook.tls.create=false", "crds.keep=false"),
    "multimirror-policies.yaml": ("admission=policies", "crds.keep=false"),
    "multimirror-none.yaml": ("admission=none", "crds.keep=false"),
    "builtin-controller.yaml": ("dispatcher.enabled=false", "builtinController.enabled=true"),
}
"""The plain files, and the values that they are rendered with."""

_HEADER: Final = """\
# Generated from the chart by `make manifests`. Do not edit.
#   kubectl apply --server-side -f {name}
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
  labels:
    app.kubernetes.io/part-of: multimirror
"""
_OF_HELM: Final = re.compile(r"^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n", re.MULTILINE)


def render(*values: str, namespace: str = NAMESPACE) -> str:
    """`helm template`, with `--set` for each value; raises CalledProcessError with what helm said."""
    settings = [part for value in values for part in ("--set", value)]
    return helm("template", "multimirror", str(CHART), "--namespace", namespace, *settings)


def helm(*arguments: str) -> str:
    """What helm prints; raises CalledProcessError with what it complains about."""
    command = [str(find_helm()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own arguments


def plain(name: str) -> str:
    """One of the plain files."""
    rendered = _OF_HELM.sub("", render(*PLAIN[name]))
    return _HEADER.format(name=name, namespace=NAMESPACE) + rendered


def copy_generated() -> None:
    """What the chart contains of the other generated files: a chart cannot look outside of itself."""
    for path in (DEPLOY / "crds").glob("*.yaml"):
        shutil.copy(path, CHART / "files" / "crds" / path.name)
    for name in ("policies.yaml", "placement.yaml", "webhook.yaml"):
        shutil.copy(DEPLOY / "admission" / name, CHART / "files" / name)


def main() -> None:
    """Write everything."""
    copy_generated()
    target = DEPLOY / "manifests"
    target.mkdir(exist_ok=True)
    for name in PLAIN:
        (target / name).write_text(plain(name))


if __name__ == "__main__":
    main()
