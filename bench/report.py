#!/usr/bin/env python3
"""report.py - results files -> tables in Markdown, and a plot. Needs no torch; the plot needs matplotlib.

    report.py results/*.jsonl > table.md
    report.py --plot gdn.svg results/2026-11-21_h200.jsonl
    report.py --plot-lengths lengths.svg r.jsonl          time against T, with and without partitions

A later line replaces an earlier one of the same measurement. Losing rows are shown like the others. Every ratio is of
lines of the files given: give files of one run on one GPU.
"""

import argparse
import sys

from core import rows, schema
from impls.registry import INEXACT

OURS, GENERIC = "gdn-jit", "gdn-jit-generic"
SMS = {"NVIDIA H200": 132, "NVIDIA H100 80GB HBM3": 132}
FALLBACK_GBPS, FALLBACK_TFLOPS = 4300.0, 790.0  # an H200's copy and GEMM, where the files hold no ceiling


def name_of(line):
    return line["impl"] + (":" + line["variant"] if line.get("variant") else "")


def place_of(line):
    """The row a line belongs to, as rows.key() writes it."""
    return f"{line['op']} {line['case']} {line.get('dtype')} {rows.kind_of(line)}"


def time_of(line):
    """The figure that counts: what the GPU sustains, else the burst."""
    return line.get("sustained_us") or line.get("median_us")


class Results:
    """Lines by place, implementation, method class and L2."""

    def __init__(self, lines):
        self.lines, self.kept, self.ceilings, self.errors = lines, {}, {}, {}
        for line in lines:
            if line["op"] == "ceiling":
                self.ceilings[line["impl"], line["case"], line.get("dtype")] = line
            elif "error" in line:
                self.errors[place_of(line), name_of(line)] = line
            else:
                host = line["method"] == "host"
                self.kept[place_of(line), name_of(line), host, None if host else line.get("l2", "cold")] = line
                self.errors.pop((place_of(line), name_of(line)), None)

    def get(self, row, name, host=False, l2="cold"):
        """The line of an implementation's fastest variant, or of the one that is named; None where there is none."""
        found = [
            x
            for key, x in self.kept.items()
            if key[0] == rows.key(row) and name in (key[1], x["impl"]) and key[2] == host and (host or key[3] == l2)
        ]
        return min(found, key=time_of, default=None)

    def names(self, op, host=False, variants=False):
        """Implementations of an operator in the schema's order, ours last."""
        known = {rows.key(row) for row in self.rows(op)}
        found = {
            name_of(x) if variants else x["impl"] for key, x in self.kept.items() if key[0] in known and key[2] == host
        }
        return sorted(found, key=lambda n: (n.startswith(OURS), schema.IMPLS.index(n.split(":")[0]), n))

    def rows(self, op):
        """Known rows that hold a measurement, in the table's order."""
        have = {key[0] for key in self.kept}
        return [row for row in rows.ROWS if row.op == op and rows.key(row) in have]

    def best_exact(self, row):
        """The line of the fastest exact implementation that is not ours and whose numbers are sound."""
        found = [
            self.get(row, name) for name in self.names(row.op) if not name.startswith(OURS) and name not in INEXACT
        ]
        return min((x for x in found if x and x.get("err_o", 0) < 0.05), key=time_of, default=None)

    def copy_gbps(self):
        return next((x["gbps"] for key, x in self.ceilings.items() if key[0] == "copy"), FALLBACK_GBPS)

    def tflops(self):
        return max((x["tflops"] for x in self.ceilings.values() if "tflops" in x), default=FALLBACK_TFLOPS)

    def floors(self, row):
        """Milliseconds that the row's bytes and its matrix products take at the ceilings."""
        return row.floor_bytes() / self.copy_gbps() / 1e6, row.flops() / self.tflops() / 1e9


def ms(us):
    return f"{us / 1e3:.4f}" if us < 1e5 / 1e3 else f"{us / 1e3:.3f}"


