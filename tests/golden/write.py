"""Writes the execution states that are missing for the current format: `python -m tests.golden.write`.

With `--again` it writes all of them anew, which is right only while the format has not been released.
"""

from __future__ import annotations

import asyncio
import sys

from plannerd.invocations.state_format import newest_format
from tests.golden.scenarios import SCENARIOS
from tests.golden.states import FOLDER, make, text_of


def main() -> None:
    """Write the files."""
    folder = FOLDER / f"v{newest_format()}"
    folder.mkdir(exist_ok=True)
    for name, scenario in SCENARIOS.items():
        path = folder / f"{name}.json"
        if "--again" in sys.argv[1:] or not path.exists():
            path.write_text(text_of(asyncio.run(make(scenario))), encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
