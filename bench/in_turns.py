#!/usr/bin/env python3
"""in_turns.py - builds of the library in turns on one card: what is a percent apart shows in no other way.

    in_turns.py --libraries "before=A/libgdnjit.so;now=B/libgdnjit.so" --rows "1x32768,4,4,fp16,zero;m,16,64,bf16,decay"
    in_turns.py --libraries ... --rows "conv,1x4096,2048,2048,2048,bf16,silu+state;conv,m,256,256,512,fp16,state+norm"

Each library has a process of its own, all on the same inputs. PATH@CACHE takes all kernels from that cache directory,
which another NVRTC may have filled (gdn-jit-cache warm), and compiles none. PATH!untold is not told how long a call's
longest sequence is, which libraries before max_seq_tokens refuse. A row is SEQUENCESxTOKENS, lengths one by one
(7000+9000, 63*1+4000), or m (the lengths of mixed32), q and v heads, dtype, gates, norms where it makes them; or conv,
the lengths, channels of q, k and v, dtype, features. Tensors rotate over several times what L2 holds. A turn is a burst
of some 4 ms behind a pause, in the other order each time; then, if wanted, turns of calls that each stand behind a
read of 640 MB; then turns of replay without a pause, which a card's power bounds. Prints medians, by how much sums of
outputs and states differ from the first library's, and whether their bits do; --out has every turn.
Exit status: 0; 1 when a row failed.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time

from core import rows, schema

BURST_US = 4000
KINDS = ("burst_us", "apart_us", "sustained_us")  # of a turn's times


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--libraries", help="NAME=PATH, NAME=PATH@CACHE or NAME=PATH!untold, separated by ';'")
    p.add_argument("--rows", help="separated by ';'")
    p.add_argument("--turns", type=int, default=9, help="bursts of each library")
    p.add_argument("--pause", type=float, default=0.15, metavar="S", help="before a burst")
    p.add_argument("--sustained", type=float, default=0.25, metavar="S", help="of a turn without a pause")
    p.add_argument("--sustained-turns", type=int, default=2)
    p.add_argument("--apart-turns", type=int, default=0, help="of calls each behind a read of 640 MB, as in a model")
    p.add_argument("--out", help="results file, JSON")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if not args.worker and not (args.libraries and args.rows):
        p.error("--libraries and --rows: both are wanted")
    return args


def lens_of(text):
    if text == "m":
        return rows.MIXED
    sequences, _, all_tokens = text.rpartition("x")
    lens = []
    for part in all_tokens.split("+"):
        count, _, tokens = part.rpartition("*")
        lens += [int(tokens)] * int(count or 1)
    return tuple(lens) * int(sequences or 1)


def conv_row_of(text):
    _, lens, q, k, v, dtype, features = text.split(",")
    return rows.conv_of(lens_of(lens), (int(q), int(k), int(v)), dtype, features.split("+"))


def row_of(text):
    if text.startswith("conv,"):
        return conv_row_of(text)
    lens, q, v, dtype, gates, *norms = text.split(",")
    if norms not in ([], ["norms"]):
        raise ValueError(f"{text}: behind the gates there may be norms")
    row = rows.gdn(lens_of(lens), int(q), int(v), dtype, gates, "")
    return rows.with_norms(row) if norms else row


def bits_of(tensor):
    """A number that another bit, or a value at another place, changes; the same in whatever order it is summed up."""
    import torch

    words = tensor.contiguous().view({2: torch.int16, 4: torch.int32}[tensor.element_size()]).flatten().long()
    return int((words * torch.arange(1, 2 * words.numel(), 2, device=words.device)).sum())


# ---- One library: commands on stdin, a line of JSON for each


class Worker:
    def __init__(self):
        from impls import registry

        self.impl = registry.load("gdn-jit")
        self.graph = self.calls = self.apart_calls = None

    def row(self, text):
        from core import inputs, timing

        row = row_of(text)
        sets = inputs.make_sets(row, inputs.sets_for(row))
        calls = [self.impl.prepare(row, x, "") for x in sets]
        out, state = calls[0]()  # conv1d: q, k, v and gates; a state that it may not have
        tensors = [t for t in (*(out if isinstance(out, list) else [out]), state) if t is not None]
        sums, bits = [float(t.float().abs().sum()) for t in tensors], [bits_of(t) for t in tensors]
        self.graph, self.calls, self.apart_calls = timing.Graph(calls), calls, None
        self.graph.replay_us(2)
        return dict(kernel=self.impl.chosen(row)["kernel"], sums=sums, bits=bits)

    def burst(self, _):
        return dict(us=self.graph.replay_us(self._replays(BURST_US)))

    def sustained(self, seconds):
        count = self._replays(float(seconds) * 1e6)
        self.graph.replay_us(max(1, count // 2))
        return dict(us=self.graph.replay_us(count))

    def apart(self, _):
        from core import timing

        self.apart_calls = self.apart_calls or timing.Apart(self.calls)
        return dict(us=self.apart_calls.us(2))

    def free(self, _):
        import torch

        self.graph = self.calls = self.apart_calls = None
        torch.cuda.empty_cache()
        return {}

    def _replays(self, us):
        return max(1, int(us / (self.graph.replay_us(1) * self.graph.count)))


def work():
    worker = None
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        try:
            worker = worker or Worker()
            said = getattr(worker, command)(argument)
        except Exception as e:  # pylint: disable=broad-except # the other libraries' turns go on
            said = dict(error=schema.sentence(e))
        print(json.dumps(said), flush=True)


# ---- All of them


def start(library):
    library, _, untold = library.partition("!")
    path, _, cache = library.partition("@")
    environment = dict(os.environ, GDN_JIT_LIBRARY=os.path.abspath(path), GDN_BENCH_UNTOLD=untold)
    if cache:
        environment |= dict(GDN_JIT_CACHE_DIR=os.path.abspath(cache), GDN_JIT_DISABLE_COMPILE="1")
    return subprocess.Popen(
        [sys.executable, __file__, "--worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def tell(worker, command):
    """Starts it, so that several workers prepare at once."""
    with contextlib.suppress(BrokenPipeError):  # one that has ended, which answer() says
        worker.stdin.write(command + "\n")
        worker.stdin.flush()


def answer(worker):
    line = worker.stdout.readline()
    found = json.loads(line) if line else dict(error="its process has ended")
    if "error" in found:
        raise RuntimeError(found["error"])
    return found


def in_turns(names, turns):
    """Names, turn by turn: forwards, backwards, forwards."""
    return [name for i in range(turns) for name in (names if i % 2 == 0 else names[::-1])]


def prepare(workers, text):
    """What each worker says of the row, or of why it has none: all answer, whatever one of them says."""
    for worker in workers.values():
        tell(worker, "row " + text)
    found, failed = {}, {}
    for name, worker in workers.items():
        try:
            found[name] = answer(worker)
        except RuntimeError as e:
            failed[name] = str(e)
    return found, failed


def take_turns(workers, args):
    times = {name: {kind: [] for kind in KINDS} for name in workers}
    for kind, command, turns in (
        ("burst_us", "burst", args.turns),
        ("apart_us", "apart", args.apart_turns),
        ("sustained_us", f"sustained {args.sustained}", args.sustained_turns),
    ):
        for name in in_turns(list(workers), turns):
            time.sleep(args.pause if kind == "burst_us" else 0)
            tell(workers[name], command)
            times[name][kind].append(answer(workers[name])["us"])
    return times


def measure(workers, text, args):
    found, failed = prepare(workers, text)
    try:
        times = {} if failed else take_turns(workers, args)
        libraries = {name: dict(times[name], **found[name]) for name in times}
    except RuntimeError as e:
        failed["turns"] = str(e)
    for name in found:
        tell(workers[name], "free")
        with contextlib.suppress(RuntimeError):  # said already, or by the next row
            answer(workers[name])
    return dict(row=text, error=failed) if failed else dict(row=text, libraries=libraries)


def line_of(result):
    if "error" in result:
        return f"{result['row']:32s} {result['error']}"
    libraries = result["libraries"]
    first = next(iter(libraries.values()))
    parts = []
    for name, x in libraries.items():
        burst, apart, sustained = (statistics.median(x[k]) if x[k] else float("nan") for k in KINDS)
        differ = max(abs(a / b - 1) if b else abs(a) for a, b in zip(x["sums"], first["sums"]))
        bits = "same" if x["bits"] == first["bits"] else "other"
        others = f" ({sustained:.2f})" + (f", apart {apart:.2f}" if x["apart_us"] else "")
        parts.append(f"{name} {burst:.2f}{others}, {differ:.0e}, {bits} bits")
    return f"{result['row']:32s} " + " | ".join(parts)


def main():
    args = arguments()
    if args.worker:
        return work()
    libraries = dict(x.split("=", 1) for x in args.libraries.split(";"))
    workers = {name: start(path) for name, path in libraries.items()}
    results = []
    for text in args.rows.split(";"):
        results.append(measure(workers, text, args))
        print(line_of(results[-1]), flush=True)
    if args.out:
        from core import machine

        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(dict(machine.fields(), date=machine.now(), rows=results), f)
    return int(any("error" in r for r in results))


if __name__ == "__main__":
    sys.exit(main())
