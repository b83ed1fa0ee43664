"""The bench: `python -m bench`; what it can do: `python -m bench --help`.

python -m bench                              every part, each beside its reference
python -m bench full-life --sizes 50         one part, small
python -m bench --keep bench/results         with report and plots in a new directory there
python -m bench check                        the newest kept results against the ranges, and against each other
python -m bench render DIRECTORY             report and plots again, of a result that is kept
python -m bench kube                         one of the small ones, which print their figures
"""

import argparse
import importlib
import sys
from pathlib import Path

from bench.frame import checking, report
from bench.frame.parts import Part
from bench.frame.results import Result
from bench.frame.running import keep, parts, render, run

RESULTS = Path(__file__).parent / "results"
SMALL = ("batch", "embedded", "fleet", "job_controller", "kube")
"""Single rooms, measured alone; they print what they find."""


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; gives the exit code: 1 when a ratio is out of its range."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["check"]:
        return _check(given[1:])
    if given[:1] == ["render"]:
        return _render(given[1:])
    known = parts()
    parser = _parser(known)
    options = parser.parse_args(given)
    names = [meant(name, known) for name in options.names]
    if unknown := set(names) - known.keys() - set(SMALL):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join((*known, *SMALL))}")
    for name in names:
        if name in SMALL:
            print(f"== {name}", flush=True)
            importlib.import_module(f"bench.{name}").main()
    chosen = [known[name] for name in names if name in known] if names else list(known.values())
    return _measure(chosen, options) if chosen else 0


def meant(name: str, known: dict[str, Part]) -> str:
    """A part may be spelled with underscores, unless one of the small ones has that very name."""
    part = name.replace("_", "-")
    return part if part in known and name not in SMALL else name


def _parser(known: dict[str, Part]) -> argparse.ArgumentParser:
    about = "\n".join(f"  {part.name:<16}{part.about}; {_sizes(part)}" for part in known.values())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure how fast we are, each figure beside its reference from the same run.",
        epilog=f"parts:\n{about}\n\nsingle rooms, which print their figures: {', '.join(SMALL)}\n\n"
        "python -m bench check [RESULT [BEFORE]]: the ranges; python -m bench render DIRECTORY: report and plots again",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="PART", help="which to run (default: all parts)")
    parser.add_argument(
        "--sizes", "--jobs", type=_numbers, metavar="N[,N...]", help="other sizes than the parts' own, for a quick look"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="write result, report and plots to a new directory in DIR"
    )
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="write them into DIR itself, beside parts that are there"
    )
    return parser


def _measure(chosen: list[Part], options: argparse.Namespace) -> int:
    result = run(chosen, options.sizes)
    asked = checking.ranges()
    if options.keep is None and options.into is None:
        print(report.markdown(result, asked))
        return 0
    where = keep(result, options.into or options.keep, into=options.into is not None)
    print(f"kept in {where}: report.md, result.json and plots")
    return _told(checking.check(asked, result))


def _check(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench check", description="Hold ratios against bench/ranges.toml; 1 when one is out of range."
    )
    parser.add_argument("result", nargs="?", type=Path, help="a kept result (default: the newest in bench/results)")
    parser.add_argument("before", nargs="?", type=Path, help="another run, to compare with (default: the one before)")
    options = parser.parse_args(given)
    found = checking.kept(RESULTS)
    if options.result is None and not found:
        parser.error("there is no result in bench/results: run `make bench` first")
    newest = options.result or found[0]
    before = options.before or (found[1] if options.result is None and len(found) > 1 else None)
    print(f"{newest}{f' and {before}' if before else ''}:")
    return _told(checking.check(checking.ranges(), Result.load(newest), Result.load(before) if before else None))


def _render(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench render", description="Write report and plots again.")
    parser.add_argument("directory", type=Path, help="with a result.json")
    render(parser.parse_args(given).directory)
    return 0


def _told(findings: list[checking.Finding]) -> int:
    for finding in findings:
        print(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.text}")
    failed = sum(not finding.ok for finding in findings)
    print(f"{failed} of {len(findings)} are out of range" if failed else f"all {len(findings)} hold")
    return 1 if failed else 0


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(each.replace("_", "")) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers, such as 200,1000") from None
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return numbers


def _sizes(part: Part) -> str:
    return f"sizes {', '.join(f'{size:,}' for size in part.sizes)} {part.unit}"


if __name__ == "__main__":
    sys.exit(main())
