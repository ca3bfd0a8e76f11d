"""timing.py - how long a call takes: on the device by CUDA-graph replay, on the host by bursts. Knows no operator."""

import math
import statistics
import threading
import time

import torch

SAMPLE_MS = 5.0
QUEUE = 1000  # launches that a stream takes without waiting
READ_BYTES = 640 << 20  # of weights between two calls of a model: more than an L2 holds, of tensors and of code


def event():
    return torch.cuda.Event(enable_timing=True)


def median_mad(values):
    middle = statistics.median(values)
    return middle, statistics.median(abs(v - middle) for v in values)


class Clocks:
    """SM clock and power while it runs, by NVML where there is one; never sets anything."""

    def __init__(self, wanted=True):
        self.seen, self._stop, self._thread = [], threading.Event(), None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        except Exception:  # no NVML: clocks are left out of the results
            wanted = False
        self._wanted = wanted

    def _watch(self):
        while not self._stop.wait(0.02):
            self.seen.append(
                (
                    self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM),
                    self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,
                )
            )

    def __enter__(self):
        if self._wanted:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        if self._thread:
            self._thread.join()

    def field(self):
        if not self.seen:
            return None
        mhz, watts = zip(*self.seen)
        return {"sm_mhz_median": statistics.median(mhz), "sm_mhz_min": min(mhz), "watts_max": round(max(watts))}


class Graph:
    """Calls captured one after the other; times are of one call."""

    def __init__(self, calls):
        self.count = len(calls)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for call in calls:
                call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.outputs = [call() for call in calls]

    def replay_us(self, times):
        first, last = event(), event()
        first.record()
        for _ in range(times):
            self.graph.replay()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3 / times / self.count

    def measure(self, samples, sustained_s):
        self.replay_us(1)
        one = self.replay_us(2)  # clocks up, code resident
        times = max(1, math.ceil(SAMPLE_MS * 1e3 / (one * self.count)))
        self.replay_us(times)
        median, mad = median_mad([self.replay_us(times) for _ in range(samples)])
        out = dict(median_us=median, mad_us=mad, samples=samples, method="graph")
        if sustained_s:
            with Clocks() as clocks:
                out["sustained_us"] = self.replay_us(max(1, math.ceil(sustained_s * 1e6 / (median * self.count))))
            out["clocks"] = clocks.field()
        return out


class Apart:
    """Calls each behind a read of READ_BYTES, without what the read takes: as a call of a model finds a GPU."""

    CALLS = 24

    def __init__(self, calls):
        source, total = torch.zeros(READ_BYTES // 4, device="cuda"), torch.empty((), device="cuda")
        read = lambda: torch.sum(source, dim=0, out=total)  # noqa: E731
        calls = [calls[i % len(calls)] for i in range(self.CALLS)]
        self.reads = Graph([read] * len(calls))
        self.both = Graph([f for call in calls for f in (read, call)])
        self.us()  # code resident, as far as that goes

    def us(self, times=1):
        return 2 * self.both.replay_us(times) - self.reads.replay_us(times)

    def measure(self, samples):
        found = statistics.median(self.us() for _ in range(samples))
        return dict(apart_us=found) if found > 0 else {}  # else it is less than the reads vary


def eager(call, samples, repeats=4):
    """Between events around calls that follow each other: for a call so long that the host does not count."""

    def batch():
        first, last = event(), event()
        first.record()
        for _ in range(repeats):
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3 / repeats

    batch()
    median, mad = median_mad([batch() for _ in range(samples)])
    return dict(median_us=median, mad_us=mad, samples=samples, method="kernel")


def kernels(calls, repeats=5):
    """Sum of the kernels' times, for what cannot be captured."""
    from torch.profiler import ProfilerActivity, profile

    sums = []
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    for i in range(repeats):
        with profile(activities=[ProfilerActivity.CUDA]) as p:
            calls[i % len(calls)]()
            torch.cuda.synchronize()
        sums.append(sum(e.device_time_total for e in p.key_averages()))
    median, mad = median_mad(sums)
    return dict(median_us=median, mad_us=mad, samples=repeats, method="kernel")


def host(calls, launches=1, samples=12):
    """Time until a call returns, in bursts that never fill the launch queue; `launches` is an upper bound a call."""
    burst = max(1, min(50, QUEUE // (2 * launches)))
    values = []
    for i in range(samples + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for j in range(burst):
            calls[j % len(calls)]()
        values.append((time.perf_counter() - start) * 1e6 / burst)
    torch.cuda.synchronize()
    median, mad = median_mad(values[2:])
    return dict(median_us=median, mad_us=mad, samples=samples, method="host")
