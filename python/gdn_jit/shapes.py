"""shapes.py - shapes of a call's tensors: the counts that follow from them, and what is refused because it would be
misread. Knows no function of the library; strides are values.py's. A tensor whose stride the caller gives may have any
shape.
"""

from math import prod

from . import abi, values


def state_heads(desc):
    return max(desc.num_q_heads, desc.num_k_heads, desc.num_v_heads)


def prefill_tails(desc):
    """What a tensor's shape is behind its tokens."""
    qk, v, heads = desc.head_dim_qk, desc.head_dim_v, state_heads(desc)
    return {
        **{"q": (desc.num_q_heads, qk), "k": (desc.num_k_heads, qk), "v": (desc.num_v_heads, v), "o": (heads, v)},
        **{"g": (heads,), "beta": (heads,)},
    }


def conv_tails(desc):
    qk, gates = desc.head_dim_qk, (desc.num_gate_heads,)
    return {
        **{"q": (desc.num_q_heads, qk), "k": (desc.num_k_heads, qk), "v": (desc.num_v_heads, desc.head_dim_v)},
        **{"g": gates, "beta": gates},
    }


def refuse(member, tensor, wanted):
    raise ValueError(f"{member} has shape {tuple(tensor.shape)}: this call takes {wanted}")


def leading(member, tensor, tail):
    """(tokens,) or (batch, tokens) of a tensor with `tail` behind them; heads and dim may be one index."""
    shape = tuple(tensor.shape)
    if shape[1:] == tail or shape[1:] == (prod(tail),):
        return shape[:1]
    if shape[2:] == tail:
        return shape[:2]
    text = ", ".join(map(str, tail))
    return refuse(member, tensor, f"[tokens, {text}] or [batch, tokens, {text}]")


def given_tensors(args, members):
    """Those of `members` that are tensors without a stride from the caller."""
    for member in members:
        tensor = args.get(member)
        if values.is_tensor(tensor) and f"{member}_strides" not in args and f"{member}_stride" not in args:
            yield member, tensor


def check_tokens(args, tails):
    tokens, seqs = args.get("num_tokens"), args.get("num_seqs")
    for member, tensor in given_tensors(args, tails):
        lead = leading(member, tensor, tails[member])
        if tokens is None:
            continue
        if len(lead) == 2 and lead[0] > 1 and args.get("cu_seqlens") is None:
            if lead[0] != seqs or prod(lead) != tokens:
                refuse(member, tensor, f"{tokens} tokens in {seqs} sequences, so a batch of {seqs}")
        elif prod(lead) < tokens:
            refuse(member, tensor, f"num_tokens {tokens}, so as many rows at least")


def check_rows(member, tensor, tokens, columns, more="", remedy=""):
    shape = tuple(tensor.shape)
    if len(shape) != 2 or shape[0] < (tokens or 0) or shape[1] < columns or (not more and shape[1] > columns):
        refuse(member, tensor, f"[{'tokens' if tokens is None else tokens}, {columns}{more}]{remedy}")


def check_lines(args, member, slots, line, any_last=False):
    """A pool of states: [lines, *line], and one line a sequence where no slots say which."""
    tensor = args.get(member)
    if not values.is_tensor(tensor):
        return
    shape, text = tuple(tensor.shape), ", ".join(map(str, line))
    found = shape[1:-1] + line[-1:] if any_last and len(shape) > 1 and shape[-1] >= line[-1] else shape[1:]
    if found != line:
        refuse(member, tensor, f"[lines, {text}{' or more' if any_last else ''}]")
    if all(args.get(s) is None for s in slots) and shape[0] < (args.get("num_seqs") or 0):
        refuse(member, tensor, f"num_seqs {args['num_seqs']}, so as many lines at least, or {' or '.join(slots)}")


def check_sequences(args):
    """Tensors with a value a sequence, and checkpoints."""
    cu, seqs = args.get("cu_seqlens"), args.get("num_seqs")
    if values.is_tensor(cu) and (len(cu.shape) != 1 or cu.shape[0] < 1 + (seqs or 0)):
        refuse("cu_seqlens", cu, f"[num_seqs + 1]{'' if seqs is None else f', num_seqs is {seqs}'}")
    for member, tensor in given_tensors(args, ("slot_in", "slot_out", "has_initial_state")):
        if len(tensor.shape) != 1 or tensor.shape[0] < (seqs or 0):
            table = "; of a block table pass one column" if member.startswith("slot") and len(tensor.shape) == 2 else ""
            refuse(member, tensor, f"[num_seqs]{'' if seqs is None else f', num_seqs is {seqs}'}{table}")
    checkpoints = args.get("checkpoints")
    lines = args.get("num_checkpoints") or 0
    if values.is_tensor(checkpoints) and (tuple(checkpoints.shape[1:]) != (3,) or checkpoints.shape[0] < lines):
        refuse("checkpoints", checkpoints, f"[num_checkpoints, 3]{f', num_checkpoints is {lines}' if lines else ''}")


