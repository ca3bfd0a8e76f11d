"""rows.py - what is measured: rows as data, and the goals they are held against. Knows neither torch nor an
implementation.

A goal is a ratio in one run, never a time: `best_exact` / `goal` are milliseconds of an H200 that fix the ratio which
ours must reach over the best exact implementation beside it; `over_fla` is the ratio that the generic kernel must
reach over FLA.
"""

import dataclasses
import math

DIM = 128
EVERY = 64  # tokens from checkpoint to checkpoint of a conv row
# 32 prompts of 37 to 4000 tokens, 16384 in all; bench/gdn_bench.c has the same.
MIXED = (
    37, 54, 156, 449, 1293, 37, 85, 245, 706, 4000, 46, 134, 386, 1112, 37, 73, 184, 607, 1750, 40, 115, 332,
    956, 37, 63, 181, 522, 1504, 37, 99, 285, 822,
)
# The packings of 16384 tokens that FlashQLA is profiled with (profile/settings/product.csv there).
PACKED = (
    (
        268, 871, 40, 33, 264, 1316, 410, 409, 115, 94, 276, 786, 1535, 1713, 62, 136, 1098, 1047, 529, 752, 534, 1797,
        1285, 1014,
    ),
    (
        3393, 703, 57, 1483, 217, 465, 459, 1415, 128, 611, 232, 331, 546, 73, 250, 198, 500, 327, 246, 654, 2257, 1743,
        96,
    ),
    (4096, 2015, 374, 104, 529, 1074, 864, 1392, 1840, 1744, 493, 1359, 128, 372),
    (177, 3919, 4096, 4096, 517, 366, 127, 2757, 329),
    (308, 820, 550, 2418, 652, 3444, 314, 1151, 595, 1861, 175, 4096),
    (4096, 2797, 772, 527, 4096, 4096),
    (410, 431, 294, 991, 386, 1584, 586, 340, 353, 884, 76, 245, 68, 660, 884, 2258, 1608, 230, 1927, 1065, 421, 683),
    (2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048),
)
# Steps of an engine that decodes beside prefill: sequences of one token, of which each moves a state of every head.
STEP = (4096, *(1,) * 255)
BYTES = {"bf16": 2, "fp16": 2, "f32": 4}
NORM = "qk_l2norm"
GATES = ("decay", "zero", "mixed", "alike", "repaired", "tileops")  # what inputs.py makes of them: bench/README.md


@dataclasses.dataclass(frozen=True)
class GdnRow:
    case: str
    lens: tuple
    hk: int  # q and k heads
    hv: int
    dtype: str
    gates: str
    h0: bool = False
    tags: tuple = ()
    best_exact: float = 0.0
    goal: float = 0.0
    over_fla: float = 0.0
    op: str = "gdn_prefill"
    features: tuple = ("final_state", "state_kv")

    @property
    def tokens(self):
        return sum(self.lens)

    @property
    def normed(self):
        """q and k of any length, normalised by the call."""
        return NORM in self.features

    @property
    def kind(self):
        return self.gates + ("+" + NORM if self.normed else "")

    @property
    def scale(self):
        return 1.0 if self.gates == "tileops" else DIM**-0.5

    def floor_bytes(self):
        """q, k, v, o in 16 bit, gates and beta in float32, states in float32: each read or written once."""
        t, n = self.tokens, len(self.lens)
        states = n * self.hv * DIM * DIM * 4 * (2 if self.h0 else 1)
        return t * (2 * self.hk + 2 * self.hv) * DIM * 2 + t * self.hv * 8 + states

    def flops(self):
        """Per chunk of 64 and head K K^T, Q K^T, T W, P V' (64 x 64 x D each), K S, Q S, K^T V' (64 x D x D each)."""
        return self.tokens * self.hv * 2 * (4 * 64 * DIM + 3 * DIM * DIM)

    def chunk_us(self, us, sms):
        """Microseconds per chunk of 64 tokens and state head on an SM."""
        return us / sum(math.ceil(n / 64) for n in self.lens) / self.hv * sms

    def fields(self):
        return dict(
            op=self.op,
            dtype=self.dtype,
            num_seqs=len(self.lens),
            tokens=self.tokens,
            hq=self.hk,
            hk=self.hk,
            hv=self.hv,
            dk=DIM,
            dv=DIM,
            case=self.case,
            lens=self.lens,
            h0=self.h0,
            state_dtype="f32",
            layout="thd",
            capacity=self.tokens,
            gates=self.gates,
            features=list(self.features),
            floor_bytes=self.floor_bytes(),
        )


