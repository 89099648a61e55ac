"""How a check ends."""

import pathlib
import sys


def report(violations, all_is_well: str) -> int:
    """Prints what `violations(root)` finds, or else `all_is_well`. The root is the first argument, else this project's."""
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(violations(root))
    print("\n".join(found) if found else all_is_well)
    return 1 if found else 0
