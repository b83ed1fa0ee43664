"""Run the benches: all of them, or those named. Each is a module here with a `main()` that prints its figures.

python -m bench [NAME...]
"""

import argparse
import importlib
import pkgutil

import bench


def main() -> None:
    names = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure what we promise about speed.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run, of: {', '.join(names)} (default: all)")
    chosen = parser.parse_args().names or names
    if unknown := set(chosen) - set(names):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    for name in chosen:
        print(f"== {name}", flush=True)
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
