#!/usr/bin/env python3
"""tuning_report.py - tuning files (gdn-jit-tuning(5)) -> tables in Markdown, and a plot.

    tuning_report.py tuning/sm_90a/nvidia_h200.json > table.md
    tuning_report.py --plot tuned.svg h200.json          (needs matplotlib)
    tuning_report.py --against second.json first.json    whether two tunings of one GPU agree
    tuning_report.py --held-out gain.jsonl h200.json     what bench/tuned_gain measured on calls that were not tuned

Of every slot: what the model would have chosen and how long that takes, what was chosen, how far its samples spread.
Gain is (heuristic - tuned) / heuristic, of the run that decided: it flatters a little, since a winner is also a lucky
one. --held-out does not: other calls, other lengths, other code that takes the times. With it --plot shows both.
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


def heuristic_ns(slot):
    """The winner's own time where the heuristic's choice failed."""
    return slot["heuristic_ns"] or slot["median_ns"]


def gain(slot):
    return 1 - slot["median_ns"] / heuristic_ns(slot)


def params_text(params):
    return " ".join(f"{name}={value}" for name, value in params.items())


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0


def print_table(table, slots, out):
    out.write(f"{table['gpu']}, {table['num_sms']} SMs, {table['arch']}; space {table['space']}\n")
    for run in table["runs"]:
        clocks = f", {run['sm_mhz']} and {run['mem_mhz']} MHz" if run["sm_mhz"] else ""
        made_with = f"driver {run['driver']}, NVRTC {run['nvrtc']}, kernel {run['code']}{clocks}"
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
    ratios = [heuristic_ns(slot) / slot["median_ns"] for slot in slots]
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


def noise(line):
    return line["mad_us"] / line["median_us"]


def held_out(lines):
    """Of each call that bench/tuned_gain timed: heuristic / tuned, means of cold and warm, and the noise of both.

    Older files have lines of the variant "same" too, of calls that run alike."""
    calls = {}
    for line in lines:
        if line.get("variant") in ("tuned", "heuristic", "same"):
            calls.setdefault((line["case"], line["dtype"]), {})[line["variant"], line["l2"]] = line
    rows = []
    for (case, dtype), times in calls.items():
        row = {"case": case, "dtype": dtype, "same": ("same", "cold") in times, "ratio": 1.0, "noise": 0.0}
        us = {}
        for variant in ("same",) if row["same"] else ("tuned", "heuristic"):
            missing = [l2 for l2 in ("cold", "warm") if (variant, l2) not in times]
            if missing:
                sys.exit(f"{case}, {dtype}: no {missing[0]} line of the variant {variant}: the run was cut short")
            pair = [times[variant, l2] for l2 in ("cold", "warm")]
            us[variant] = sum(line["median_us"] for line in pair) / 2
            row["noise"] += sum(map(noise, pair)) / 2
        row["tuned_us"] = us.get("tuned", us.get("same"))
        row["heuristic_us"] = us.get("heuristic", us.get("same"))
        row["ratio"] = row["heuristic_us"] / row["tuned_us"]
        rows.append(row)
    return rows


def print_held_out(rows, out):
    """True when no call is slower than with the heuristic's choice by more than the tie band."""
    changed = sorted((row for row in rows if not row["same"]), key=lambda row: row["ratio"])
    if not changed:
        out.write("No call runs otherwise with the table than without.\n")
        return True
    slower = [row for row in changed if row["ratio"] < 1 / (1 + max(TIE, row["noise"]))]
    out.write("| call | dtype | heuristic us | tuned us | heuristic / tuned | noise |\n|---|---|---:|---:|---:|---:|\n")
    for row in changed:
        out.write(f"| {row['case']} | {row['dtype']} | {row['heuristic_us']:.2f} | {row['tuned_us']:.2f} "
                  f"| {row['ratio']:.3f} | {100 * row['noise']:.1f} % |\n")
    worst = f"{changed[0]['ratio']:.3f} ({changed[0]['case']}, {changed[0]['dtype']})"
    out.write(
        f"\n{len(changed)} calls that were not tuned run otherwise with the table; "
        f"{sum(row['ratio'] > 1 + TIE for row in changed)} faster and {len(slower)} slower by more than the tie band; "
        f"geometric mean of heuristic / tuned {geometric_mean([row['ratio'] for row in changed]):.3f}; worst {worst}\n"
    )
    return not slower


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(text) for text in file if text.strip()]


def plot(table, slots, path, rows=()):
    try:
        import matplotlib
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ordered = sorted(slots, key=gain)
    heights = [100 * gain(slot) for slot in ordered]
    spreads = [100 * slot["mad_ns"] / heuristic_ns(slot) for slot in ordered]
    colours = ["tab:blue" if slot["problem"].startswith("conv1d") else "tab:orange" for slot in ordered]
    figure, grid = plt.subplots(2 if rows else 1, figsize=(10, 8.5 if rows else 4.5), layout="constrained",
                                squeeze=False)
    axes, *more = grid[:, 0]
    axes.bar(range(len(ordered)), heights, yerr=spreads, color=colours, width=0.9, ecolor="0.3", capsize=1)
    axes.axhspan(-100 * TIE, 100 * TIE, color="0.85", zorder=0)
    axes.set_xlabel("slots, by gain")
    axes.set_ylabel("time saved against the heuristic, %")
    axes.set_title(f"{table['gpu']}: tuned against heuristic (bars: MAD; grey: tie band)")
    axes.legend(handles=[plt.Rectangle((0, 0), 1, 1, color=c) for c in ("tab:blue", "tab:orange")],
                labels=["conv1d-QKV", "GDN prefill"], frameon=False)
    for below in more:
        plot_held_out(below, rows)
    figure.savefig(path)


def plot_held_out(axes, rows):
    ordered = sorted(rows, key=lambda row: row["ratio"])
    gains = [100 * (1 - 1 / row["ratio"]) for row in ordered]
    colours = ["tab:blue" if row["case"].startswith("conv") else "tab:orange" for row in ordered]
    axes.bar(range(len(ordered)), gains, yerr=[100 * row["noise"] for row in ordered], color=colours, width=0.9,
             ecolor="0.3", capsize=1)
    axes.axhspan(-100 * TIE, 100 * TIE, color="0.85", zorder=0)
    axes.set_xlabel("calls that were not tuned, by gain")
    axes.set_ylabel("time saved against the heuristic, %")
    axes.set_title(f"held out: geometric mean of heuristic / tuned {geometric_mean([r['ratio'] for r in rows]):.3f}")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--plot", metavar="FILE", help="an image of the gains")
    parser.add_argument("--against", metavar="FILE", help="another tuning of the same GPU; exit 1 when they disagree")
    parser.add_argument("--held-out", metavar="FILE", help="results of bench/tuned_gain; exit 1 when a call is slower")
    options = parser.parse_args(arguments)
    table, slots = read(options.file)
    rows = held_out(read_lines(options.held_out)) if options.held_out else []
    if options.plot:
        plot(table, slots, options.plot, rows)
    if options.held_out and not options.against:
        return 0 if print_held_out(rows, sys.stdout) else 1
    if options.against:
        return 0 if compare(slots, read(options.against)[1], sys.stdout) else 1
    if not options.plot:
        print_table(table, slots, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