def cell(line):
    """Sustained ms, the variant, the burst in brackets; k: kernel times added up, since it cannot be captured."""
    if not line:
        return "-"
    text = (
        ms(time_of(line))
        + ("k" if line["method"] == "kernel" else "")
        + (" " + line["variant"] if "variant" in line else "")
    )
    return text + (f" ({ms(line['median_us'])})" if "sustained_us" in line else "")


def table(head, body):
    if not body:
        return []
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *("| " + " | ".join(r) + " |" for r in body), ""]


def machine_section(results):
    seen = {(x["gpu"], x["driver"]) for x in results.lines}
    versions = {}
    for line in results.lines:
        versions.update(line.get("versions", {}))
    nvrtc = {x["nvrtc"] for x in results.lines if x.get("nvrtc")}
    out = [
        f"GPU and driver: {'; '.join(' '.join(s) for s in sorted(seen))}. Versions: "
        + ", ".join(f"{k} {v}" for k, v in sorted(versions.items()))
        + (f", {'; '.join(sorted(nvrtc))}" if nvrtc else "")
        + f". Commit: {', '.join(sorted({x['commit'] for x in results.lines}))}. "
        + f"Dates: {min(x['date'] for x in results.lines)} to {max(x['date'] for x in results.lines)}.",
        "",
    ]
    body = []
    for line in results.ceilings.values():
        rate = (
            f"{line['tflops']:.0f} TFLOP/s"
            if "tflops" in line
            else f"{line['gbps']:.0f} GB/s" if "gbps" in line else "-"
        )
        body.append(
            [
                line["case"],
                line.get("dtype", "-"),
                f"{line['median_us']:.2f}",
                f"{line['sustained_us']:.2f}" if "sustained_us" in line else "-",
                rate,
            ]
        )
    return out + table(["ceiling", "dtype", "us", "sustained us", "rate"], body)


def verdict(ratio, needed):
    return f"{ratio:.2f}" + (f" of {needed:.2f}: {'reached' if ratio >= needed else 'missed'}" if needed else "")


def gdn_row(results, row, names):
    ours, peer = results.get(row, OURS) or results.get(row, GENERIC), results.best_exact(row)
    needed = row.best_exact / row.goal if row.goal else 0.0
    out = [
        f"{row.case} {row.dtype} {row.kind}",
        " / ".join(ms(1e3 * floor) for floor in results.floors(row)),
        *(cell(results.get(row, n)) for n in names),
        name_of(peer) if peer else "-",
    ]
    if not (ours and peer):
        return [*out, "-"]
    return [*out, verdict(time_of(peer) / time_of(ours), needed)]


def gdn_section(results):
    names = results.names("gdn_prefill")
    body = [gdn_row(results, row, names) for row in results.rows("gdn_prefill")]
    head = (
        "Milliseconds, L2 cold: sustained (burst), the fastest variant. The last column is the best exact peer's "
        f"time over ours, and the ratio wanted. Not exact: {', '.join(INEXACT)}."
    )
    return ["## GDN prefill", "", head, ""] + table(
        ["row", "floor: bytes / products", *names, "best exact peer", "peer / ours"], body
    )


def generic_section(results):
    body = []
    for row in results.rows("gdn_prefill"):
        ours, fla = results.get(row, GENERIC), results.get(row, "fla")
        if row.over_fla and ours and fla:
            body.append(
                [
                    f"{row.case} {row.dtype} {row.kind}",
                    cell(ours),
                    cell(fla),
                    verdict(time_of(fla) / time_of(ours), row.over_fla),
                ]
            )
    return (["## The generic kernel beside FLA", ""] if body else []) + table(
        ["row", GENERIC, "fla", "fla / ours"], body
    )


def steady_section(results):
    body, sms = [], SMS.get(results.lines[0]["gpu"], 0)
    names = [n for n in results.names("gdn_prefill") if n not in INEXACT]
    for row in results.rows("gdn_prefill"):
        if "steady" in row.tags and sms:
            lines = [results.get(row, n) for n in names]
            body.append(
                [
                    f"{row.case} {row.dtype} {row.kind}",
                    *(f"{row.chunk_us(time_of(x), sms):.2f}" if x else "-" for x in lines),
                ]
            )
    return (["## Microseconds per chunk and state head on an SM", ""] if body else []) + table(["row", *names], body)


