"""transformers' AttentionInterface: the attention "attention_ladder", and calls without a mask to "sdpa".

Models ask a function for a mask once a forward pass, and hand it to every layer's attention. Ours returns None where causal or not says it all,
else a `Coded` mask, 4-dimensional as all code around it expects, or the boolean mask of "sdpa" where the pattern is none that a kernel knows.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from . import _doors
from ._dense import sdpa
from ._dispatch import DENSE_HEAD_DIMS, Given, is_compiling
from ._served import Sequences

NAME = "attention_ladder"
_CAUSAL, _FULL = (-1, 0), (-1, -1)


def open() -> Callable[[], None]:
    """Registers attention and masks, and takes the place of "sdpa". Returns what gives it back."""
    masks: Any = importlib.import_module("transformers.masking_utils")
    modeling: Any = importlib.import_module("transformers.modeling_utils")
    functions, mask_functions = modeling.AttentionInterface._global_mapping, masks.AttentionMaskInterface._global_mapping
    before, mask_before = functions["sdpa"], mask_functions["sdpa"]
    attention, default = Attention(before), Default(before)

    def mask(*given: Any, **named: Any) -> Given:
        return make_mask(masks, mask_before, *given, **named)

    functions |= {NAME: attention, "sdpa": default}
    mask_functions[NAME] = mask

    def undo() -> None:
        functions.pop(NAME, None)
        mask_functions.pop(NAME, None)
        # Another one that took the place since stays.
        if functions["sdpa"] is default:
            functions["sdpa"] = before

    return undo


class Default:
    """The attention "sdpa": calls without a mask go to the kernels, all others to what was there before."""

    def __init__(self, before: Callable[..., Any]) -> None:
        self._before = before

    def __call__(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Given, **named: Any
    ) -> tuple[torch.Tensor, Any]:
        """Attends to [batch, heads, rows, head_dim]; the result is [batch, rows, heads, head_dim]."""
        reason = _refusal(query, named, attention_mask)
        if reason is None:
            window = _window_without_mask(module, query, named)
            rows = query.shape[2]
            keys, values = key, value
            if window == _CAUSAL and key.shape[2] > rows:
                # The rest of an empty static cache: "sdpa" aligns the mask to the first keys.
                keys, values = key[:, :, :rows], value[:, :, :rows]
            result = _attend(query, keys, values, window, {"scaling": named.get("scaling")})
            if isinstance(result, torch.Tensor):
                return result, None
            reason = result
        _doors.note("transformers", reason)
        before: tuple[torch.Tensor, Any] = self._before(module, query, key, value, attention_mask, **named)
        return before


class Attention:
    """The attention "attention_ladder"."""

    def __init__(self, before: Callable[..., Any]) -> None:
        self._before = before

    def __call__(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Given, **named: Any
    ) -> tuple[torch.Tensor, Any]:
        """Attends to [batch, heads, rows, head_dim]; the result is [batch, rows, heads, head_dim]."""
        is_coded = attention_mask is not None and attention_mask.dtype is torch.int32
        reason = _refusal(query, named, None if is_coded else attention_mask)
        if reason is None:
            options = {name: named.get(name) for name in ("scaling", "softcap", "s_aux")}
            if attention_mask is None:
                result = _attend(query, key, value, _window_without_mask(module, query, named), options)
            else:
                result = _attend_coded(query, key, value, Coded(attention_mask), options)
            if isinstance(result, torch.Tensor):
                return result, None
            reason = result
        _doors.note("transformers", reason)
        mask = Coded(attention_mask).boolean(query.shape[2], key.shape[2]) if attention_mask is not None and is_coded else attention_mask
        if named.get("s_aux") is None and named.get("softcap") is None:
            before: tuple[torch.Tensor, Any] = self._before(module, query, key, value, mask, **named)
            return before
        return self._eager(module, query, key, value, mask, reason, named)

    @staticmethod
    def _eager(
        module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Given, reason: str, named: dict[str, Any]
    ) -> tuple[torch.Tensor, Any]:
        """The model's own attention: "sdpa" has no sinks and no cap."""
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None:
            raise NotImplementedError(f"{reason}, and {type(module).__name__} has no eager attention that takes sinks or softcap")
        if mask is None and _window_without_mask(module, query, named) == _CAUSAL:
            rows, keys = torch.arange(query.shape[2], device=query.device), torch.arange(key.shape[2], device=query.device)
            mask = (keys <= rows[:, None] + key.shape[2] - query.shape[2])[None, None]
        if mask is not None and mask.dtype is torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
        out: tuple[torch.Tensor, Any] = eager(module, query, key, value, mask, **named)
        return out