@dataclasses.dataclass(frozen=True)
class ConvRow:
    case: str
    lens: tuple
    q_dim: int
    k_dim: int
    v_dim: int
    dtype: str = "bf16"
    width: int = 4
    features: tuple = ("silu", "state")
    tags: tuple = ()
    to_copy: float = 0.0  # goal: ratio to a device copy of the same bytes
    beside: tuple = ()  # goal: (case, features) of a row, and at most how many times as long this one may take
    op: str = "conv1d_qkv"

    @property
    def tokens(self):
        return sum(self.lens)

    @property
    def kind(self):
        return "+".join(self.features)

    @property
    def channels(self):
        return self.q_dim + self.k_dim + self.v_dim

    @property
    def gate_heads(self):
        return self.v_dim // DIM

    @property
    def num_checkpoints(self):
        return sum(n // EVERY for n in self.lens) if "checkpoints" in self.features else 0

    def floor_bytes(self):
        """x, weights, a and b read; q, k, v, g and beta written; state lines read and written, checkpoints written."""
        item, n = BYTES[self.dtype], len(self.lens)
        total = 2 * self.tokens * self.channels * item + self.channels * self.width * item
        if "state" in self.features:
            total += 2 * n * self.channels * (self.width - 1) * item
        if "gates" in self.features:
            total += self.tokens * self.gate_heads * (2 * item + 8)
        return total + self.num_checkpoints * (self.channels * (self.width - 1) * item + 24)

    def flops(self):
        return 2 * self.channels * self.tokens * self.width

    def fields(self):
        return dict(
            op=self.op,
            dtype=self.dtype,
            num_seqs=len(self.lens),
            tokens=self.tokens,
            q_dim=self.q_dim,
            k_dim=self.k_dim,
            v_dim=self.v_dim,
            width=self.width,
            case=self.case,
            lens=self.lens,
            layout="packed",
            capacity=self.tokens,
            features=list(self.features),
            floor_bytes=self.floor_bytes(),
        )


def name_of(lens, hk, hv):
    if lens == MIXED:
        shape = "mixed32"
    elif lens in PACKED:
        shape = f"packed{PACKED.index(lens) + 1}"
    elif lens == STEP:
        shape = "step256"
    else:
        shape = f"{len(lens)}x{lens[0]}"
    return f"{shape}_{hk}" if hk == hv else f"{shape}_{hk}_{hv}"


def gdn(lens, hk, hv, dtype, gates, tags, goal=None, over_fla=0.0):
    if gates not in GATES:
        raise ValueError(f"gates {gates}: there are {', '.join(GATES)}")
    if dtype not in BYTES:
        raise ValueError(f"dtype {dtype}: there are {', '.join(BYTES)}")
    lens = tuple(lens)
    exact, ours = goal or (0.0, 0.0)
    return GdnRow(
        name_of(lens, hk, hv), lens, hk, hv, dtype, gates, hk != hv, tuple(tags.split()), exact, ours, over_fla
    )


def with_norms(row):
    return dataclasses.replace(row, features=(*row.features, NORM))


def normed(lens, hk, hv, dtype):
    return with_norms(gdn(lens, hk, hv, dtype, "decay", "norms"))


LENGTHS_HEADS, LENGTHS_TOKENS = (4, 8, 16, 32, 64), tuple(1024 * 2**i for i in range(8))


def with_lengths(listed):
    """The rows, and one sequence of each length on each number of heads, fp16, with and without decay: where one of
    those is listed it only gets the tag. report.py --plot-lengths draws them."""
    wanted = {
        ((t,), h, h, "fp16", gates): None for gates in ("decay", "zero") for h in LENGTHS_HEADS for t in LENGTHS_TOKENS
    }
    for row in listed:
        spot = (row.lens, row.hk, row.hv, row.dtype, row.gates)
        if spot in wanted and not row.normed:
            wanted[spot] = row = dataclasses.replace(row, tags=(*row.tags, "lengths"))
        yield row
    for spot, row in wanted.items():
        if row is None:
            yield gdn(*spot, "lengths long" if spot[0][0] > 32768 else "lengths")


# tags: table = the rows of published tables; hopper = the Hopper kernel's goals; generic = the generic kernel's; conv =
# what is asked of conv1d-QKV;
# own = TileOps' own inputs; packed = FlashQLA's packings; lengths = one sequence, by length and heads; repaired = every
# partition is computed twice; norms = q and k normalised by the call; decodes = sequences of a token or few; steady =
# what a chunk costs on a full GPU;
# small = seconds in all, to see that it runs
LISTED = (
    gdn([32768], 16, 16, "fp16", "decay", "table generic", (0.385, 0.19), 1.0),
    gdn([32768], 16, 16, "fp16", "zero", "table", (0.449, 0.36)),
    gdn([32768], 16, 16, "fp16", "mixed", "table", (0.441, 0.28)),
    gdn([32768], 16, 16, "fp16", "alike", "table"),
    gdn([32768], 16, 16, "bf16", "decay", "table", (0.391, 0.19)),
    gdn([65536], 16, 16, "fp16", "decay", "table long", (0.691, 0.35)),
    gdn([65536], 16, 16, "fp16", "zero", "table long", (0.848, 0.68)),
    gdn([131072], 16, 16, "fp16", "decay", "table long", (1.338, 0.67)),
    gdn([131072], 16, 16, "fp16", "zero", "table long", (1.595, 1.35)),
    gdn([131072], 32, 32, "fp16", "decay", "table long", (2.613, 1.32)),
    gdn([131072], 32, 32, "fp16", "zero", "table long", (3.228, 2.6)),
    gdn([4096], 16, 16, "fp16", "decay", "table", (0.107, 0.040)),
    gdn([4096], 16, 16, "fp16", "zero", "table", (0.107, 0.055)),
    gdn([1024], 16, 16, "fp16", "decay", "table generic small", (0.044, 0.030), 1.0),
    gdn([1024], 16, 16, "fp16", "zero", "table", (0.044, 0.030)),
    gdn([1024], 16, 16, "fp16", "mixed", "table", (0.044, 0.030)),
    gdn([8192] * 4, 16, 64, "bf16", "decay", "table hopper generic", (0.795, 0.65), 1.0),
    gdn([8192] * 4, 16, 32, "bf16", "decay", "table hopper", (0.412, 0.335)),
    gdn([8192] * 4, 16, 48, "bf16", "decay", "table hopper", (0.728, 0.52)),
    gdn(MIXED, 16, 64, "bf16", "decay", "table hopper", (0.501, 0.40)),
    gdn(MIXED, 16, 32, "bf16", "decay", "hopper generic", None, 1.0),
    gdn([32768], 16, 64, "bf16", "decay", "table", (1.290, 0.65)),
    gdn([32768], 16, 64, "bf16", "mixed", "table", (1.397, 0.80)),
    gdn([32768], 16, 32, "bf16", "decay", "table", (0.690, 0.35)),
    gdn([32768], 16, 32, "bf16", "mixed", "table", (0.752, 0.48)),
    gdn([32768], 4, 16, "bf16", "decay", "table", (0.386, 0.19)),
    gdn([32768], 4, 16, "bf16", "mixed", "table", (0.402, 0.24)),
    gdn([32768], 4, 4, "fp16", "decay", "table"),
    gdn([32768], 4, 4, "fp16", "zero", "table"),
    gdn([32768], 4, 4, "fp16", "mixed", "table"),
    gdn([32768], 8, 8, "fp16", "mixed", "table"),
    gdn([32768], 64, 64, "bf16", "decay", "table"),
    gdn([32768], 64, 64, "bf16", "zero", "table"),
    gdn([1024], 16, 64, "bf16", "decay", "table hopper small", (0.053, 0.038)),
    gdn([256], 16, 64, "bf16", "decay", "table hopper generic small", (0.019, 0.0145), 1.0),
    gdn([32768], 132, 132, "bf16", "decay", "hopper steady"),
    gdn([32768], 33, 132, "bf16", "decay", "hopper steady"),
    gdn([32768], 128, 128, "bf16", "decay", "hopper steady"),
    gdn([2048], 16, 16, "fp16", "tileops", "own"),
    gdn([32768], 16, 16, "fp16", "tileops", "own"),
    gdn([65536], 16, 16, "fp16", "tileops", "own long"),
    gdn([65536], 64, 64, "fp16", "tileops", "own long"),
    gdn([131072], 16, 16, "fp16", "tileops", "own long"),
    gdn([131072], 32, 32, "fp16", "tileops", "own long"),
    *(gdn(lens, 16, hv, "bf16", "decay", "packed") for hv in (32, 64) for lens in PACKED),
    gdn([32768], 16, 16, "fp16", "repaired", "repaired"),
    gdn([32768], 16, 64, "bf16", "repaired", "repaired"),
    gdn([131072], 16, 16, "fp16", "repaired", "repaired long"),
    normed([32768], 16, 16, "fp16"),
    normed([32768], 16, 32, "bf16"),
    normed([8192] * 4, 16, 32, "bf16"),
    normed([8192] * 4, 16, 64, "bf16"),
    normed(MIXED, 16, 64, "bf16"),
    normed([1024], 16, 32, "bf16"),
    gdn([1] * 256, 16, 32, "bf16", "decay", "decodes"),
    gdn([4] * 256, 16, 32, "bf16", "decay", "decodes"),
    gdn([1] * 64, 4, 8, "bf16", "decay", "decodes"),
    gdn([1] * 1024, 2, 4, "bf16", "decay", "decodes"),
    gdn(STEP, 16, 32, "bf16", "decay", "decodes"),
)
GDN_ROWS = tuple(with_lengths(LISTED))

SIZES = ((2048, 2048, 2048), (2048, 2048, 4096), (1024, 1024, 2048), (256, 256, 512), (256, 256, 256), (128, 128, 256))
SKEWED = (16384,) + (16,) * 63
EVEN = (272,) * 48 + (271,) * 16  # as many tokens and sequences
PLAIN = ("silu", "state")
ALL = (*PLAIN, "norm", "gates")
CHECKPOINTS = (*PLAIN, "checkpoints")
CONV_FEATURES = (*ALL, "checkpoints", "bias", "pitched", "large")  # what inputs.py and ours.py make of them
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def conv_case(lens, dims, name=None):
    return f"{name or 'T' + str(lens[0])}_{'_'.join(str(d) for d in dims)}"


def conv(lens, dims, features=PLAIN, tags="", name=None, to_copy=0.0, beside=()):
    lens = (lens,) if isinstance(lens, int) else tuple(lens)
    case = conv_case(lens, dims, name)
    return ConvRow(
        case, lens, *dims, features=tuple(features), tags=tuple(tags.split()), to_copy=to_copy, beside=beside
    )


def conv_of(lens, dims, dtype, features):
    """A row of any dtype and features, of which a conv row has the known ones."""
    unknown = [f for f in features if f not in CONV_FEATURES]
    if unknown:
        raise ValueError(f"feature {', '.join(unknown)}: there are {', '.join(CONV_FEATURES)}")
    if dtype not in BYTES:
        raise ValueError(f"dtype {dtype}: there are {', '.join(BYTES)}")
    name = "mixed32" if lens == MIXED else f"{len(lens)}x{lens[0]}"
    return dataclasses.replace(conv(lens, dims, features, name=name), dtype=dtype)


def copy_goal(tokens):
    return 0.88 if tokens >= 4096 else 0.0


def beside_plain(tokens, dims, features, tags):
    """A row that may take 3 % longer than conv and split alone; with checkpoints, the bytes that they add besides."""
    plain, row = (conv(tokens, dims, f) for f in (PLAIN, features))
    more = row.floor_bytes() / plain.floor_bytes() if row.num_checkpoints else 1.0
    return conv(tokens, dims, features, tags, beside=(plain.case, PLAIN, 1.03 * more))


def skewed_rows(dims):
    """One long sequence and many of 16 tokens, and as many of equal lengths: at most 5 % apart."""
    for features in (PLAIN, ALL):
        beside = (conv_case(EVEN, dims, "even64"), features, 1.05)
        yield conv(EVEN, dims, features, "skewed conv", "even64")
        yield conv(SKEWED, dims, features, "skewed conv", "skewed64", beside=beside)


def conv_rows():
    main = SIZES[0]
    rows = [
        conv(t, main, tags="table conv small" if t == 2048 else "table conv", to_copy=copy_goal(t)) for t in LENGTHS
    ]
    rows += [beside_plain(t, main, ALL, "features conv" if t in (4096, 16384) else "conv") for t in LENGTHS]
    rows += [beside_plain(t, main, CHECKPOINTS, "conv") for t in (2048, 8192, 16384)]
    rows += [
        conv(t, dims, tags="sizes conv", to_copy=copy_goal(t))
        for dims in SIZES[1:3]
        for t in (512, 2048, 4096, 8192, 16384)
    ]
    rows += [beside_plain(8192, dims, ALL, "sizes conv") for dims in SIZES[1:3]]
    rows += [conv(t, dims, tags="tp8 conv") for dims in SIZES[3:] for t in (512, 2048, 8192)]
    rows += skewed_rows(main)
    rows += [
        conv(t, main, f, "features")
        for t in (4096, 16384)
        for f in (("silu",), ("state",), (*PLAIN, "bias"), (*PLAIN, "norm"), (*PLAIN, "gates"))
    ]
    rows += [conv(8192, main, (*PLAIN, "pitched"), "features", to_copy=copy_goal(8192))]
    rows += [conv(t, main, (*PLAIN, "large"), "large") for t in (4096, 16384)]
    return tuple(rows)


CONV_ROWS = conv_rows()
ROWS = GDN_ROWS + CONV_ROWS


def key(row):
    """What tells one row from another, and what a selection is matched against: 'gdn_prefill 1x1024_16 fp16 decay'."""
    return f"{row.op} {row.case} {row.dtype} {row.kind}"


def kind_of(line):
    """A row's kind, what tells it from others of its shape and type, from a line of results."""
    features = line.get("features", [])
    if line["op"] != "gdn_prefill":
        return "+".join(features)
    return str(line.get("gates")) + ("+" + NORM if NORM in features else "")


def select(patterns="", tags=""):
    """Rows with any of the ';'-separated texts in their key (TEXT$: at its end) and any of the ','-separated tags.

    Empty takes all.
    """
    texts = [p for p in patterns.split(";") if p]
    holds = lambda text, of: of.endswith(text[:-1]) if text.endswith("$") else text in of  # noqa: E731
    wanted = {t for t in tags.split(",") if t}
    unknown = wanted - {t for row in ROWS for t in row.tags}
    if unknown:
        raise ValueError(f"no row has the tag {', '.join(sorted(unknown))}")
    return [
        row
        for row in ROWS
        if (not texts or any(holds(t, key(row)) for t in texts)) and (not wanted or wanted & set(row.tags))
    ]