def conv_cell(results, row, name):
    """us cold / warm, and the ratio to the copy, cold."""
    cold, warm = results.get(row, name), results.get(row, name, l2="warm")
    if not cold:
        return "-"
    text = f"{time_of(cold):.1f}" + (f" / {time_of(warm):.1f}" if warm else "")
    copy = results.get(row, "copy")
    return text + (f" ({time_of(copy) / time_of(cold):.2f})" if copy and name != "copy" else "")


def conv_section(results):
    names, body = results.names("conv1d_qkv", variants=True), []
    for row in results.rows("conv1d_qkv"):
        ours, copy = results.get(row, OURS), results.get(row, "copy")
        last = verdict(time_of(copy) / time_of(ours), row.to_copy) if ours and copy else "-"
        body.append(
            [f"{row.case} {row.dtype} {'+'.join(row.features)}", *(conv_cell(results, row, n) for n in names), last]
        )
    return (
        ["## conv1d-QKV", "", "Microseconds, sustained: L2 cold / warm (copy's time over this one's, cold).", ""]
        if body
        else []
    ) + table(["row", *names, "copy / ours"], body)


def beside_section(results):
    """Rows that may take little longer than another one: with norm and gates, with checkpoints, of skewed lengths."""
    body = []
    for row in results.rows("conv1d_qkv"):
        if not row.beside:
            continue
        case, features, most = row.beside
        base = next(r for r in rows.CONV_ROWS if (r.case, r.features, r.dtype) == (case, features, row.dtype))
        for l2 in ("cold", "warm"):
            ours, other = results.get(row, OURS, l2=l2), results.get(base, OURS, l2=l2)
            if ours and other:
                body.append(
                    [
                        f"{rows.key(row).split(' ', 1)[1]}, {l2}",
                        f"{time_of(ours):.1f}",
                        f"{case} {'+'.join(features)}",
                        f"{time_of(other):.1f}",
                        verdict(time_of(other) / time_of(ours), 1 / most),
                    ]
                )
    return (["## conv1d-QKV, what a row costs beside another", ""] if body else []) + table(
        ["row", "us", "beside", "us", "the other / this"], body
    )


def host_section(results):
    out = []
    for op in ("gdn_prefill", "conv1d_qkv"):
        names = results.names(op, host=True)
        body = [
            [
                f"{row.case} {row.dtype}",
                *(f"{x['median_us']:.1f}" if x else "-" for x in (results.get(row, n, host=True) for n in names)),
            ]
            for row in results.rows(op)
            if any(results.get(row, n, host=True) for n in names)
        ]
        out += ([f"## Host microseconds per call from Python, {op}", ""] if body else []) + table(["row", *names], body)
    return out


def apart_section(results):
    """Calls that each stand behind a read of 640 MB."""
    out = []
    for op in schema.OPS:
        names, body = results.names(op), []
        for row in results.rows(op):
            found = [results.get(row, n) for n in names]
            cells = [f"{x['apart_us']:.1f}" if x and "apart_us" in x else "-" for x in found]
            if set(cells) != {"-"}:
                body.append([rows.key(row).split(" ", 1)[1], *cells])
        out += ([f"## Microseconds of calls apart, {op}", ""] if body else []) + table(["row", *names], body)
    return out


def errors_section(results):
    out = []
    for op in ("gdn_prefill", "conv1d_qkv"):
        names, body = [n for n in results.names(op) if n != "copy"], []
        for row in results.rows(op):
            lines = [results.get(row, n) for n in names]
            cells = [
                (
                    f"{x['err_o']:.1e} / {x['err_state']:.1e}"
                    if x and "err_o" in x and "err_state" in x
                    else f"{x['err_o']:.1e}" if x and "err_o" in x else "-"
                )
                for x in lines
            ]
            if set(cells) != {"-"}:
                body.append([rows.key(row).split(" ", 1)[1], *cells])
        out += ([f"## Errors of o / state against float64, {op}", ""] if body else []) + table(["row", *names], body)
    failed = [[*key, line["error"]] for key, line in results.errors.items()]
    return out + (["## What failed", ""] if failed else []) + table(["row", "implementation", "why"], failed)