def _refusal(query: torch.Tensor, named: dict[str, Any], mask: Given) -> str | None:
    """Returns why a call goes to what was there before, as far as it has nothing to do with the tensors."""
    if mask is not None:
        return "attention_mask is not of a known pattern" if mask.dim() == 4 else f"attention_mask has {mask.dim()} dimensions"
    if named.get("dropout"):
        return "dropout is not supported"
    if named.get("position_bias") is not None:
        return "position_bias is not supported"
    if named.get("output_attentions"):
        return "output_attentions is not supported"
    return None if query.dim() == 4 else "tensors are not [batch, heads, rows, head_dim]"


def _window_without_mask(module: torch.nn.Module, query: torch.Tensor, named: dict[str, Any]) -> tuple[int, int]:
    """Returns the causal window, or the full one, also for a single query, which sees all keys that there are."""
    is_causal = named.get("is_causal")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return _CAUSAL if is_causal and query.shape[2] > 1 else _FULL


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: tuple[int, int], options: dict[str, Any], used: Given = None
) -> torch.Tensor | str:
    """Returns the result, or why no kernel takes the tensors. `used` counts the keys of each sequence, the first ones."""
    sinks, softcap = options.get("s_aux"), options.get("softcap") or 0.0
    is_served = window not in (_CAUSAL, _FULL) or used is not None or sinks is not None or softcap != 0.0
    is_served = is_served or query.shape[-1] not in DENSE_HEAD_DIMS
    reason = _doors.refusal(query, key, value, is_served=is_served)
    if reason is not None:
        return reason
    logits = None if sinks is None else sinks.float()
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    # In the layout of the result, which spares a copy; in a graph the compiler sees to that.
    out = None if is_compiling() else torch.empty(q.shape, dtype=query.dtype, device=query.device)
    try:
        if is_served:
            result = Sequences(q, k, v, seqused_k=used, sinks=logits).attend(window, options["scaling"], softcap, False, out)
        else:
            heads = None if out is None else out.transpose(1, 2)
            result = sdpa(query, key, value, window == _CAUSAL, options["scaling"], heads).transpose(1, 2)
    except (NotImplementedError, ValueError) as error:
        if is_compiling():
            raise
        return str(error)
    assert isinstance(result, torch.Tensor)
    return result.contiguous()


def _attend_coded(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: "Coded", options: dict[str, Any]) -> torch.Tensor | str:
    """Returns the result under a mask, or why no kernel takes the tensors."""
    if not mask.has_ranges:
        return _attend(query, key, value, mask.window, options, mask.used())
    reason = _doors.refusal(query, key, value, is_served=True)
    if reason is not None:
        return reason
    # One copy, as of every attention that removes padding, unless heads lie within rows.
    q, k, v = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value))
    sinks = options["s_aux"]
    starts_q, starts_k, used = mask.ranges()
    sequences = Sequences(q, k, v, starts_q, starts_k, query.shape[2], key.shape[2], used, sinks=None if sinks is None else sinks.float())
    try:
        result = sequences.attend(mask.window, options["scaling"], options["softcap"] or 0.0, False)
    except (NotImplementedError, ValueError) as error:
        if is_compiling():
            raise
        return str(error)
    assert isinstance(result, torch.Tensor)
    rows: torch.Tensor = result.unflatten(0, (query.shape[0], query.shape[2]))  # type: ignore[no-untyped-call]
    return rows


