"""lines.py - which lines of its pools of states a call on the host reads and writes: one that no pool has is refused,
before the reference touches what lies behind. Knows no function of the library. Of a call on a GPU slots, flags and
checkpoints are on the device, where the host does not look.
"""

import ctypes

from . import abi, values

POOLS = {  # struct -> pools that lines are read from and written to, and how far these lie apart
    "gdn_prefill_args": (("initial_state", "initial_slot_stride"), ("final_state", "final_slot_stride")),
    "gdn_conv1d_args": (("state", "state_slot_stride"),) * 2,
}
CHUNK = 64  # a prefill's checkpoints are of multiples of it


def numbers(kind, address, count, step=1):
    return [kind.from_address(address + i * step * ctypes.sizeof(kind)).value for i in range(count)]


def indices(index_type, *where):
    """Of a gdn_index_type; 0 is int32."""
    is_wide = index_type == abi.ENUMS["gdn_index_type"]["GDN_INDEX_I64"]
    return numbers(ctypes.c_int64 if is_wide else ctypes.c_int32, *where)


def slots_of(args, desc, member):
    address, step = getattr(args, member), getattr(args, f"{member}_stride") or 1
    return indices(desc.slot_type, address, args.num_seqs, step) if address else None


def lengths(args, desc):
    if not args.cu_seqlens:
        return [args.num_tokens // args.num_seqs] * args.num_seqs
    starts = indices(desc.cu_seqlens_type, args.cu_seqlens, args.num_seqs + 1)
    return [end - start for start, end in zip(starts, starts[1:])]


def count_of(given, pool, stride):
    """Lines of a pool; None where nobody knows: of an address, and where the caller says how far they lie apart."""
    return given[pool].shape[0] if values.is_tensor(given.get(pool)) and not given.get(stride) else None


def check_line(said, line, pool, count):
    if count is not None and line >= count:
        raise ValueError(f"{said} is {line}, and {pool} has {count} lines: give one that it has, or -1 to leave it out")


def check(name, given, args, desc):
    """given: arguments of a call; args: struct `name`, filled with them, its addresses those of host memory."""
    (source, held), (target, room) = ((pool, count_of(given, pool, stride)) for pool, stride in POOLS[name])
    if args.num_seqs <= 0 or (held is None and room is None):
        return
    is_prefill, flags = name == "gdn_prefill_args", args.has_initial_state
    slot_in, slot_out = (slots_of(args, desc, member) for member in ("slot_in", "slot_out"))
    reads = numbers(ctypes.c_uint8, flags, args.num_seqs) if flags else [1] * args.num_seqs
    first = slot_in or range(args.num_seqs)
    last = slot_out or first
    found = {}  # sequence -> its length, of those that are not left out
    for n, length in enumerate(lengths(args, desc)):
        if first[n] < 0 or last[n] < 0:
            continue
        found[n] = length
        if not is_prefill and not length and first[n] == last[n]:
            continue  # a conv state stays where it is
        own = f"slot_in[{n}]" if slot_in else f"sequence {n}'s line without slot_in"
        if reads[n]:
            check_line(own, first[n], source, held)
        check_line(f"slot_out[{n}]" if slot_out else own, last[n], target, room)
    rows = numbers(ctypes.c_int64, args.checkpoints, 3 * args.num_checkpoints) if args.checkpoints else []
    for i, (n, end, line) in enumerate(zip(rows[::3], rows[1::3], rows[2::3])):
        if n in found and 0 < end <= found[n] and (end % CHUNK == 0 or not is_prefill):
            check_line(f"the line of checkpoints[{i}]", line, target, room)
