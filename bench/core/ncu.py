"""ncu.py - ncu's source page as CSV: a row for each instruction of one kernel."""

import csv


def source_page(path, *wanted):
    """Rows as {column: text}; the table begins behind a line that names the kernel. wanted: columns it must have."""
    with open(path, newline="", encoding="utf-8") as f:
        table = iter(csv.reader(f))
        for names in table:
            if all(name in names for name in wanted):
                return [dict(zip(names, row)) for row in table]
    raise SystemExit(f"{path}: no columns {' and '.join(wanted)}: is it ncu's source page?")


def count(text):
    """A number as ncu writes it."""
    return int(text.replace(",", "") or 0)
