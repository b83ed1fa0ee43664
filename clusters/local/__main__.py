"""`python -m clusters.local`: get the control plane's binaries, say where they are, sweep what a crash left behind."""

import argparse
import sys

from clusters.local import homes, versions
from clusters.local.binaries import ALL, BinariesMissingError, find_binaries
from clusters.local.gobuild import BuildError
from clusters.local.helm import install_helm
from clusters.local.install import SOURCES, NoWayError, install, present
from clusters.local.release import ETCD_URL, KUBERNETES_URL, ChecksumError, Release


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        wanted = None if options.version is None else versions.wanted(options.version)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.command == "install":
        return _install(options, wanted)
    if options.command == "helm":
        return _install_helm(options)
    if options.command == "where":
        return _where(wanted)
    for path in homes.sweep():
        print(f"removed {path}")
    return 0


def _install_helm(options: argparse.Namespace) -> int:
    try:
        print(f"helm: {install_helm()}")
    except BuildError as error:
        print(f"{'note' if options.if_possible else 'error'}: {error}", file=sys.stderr)
        return 0 if options.if_possible else 1
    return 0


def _install(options: argparse.Namespace, wanted: versions.Version | None) -> int:
    if options.source == "auto" and (found := present(wanted)):
        print(f"Kubernetes {found.version}: all binaries are there ({found['kube-apiserver'].parent})")
        return 0
    server = present(wanted, ["kube-apiserver"])  # envtest's assets, say: what is missing has to match it
    try:
        installed = install(
            wanted or (server.version if server else versions.DEFAULT),
            source=options.source,
            release=Release(options.release_url.rstrip("/"), options.etcd_url.rstrip("/")),
        )
    except (NoWayError, ChecksumError, BinariesMissingError) as error:
        print(f"{'note' if options.if_possible else 'error'}: {error}", file=sys.stderr)
        return 0 if options.if_possible and isinstance(error, NoWayError) else 1
    print(f"Kubernetes {installed.version}: all binaries are in {installed['kube-apiserver'].parent}")
    return 0


def _where(wanted: versions.Version | None) -> int:
    try:
        found = find_binaries(None if wanted is None else str(wanted), ALL)
    except BinariesMissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for program, path in found.paths.items():
        print(f"{program} {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    known = ", ".join(f"{a}.{b}" for a, b in versions.NEWEST)
    parser = argparse.ArgumentParser(prog="python -m clusters.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    get = commands.add_parser("install", help="get the binaries into our cache, unless suitable ones are there")
    where = commands.add_parser("where", help="print where the binaries are")
    chart = commands.add_parser("helm", help="get helm, which the chart in deploy/helm is rendered and tested with")
    sweep = commands.add_parser("sweep", help="end and remove what a killed run left behind")
    for command in (chart, sweep):
        command.set_defaults(version=None)
    for command in (get, where):
        command.add_argument("--version", help=f"e.g. 1.36.4, or one of {known} (default: {versions.DEFAULT})")
    get.add_argument("--from", dest="source", choices=SOURCES, default="auto", help="official release, or a Go build")
    for command in (get, chart):
        command.add_argument(
            "--if-possible", action="store_true", help="succeed with a note when there is no way to get them"
        )
    get.add_argument("--release-url", default=KUBERNETES_URL, help="a mirror of the Kubernetes release")
    get.add_argument("--etcd-url", default=ETCD_URL, help="a mirror of the etcd release")
    return parser


if __name__ == "__main__":
    sys.exit(main())
