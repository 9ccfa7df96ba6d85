"""What the operators have in common: the library they are in, and what they refuse."""

from collections.abc import Iterable

import torch

library = torch.library.Library("attention_ladder", "DEF")  # type: ignore[no-untyped-call]
is_compiling = torch.compiler.is_dynamo_compiling
record = torch._C._profiler._RecordFunctionFast
NO_BACKWARD = "backward is not supported: call it under torch.no_grad(), or on tensors that require no gradient"

# What dense kernels are compiled for; those of sequences take each multiple of 8 up to the larger.
DENSE_HEAD_DIMS = (64, 128)

Given = torch.Tensor | None
Results = torch.Tensor | tuple[torch.Tensor, torch.Tensor]

_unpack_dual = torch.autograd.forward_ad.unpack_dual


def check_dispatched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None) -> None:
    """Refuses what the operators do not see, or cannot name."""
    for name, tensor in (("q", q), ("k", k), ("v", v), ("out", out)):
        if not isinstance(tensor, torch.Tensor) and (name, tensor) != ("out", None):
            raise TypeError(f"{name} is no torch.Tensor, but a {type(tensor).__name__}")
        if tensor is not None and tensor.is_nested:
            raise NotImplementedError(f"{name} is a nested tensor: pad it, or call once for each sequence")
    if out is None:
        return
    if out.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(f"out requires a gradient, or is a view of what does: {NO_BACKWARD}")
    # A copy would convert and broadcast.
    dtype = torch.bfloat16 if q.dtype is torch.bfloat16 else torch.float16
    if (out.dtype, out.shape, out.device) != (dtype, q.shape, q.device):
        raise ValueError(f"out must be a {str(dtype)[6:]} tensor {list(q.shape)} on the device of q")


def refuse_derivatives(given: Iterable[object], names: Iterable[str]) -> None:
    """Refuses tensors that need a gradient or have a tangent."""
    for name, value in zip(names, given):
        if isinstance(value, torch.Tensor):
            if value.requires_grad and torch.is_grad_enabled():
                raise NotImplementedError(f"{name} requires a gradient: {NO_BACKWARD}")
            if _unpack_dual(value).tangent is not None:  # type: ignore[no-untyped-call]
                raise NotImplementedError(f"{name} has a tangent: forward-mode differentiation is not supported; call it on the primals")