def tables(lines):
    results, out = Results(lines), []
    for section in (
        machine_section,
        gdn_section,
        generic_section,
        steady_section,
        conv_section,
        beside_section,
        apart_section,
        host_section,
        errors_section,
    ):
        out += section(results)
    return "\n".join(out)


def plot_rows(axis, results, op):
    """Time of each implementation, and the time of the matrix products, over the time of the row's bytes."""
    shown = results.rows(op)
    for name in results.names(op, variants=op == "conv1d_qkv"):
        points = [(time_of(line) / 1e3 / results.floors(row)[0], -i) for i, row in enumerate(shown)
                  if (line := results.get(row, name))]  # fmt: skip
        axis.plot(*zip(*points), "D" if name.startswith(OURS) else "o", label=name, alpha=0.8)
    products = [(results.floors(row)[1] / results.floors(row)[0], -i) for i, row in enumerate(shown)]
    if op == "gdn_prefill":
        axis.plot(*zip(*products), "|", color="black", markersize=12, label="its matrix products")
    axis.set_yticks([-i for i in range(len(shown))], [rows.key(row).split(" ", 1)[1] for row in shown])
    axis.set_xscale("log")
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.set_title(f"{op}: time over the time of its bytes")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.01, 0.5))


def plot(lines, path):
    """A roofline in one dimension: 1 is the row's bytes at the measured copy bandwidth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    results = Results(lines)
    ops = [op for op in ("gdn_prefill", "conv1d_qkv") if results.rows(op)]
    heights = [max(3, len(results.rows(op))) for op in ops]
    figure, axes = pyplot.subplots(
        len(ops), 1, figsize=(10, 1.5 + 0.3 * sum(heights)), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, op in zip(axes[:, 0], ops):
        plot_rows(axis, results, op)
    figure.tight_layout()
    figure.savefig(path)


LENGTHS_IMPLS = {OURS: "-", "gdn-jit-whole": "--", "gdn-jit-invariant": ":"}


def lengths_curves(results, gates):
    """[(heads, implementation, [(tokens, ms), ...]), ...] of the rows tagged lengths, as far as they were measured."""
    curves = []
    for heads in rows.LENGTHS_HEADS:
        shown = [r for r in rows.GDN_ROWS if "lengths" in r.tags and (r.hv, r.gates) == (heads, gates)]
        for name in LENGTHS_IMPLS:
            points = sorted((r.tokens, time_of(x) / 1e3) for r in shown if (x := results.get(r, name)))
            if points:
                curves.append((heads, name, points))
    return curves


def plot_lengths(lines, path):
    """A panel with decay, one without; a colour a number of heads, a line style an implementation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    results = Results(lines)
    figure, axes = pyplot.subplots(1, 2, figsize=(13, 6), sharey=True)
    for axis, gates, title in zip(axes, ("decay", "zero"), ("gates that decay", "g = 0")):
        for heads, name, points in lengths_curves(results, gates):
            color = f"C{rows.LENGTHS_HEADS.index(heads)}"
            axis.plot(*zip(*points), LENGTHS_IMPLS[name], color=color, marker=".", label=f"{heads} heads, {name}")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("tokens of one sequence")
        axis.set_title(f"{title}: sustained ms, fp16")
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+")
    p.add_argument("--plot", metavar="FILE", help="svg, png or pdf")
    p.add_argument("--plot-lengths", metavar="FILE", help="the same: time against T, for 4 to 64 heads")
    args = p.parse_args()
    lines = schema.read(args.files)
    if not lines:
        raise SystemExit("no line in these files")
    if args.plot:
        plot(lines, args.plot)
    if args.plot_lengths:
        plot_lengths(lines, args.plot_lengths)
    print(tables(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
