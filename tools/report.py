"""Reports the result of a check."""

import pathlib
import sys


def report(violations, all_is_well: str) -> int:
    """Prints the results of `violations(root)`, or `all_is_well` if `violations` yields nothing. The root is the first argument,
    by default the root of this project."""
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(violations(root))
    print("\n".join(found) if found else all_is_well)
    return 1 if found else 0
