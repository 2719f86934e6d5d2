"""`python tests/docs/update.py [PAGE ...]`: play the pages again and write down what is printed now, where it differs.

What agrees stays as it is, with the names and numbers of the day on which it was written.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from docs.pages import PAGES, Example, examples  # noqa: E402 - tests are not a package that is installed
from docs.stage import Stage, agrees  # noqa: E402


def update(page: Path) -> int:
    """How many outputs of the page were written anew."""
    changed: list[tuple[Example, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        try:
            for example in examples(page):
                if example.why_not_run is None:
                    printed = stage.play(example)
                    if not agrees(example, printed):
                        changed.append((example, printed))
        finally:
            stage.close()
    lines = page.read_text().splitlines()
    for example, printed in reversed(changed):
        lines[example.begin : example.end] = [line.rstrip() for line in printed.rstrip().splitlines()]
    page.write_text("\n".join(lines) + "\n")
    return len(changed)


if __name__ == "__main__":
    for page in [Path(argument).resolve() for argument in sys.argv[1:]] or PAGES:
        print(f"{page.relative_to(ROOT)}: {update(page)} outputs written", flush=True)
