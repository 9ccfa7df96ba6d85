"""The tensors that calls allocate. The native module takes them from here."""

import torch

empty_like, empty_strided = torch.empty_like, torch.empty_strided


def empty_out(q: torch.Tensor) -> torch.Tensor:
    """Returns an output like q: float16 where q is float8_e4m3fn."""
    return empty_like(q, dtype=torch.float16) if q.dtype is torch.float8_e4m3fn else empty_like(q)


def empty_lse(q: torch.Tensor) -> torch.Tensor:
    """Returns log-sum-exps of q, [batch, heads, rows, head_dim]."""
    batch, heads, rows, _ = q.shape
    # With its strides given, PyTorch is twice as fast.
    return empty_strided((batch, heads, rows), (heads * rows, rows, 1), dtype=torch.float32, device=q.device)


def empty_varlen_lse(q: torch.Tensor) -> torch.Tensor:
    """Returns log-sum-exps of q, [rows, heads, head_dim] or [batch, rows, heads, head_dim]."""
    *batches, rows, heads, _ = q.shape
    if not batches:
        return empty_strided((heads, rows), (rows, 1), dtype=torch.float32, device=q.device)
    return empty_strided((*batches, heads, rows), (heads * rows, rows, 1), dtype=torch.float32, device=q.device)