def check_values(args, members, count):
    for member in members:
        if values.is_tensor(args.get(member)) and prod(args[member].shape) != count:
            refuse(member, args[member], f"[{count}]")


def set_count(args, count, member, found):
    """`found`: what follows from the tensor `member`, None where that is none. Then the count is the caller's to give:
    0 would be a call of nothing, and 1 of the first sequence alone."""
    if args.get(count) is not None:
        return
    if found is None:
        raise ValueError(f"{member} is {'an address' if args.get(member) else 'not given'}: give {count}")
    args[count] = found


def set_counts(args, member, tokens, batch):
    """num_tokens, num_seqs and num_checkpoints; `tokens` and `batch`: of the tensor `member`, None where it is none."""
    cu, checkpoints = args.get("cu_seqlens"), args.get("checkpoints")
    set_count(args, "num_tokens", member, tokens)
    if values.is_tensor(cu):
        if len(cu.shape) != 1 or not cu.shape[0]:
            refuse("cu_seqlens", cu, "[num_seqs + 1], which begins with 0")
        set_count(args, "num_seqs", "cu_seqlens", cu.shape[0] - 1)
    elif cu:
        set_count(args, "num_seqs", "cu_seqlens", None)
    else:
        set_count(args, "num_seqs", member, batch)
    if not values.is_tensor(checkpoints):
        set_count(args, "num_checkpoints", "checkpoints", None if checkpoints else 0)
    elif len(checkpoints.shape):
        set_count(args, "num_checkpoints", "checkpoints", checkpoints.shape[0])


def prefill(args, desc):
    """Sets num_tokens, num_seqs and has_scale where they follow from the tensors, and refuses what is misread."""
    tails, q, tokens, batch = prefill_tails(desc), args.get("q"), None, None
    if values.is_tensor(q):
        shape = tuple(q.shape)
        lead = shape[: 2 if len(shape) == 4 else 1] if "q_strides" in args else leading("q", q, tails["q"])
        batch = lead[0] if len(lead) == 2 else 1
        tokens = prod(lead)
    set_counts(args, "q", tokens, batch)
    if args.get("scale") is not None:
        args.setdefault("has_scale", 1)
    else:
        args.pop("scale", None)
    check_tokens(args, tails)
    check_sequences(args)
    heads, dims = state_heads(desc), (desc.head_dim_qk, desc.head_dim_v)
    line = (heads, *(dims if desc.state_layout == abi.ENUMS["gdn_state_layout"]["GDN_STATE_KV"] else dims[::-1]))
    inert = ("slot_in", "has_initial_state")  # has_initial_state: a line may not be read
    check_lines(args, "initial_state", inert, line)
    check_lines(args, "final_state", ("slot_out", "slot_in"), line)
    check_values(args, ("a_log", "dt_bias"), heads)


def conv_columns(args, desc):
    """(channels, columns of x that are read)."""
    q, k, v = desc.num_q_heads, desc.num_k_heads, desc.num_v_heads
    channels = (q + k) * desc.head_dim_qk + v * desc.head_dim_v
    if desc.x_layout != abi.ENUMS["gdn_conv_x_layout"]["GDN_CONV_X_INTERLEAVED"] or not k:
        return channels, channels
    group_v = v // k * desc.head_dim_v
    group = args.get("x_group_stride") or 2 * desc.head_dim_qk + 2 * group_v
    return channels, (k - 1) * group + 2 * desc.head_dim_qk + group_v


def conv1d_qkv(args, desc):
    """As prefill(): num_tokens, num_seqs; and the strides of a padded state."""
    x, (channels, columns), tokens, batch = args.get("x"), conv_columns(args, desc), None, None
    if values.is_tensor(x):
        if "x_stride" not in args:
            remedy = f"; x.flatten(0, 1) with num_seqs {x.shape[0]}" if len(x.shape) == 3 else ""
            check_rows("x", x, args.get("num_tokens"), columns, " or more", remedy)
        tokens, batch = x.shape[0], 1
    set_counts(args, "x", tokens, batch)
    check_tokens(args, conv_tails(desc))
    check_sequences(args)
    for member, tensor in given_tensors(args, () if args.get("gate_group_stride") else ("a", "b")):
        check_rows(member, tensor, args.get("num_tokens"), desc.num_gate_heads)
    weight, history = args.get("weight"), desc.width - 1
    if values.is_tensor(weight) and tuple(weight.shape) not in ((channels, desc.width), (channels, 1, desc.width)):
        refuse("weight", weight, f"[{channels}, {desc.width}]")
    layouts = abi.ENUMS["gdn_conv_state_layout"]
    line = (history, channels) if desc.state_layout == layouts["GDN_CONV_STATE_WC"] else (channels, history)
    padded = desc.state_layout == layouts["GDN_CONV_STATE_CW_STRIDED"]
    check_lines(args, "state", ("slot_in", "slot_out"), line, any_last=padded)
    if padded:
        values.take_padded_lines(args)
    check_values(args, ("bias",), channels)
    check_values(args, ("a_log", "dt_bias"), desc.num_gate_heads)
