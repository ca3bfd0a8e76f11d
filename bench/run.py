#!/usr/bin/env python3
"""run.py - times implementations of a row beside each other on the same tensors, one results line a measurement.

    run.py --impl gdn-jit,fla --tags table --out results.jsonl
    run.py --list                          the rows with their tags, and the implementations; needs no GPU

One process holds one Python environment: start one for each implementation whose packages do not go together, all with
the same --out and the same --turn: they compile side by side, then measure one after the other. Each (row,
implementation) is called once, compared with the float64 reference, and then timed. What an implementation does not
take is said and left out; what fails becomes a line with `error`. Exit status: 0; 1 when something failed; 3 when the
deadline passed.
"""

import argparse
import fcntl
import gc
import sys
import time
import traceback

from core import rows, schema


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--impl", default="gdn-jit", help="comma separated; NAME:VARIANT takes one of its variants")
    p.add_argument(
        "--rows", default="", help="texts, separated by ';': rows that hold any of them, as --list prints them"
    )
    p.add_argument("--tags", default="", help="comma separated: rows with any of them")
    p.add_argument("--out", help="results file, appended to")
    p.add_argument("--samples", type=int, default=12, help="of at least 5 ms each")
    p.add_argument(
        "--sustained", type=float, default=0.5, metavar="S", help="seconds of replay without a pause; 0: none"
    )
    p.add_argument("--l2", default="cold", help="cold, warm or cold,warm; a row that passes L2 by itself is only cold")
    p.add_argument("--apart", action="store_true", help="also each call behind a read of 640 MB, as in a model")
    p.add_argument("--host", action="store_true", help="also the host's time per call")
    p.add_argument("--no-errors", action="store_true", help="no comparison with the reference")
    p.add_argument("--ceilings", action="store_true", help="also copy, GEMM, smallest kernel and bare launch")
    p.add_argument("--compile-only", action="store_true", help="call each row once, to fill caches; writes nothing")
    p.add_argument(
        "--turn",
        metavar="FILE",
        help="a lock: compile every row first, then wait until no process compiles or measures",
    )
    p.add_argument("--deadline", type=float, default=float("inf"), metavar="EPOCH", help="start no row after this time")
    p.add_argument("--commit", help="written to each line; default: what git says")
    p.add_argument("--list", action="store_true")
    args = p.parse_args()
    if set(args.l2.split(",")) - {"cold", "warm"}:
        p.error(f"--l2 {args.l2}: cold, warm or both")
    return args


def print_list():
    for row in rows.ROWS:
        print(f"{rows.key(row):60s} {','.join(row.tags)}")
    from impls import registry

    print("implementations:", ", ".join(registry.MODULES))


class Run:
    """One process's run: where results go and what each line says of the machine."""

    def __init__(self, args):
        from core import machine

        self.args, self.now, self.base, self.failed = args, machine.now, machine.fields(args.commit), 0
        self.compiling, self.first_ms = args.compile_only, {}

    def write(self, line, versions):
        versions = {**self.base["versions"], **versions}
        kept = schema.write(self.args.out, {**self.base, **line, "versions": versions, "date": self.now()})
        print(text_of(kept), flush=True)


def text_of(line):
    name = line["impl"] + (":" + line["variant"] if line.get("variant") else "")
    kind = rows.kind_of(line)
    words = [f"{line['op']:11s} {name:22s} {line['case']:28s} {line.get('dtype', ''):4s} {kind:8s}"]
    words.append(f"{line.get('method', ''):6s} {line.get('l2', ''):4s}")
    if "error" in line:
        return " ".join(words) + " ERROR " + line["error"]
    words.append(f"{line['median_us']:10.2f} us")
    for field, form in (
        ("sustained_us", "sustained {:.2f}"),
        ("apart_us", "apart {:.2f}"),
        ("ratio_to_copy", "{:.3f} of copy"),
        ("tflops", "{:.0f} TFLOP/s"),
        ("gbps", "{:.0f} GB/s"),
        ("err_o", "err o {:.1e}"),
        ("err_state", "state {:.1e}"),
        ("first_ms", "first {:.0f} ms"),
        ("note", "({})"),
    ):
        if field in line:
            words.append(form.format(line[field]))
    return " ".join(words)


class Errors:
    """The reference of one row, computed once in this process, or again for what an implementation sees instead."""

    def __init__(self, row, x):
        self.row, self.x, self.result = row, x, None

    def reference(self, impl):
        from core import reference

        seen = impl.seen(self.x)
        if seen is not self.x:
            return reference.of(seen, self.row)
        if self.result is None:
            self.result = reference.of(self.x, self.row)
        return self.result

    def of(self, impl, found):
        from core import reference

        o, state = self.reference(impl)
        err_o, maxabs_o = reference.distance(found[0], o)
        err_state, maxabs_state = reference.distance(found[1], state)
        return dict(err_o=err_o, err_state=err_state, maxabs_o=maxabs_o, maxabs_state=maxabs_state)


def poison():
    """What the allocator hands out next is NaN: an output that is not written does not pass."""
    import torch

    junk = torch.full((64 << 20,), float("nan"), device="cuda")
    del junk


def first_call(call):
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    found = call()
    torch.cuda.synchronize()
    return found, (time.perf_counter() - start) * 1e3


