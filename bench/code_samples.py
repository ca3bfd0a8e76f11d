#!/usr/bin/env python3
"""code_samples.py - where a kernel's warps are, and what they wait for there, by ncu's samples of its instructions.

    ncu -k regex:gdn_prefill --launch-skip 2 --launch-count 1 --section SourceCounters --warp-sampling-interval 0 \\
        -o r python3 A_PROGRAM_THAT_CALLS
    ncu -i r.ncu-rep --page source --csv > source.csv
    code_samples.py source.csv [--json]              pieces of code that run alike, and their share of all samples
    code_samples.py source.csv --from 3195 --to 3459  instructions one by one

A piece is a run of instructions that are executed equally often: what a role does of each chunk, or of some kind of
chunks. Divide a piece's share by its executions to compare two pieces: that goes as the time that a warp spends there.
Needs neither torch nor a GPU.
"""

import argparse
import itertools
import json
import sys

from core import ncu

LEAST = 0.002  # of all samples: smaller pieces are left out
STALLS = 3  # told of each instruction, or piece


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", help="ncu's source page as CSV, of one kernel")
    p.add_argument("--from", dest="first", type=int, help="number of an instruction, from 0")
    p.add_argument("--to", dest="last", type=int, help="number of another, behind it")
    p.add_argument("--least", type=float, default=LEAST, help="share of all samples from which on a piece is told of")
    p.add_argument("--json", action="store_true", help="pieces, as JSON")
    return p.parse_args()


def instructions(path):
    """Of each its text, executions, samples, and {stall: samples}."""
    rows = ncu.source_page(path, "Address", "Source", "Instructions Executed", "# Samples")
    return [
        dict(
            text=row["Source"].strip(),
            executed=ncu.count(row["Instructions Executed"]),
            samples=ncu.count(row["# Samples"]),
            stalls={
                name.removeprefix("stall_"): ncu.count(n)
                for name, n in row.items()
                if name.startswith("stall_") and "Not Issued" not in name
            },
        )
        for row in rows
    ]


def most(stalls, total):
    """The largest of them, as shares."""
    largest = sorted(((n, s) for s, n in stalls.items() if n), reverse=True)[:STALLS]
    return {stall: n / total for n, stall in largest}


def pieces(code, least=LEAST):
    """Runs of instructions that are executed equally often, with the share of all samples that they have."""
    total = sum(i["samples"] for i in code) or 1
    found = []
    for executed, run in itertools.groupby(enumerate(code), key=lambda x: x[1]["executed"]):
        run = list(run)
        samples = sum(i["samples"] for _, i in run)
        if samples < least * total:
            continue
        stalls = {s: sum(i["stalls"][s] for _, i in run) for s in run[0][1]["stalls"]}
        where = dict(first=run[0][0], last=run[-1][0], executed=executed)
        found.append(dict(where, share=samples / total, stalls=most(stalls, total)))
    return found


def told(shares, scale):
    return " ".join(f"{stall} {scale * share:.1f}" for stall, share in shares.items())


def main():
    args = arguments()
    code = instructions(args.source)
    if (args.first is None) != (args.last is None):
        raise SystemExit("--from and --to: both are wanted, or neither")
    if args.first is not None:
        if not 0 <= args.first <= args.last < len(code):
            raise SystemExit(f"--from {args.first} --to {args.last}: there are instructions 0 to {len(code) - 1}")
        total = sum(i["samples"] for i in code) or 1
        print("shares of all samples in 10^-4")
        for n, i in enumerate(code[args.first : args.last + 1], args.first):
            share, stalls = 1e4 * i["samples"] / total, told(most(i["stalls"], total), 1e4)
            print(f"{n:6d} {i['executed']:9d} {share:7.1f}  {i['text'][:64]:64s} {stalls}")
        return 0
    found = pieces(code, args.least)
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    for p in found:
        where = f"{p['first']:6d} to {p['last']:6d}  run {p['executed']:9d} times"
        print(f"{where} {100 * p['share']:6.2f} %  {told(p['stalls'], 100)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
