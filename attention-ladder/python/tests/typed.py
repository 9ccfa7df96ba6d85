"""A user's program, for `mypy --strict`: what is right has the types that it names, and each mistake is an error, or the comment on its
line would be one."""

from typing_extensions import assert_type

import torch

import attention_ladder


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = attention_ladder.sdpa(q, k, v, is_causal=True, scale=0.125)
    assert_type(out, torch.Tensor)
    assert_type(attention_ladder.sdpa(q, k, v, True, 1, out, batch_invariant=True), torch.Tensor)
    assert_type(attention_ladder.sdpa(q, k, v, out=None, return_lse=False), torch.Tensor)
    result, lse = attention_ladder.sdpa(q, k, v, return_lse=True)
    assert_type(result, torch.Tensor)
    assert_type(lse, torch.Tensor)
    return out


def attend_to_codes(codes: torch.Tensor, scales: torch.Tensor, wants_lse: bool) -> torch.Tensor:
    results = attention_ladder.sdpa(
        codes, codes, codes, q_scale=scales, k_scale=scales, v_scale=scales, return_lse=wants_lse
    )
    assert_type(results, torch.Tensor | tuple[torch.Tensor, torch.Tensor])
    return results if isinstance(results, torch.Tensor) else results[0]


def name(q: torch.Tensor) -> str:
    return attention_ladder.variant(q, q, q, True, None, return_lse=True, batch_invariant=True) + attention_ladder.__version__


def attend_to_sequences(q: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    results = attention_ladder.varlen_attn(q, q, q, starts, starts, 512, 512, window_size=(-1, 0), sinks=None, softcap=30.0)
    assert_type(results, torch.Tensor | tuple[torch.Tensor, torch.Tensor])
    attention_ladder.flash_attn_varlen_func(q, q, q, starts, starts, 512, 512, causal=True)
    attention_ladder.varlen_attn(q, q, q, starts, starts, 512, 512, is_causal=True)  # type: ignore[call-arg]
    return results if isinstance(results, torch.Tensor) else results[0]


def attend_within_a_window(q: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    out, lse = attention_ladder.sdpa(q, q, q, window=(127, 0), sinks=sinks, softcap=30.0, return_lse=True)
    assert_type(lse, torch.Tensor)
    attention_ladder.sdpa(q, q, q, window=127)  # type: ignore[call-overload]
    attention_ladder.sdpa(q, q, q, softcap=None)  # type: ignore[call-overload]
    return out


def attend_to_a_cache(q: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    results = attention_ladder.flash_attn_with_kvcache(q, q, q, cache_seqlens=lengths, causal=True, page_table=None)
    assert_type(results, torch.Tensor | tuple[torch.Tensor, torch.Tensor])
    attention_ladder.flash_attn_with_kvcache(q, q, q, cache_seqlens=512, window_size=(127, 0), return_softmax_lse=True)
    attention_ladder.flash_attn_with_kvcache(q, q, q, cache_seqlens="512")  # type: ignore[arg-type]
    attention_ladder.flash_attn_func(q, q, q, causal=True, window_size=(127, 0), return_attn_probs=True)
    attention_ladder.flash_attn_func(q, q, q, dropout_p=0.1)  # type: ignore[call-arg]
    return results if isinstance(results, torch.Tensor) else results[0]


def doors() -> dict[str, dict[str, int]]:
    attention_ladder.install("transformers")
    attention_ladder.uninstall("transformers")
    attention_ladder.install(None)  # type: ignore[arg-type]
    return attention_ladder.fallbacks()


def operator(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out: torch.Tensor = torch.ops.attention_ladder.sdpa(q, q, q, is_causal=True)
    lse: torch.Tensor
    _, lse = torch.ops.attention_ladder.sdpa_lse(q, q, q)
    return out, lse


def mistakes(q: torch.Tensor) -> None:
    attention_ladder.sdpa(q, q)  # type: ignore[call-overload]
    attention_ladder.sdpa(q, q, q, scale="0.125")  # type: ignore[call-overload]
    attention_ladder.sdpa(q, q, q, scale=q)  # type: ignore[call-overload]
    attention_ladder.sdpa(q, q, q, dropout_p=0.1)  # type: ignore[call-overload]
    attention_ladder.sdpa(q, q, q, True, None, q, q)  # type: ignore[call-overload]
    attention_ladder.variant(q, q, q, batch_invariant=q)  # type: ignore[arg-type]
    attention_ladder.attend(q, q, q)  # type: ignore[attr-defined]
    out, lse = attention_ladder.sdpa(q, q, q)
    not_a_tensor: int = attention_ladder.sdpa(q, q, q)  # type: ignore[assignment]
    del out, lse, not_a_tensor
