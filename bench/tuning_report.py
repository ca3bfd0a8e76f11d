#!/usr/bin/env python3
"""tuning_report.py - tuning files (gdn-jit-tuning(5)) -> tables in Markdown, and a plot.

    tuning_report.py tuning/sm_90a/nvidia_h200.json > table.md
    tuning_report.py --plot tuned.svg h200.json          (needs matplotlib)
    tuning_report.py --against second.json first.json    whether two tunings of one GPU agree

Of every slot: what the model would have chosen and how long that takes, what was chosen, how far its samples spread.
Gain is (heuristic - tuned) / heuristic, of the run that decided: it flatters a little, since a winner is also a lucky
one.
"""

import argparse
import json
import math
import sys

TIE = 0.02  # docs/tuning.md


def problem_name(problem):
    heads = "/".join(str(problem[f"num_{x}_heads"]) for x in "qkv")
    dims = f"{problem['head_dim_qk']}/{problem['head_dim_v']}"
    name = f"{problem['kernel']} {problem['io_type']} heads {heads} dims {dims}"
    return name + (" l2norm" if problem["l2norm"] else "") + (f" width {problem['width']}" if problem["width"] else "")


def size_name(slot):
    tokens = "> 1048576" if slot["tokens"] > 1 << 20 else f"<= {slot['tokens']}"
    return f"{tokens}, {'any' if slot['seqs'] == 0 else '<= %d' % slot['seqs']}"


def read(path):
    """Slots of a file, each with its problem's name, in the file's order; and what the file is of."""
    with open(path, encoding="utf-8") as file:
        table = json.load(file)
    if table.get("schema") != 1:
        sys.exit(f"{path}: \"schema\" is {table.get('schema')}: this script reads 1")
    slots = []
    for problem in table["problems"]:
        for slot in problem["slots"]:
            slots.append(dict(slot, problem=problem_name(problem)))
    return table, slots


def gain(slot):
    return 1 - slot["median_ns"] / slot["heuristic_ns"]


def params_text(params):
    return " ".join(f"{name}={value}" for name, value in params.items())


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0


def print_table(table, slots, out):
    out.write(f"{table['gpu']}, {table['num_sms']} SMs, {table['arch']}; space {table['space']}\n")
    for run in table["runs"]:
        made_with = f"driver {run['driver']}, NVRTC {run['nvrtc']}, kernel {run['code']}"
        out.write(f"run {run['id']}: {run['date']}, {made_with}\n")
    last = None
    for slot in slots:
        if slot["problem"] != last:
            last = slot["problem"]
            out.write(f"\n### {last}\n\n")
            out.write("| tokens, seqs | heuristic us | tuned us | MAD | gain | samples | parameters |\n")
            out.write("|---|---:|---:|---:|---:|---:|---|\n")
        out.write(
            f"| {size_name(slot)} | {slot['heuristic_ns'] / 1e3:.2f} | {slot['median_ns'] / 1e3:.2f} "
            f"| {100 * slot['mad_ns'] / slot['median_ns']:.1f} % | {100 * gain(slot):.1f} % | {slot['samples']} "
            f"| {params_text(slot['params'])} |\n"
        )
    print_summary(slots, out)


def print_summary(slots, out):
    ratios = [slot["heuristic_ns"] / slot["median_ns"] for slot in slots]
    if not slots:
        out.write("\nNo slot.\n")
        return
    worst = min(slots, key=gain)
    out.write(
        f"\n{len(slots)} slots; {sum(gain(s) > TIE for s in slots)} faster by more than the tie band; "
        f"geometric mean of heuristic / tuned {geometric_mean(ratios):.3f}; worst {1 / (1 - gain(worst)):.3f} "
        f"({worst['problem']}, {size_name(worst)})\n"
    )


def slot_key(slot):
    return slot["problem"], slot["tokens"], slot["seqs"]


def compare(first, second, out):
    """True when two tunings agree on at least 95 % of the slots that both have."""
    others = {slot_key(slot): slot for slot in second}
    both = [(slot, others[slot_key(slot)]) for slot in first if slot_key(slot) in others]
    same = [pair for pair in both if pair[0]["params"] == pair[1]["params"]]
    apart = []
    for a, b in both:
        low, high = sorted((a["median_ns"], b["median_ns"]))
        if a["params"] != b["params"] and high > low * (1 + TIE):
            apart.append((a, b))
    within = len(both) - len(same) - len(apart)
    out.write(
        f"{len(both)} slots in both: {len(same)} choose alike, {within} differ within the tie band, "
        f"{len(apart)} outside of it\n"
    )
    for a, b in apart:
        out.write(f"  {a['problem']}, {size_name(a)}: {params_text(a['params'])} ({a['median_ns'] / 1e3:.2f} us) and "
                  f"{params_text(b['params'])} ({b['median_ns'] / 1e3:.2f} us)\n")
    return bool(both) and len(apart) <= 0.05 * len(both)


def plot(table, slots, path):
    try:
        import matplotlib
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ordered = sorted(slots, key=gain)
    heights = [100 * gain(slot) for slot in ordered]
    spreads = [100 * slot["mad_ns"] / slot["heuristic_ns"] for slot in ordered]
    colours = ["tab:blue" if slot["problem"].startswith("conv1d") else "tab:orange" for slot in ordered]
    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    axes.bar(range(len(ordered)), heights, yerr=spreads, color=colours, width=0.9, ecolor="0.3", capsize=1)
    axes.axhspan(-100 * TIE, 100 * TIE, color="0.85", zorder=0)
    axes.set_xlabel("slots, by gain")
    axes.set_ylabel("time saved against the heuristic, %")
    axes.set_title(f"{table['gpu']}: tuned against heuristic (bars: MAD; grey: tie band)")
    axes.legend(handles=[plt.Rectangle((0, 0), 1, 1, color=c) for c in ("tab:blue", "tab:orange")],
                labels=["conv1d-QKV", "GDN prefill"], frameon=False)
    figure.savefig(path)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--plot", metavar="FILE", help="an image of the gains")
    parser.add_argument("--against", metavar="FILE", help="another tuning of the same GPU; exit 1 when they disagree")
    options = parser.parse_args(arguments)
    table, slots = read(options.file)
    if options.plot:
        plot(table, slots, options.plot)
    if options.against:
        return 0 if compare(slots, read(options.against)[1], sys.stdout) else 1
    if not options.plot:
        print_table(table, slots, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
