"""`python -m clusters.kind`: look whether kind fleets can be made here, make one that stays, list them, delete it."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

from clusters.foreground import until_told
from clusters.kind import CommandError, KindFleet, KindOptions, NotPossibleError, look, remove_fleet, sweep
from clusters.kind.base_image import BASE_IMAGE, make_base_image
from clusters.kind.commands import run
from clusters.kind.fleet import fleets
from clusters.kind.image import BASE_VARIABLE, image_for_tests
from clusters.kind.node_image import VARIABLE
from clusters.kind.records import in_use
from clusters.kubeconfigs import write_kubeconfig

_INTERRUPTED: Final = 130  # as shells have it


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "check":
        reason, warnings = asyncio.run(look())
        print(reason or "kind fleets can be made here")
        for warning in warnings:
            _tell(warning)
        return 1 if reason else 0
    try:
        match options.command:
            case "create":
                if not asyncio.run(until_told(_create(options))):
                    _tell("interrupted: what was begun is deleted")
                    return _INTERRUPTED
            case "delete":
                names = asyncio.run(remove_fleet(options.prefix))
                print(f"deleted {', '.join(names)}" if names else f"there are no clusters {options.prefix}-*")
            case "list":
                asyncio.run(_list())
            case "sweep":
                for name in asyncio.run(sweep()):
                    print(f"deleted {name}")
            case "base-image":
                print(asyncio.run(make_base_image(options.name, mirror=options.mirror, tell=_tell)))
            case "image":
                print(asyncio.run(image_for_tests(options.context.resolve(), tell=_tell)))
    except (NotPossibleError, CommandError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


async def _create(options: argparse.Namespace) -> None:
    fleet = KindFleet(
        KindOptions(
            workers=options.workers,
            prefix=options.prefix,
            images=options.load,
            node_image=options.node_image,
            kubernetes_version=options.kubernetes_version,
            controllers=("*", "-job-controller") if options.own_job_controller else ("*",),
            keep=True,
        )
    )
    fleet.tell = _tell
    async with fleet:
        options.kubeconfigs.mkdir(mode=0o700, parents=True, exist_ok=True)
        for cluster in (fleet.management, *fleet.workers.values()):
            for suffix, kubeconfig in (("", cluster.kubeconfig), (".internal", cluster.internal_kubeconfig)):
                print(write_kubeconfig(options.kubeconfigs / f"{cluster.name}{suffix}.kubeconfig", kubeconfig))


async def _list() -> None:
    existing, begun = (await run("kind", "get", "clusters", seconds=60)).split(), in_use()
    for prefix, names in fleets(existing).items():
        owner = "kept" if prefix not in begun else "in use" if begun[prefix] else "left behind: `sweep` deletes it"
        print(f"{prefix}: {len(names)} clusters, {owner}: {', '.join(names)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m clusters.kind", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="say whether kind fleets can be made here")
    create = commands.add_parser("create", help="make a fleet and leave it running")
    delete = commands.add_parser("delete", help="delete all clusters of a fleet")
    commands.add_parser("list", help="the fleets that are there")
    commands.add_parser("sweep", help="delete what runs that were killed have left")
    for command in (create, delete):
        command.add_argument("--prefix", default="multimirror", help="of the clusters' names (default: %(default)s)")
    create.add_argument("--workers", type=int, default=2, help="(default: %(default)s)")
    create.add_argument("--load", action="append", default=[], metavar="IMAGE", help="into every cluster")
    create.add_argument("--node-image", metavar="IMAGE", help=f"what nodes are made of (or set {VARIABLE})")
    create.add_argument("--kubernetes-version", metavar="VERSION", help="1.35, or 1.35.4, instead of an image")
    create.add_argument("--own-job-controller", action="store_true", help="switch the workers' own Job controller off")
    create.add_argument("--kubeconfigs", type=Path, default=Path("kind-kubeconfigs"), help="where to put them")
    image = commands.add_parser(
        "image", help="the image of multimirror for tests: built if something in it has changed; prints its name"
    )
    image.add_argument(
        "--context", type=Path, default=Path(), help=f"where the Dockerfile is; another base: {BASE_VARIABLE}"
    )
    base = commands.add_parser("base-image", help="a base for that of Debian's packages: root, debootstrap")
    base.add_argument("--name", default=BASE_IMAGE, help="(default: %(default)s)")
    base.add_argument("--mirror", metavar="URL", help="of Debian; else debootstrap's own")
    return parser


if __name__ == "__main__":
    sys.exit(main())
