"""`python -m clusters.kind.guard RECORD`: started by a fleet, to delete what is left of it should it be killed."""

import asyncio
import sys
from pathlib import Path

from clusters.kind.records import guard

if __name__ == "__main__":
    asyncio.run(guard(Path(sys.argv[1])))