def timed(calls, args, apart):
    from core import timing

    try:
        times = timing.Graph(calls).measure(args.samples, args.sustained)
    except RuntimeError as e:
        if "captur" not in str(e).lower():
            raise
        import torch

        torch.cuda.synchronize()
        return dict(timing.kernels(calls), note="not capturable: " + schema.sentence(e)[:120])
    return {**times, **(timing.Apart(calls).measure(args.samples) if apart else {})}


def measure(row, impl, variant, sets, errors, run, copies):
    """All lines of one (row, implementation, variant)."""
    from core import timing

    args = run.args
    calls = [impl.prepare(row, x, variant) for x in sets]
    impl.reset(sets[0], errors.x)
    poison()
    found, first_ms = first_call(calls[0])
    first_ms = run.first_ms.setdefault((rows.key(row), impl.name, variant), first_ms)
    if run.compiling:
        print(f"{rows.key(row)} {impl.name}:{variant} first call {first_ms:.0f} ms", flush=True)
        return
    line = dict(row.fields(), impl=impl.label(row, variant), variant=variant or None, lens=schema.lens_field(row.lens))
    line.update(impl.describe(row, sets[0], variant))
    if not args.no_errors and found[0] is not None:
        line.update(errors.of(impl, found))
    for l2 in args.l2.split(","):
        if l2 == "warm" and len(sets) == 1:
            continue
        chosen = calls if l2 == "cold" else calls[:1]
        times = timed(chosen, args, args.apart and l2 == "cold")
        if impl.name == "copy":
            copies[l2] = times["median_us"]
        elif l2 in copies:
            times["ratio_to_copy"] = copies[l2] / times["median_us"]
        run.write({**line, **times, "l2": l2, "first_ms": first_ms}, impl.versions())
    if args.host and impl.name != "copy":
        run.write({**line, **timing.host(calls, impl.launches, args.samples)}, impl.versions())


def run_row(row, chosen, run):
    import torch

    from core import inputs
    from impls.base import Unsupported

    sets, errors, copies = None, None, {}
    for impl, variant in chosen:
        if row.op not in impl.ops:
            continue
        try:
            if row.op == "gdn_prefill" and row.normed and not impl.norms:
                raise Unsupported("its call does not normalise q and k")
            impl.check(row, variant)
            if sets is None:
                sets = inputs.make_sets(row, 1 if run.compiling else inputs.sets_for(row))
                errors = Errors(row, inputs.make(row, inputs.FIRST_SEED))
                errors.x.cu = sets[0].cu
            measure(row, impl, variant, sets, errors, run, copies)
        except Unsupported as e:
            if not run.compiling:
                print(f"{rows.key(row)} {impl.name}{':' + variant if variant else ''} left out: {e}", flush=True)
        except Exception as e:  # one implementation's failure is a result, not the end of the run
            traceback.print_exc()
            run.failed += not run.compiling or run.args.compile_only
            if not run.compiling:
                line = dict(row.fields(), impl=impl.name, variant=variant or None, lens=schema.lens_field(row.lens))
                run.write(dict(line, error=schema.sentence(e)), impl.versions())
        gc.collect()
        torch.cuda.empty_cache()


def chosen_impls(text):
    from impls import registry

    chosen = []
    for word in text.split(","):
        name, _, variant = word.partition(":")
        impl = registry.load(name)
        if variant and variant not in impl.variants:
            raise SystemExit(f"{name} has no variant {variant!r}: {', '.join(impl.variants)}")
        chosen += [(impl, v) for v in ([variant] if variant else impl.variants)]
    return chosen


class Turn:
    """A file lock: shared while compiling, so that processes do it side by side; exclusive while measuring."""

    def __init__(self, path):
        self.file = open(path, "a")
        fcntl.flock(self.file, fcntl.LOCK_SH)

    def take(self):
        fcntl.flock(self.file, fcntl.LOCK_UN)
        fcntl.flock(self.file, fcntl.LOCK_EX)


def run_rows(selected, chosen, run):
    """False when the deadline stopped it."""
    for row in selected:
        if time.time() > run.args.deadline:
            print(f"deadline: {rows.key(row)} and what follows were not run", flush=True)
            return False
        run_row(row, chosen, run)
    return True


def compile_then_wait(selected, chosen, run, turn):
    run.compiling = True
    run_rows(selected, chosen, run)
    run.compiling = False
    for impl, _ in chosen:
        impl.before_timing()
    turn.take()


def main():
    args = arguments()
    if args.list:
        print_list()
        return 0
    selected = rows.select(args.rows, args.tags)
    if not selected and not args.ceilings:
        raise SystemExit("no row matches: --list prints them")
    turn = (
        Turn(args.turn) if args.turn else None
    )  # before anything slow: who starts first must not measure beside who imports
    chosen = chosen_impls(args.impl) if selected else []
    run = Run(args)
    if turn:
        compile_then_wait(selected, chosen, run, turn)
    if args.ceilings and not args.compile_only:
        from core import ceilings

        for line in ceilings.lines(args.samples, args.sustained):
            run.write(line, {})
    if not (args.no_errors or args.compile_only) and any(row.op == "gdn_prefill" for row in selected):
        from core import inputs, reference

        reference.check_gdn(rows.GdnRow, inputs)
    finished = run_rows(selected, chosen, run)
    return 3 if not finished else 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
