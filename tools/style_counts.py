"""Lower the allow-list of the style checks, tests/style/allowed.toml, to the current counts.

python tools/style_counts.py                        lower each count; refuse if one would grow
python tools/style_counts.py --moved                after files moved: counts may shift between packages, and no
                                                    check may find more than before in total
python tools/style_counts.py --list CHECK [PACKAGE] print violations, of all packages or of one
python tools/style_counts.py --totals               print the number of violations per check
"""

from __future__ import annotations

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "style"))

from style_checks import CHECKS
from style_files import ALLOWED, all_files, counts, read_allowed

_HEAD = """\
# The number of style violations by check and package. A count may only shrink: `python tools/style_counts.py` lowers
# it, and `--list CHECK PACKAGE` prints the violations. A package that is not listed has none.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line and return the exit status."""
    parser = argparse.ArgumentParser(description="Lower the allow-list of the style checks.")
    parser.add_argument("--moved", action="store_true", help="counts may shift between packages; no total may grow")
    parser.add_argument("--list", nargs="+", metavar="NAME", help="print the violations of a CHECK, and of a PACKAGE")
    parser.add_argument("--totals", action="store_true", help="print the number of violations per check")
    options = parser.parse_args(arguments)
    if options.list:
        return _list(*options.list)
    current = {name: counts(check(all_files())) for name, check in CHECKS.items()}
    if options.totals:
        for name, package_counts in current.items():
            print(f"{name:12} {sum(package_counts.values()):6}")
        return 0
    increases = list(_increases(read_allowed(), current, totals_only=options.moved)) if ALLOWED.exists() else []
    if increases:
        print(*increases, sep="\n")
        return 1
    ALLOWED.write_text(_format_counts(current), encoding="utf-8")
    return 0


def _list(check: str, package: str = "") -> int:
    for each in CHECKS[check](all_files()):
        if not package or each.package == package.rstrip("/"):
            print(each)
    return 0


def _increases(
    limits_by_check: dict[str, dict[str, int]], current: dict[str, dict[str, int]], *, totals_only: bool
) -> list[str]:
    """Return the counts that are higher than allowed."""
    lines: list[str] = []
    for name, package_counts in current.items():
        limits = limits_by_check.get(name, {})
        if totals_only:
            package_counts, limits = {"total": sum(package_counts.values())}, {"total": sum(limits.values())}  # noqa: PLW2901
        lines += [
            f"{name}: {package} has {count} violations, {limits.get(package, 0)} are allowed"
            for package, count in package_counts.items()
            if count > limits.get(package, 0)
        ]
    return lines


def _format_counts(current: dict[str, dict[str, int]]) -> str:
    tables = [
        f"\n[{name}]\n" + "".join(f'"{package}" = {count}\n' for package, count in package_counts.items())
        for name, package_counts in current.items()
        if package_counts
    ]
    return _HEAD + "".join(tables)


if __name__ == "__main__":
    sys.exit(main())
