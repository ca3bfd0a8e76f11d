#!/usr/bin/env python3
"""code_lines.py - how many lines of an SM's instruction cache a chunk of a kernel runs, and how many are too many.

    ncu -k regex:gdn_prefill --launch-skip 2 --launch-count 1 --section SourceCounters \\
        --metrics sm__icc_requests_lookup_miss.sum -o r python3 A_PROGRAM_THAT_CALLS
    ncu -i r.ncu-rep --page source --csv > source.csv;  ncu -i r.ncu-rep --page raw --csv > raw.csv
    code_lines.py source.csv --chunks 32768 --raw raw.csv

Counted: lines of 128 bytes of which an instruction is executed nearly once a chunk (0.8 times; --least; 0.3 for twins,
which make every second chunk's T, P and gates) or more often; of these, those beyond four with one (address / 128)
mod 64. That an SM keeps 64 sets of four lines is no vendor's word: of the geometries tried it goes best with misses
counted on an H200 (docs/notebook/lessons.md, "Where code lies"). With --raw the misses a chunk. Needs neither torch
nor a GPU.
"""

import argparse
import collections
import csv
import sys

from core import ncu

LINE, SETS, WAYS = 128, 64, 4  # bytes, and the cache's geometry
NEARLY = 0.8  # of the chunks
MISSES = "sm__icc_requests_lookup_miss.sum"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", help="ncu's source page as CSV, of one kernel")
    p.add_argument("--chunks", type=int, required=True, help="how many the launch ran, of all heads, replays with them")
    p.add_argument("--least", type=float, default=NEARLY, help="executions a chunk from which on a line counts")
    p.add_argument("--raw", help="ncu's raw page of the same report as CSV")
    return p.parse_args()


def instructions(path):
    """(address, executions) of each."""
    rows = ncu.source_page(path, "Address", "Instructions Executed")
    return [(int(row["Address"], 16), ncu.count(row["Instructions Executed"])) for row in rows]


def lines_run(code, chunks, least=NEARLY):
    """{line: how many of its instructions} a chunk runs."""
    return collections.Counter(a // LINE for a, n in code if n >= least * chunks)


def beyond_ways(lines):
    """How many of these lines their sets have no room for."""
    return sum(max(0, n - WAYS) for n in collections.Counter(line % SETS for line in lines).values())


def misses(path):
    with open(path, newline="") as f:
        names, _, values = list(csv.reader(f))[:3]
    if MISSES not in names:
        raise SystemExit(f"{path}: no {MISSES}: give it to ncu's --metrics")
    return float(values[names.index(MISSES)].replace(",", ""))


def main():
    args = arguments()
    if args.chunks < 1:
        raise SystemExit(f"--chunks {args.chunks}: a launch runs one at least")
    if args.least <= 0:
        raise SystemExit(f"--least {args.least}: more than 0, or every line of the kernel counts")
    lines = lines_run(instructions(args.source), args.chunks, args.least)
    print(
        f"{sum(lines.values())} instructions in {len(lines)} lines of {SETS * WAYS}, "
        f"{beyond_ways(lines)} of them too many for their sets"
    )
    if args.raw:
        print(f"{misses(args.raw) / args.chunks:.1f} misses a chunk")
    return 0


if __name__ == "__main__":
    sys.exit(main())
