"""values.py - Python values -> struct members: enums by name, flags by name, tensors by address. Knows no function of
the library.

Never imports torch: a tensor is what has data_ptr(), stride() and is_contiguous(). Nothing is copied and nothing is
made contiguous behind the caller's back: a tensor that the contract does not take is a ValueError.
"""

from . import abi, ctypes_abi

TORCH_DTYPES = {"torch.bfloat16": "GDN_BF16", "torch.float16": "GDN_F16", "torch.float32": "GDN_F32"}
PREFIXES = {
    "gdn_prefill_desc": "GDN_PREFILL_",
    "gdn_conv1d_desc": "GDN_CONV_",
    "gdn_config": "GDN_CTX_",
    "gdn_plan": "GDN_PLAN_",
}
MEMBERS = {struct: dict(members) for struct, members in abi.STRUCTS.items()}


def enum_value(enum, value):
    """A number, "GDN_STATE_VK", its last word "vk", or a torch dtype."""
    values = abi.ENUMS[enum]
    if isinstance(value, int):
        return value
    text = TORCH_DTYPES.get(str(value), str(value)).upper()
    for name, number in values.items():
        if text == name or name.endswith("_" + text):
            return number
    raise ValueError(f"{value!r} is no {enum}: {', '.join(values)}")


def flags_value(struct, value):
    """A number, or names of the struct's flags, with or without their prefix: ("silu", "GDN_CONV_BIAS")."""
    if isinstance(value, int):
        return value
    prefix, bits = PREFIXES.get(struct, "GDN_"), 0
    for word in [value] if isinstance(value, str) else value:
        name = word.upper() if word.upper().startswith("GDN_") else prefix + word.upper()
        if name not in abi.CONSTANTS:
            known = [n for n in abi.CONSTANTS if n.startswith(prefix)]
            raise ValueError(f"{struct} has no flag {word!r}: {', '.join(known) or 'none'}")
        bits |= abi.CONSTANTS[name]
    return bits


def is_tensor(value):
    return hasattr(value, "data_ptr")


def address(member, value, strided):
    """Address of a tensor, or an address as it is; None is 0. Unless the struct holds its strides it must be dense."""
    if value is None:
        return 0
    if not is_tensor(value):
        return int(value)
    if not strided and not value.is_contiguous():
        raise ValueError(
            f"{member} has strides {tuple(value.stride())} and no member of the struct for them: pass a "
            "contiguous tensor"
        )
    return value.data_ptr()


def set_strides(struct, members, member, tensor):
    """Fills `<member>_stride`, the row stride, from the tensor; its rows must be dense."""
    if tensor.dim() < 2 or tensor.stride(-1) != 1:
        raise ValueError(f"{member} has strides {tuple(tensor.stride())}: the last must be 1")
    if f"{member}_stride" in members:
        setattr(struct, f"{member}_stride", tensor.stride(0))


def fill(name, given):
    """Struct `name` from its _INIT and the members in `given`."""
    struct, members = ctypes_abi.new(name), MEMBERS[name]
    for member, value in given.items():
        kind = members.get(member)
        if kind is None or member == "struct_size":
            raise TypeError(
                f"{name} has no member {member!r}; it has {', '.join(m for m in members if m != 'struct_size')}"
            )
        if kind in abi.ENUMS:
            value = enum_value(kind, value)
        elif member == "flags":
            value = flags_value(name, value)
        elif kind == "gdn_devptr":
            strided = f"{member}_stride" in members
            if strided and is_tensor(value) and f"{member}_stride" not in given:
                set_strides(struct, members, member, value)
            value = address(member, value, strided)
        elif isinstance(value, str):
            value = value.encode()
        setattr(struct, member, value)
    return struct


def as_dict(struct):
    """Members of a struct as Python values, texts decoded, struct_size and reserved words left out."""
    out = {}
    for member, _ in struct._fields_:
        value = getattr(struct, member)
        if member not in ("struct_size", "reserved"):
            out[member] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return out
