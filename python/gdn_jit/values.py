"""values.py - Python values -> struct members: enums by name, flags by name, tensors by address. Knows no function of
the library.

Never imports torch: a tensor is what has data_ptr(), stride() and is_contiguous(). Nothing is copied and nothing is
made contiguous behind the caller's back: a tensor that the contract does not take is a ValueError.
"""

import ctypes
import functools
import operator
import os

from . import abi, ctypes_abi

TORCH_DTYPES = {"torch.bfloat16": "GDN_BF16", "torch.float16": "GDN_F16", "torch.float32": "GDN_F32"}
PREFIXES = {
    "gdn_prefill_desc": "GDN_PREFILL_",
    "gdn_conv1d_desc": "GDN_CONV_",
    "gdn_config": "GDN_CTX_",
    "gdn_plan": "GDN_PLAN_",
    "gdn_prune_options": "GDN_PRUNE_",
}
TORCH_INDICES = {"torch.int32": "GDN_INDEX_I32", "torch.int64": "GDN_INDEX_I64"}
# Other words for an enum's members.
WORDS = {
    "gdn_dtype": {**TORCH_DTYPES, "fp16": "GDN_F16", "fp32": "GDN_F32"},
    "gdn_index_type": TORCH_INDICES,
}
# What a tensor's dtype must be: the first of the words that is a member of the descriptor, or else a torch dtype.
DTYPES = {
    "gdn_prefill_args": {
        **dict.fromkeys(("q", "k", "v", "o"), ("io_type",)),
        **dict.fromkeys(("initial_state", "final_state"), ("state_type",)),
        **dict.fromkeys(("slot_in", "slot_out"), ("slot_type",)),
        **dict.fromkeys(("a_log", "dt_bias"), ("float32",)),
        **{"g": ("gate_type",), "beta": ("beta_type",), "cu_seqlens": ("cu_seqlens_type",)},
        **{"has_initial_state": ("uint8",), "checkpoints": ("int64",)},
    },
    "gdn_conv1d_args": {
        **dict.fromkeys(("x", "weight", "bias", "q", "k", "v"), ("io_type",)),
        **dict.fromkeys(("a", "b"), ("gate_type",)),
        **dict.fromkeys(("g", "beta"), ("float32",)),
        **dict.fromkeys(("slots", "slot_in", "slot_out"), ("slot_type", "int32")),
        **{"a_log": ("a_log_type",), "dt_bias": ("dt_bias_type",), "state": ("state_type", "io_type")},
        **{"cu_seqlens": ("cu_seqlens_type", "int32"), "has_initial_state": ("uint8",), "checkpoints": ("int64",)},
    },
}
# What 0 stands for in a descriptor's member, where the header lets it: another member, or a value.
ZERO_MEANS = {
    "gdn_conv1d_desc": {
        "state_type": "io_type",
        "gate_type": "io_type",
        "a_log_type": "GDN_F32",
        "dt_bias_type": "GDN_F32",
    },
    "gdn_prefill_desc": {},
}
DESC_OF = {"gdn_prefill_args": "gdn_prefill_desc", "gdn_conv1d_args": "gdn_conv1d_desc"}
ARGS_OF = {desc: args for args, desc in DESC_OF.items()}
WITHOUT_DIM = ("g", "beta")
MEMBERS = {struct: dict(members) for struct, members in abi.STRUCTS.items()}


@functools.lru_cache(maxsize=None)
def limits(kind):
    bits = 8 * ctypes.sizeof(kind)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind(-1).value < 0 else (0, (1 << bits) - 1)


def integer(member, kind, value):
    """An int that ctypes type `kind` holds: of one that does not fit ctypes would pass on the lower bits."""
    if not isinstance(value, int):
        if is_tensor(value) or not hasattr(value, "__index__"):
            raise TypeError(f"{member} is {value!r}: give an int")
        value = operator.index(value)
    low, high = limits(kind)
    if not low <= value <= high:
        bits = 8 * ctypes.sizeof(kind)
        raise ValueError(f"{member} is {value}, which C's {bits} bits do not hold: give {low} to {high}")
    return value


def enum_value(enum, value, member):
    """A number, "GDN_STATE_VK", its last word "vk", a torch dtype, or "fp16"."""
    values = abi.ENUMS[enum]
    if isinstance(value, int):
        return integer(member, ctypes.c_int, value)
    text = WORDS.get(enum, {}).get(str(value).lower(), str(value)).upper()
    for name, number in values.items():
        if text == name or name.endswith("_" + text):
            return number
    raise ValueError(f"{member} is {value!r}, which is no {enum}: give one of {', '.join(values)}")


def flags_value(struct, value, member="flags"):
    """A number, or names of the struct's flags, with or without their prefix: ("silu", "GDN_CONV_BIAS")."""
    if isinstance(value, int):
        return integer(member, ctypes.c_uint32, value)
    prefix, bits = PREFIXES[struct], 0
    known = [n for n in abi.CONSTANTS if n.startswith(prefix)]
    for word in [value] if isinstance(value, str) else value:
        name = word.upper() if word.upper().startswith("GDN_") else prefix + word.upper()
        if name not in known:
            raise ValueError(f"{struct} has no flag {word!r}: {', '.join(known)}")
        bits |= abi.CONSTANTS[name]
    return bits


