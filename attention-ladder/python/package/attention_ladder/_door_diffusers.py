"""diffusers' registry of attention backends: its backend "native", the default, calls the kernels."""

import importlib
from collections.abc import Callable
from typing import Any

import torch

from . import _doors
from ._dispatch import is_compiling
from ._flash import flash_attn_func


def open() -> Callable[[], None]:
    """Takes the place of the backend "native". Returns what gives it back."""
    attention_dispatch: Any = importlib.import_module("diffusers.models.attention_dispatch")
    registry = attention_dispatch._AttentionBackendRegistry
    name = attention_dispatch.AttentionBackendName.NATIVE
    before = registry._backends[name]

    # The registry has read the parameters of the function before, and passes those alone.
    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **named: Any) -> Any:
        reason = _refusal(query, key, value, named)
        if reason is None:
            if is_compiling():
                return flash_attn_func(query, key, value, named.get("scale"), named.get("is_causal", False))
            try:
                return flash_attn_func(query, key, value, named.get("scale"), named.get("is_causal", False))
            except (NotImplementedError, ValueError) as error:
                reason = str(error)
        _doors.note("diffusers", reason)
        return before(query=query, key=key, value=value, **named)

    registry._backends[name] = attend

    def undo() -> None:
        # Another one that took the place since stays.
        if registry._backends[name] is attend:
            registry._backends[name] = before

    return undo


def _refusal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, named: dict[str, Any]) -> str | None:
    """Returns why a call goes to what was there before, or None. Tensors are [batch, rows, heads, head_dim]."""
    if named.get("attn_mask") is not None:
        return "attn_mask is not supported"
    if named.get("dropout_p", 0.0):
        return "dropout is not supported"
    if named.get("_parallel_config") is not None:
        return "a parallel_config is not supported"
    if named.get("return_lse", False):
        return "return_lse is not supported"
    if named.get("is_causal", False) and query.shape[1] != key.shape[1]:
        return "a causal mask over another number of keys is not supported"
    if query.dim() != 4 or key.dim() != 4 or query.shape[0] != key.shape[0]:
        return "tensors are not [batch, rows, heads, head_dim]"
    if key.shape[2] != query.shape[2] and not named.get("enable_gqa", False):
        return "fewer key heads without enable_gqa"
    return _doors.refusal(query, key, value)