class Coded:
    """A mask in a tensor of int32 with four dimensions. It is a tensor, so that everything that carries masks about carries it.

    The last two extents are the window, each plus 2; what lies along them is the same. The first two are [batch, 1]: how many keys each
    sequence has, the first ones, whose last ones stand at the queries. Or they are [3, 3 * batch + 1]: starts of queries, starts of keys,
    and numbers of keys, of three packed sequences for each of the batch: padding before it, itself, and padding behind it.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    @staticmethod
    def of_used(used: torch.Tensor, window: tuple[int, int]) -> torch.Tensor:
        """Returns the mask of numbers of keys, [batch]."""
        return _coded(used[:, None], window)

    @staticmethod
    def of_ranges(queries: torch.Tensor, keys: torch.Tensor, rows: tuple[int, int], window: tuple[int, int]) -> torch.Tensor:
        """Returns the mask of the first row and the end of each sequence, [batch, 2], of queries and keys, of so many rows."""
        arrays = []
        for ranges, count in zip((queries, keys), rows):
            batch = ranges.shape[0]
            places = torch.nn.functional.pad(ranges, (1, 0)) + torch.arange(batch, device=ranges.device)[:, None] * count
            arrays.append(torch.nn.functional.pad(places.flatten(), (0, 1), value=batch * count))
        counts = torch.nn.functional.pad((keys[:, 1] - keys[:, 0])[:, None], (1, 1))
        arrays.append(torch.nn.functional.pad(counts.flatten(), (0, 1)))
        return _coded(torch.stack(arrays), window)

    @property
    def window(self) -> tuple[int, int]:
        """The keys before and behind a query that it sees."""
        return self._tensor.shape[2] - 2, self._tensor.shape[3] - 2

    @property
    def has_ranges(self) -> bool:
        """Whether there are ranges, or else numbers of keys."""
        return self._tensor.shape[1] > 1

    def used(self) -> torch.Tensor:
        """Returns the numbers of keys."""
        return self._tensor[:, 0, 0, 0].contiguous()

    def ranges(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns starts of queries, starts of keys, and numbers of keys."""
        queries, keys, counts = self._tensor[:, :, 0, 0].contiguous().unbind()
        return queries, keys, counts[:-1]

    def boolean(self, rows: int, keys: int) -> torch.Tensor:
        """Returns the mask as "sdpa" has it: [batch, 1, rows, keys], true where a query sees a key."""
        if self.has_ranges:
            starts_q, starts_k, _ = self.ranges()
            batch = starts_q.shape[0] // 3
            base = torch.arange(batch, device=starts_q.device)
            q_end = starts_q[2::3] - base * rows
            first, end = starts_k[1::3] - base * keys, starts_k[2::3] - base * keys
        else:
            end = self.used()
            first, q_end = torch.zeros_like(end), torch.full_like(end, rows)
        left, right = self.window
        key = torch.arange(keys, device=end.device)
        own = torch.arange(rows, device=end.device)[None] + (end - q_end)[:, None]
        seen = ((key >= first[:, None]) & (key < end[:, None]))[:, None, :].expand(-1, rows, -1)
        if left >= 0:
            seen = seen & (key >= own[:, :, None] - left)
        if right >= 0:
            seen = seen & (key <= own[:, :, None] + right)
        return seen[:, None]


def _coded(numbers: torch.Tensor, window: tuple[int, int]) -> torch.Tensor:
    left, right = window
    return numbers.to(torch.int32)[:, :, None, None].expand(-1, -1, left + 2, right + 2)


def make_mask(
    masks: Any,
    before: Callable[..., Given],
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Given = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    **named: Any,
) -> Given:
    """Returns a mask for `Attention`. `masks` is transformers.masking_utils, and `before` makes the mask of "sdpa"."""
    window = window_of(masks, masks.causal_mask_function if mask_function is None else mask_function)
    is_causal = window is not None and window[1] == 0
    # A model that adds to the mask wants all of it. With a static cache the first flag is set for other reasons.
    is_free = allow_is_causal_skip or isinstance(q_offset, torch.Tensor) if is_causal else allow_is_bidirectional_skip
    padding = None
    if attention_mask is not None:
        padding = masks.prepare_padding_mask(attention_mask, kv_length, kv_offset)[:, kv_offset : kv_offset + kv_length]
    found: Given | bool = False
    if window is not None and is_free:
        found = _known_mask(batch_size, (q_length, kv_length), q_offset - kv_offset, window, padding, device)
    if not isinstance(found, bool):
        return found
    named |= {"allow_is_causal_skip": allow_is_causal_skip, "allow_is_bidirectional_skip": allow_is_bidirectional_skip, "device": device}
    function = {} if mask_function is None else {"mask_function": mask_function}
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset, "kv_offset": kv_offset}
    mask = before(**sizes, attention_mask=attention_mask, **function, **named)
    if mask is None and window is None:
        # Not skipped by "sdpa" for a pattern that it does not know either.
        return before(**sizes, attention_mask=attention_mask, **function, **(named | {"allow_is_causal_skip": False}))
    return mask


