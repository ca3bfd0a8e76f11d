#!/usr/bin/env python3
"""repeat.py - launches rows of prefill many times and compares every bit of o and the states with the first launch's.

    repeat.py --rows "1x2048_16 fp16 decay;1x4096_16" --runs 3000

For what one launch in a hundred shows: a race that small cases, repeated some hundred times, do not meet. Says where
the outputs of a launch that differs do so: chunks, heads, columns, from the first to the last. Exit status: 0; 1 when
a launch differs.
"""

import argparse
import collections
import sys

from core import rows

CHUNK = 64


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--impl", default="gdn-jit")
    p.add_argument("--rows", default="", help="texts, separated by ';': rows that hold any of them")
    p.add_argument("--runs", type=int, default=1000)
    return p.parse_args()


def where(o, first):
    """(chunk, head, column) of the first and the last place that differs, each by itself; tokens are of all rows."""
    differs = (o != first).nonzero()
    low, high = differs.amin(0).tolist(), differs.amax(0).tolist()
    return (low[0] // CHUNK, *low[1:]), (high[0] // CHUNK, *high[1:])


def repeat(impl, row, x, runs):
    import torch

    run = impl.prepare(row, x, "")
    first = [t.clone() for t in run()]
    places, states = collections.Counter(), 0
    for _ in range(runs):
        o, state = run()
        if not torch.equal(o, first[0]):
            places[where(o, first[0])] += 1
        states += not torch.equal(state, first[1])
    return places, states


def main():
    args = arguments()
    chosen = [row for row in rows.select(args.rows) if row.op == "gdn_prefill"]
    if not chosen:
        raise SystemExit(f"--rows {args.rows!r}: no row of prefill matches; run.py --list has them")
    from core import inputs
    from impls import registry

    impl, failed = registry.load(args.impl), False
    for row in chosen:
        places, states = repeat(impl, row, inputs.make_sets(row, 1)[0], args.runs)
        failed |= bool(places or states)
        print(f"{rows.key(row):60s} {args.runs} launches: o differs in {sum(places.values())}, states in {states}")
        for (low, high), count in places.most_common(5):
            print(f"    {count} x from chunk, head, column {low} to {high}")
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