def is_tensor(value):
    return hasattr(value, "data_ptr")


def address_of(member, value):
    """Of a tensor or an address; None is 0."""
    data_ptr = getattr(value, "data_ptr", None)
    return data_ptr() if data_ptr is not None else 0 if value is None else integer(member, ctypes.c_uint64, value)


def rows_are_dense(tensor):
    """Whether everything below the first index lies packed."""
    step = 1
    for size, stride in zip(reversed(tensor.shape[1:]), reversed(tensor.stride()[1:])):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def layout_of(value):
    """All that a check of a tensor asks of it, so that one of the same needs none; of an address, that it is one."""
    if is_tensor(value):
        return value.shape, value.stride(), getattr(value, "dtype", None), getattr(value, "device", None)
    return bool(value)


def check_expanded(member, tensor):
    """A stride of 0 is the header's word for packed: an expanded tensor would be read as another."""
    for i, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if size > 1 and stride == 0 and 0 not in tensor.shape:
            raise ValueError(
                f"{member} is expanded: dimension {i} has size {size} and stride 0, which no call can say: pass "
                f"{member}.contiguous()"
            )


def set_strides(struct, member, tensor):
    """`<member>_strides` from a tensor [T, H, D] or [B, T, H, D]; g and beta have no D. Packed ones stay 0."""
    strides = list(tensor.stride())
    if member not in WITHOUT_DIM and strides.pop() != 1:
        raise ValueError(f"{member} has strides {tuple(tensor.stride())}: the last must be 1")
    if len(strides) not in (2, 3):
        raise ValueError(f"{member} has shape {tuple(tensor.shape)}: [tokens, heads, ..] or [batch, tokens, heads, ..]")
    into = getattr(struct, f"{member}_strides")
    into.token, into.head = strides[-2:]
    if len(strides) == 3 and tensor.shape[0] > 1:
        into.batch = strides[0]


@functools.lru_cache(maxsize=None)
def strides_of(name, member):
    """How struct `name` says a tensor's strides: (form, the member that does); (None, None): it has none for it."""
    line = f"{member.removesuffix('_state')}_slot_stride"
    forms = {"all": f"{member}_strides", "rows": f"{member}_stride", "lines": line}
    return next(((form, stride) for form, stride in forms.items() if stride in MEMBERS[name]), (None, None))


def set_layout(struct, name, member, tensor, given):
    """Strides that the struct has members for, unless the caller gave them; any other tensor must be dense."""
    form, stride = strides_of(name, member)
    taken, dense = stride in given, tensor.is_contiguous()
    if dense:
        if form == "rows" and not taken:
            setattr(struct, stride, tensor.stride(0))
        return
    if f"{member}_channel_stride" in given:
        return
    if not taken:
        check_expanded(member, tensor)
    if form == "all":
        if not taken:
            set_strides(struct, member, tensor)
    elif form and (rows_are_dense(tensor) or (form == "rows" and tensor.dim() == 1)):
        if not taken:
            setattr(struct, stride, tensor.stride(0))
    else:
        raise ValueError(
            f"{member} has strides {tuple(tensor.stride())}, which the struct has no member for: pass a contiguous "
            "tensor"
        )


def take_padded_lines(args):
    """Strides of a state [lines, C, P or fewer] whose rows lie P apart (GDN_CONV_STATE_CW_STRIDED), unless given."""
    tensor = args.get("state")
    if not is_tensor(tensor) or tensor.dim() != 3:
        return
    check_expanded("state", tensor)
    line, channel, step = tensor.stride()
    if step != 1 and tensor.shape[2] > 1:
        raise ValueError(f"state has strides {tuple(tensor.stride())}: the last must be 1")
    args.setdefault("state_channel_stride", channel)
    if tensor.shape[0] > 1:
        args.setdefault("state_slot_stride", line)


def text_of(raw):
    """A sentence or a name from C. It may quote what is no UTF-8, and is to be read all the same."""
    return raw.decode(errors="replace")