def _known_mask(
    batch: int, lengths: tuple[int, int], offset: int | torch.Tensor, window: tuple[int, int], padding: Given, device: torch.device | str
) -> Given | bool:
    """Returns the mask of a window where query i stands at key i + offset, or False if no kernel has it."""
    rows, keys = lengths
    if padding is None or padding.shape[0] != batch:
        return False if padding is not None else _mask_without_padding(batch, lengths, offset, window, device)
    first = padding.int().argmax(1)
    count = padding.sum(1)
    end = torch.where(count > 0, keys - padding.flip(1).int().argmax(1), 0)
    first = torch.where(count > 0, first, 0)
    has_one_range = end - first == count
    stand_at_end = end == offset + rows
    if is_compiling():
        # Nobody can look, and a wrong mask must not pass in silence.
        torch._assert_async(has_one_range.all(), "attention_mask: the keys of a sequence are not one range")
        is_whole = is_leading = are_last = False
    else:
        flags = torch.stack([has_one_range.all(), (count == keys).all(), (first == 0).all(), stand_at_end.all()])
        is_one, is_whole, is_leading, are_last = flags.tolist()
        if not is_one:
            return False
    if is_whole:
        return _mask_without_padding(batch, lengths, offset, window, device)
    if is_leading and (window == _FULL or are_last):
        return Coded.of_used(end, window)
    key_ranges = torch.stack([first, end], 1)
    if window == _FULL:
        all_rows = torch.tensor([[0, rows]], device=end.device).expand(batch, -1)
        return Coded.of_ranges(all_rows, key_ranges, lengths, window)
    return Coded.of_ranges((key_ranges - offset).clamp(0, rows), key_ranges, lengths, window)


def _mask_without_padding(
    batch: int, lengths: tuple[int, int], offset: int | torch.Tensor, window: tuple[int, int], device: torch.device | str
) -> Given | bool:
    rows, keys = lengths
    if window == _FULL:
        return None
    end = offset + rows
    left, right = window
    if isinstance(end, torch.Tensor):
        # Keys behind the last query are there, and hidden by a causal window alone.
        return Coded.of_used(end.reshape(1).expand(batch), window) if right == 0 else False
    if end > keys or right != 0 and end != keys:
        return False
    if end == keys and left >= keys - 1 or left < 0:
        window = (-1, right if right < keys - 1 else -1)
    if end == keys and window in (_CAUSAL, _FULL):
        # A single query sees all keys.
        return None
    return Coded.of_used(torch.full((batch,), end, device=device), window)


def window_of(masks: Any, function: Callable[..., Any]) -> tuple[int, int] | None:
    """Returns the window that a mask function of transformers.masking_utils describes, or None for any other."""
    if function is masks.causal_mask_function:
        return _CAUSAL
    if function is masks.bidirectional_mask_function:
        return _FULL
    if getattr(function, "__module__", None) != masks.__name__:
        return None
    kind, _, kernel = function.__qualname__.partition(".<locals>.")
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    if len(cells) != 1:
        return None
    if kind == "and_masks" and kernel == "and_mask":
        windows = [window_of(masks, part) for part in cells[0]]
        return _intersection([window for window in windows if window is not None]) if None not in windows else None
    if kind == "sliding_window_overlay":
        # The query's own key is one of them.
        return cells[0] - 1, -1
    if kind == "sliding_window_bidirectional_overlay":
        return cells[0], cells[0]
    return None


def _intersection(windows: list[tuple[int, int]]) -> tuple[int, int]:
    lefts = [left for left, _ in windows if left >= 0]
    rights = [right for _, right in windows if right >= 0]
    return min(lefts, default=-1), min(rights, default=-1)
