"""Doors: PyTorch, transformers and diffusers call the kernels, and what those refuse goes to what was there before, counted."""

import functools
import importlib
from collections.abc import Callable
from typing import Protocol

import torch

from ._dispatch import DENSE_HEAD_DIMS, is_compiling

# The modules of this package that open a door.
_DOORS = {"torch": "._door_torch", "transformers": "._door_transformers", "diffusers": "._door_diffusers"}
# So many reasons are told apart: messages quote shapes, of which a long run has many.
_MOST_REASONS = 64

_undo: dict[str, Callable[[], None]] = {}
_counts: dict[str, dict[str, int]] = {}


class _Door(Protocol):
    def open(self) -> Callable[[], None]: ...


def install(name: str) -> None:
    """Has "torch", "transformers" or "diffusers" call the kernels of this package from now on. A second time changes nothing.

    What the kernels refuse goes to what was there before, and `fallbacks` counts it; `uninstall` undoes it.

    "torch" registers and activates the implementation "attention_ladder" of torch.nn.attention.register_flash_attention_impl: where
    scaled_dot_product_attention and varlen_attn choose their flash backend, without a gradient.
    "transformers" registers the attention "attention_ladder", for model.set_attn_implementation and attn_implementation=, with padding,
    windows, sinks, softcap and static caches; and calls without a mask to "sdpa", the default, are taken as well.
    "diffusers" takes calls without a mask to the backend "native", the default.
    """
    if name not in _DOORS:
        raise ValueError(f"{name!r} is not a door: {', '.join(map(repr, _DOORS))}")
    if name in _undo:
        return
    door: _Door = importlib.import_module(_DOORS[name], __package__)
    _undo[name] = door.open()


def uninstall(name: str) -> None:
    """Has a library call again what it did before `install`. Does nothing where that was not called."""
    if name not in _DOORS:
        raise ValueError(f"{name!r} is not a door: {', '.join(map(repr, _DOORS))}")
    undo = _undo.pop(name, None)
    if undo is not None:
        undo()


def fallbacks() -> dict[str, dict[str, int]]:
    """Returns how many calls each door has left to what was there before, by door and reason.

    Under torch.compile a call counts once, when it is traced.
    """
    return {name: dict(reasons) for name, reasons in _counts.items()}


def count(door: str, reason: str) -> None:
    """Counts a call that goes to what was there before."""
    reasons = _counts.setdefault(door, {})
    key = reason if reason in reasons or len(reasons) < _MOST_REASONS else "other reasons"
    reasons[key] = reasons.get(key, 0) + 1


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _count_traced(door: str, reason: str) -> bool:
    count(door, reason)
    return True


def note(door: str, reason: str) -> None:
    """Counts a call, also while it is traced."""
    if is_compiling():
        _count_traced(door, reason)
    else:
        count(door, reason)


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether kernels can read a tensor."""
    return tensor.is_cuda


@functools.cache
def _capability(index: int) -> int:
    major, minor = torch.cuda.get_device_capability(index)
    return 10 * major + minor


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _traced_capability(index: int) -> int:
    return _capability(index)


def capability(tensor: torch.Tensor) -> int:
    """Returns the compute capability of a tensor's GPU, 90 of sm_90: one number, since Dynamo of PyTorch 2.11 compares no pair that it
    has not made itself."""
    index = tensor.device.index or 0
    return _traced_capability(index) if is_compiling() else _capability(index)


def refusal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_served: bool = False) -> str | None:
    """Returns why no kernel takes tensors [.., head_dim], or None. `is_served`: with a window, lengths, sinks or softcap.

    It reads nothing but attributes, so that torch.compile can trace it. What it does not see is an exception of the call.
    """
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return "backward is not supported"
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"{q.dtype} is not supported"
    if k.dtype != q.dtype or v.dtype != q.dtype:
        return "q, k and v have more than one dtype"
    head_dim = q.shape[-1]
    if head_dim % 8 != 0 or head_dim > DENSE_HEAD_DIMS[-1]:
        return f"head_dim = {head_dim} is not supported"
    if k.shape[-1] != q.shape[-1] or v.shape[-1] != q.shape[-1]:
        return "q, k and v have more than one head_dim"
    if not is_on_gpu(q):
        return f"tensors are on {q.device.type}"
    if (is_served or head_dim not in DENSE_HEAD_DIMS) and capability(q) != 90:
        return "windows, lengths, sinks, softcap and head_dim other than 64 and 128 need sm_90"
    for tensor in (q, k, v):
        if tensor.stride(-1) != 1:
            return "head_dim is not contiguous"
        for extent, stride in zip(tensor.shape[:-1], tensor.stride()[:-1]):
            if extent > 1 and (stride == 0 or stride % 8 != 0):
                return "a stride is 0 or no multiple of 16 bytes"
    return None
