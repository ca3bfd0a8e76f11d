"""base.py - what an implementation is to run.py, and the exception for a row that it does not take."""


class Unsupported(Exception):
    """This implementation has no such row; the text is the reason and goes to the output, not to the results."""


def forget_triton_tuning():
    """Empties Triton's autotuners: tuned beside other processes they may have chosen badly. Compiled code is kept."""
    import gc

    from triton.runtime.autotuner import Autotuner

    for tuner in gc.get_objects():
        if isinstance(tuner, Autotuner):
            tuner.cache.clear()


class Impl:
    """A subclass imports its package in __init__, so that only the chosen ones need to be installed.

    prepare(row, x, variant) converts what a caller converts once (layouts, linear gates, transposed states) and returns
    a function without arguments that does one call and returns (o, state): GDN's o [T, hv, D] and state
    [N, hv, DK, DV], conv1d's (q, k, v, ...) and state [N, C, W-1]. Outputs may be allocated inside, as users do.
    """

    name = None
    variants = ("",)
    ops = ("gdn_prefill",)
    exact = True  # computes what the formula says for every input
    norms = False  # gdn_prefill: normalises q and k in the call where the row says so
    launches = 8  # upper bound of a call's launches, for host timing

    def versions(self):
        return {}

    def check(self, row, variant):
        """Raises Unsupported."""

    def prepare(self, row, x, variant):
        raise NotImplementedError

    def before_timing(self):
        """After every row was called once, beside other processes that compile: forgets what was tuned meanwhile."""

    def seen(self, x):
        """The inputs as this implementation sees them, when it rounds some: what its error is measured against."""
        return x

    def label(self, row, variant):
        """The result's `impl`."""
        return self.name

    def describe(self, row, x, variant):
        """More fields of the result: params, note, nvrtc."""
        return {}

    def reset(self, x, fresh):
        """Puts back what a call changes in place: the conv state."""
        if getattr(x, "state", None) is not None:
            x.state.copy_(fresh.state)