def c_text(member, value):
    """bytes of a text or a path, for C."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{member} is {value!r}: give a str, bytes or an os.PathLike")
    raw = os.fsencode(value)
    if b"\0" in raw:
        raise ValueError(f"{member} is {value!r}: C reads it as far as the NUL: give one without")
    return raw


def c_texts(member, given):
    """The same of one path or of several; a str is one path."""
    return [c_text(member, p) for p in ([given] if isinstance(given, (str, bytes, os.PathLike)) else given or ())]


def with_its_tensors(name, member, value):
    """The member; of a descriptor's torch dtype also the tensors that have it, which an operator's caller knows."""
    dtypes = DTYPES[ARGS_OF[name]] if name in ARGS_OF and str(value).startswith("torch.") else {}
    tensors = [t for t, words in dtypes.items() if next((w for w in words if w in MEMBERS[name]), None) == member]
    return f"{member}, the dtype of {', '.join(tensors)}," if tensors else member


def scalar(name, member, kind, value, said):
    """Value of a member that is no address and no struct. said: what errors call it."""
    if kind in abi.ENUMS:
        return enum_value(kind, value, with_its_tensors(name, member, value))
    if member == "flags":
        return flags_value(name, value)
    if member in ctypes_abi.INTEGERS[name]:
        return integer(said, ctypes_abi.INTEGERS[name][member], value)
    return c_text(member, value) if kind == "const char *" and value is not None else value


def fill(name, given, within=""):
    """Struct `name` from its _INIT and the members in `given`; a member that is a struct takes a tuple or a dict.
    within: of a struct in a struct, what stands before its members' names in errors.
    """
    struct, members = ctypes_abi.new(name), MEMBERS[name]
    for member, value in given.items():
        kind, said = members.get(member), within + member
        if kind == "gdn_devptr":
            if is_tensor(value):
                set_layout(struct, name, member, value, given)
            value = address_of(said, value)
        elif kind is None or member == "struct_size":
            known = ", ".join(m for m in members if m != "struct_size")
            raise TypeError(f"{name} has no member {member!r}; it has {known}")
        elif kind in abi.STRUCTS:
            value = fill(kind, named(said, kind, value), f"{said}.")
        else:
            value = scalar(name, member, kind, value, said)
        setattr(struct, member, value)
    return struct


def named(member, kind, value):
    """A dict, or a tuple of the first members of struct `kind`, as a dict."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, (tuple, list)) or len(value) > len(MEMBERS[kind]):
        raise TypeError(f"{member} is {value!r}: give a dict or a tuple of {', '.join(MEMBERS[kind])}")
    return dict(zip(MEMBERS[kind], value))


def wanted_dtype(name, desc, words):
    """(enum, number) from the descriptor, or a torch dtype's name."""
    member = next((word for word in words if word in MEMBERS[name]), None)
    if member is None:
        return words[-1]
    number, zero = getattr(desc, member), ZERO_MEANS[name].get(member)
    if not number and zero in MEMBERS[name]:
        number = getattr(desc, zero)
    elif not number:
        number = abi.ENUMS["gdn_dtype"][zero] if zero else abi.ENUMS["gdn_index_type"]["GDN_INDEX_I32"]
    return MEMBERS[name][member], number


def names_of_dtype(wanted):
    """Names of the torch dtypes that `wanted` of wanted_dtype() stands for, and what the descriptor calls it."""
    if isinstance(wanted, str):
        return {f"torch.{wanted}"} | ({"torch.bool"} if wanted == "uint8" else set()), wanted
    enum, number = wanted
    said = next((name for name, value in abi.ENUMS[enum].items() if value == number), str(number))
    torch_dtypes = TORCH_DTYPES if enum == "gdn_dtype" else TORCH_INDICES
    return {dtype for dtype, name in torch_dtypes.items() if name == said}, said


@functools.lru_cache(maxsize=64)
def wanted_dtypes(name, raw):
    """names_of_dtype() of each tensor of struct `name`; raw: bytes of the descriptor, which calls have few of."""
    desc = ctypes_abi.STRUCTS[DESC_OF[name]].from_buffer_copy(raw)
    return {member: names_of_dtype(wanted_dtype(DESC_OF[name], desc, words)) for member, words in DTYPES[name].items()}


def check_tensors(name, given, desc, device):
    """Each tensor's dtype against what `desc`, the descriptor's struct, says, and whether it lies where it must."""
    dtypes, on_gpu = wanted_dtypes(name, bytes(desc)), device == "cuda"
    for member, tensor in given.items():
        if member not in dtypes or not is_tensor(tensor):
            continue
        dtype, (right, said) = str(getattr(tensor, "dtype", "")), dtypes[member]
        if dtype and dtype not in right:
            raise ValueError(f"{member} is {dtype}, and the descriptor says {said}")
        if getattr(tensor, "is_cuda", on_gpu) != on_gpu:
            raise ValueError(f"{member} is on {tensor.device}: this call takes tensors on {device}")


def one_gpu(given):
    """Ordinal of the GPU that all tensors lie on; None where none says."""
    found = {}
    for member, tensor in given.items():
        device = getattr(tensor, "device", None)
        ordinal = None if device is None or not is_tensor(tensor) else getattr(device, "index", None)
        if ordinal is not None:
            found.setdefault(ordinal, member)
    if len(found) > 1:
        places = " and ".join(f"{member} on cuda:{ordinal}" for ordinal, member in found.items())
        raise ValueError(f"{places}: pass tensors of one GPU")
    return next(iter(found), None)


def as_dict(struct):
    """Members of a struct as Python values, texts decoded, struct_size and reserved words left out."""
    out = {}
    for member, _ in struct._fields_:
        value = getattr(struct, member)
        if member not in ("struct_size", "reserved"):
            read = os.fsdecode if member == "path" else text_of  # a path is to be opened
            out[member] = read(value) if isinstance(value, bytes) else value
    return out
