//! One attention forward problem, and the named problems that every stage must pass.

use crate::format::Format;
use crate::serving::{Cache, Serving};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::LazyLock;

named! {
    /// The element type of Q, K and V.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
    )]
    #[serde(rename_all = "lowercase")]
    pub enum Dtype {
        /// IEEE binary16; the default of records.
        #[default]
        F16 = "f16",
        /// OCP FP8 E4M3FN with one f32 scale per batch and head: `value = scale * code`.
        E4m3 = "e4m3",
        /// bfloat16; not in every stage.
        Bf16 = "bf16",
    }
}

impl Cache {
    /// Returns the element type that K and V have.
    pub fn dtype(self) -> Dtype {
        match self {
            Cache::E4m3 => Dtype::E4m3,
        }
    }
}

impl Dtype {
    pub fn bytes(self) -> usize {
        match self {
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::E4m3 => 1,
        }
    }

    /// Returns the format of the output: bf16 for bf16 inputs, else f16.
    pub fn output(self) -> Format {
        match self {
            Dtype::F16 | Dtype::E4m3 => Format::F16,
            Dtype::Bf16 => Format::Bf16,
        }
    }
}

named! {
    /// The keys that each query sees.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Mask {
        Full = "full",
        /// Bottom-right aligned: key `j` is visible to query `i` iff `j <= i + seq_kv - seq_q`
        /// (FlashAttention >= 2.1). A query that sees no key gets exactly 0.
        Causal = "causal",
    }
}

/// The extents of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    pub batch: usize,
    pub heads_q: usize,
    /// The number of key heads, which divides `heads_q` (grouped-query attention).
    pub heads_kv: usize,
    pub seq_q: usize,
    pub seq_kv: usize,
    /// The number of elements per row, a multiple of 8 up to 128: see [`Shape::is_dense`].
    pub head_dim: usize,
    #[serde(default, skip_serializing_if = "Serving::is_dense")]
    pub serving: Serving,
}

impl Shape {
    /// Returns the shape of self-attention `(B, H, S, D)`: as many key heads as query heads, as
    /// many keys as queries.
    pub const fn bhsd(batch: usize, heads: usize, seq: usize, head_dim: usize) -> Self {
        Self {
            batch,
            heads_q: heads,
            heads_kv: heads,
            seq_q: seq,
            seq_kv: seq,
            head_dim,
            serving: Serving::DENSE,
        }
    }

    pub fn named(&self) -> Option<&'static NamedShape> {
        SHAPES.iter().find(|named| named.shape == *self)
    }

    pub fn is_decode(&self) -> bool {
        self.named().is_some_and(|named| named.kind == Kind::Decode)
    }

    /// Returns the name in the ladder's tables, else the extents.
    pub fn name(&self) -> String {
        match self.named() {
            Some(named) => named.name.to_string(),
            None => self.to_string(),
        }
    }

    /// Returns whether sequences are equal, in dense tensors of a head_dim that kernels are compiled
    /// for: what every stage takes.
    pub fn is_dense(&self) -> bool {
        self.serving.is_dense() && HEAD_DIMS.contains(&self.head_dim)
    }

    /// Returns the least head_dim that kernels are compiled for and that holds this one. Its columns
    /// behind the tensor's read as zero.
    pub fn compiled_head_dim(&self) -> usize {
        let [small, large] = HEAD_DIMS;
        match self.head_dim {
            dim if dim <= small => small,
            dim if dim <= BETWEEN_HEAD_DIMS => BETWEEN_HEAD_DIMS,
            _ => large,
        }
    }

    /// Returns `[batch, heads_q, seq_q, head_dim]`, the extents of Q and O.
    pub fn q_extents(&self) -> [usize; 4] {
        [self.batch, self.heads_q, self.seq_q, self.head_dim]
    }

    /// Returns `[batch, heads_kv, seq_kv, head_dim]`, the extents of K and V.
    pub fn kv_extents(&self) -> [usize; 4] {
        [self.batch, self.heads_kv, self.seq_kv, self.head_dim]
    }
}

impl fmt::Display for Shape {
    /// Writes `1x8x512x64`; `1x8:2x113:203x64` where query and key sides differ; and what it has
    /// beyond dense tensors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |q: usize, kv: usize| {
            if q == kv {
                q.to_string()
            } else {
                format!("{q}:{kv}")
            }
        };
        let heads = pair(self.heads_q, self.heads_kv);
        let seq = pair(self.seq_q, self.seq_kv);
        let (batch, head_dim, serving) = (self.batch, self.head_dim, self.serving);
        f.pad(&format!("{batch}x{heads}x{seq}x{head_dim}{serving}"))
    }
}

/// A reason why something is no problem.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProblemError {
    #[error("{name} is 0: every extent of a problem is at least 1")]
    ZeroExtent { name: &'static str },
    #[error(
        "heads_kv = {heads_kv} does not divide heads_q = {heads_q}: each key head serves \
         heads_q / heads_kv query heads"
    )]
    HeadGroups { heads_q: usize, heads_kv: usize },
    #[error("head_dim = {head_dim} is not supported: a multiple of 8 up to 128")]
    HeadDim { head_dim: usize },
    #[error("{name} = {value} is too large: at most {max}")]
    TooLarge {
        name: &'static str,
        value: usize,
        max: usize,
    },
    #[error("{complaint}")]
    Serving { complaint: String },
    #[error(
        "cache={cache} is for queries in f16 or bf16, and these are {dtype}: leave it out, or take \
         another dtype"
    )]
    CacheDtype { cache: Cache, dtype: Dtype },
    #[error(
        "head_dim = {head_dim} is not supported with cache={cache}: a multiple of \
         {CACHE_HEAD_DIM_MULTIPLE}, since rows are read 16 bytes at a time"
    )]
    CacheHeadDim { cache: Cache, head_dim: usize },
    #[error("softmax_scale = {scale} is not a positive finite number")]
    Scale { scale: f32 },
    #[error(
        "'{text}' is not a shape: expected BATCHxHEADSxSEQxDIM, such as 1x8x512x64, or \
         1x8:2x113:203x64 for 8 query and 2 key heads, 113 queries and 203 keys, and \
         +packed=tail:0:7 or +used=even:1:3, +window=127:0, +sinks, +cap=30, +page=16 and \
         +cache=e4m3, each at most once"
    )]
    Syntax { text: String },
}

/// One attention forward problem.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub shape: Shape,
    pub dtype: Dtype,
    pub mask: Mask,
    /// The factor of Q·K before the softmax.
    pub softmax_scale: f32,
}

/// The head sizes that kernels are compiled for, ascending.
pub const HEAD_DIMS: [usize; 2] = [64, 128];

/// The head_dim that kernels for sequences as they are served are compiled for, too: for the 72 and
/// 80 of vision transformers the products of 128 columns would be 1.3 times as long.
pub const BETWEEN_HEAD_DIMS: usize = 96;
/// The columns of f16 and bf16 that kernels read at a time: 16 bytes.
const HEAD_DIM_MULTIPLE: usize = 8;
/// The codes of E4M3 that kernels read at a time: 16 bytes.
const CACHE_HEAD_DIM_MULTIPLE: usize = 16;
/// The longest sequence: rows and heads are indexed with 32-bit integers.
const MAX_SEQ: usize = 1 << 24;
/// The largest extent of a grid in y and z.
const MAX_GRID_YZ: usize = 65_535;

/// Computes [`Problem::default_scale`].
fn default_scale(shape: &Shape) -> f32 {
    1.0 / (shape.head_dim.max(1) as f32).sqrt()
}

impl Problem {
    /// Makes a problem with the scale `1 / sqrt(head_dim)`.
    pub fn new(shape: Shape, dtype: Dtype, mask: Mask) -> Result<Self, ProblemError> {
        Self::with_scale(shape, dtype, mask, default_scale(&shape))
    }

    pub fn with_scale(
        shape: Shape,
        dtype: Dtype,
        mask: Mask,
        softmax_scale: f32,
    ) -> Result<Self, ProblemError> {
        let extents = [
            ("batch", shape.batch, MAX_GRID_YZ),
            ("heads_q", shape.heads_q, MAX_GRID_YZ),
            ("heads_kv", shape.heads_kv, MAX_GRID_YZ),
            ("seq_q", shape.seq_q, MAX_SEQ),
            ("seq_kv", shape.seq_kv, MAX_SEQ),
        ];
        for (name, value, max) in extents {
            if value == 0 {
                return Err(ProblemError::ZeroExtent { name });
            }
            if value > max {
                return Err(ProblemError::TooLarge { name, value, max });
            }
        }
        let head_dim = shape.head_dim;
        let is_in_range = (1..=HEAD_DIMS[1]).contains(&head_dim);
        if !is_in_range || !head_dim.is_multiple_of(HEAD_DIM_MULTIPLE) {
            return Err(ProblemError::HeadDim { head_dim });
        }
        if let Some(complaint) = shape.serving.complaint() {
            return Err(ProblemError::Serving { complaint });
        }
        if let Some(cache) = shape.serving.cache {
            check_cache(cache, dtype, head_dim)?;
        }
        if !shape.heads_q.is_multiple_of(shape.heads_kv) {
            return Err(ProblemError::HeadGroups {
                heads_q: shape.heads_q,
                heads_kv: shape.heads_kv,
            });
        }
        if !(softmax_scale.is_finite() && softmax_scale > 0.0) {
            return Err(ProblemError::Scale {
                scale: softmax_scale,
            });
        }
        Ok(Self {
            shape,
            dtype,
            mask,
            softmax_scale,
        })
    }

    /// Returns the element type of K and V.
    pub fn kv_dtype(&self) -> Dtype {
        let cache = self.shape.serving.cache;
        cache.map_or(self.dtype, Cache::dtype)
    }

    /// Returns the problem with K and V in a cache of this type, or without one.
    ///
    /// # Errors
    ///
    /// An element type of Q or a head_dim that the cache is not for.
    pub fn in_cache(mut self, cache: Option<Cache>) -> Result<Self, ProblemError> {
        self.shape.serving.cache = cache;
        Self::with_scale(self.shape, self.dtype, self.mask, self.softmax_scale)
    }

    /// Returns what scores are scaled by where nothing else is asked for: one over the root of
    /// head_dim.
    pub fn default_scale(&self) -> f32 {
        default_scale(&self.shape)
    }

    pub fn has_default_scale(&self) -> bool {
        self.softmax_scale == self.default_scale()
    }

    /// Returns the softmax scale as an option of a case, ` scale=0.5`; nothing for the default.
    pub fn scale_option(&self) -> String {
        if self.has_default_scale() {
            String::new()
        } else {
            format!(" scale={}", self.softmax_scale)
        }
    }

    /// Returns the number of keys that a query row sees, `0..visible_keys(row)`; 0 in a row that
    /// causal masking empties.
    pub fn visible_keys(&self, row: usize) -> usize {
        match self.mask {
            Mask::Full => self.shape.seq_kv,
            Mask::Causal => (row + 1 + self.shape.seq_kv)
                .saturating_sub(self.shape.seq_q)
                .min(self.shape.seq_kv),
        }
    }

    /// Returns the number of visible query-key pairs over all heads and batches; it saturates.
    pub fn scores(&self) -> u64 {
        if !self.is_dense() {
            return self.served_scores();
        }
        let per_head: u64 = (0..self.shape.seq_q)
            .map(|row| self.visible_keys(row) as u64)
            .sum();
        per_head
            .saturating_mul(self.shape.batch as u64)
            .saturating_mul(self.shape.heads_q as u64)
    }

    /// Returns whether claims are stated on it.
    pub fn has_claims(&self) -> bool {
        *self == claims_problem(self.dtype)
    }

    /// Returns whether the mask is one that the shape is usually computed with. A shape without a
    /// name is computed with any.
    pub fn has_usual_mask(&self) -> bool {
        self.shape
            .named()
            .is_none_or(|named| named.masks.contains(&self.mask))
    }

    /// Returns the floating-point operations: two products of `2 * head_dim` per visible score, as
    /// FlashAttention counts (without softmax).
    pub fn flops(&self) -> u64 {
        self.scores().saturating_mul(4 * self.shape.head_dim as u64)
    }

    pub fn input_bytes(&self) -> u64 {
        if !self.is_dense() {
            return self.served_input_bytes();
        }
        let elements = |extents: [usize; 4]| extents.iter().product::<usize>() as u64;
        let all = elements(self.shape.q_extents()) + 2 * elements(self.shape.kv_extents());
        all * self.dtype.bytes() as u64
    }

    /// Returns the least bytes across device memory: Q, K and V read once, O written once.
    pub fn min_bytes(&self) -> u64 {
        let output_bytes = 2 * self.query_rows() * self.shape.head_dim;
        self.input_bytes() + output_bytes as u64
    }
}

named! {
    /// A kind of shape, which decides what runs have it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Kind {
        /// Less than a GPU at a time. Tiers run these alone: all families and seeds of others on
        /// every variant take hours.
        Small = "Small grids",
        Large = "Large grids",
        /// Shapes of models, which nobody chose to suit a tile.
        Everyday = "Everyday",
        /// Few queries over many keys, which come from device memory: they are timed over more than
        /// the L2 cache holds.
        Decode = "Decode",
        /// Sequences as they are served: of unequal lengths, packed or in pages, under windows, with
        /// sinks.
        Served = "As served",
        /// Shapes without a name.
        Other = "Other",
    }
}

/// A shape with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedShape {
    /// The name in the ladder's tables.
    pub name: &'static str,
    pub kind: Kind,
    /// The masks that it is usually computed with; others are timed where they are asked for.
    pub masks: &'static [Mask],
    pub shape: Shape,
}

/// The named shapes. Claims are stated on `mission`.
pub static SHAPES: LazyLock<Vec<NamedShape>> = LazyLock::new(|| {
    use Kind::{Decode, Everyday, Large, Served, Small};
    const BOTH: &[Mask] = &Mask::ALL;
    const FULL: &[Mask] = &[Mask::Full];
    const CAUSAL: &[Mask] = &[Mask::Causal];
    vec![
        named("small", Small, BOTH, "1x1x32x64"),
        named("mission", Small, BOTH, "1x8x512x64"),
        named("mission_b2", Small, BOTH, "2x8x512x64"),
        named("stretch", Small, BOTH, "4x16x512x64"),
        named("long", Small, BOTH, "1x8x2048x64"),
        named("wide", Small, BOTH, "1x8x512x128"),
        named("big", Large, BOTH, "4x16x4096x64"),
        named("big_wide", Large, BOTH, "4x16x4096x128"),
        named("long_16k", Large, BOTH, "1x16x16384x64"),
        named("long_16k_wide", Large, BOTH, "1x16x16384x128"),
        named("between_1k_d128", Everyday, BOTH, "1x32x1024x128"),
        named("between_2k_d128", Everyday, BOTH, "1x8x2048x128"),
        named("ragged_1000", Everyday, BOTH, "4x16x1000x64"),
        named("ragged_4095", Everyday, BOTH, "4x16x4095x64"),
        named("vit_197", Everyday, FULL, "32x12x197x64"),
        named("bert_128", Everyday, FULL, "32x16x128x64"),
        named("cross_77", Everyday, FULL, "2x10x4096:77x64"),
        named("encoder_512", Everyday, FULL, "8x12x512x64"),
        named("unet_1024", Everyday, FULL, "2x20x1024x64"),
        named("prompt_128", Everyday, CAUSAL, "16x32:8x128x128"),
        named("prefill_512", Everyday, CAUSAL, "8x32:8x512x128"),
        named("prefill_2k", Everyday, CAUSAL, "1x32:8x2048x128"),
        named("prefill_3k_g7", Everyday, CAUSAL, "1x28:4x3000x128"),
        named("prefill_4k_g4", Everyday, CAUSAL, "1x32:8x4096x128"),
        named("prefill_2k_mqa", Everyday, CAUSAL, "1x32:1x2048x128"),
        named("chunk", Everyday, CAUSAL, "1x32:8x512:8192x128"),
        named("chunk_2k", Everyday, CAUSAL, "1x32:8x2048:8192x128"),
        named("chunk_64", Everyday, CAUSAL, "8x32:8x64:8192x128"),
        named("cross_512", Everyday, FULL, "1x40x14040:512x128"),
        named("video_14k", Everyday, FULL, "1x40x14040x128"),
        named("decode_1k", Decode, FULL, "8x32:8x1:1024x128"),
        named("decode_8k", Decode, FULL, "8x32:8x1:8192x128"),
        named("decode_128k", Decode, FULL, "1x32:8x1:131072x128"),
        named("verify", Decode, CAUSAL, "8x32:8x4:8192x128"),
        named("gptoss_full", Served, CAUSAL, "1x64:8x4096x64+sinks"),
        named(
            "gptoss_window",
            Served,
            CAUSAL,
            "1x64:8x4096x64+window=127:*+sinks",
        ),
        named(
            "mistral_window",
            Served,
            CAUSAL,
            "1x32:8x8192x128+window=4095:*",
        ),
        named(
            "varlen_llm",
            Served,
            CAUSAL,
            "32x32:8x4096x128+packed=tail:16:1",
        ),
        named(
            "varlen_encoder",
            Served,
            FULL,
            "64x12x512x64+packed=even:30:2",
        ),
        named(
            "varlen_dit",
            Served,
            FULL,
            "2x24x4608x128+packed=even:4300:3",
        ),
        named("vit_72", Served, FULL, "16x16x729x72"),
        named(
            "paged_decode_16",
            Served,
            CAUSAL,
            "64x32:8x1:8192x128+packed=even:100:4+page=16",
        ),
        named(
            "paged_decode_64",
            Served,
            CAUSAL,
            "64x32:8x1:8192x128+packed=even:100:4+page=64",
        ),
        named(
            "fp8_cache",
            Served,
            CAUSAL,
            "64x32:8x1:8192x128+packed=even:100:4+page=64+cache=e4m3",
        ),
        named(
            "mixed",
            Served,
            CAUSAL,
            "32x32:8x512:4096x128+packed=mixed:64:5+page=64",
        ),
    ]
});

/// Refuses a cache under queries that it is not for.
fn check_cache(cache: Cache, dtype: Dtype, head_dim: usize) -> Result<(), ProblemError> {
    if dtype == cache.dtype() {
        return Err(ProblemError::CacheDtype { cache, dtype });
    }
    if !head_dim.is_multiple_of(CACHE_HEAD_DIM_MULTIPLE) {
        return Err(ProblemError::CacheHeadDim { cache, head_dim });
    }
    Ok(())
}

/// Returns the shape that `BATCHxHEADSxSEQxDIM` describes, under its name.
fn named(name: &'static str, kind: Kind, masks: &'static [Mask], extents: &str) -> NamedShape {
    NamedShape {
        name,
        kind,
        masks,
        shape: parse_extents(extents).expect("a named shape has extents"),
    }
}

pub fn of_kind(kind: Kind) -> impl Iterator<Item = &'static NamedShape> {
    SHAPES.iter().filter(move |named| named.kind == kind)
}

pub fn claims_problem(dtype: Dtype) -> Problem {
    let shape = parse_shape("mission").expect("it is among the named shapes");
    Problem::new(shape, dtype, Mask::Full).expect("the named shapes are valid")
}

/// Reads a shape: its name, or `BATCHxHEADSxSEQxDIM`.
pub fn parse_shape(text: &str) -> Result<Shape, ProblemError> {
    if let Some(named) = SHAPES.iter().find(|named| named.name == text) {
        return Ok(named.shape);
    }
    parse_extents(text)
}

fn parse_extents(text: &str) -> Result<Shape, ProblemError> {
    let syntax = || ProblemError::Syntax {
        text: text.to_string(),
    };
    let mut parts = text.split('+');
    let extents = parts.next().unwrap_or_default();
    let serving = Serving::parse(parts).ok_or_else(syntax)?;
    let number = |part: &str| part.parse::<usize>().map_err(|_| syntax());
    let pair = |part: &str| match part.split_once(':') {
        Some((q, kv)) => Ok::<_, ProblemError>((number(q)?, number(kv)?)),
        None => number(part).map(|n| (n, n)),
    };
    let [batch, heads, seq, dim] = extents.split('x').collect::<Vec<_>>()[..] else {
        return Err(syntax());
    };
    let (heads_q, heads_kv) = pair(heads)?;
    let (seq_q, seq_kv) = pair(seq)?;
    Ok(Shape {
        batch: number(batch)?,
        heads_q,
        heads_kv,
        seq_q,
        seq_kv,
        head_dim: number(dim)?,
        serving,
    })
}

/// Returns ragged, unequal and grouped shapes: tile edges on both sides, single rows, more queries
/// than keys and the reverse. They come from FlashAttention's and xFormers' test grids; (1, 239),
/// (799, 3) and (113, 203) are FlashAttention's pairs.
pub fn edge_shapes() -> Vec<Shape> {
    const RAGGED: [usize; 17] = [
        1, 2, 15, 16, 17, 31, 33, 63, 65, 113, 127, 129, 203, 239, 511, 513, 1023,
    ];
    const UNEQUAL: [&str; 8] = [
        "1x2x1:239x64",
        "1x2x1:239x128",
        "1x2x799:3x64",
        "1x2x799:3x128",
        "1x2x113:203x64",
        "1x2x113:203x128",
        "2x8:2x65:129x64",
        "2x8:2x129:65x128",
    ];
    let mut shapes = RAGGED.map(|seq| Shape::bhsd(1, 2, seq, 64)).to_vec();
    for extents in UNEQUAL {
        shapes.push(parse_extents(extents).expect("an edge shape has extents"));
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_that_no_number_holds_are_the_largest() {
        let shape = Shape::bhsd(MAX_GRID_YZ, MAX_GRID_YZ, MAX_SEQ, 128);
        let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        assert_eq!((problem.scores(), problem.flops()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn causal_is_aligned_bottom_right() {
        let shape = Shape {
            batch: 1,
            heads_q: 1,
            heads_kv: 1,
            seq_q: 2,
            seq_kv: 5,
            head_dim: 64,
            serving: Serving::DENSE,
        };
        let more_keys = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
        assert_eq!([0, 1].map(|row| more_keys.visible_keys(row)), [4, 5]);
        let turned = Shape {
            seq_q: 5,
            seq_kv: 2,
            ..shape
        };
        let more_queries = Problem::new(turned, Dtype::F16, Mask::Causal).unwrap();
        let visible = [0, 1, 2, 3, 4].map(|row| more_queries.visible_keys(row));
        assert_eq!(visible, [0, 0, 0, 1, 2]);
    }

    #[test]
    fn the_floor_of_mission_is_the_one_that_the_design_states() {
        let p = Problem::new(Shape::bhsd(1, 8, 512, 64), Dtype::F16, Mask::Full).unwrap();
        assert_eq!(p.flops(), 536_870_912);
        assert_eq!(p.min_bytes(), 2_097_152);
    }

    #[test]
    fn bad_problems_are_refused() {
        let ok = Shape::bhsd(1, 8, 512, 64);
        let refusal = |shape| {
            let refused = Problem::new(shape, Dtype::F16, Mask::Full);
            refused.unwrap_err().to_string()
        };
        assert!(refusal(Shape { head_dim: 0, ..ok }).contains("head_dim = 0"));
        assert!(refusal(Shape { head_dim: 36, ..ok }).contains("a multiple of 8"));
        assert!(
            refusal(Shape {
                head_dim: 136,
                ..ok
            })
            .contains("up to 128")
        );
        assert!(refusal(Shape { heads_kv: 3, ..ok }).contains("does not divide"));
        assert!(refusal(Shape { seq_q: 0, ..ok }).contains("seq_q is 0"));
        let endless = Shape {
            seq_kv: usize::MAX,
            ..ok
        };
        assert!(refusal(endless).contains("too large"));
        assert!(Problem::with_scale(ok, Dtype::F16, Mask::Full, f32::NAN).is_err());
    }

    #[test]
    fn shapes_parse_by_name_and_by_extents() {
        assert_eq!(parse_shape("mission").unwrap(), Shape::bhsd(1, 8, 512, 64));
        let shape = parse_shape("1x8:2x113:203x64").unwrap();
        assert_eq!(
            (shape.heads_q, shape.heads_kv, shape.seq_q, shape.seq_kv),
            (8, 2, 113, 203)
        );
        assert_eq!(shape.name(), "1x8:2x113:203x64");
        for named in SHAPES.iter() {
            assert_eq!(parse_shape(named.name).unwrap(), named.shape);
            assert_eq!(named.shape.name(), named.name);
            Problem::new(named.shape, Dtype::Bf16, named.masks[0]).unwrap();
        }
        for bad in ["", "1x8x512", "axbxcxd", "1x8x512x64x2"] {
            assert!(parse_shape(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_edge_shape_is_a_problem() {
        for shape in edge_shapes() {
            for dtype in Dtype::ALL {
                for mask in Mask::ALL {
                    Problem::new(shape, dtype, mask).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_shape_that_says_a_property_twice_is_refused() {
        for twice in [
            "+packed=tail:0:7+used=even:1:3",
            "+used=even:1:3+packed=tail:0:7",
            "+packed=tail:0:7+packed=tail:0:7",
            "+cap=30+cap=20",
            "+window=1:1+window=2:2",
            "+window=*:*+window=2:2",
            "+page=16+sinks+page=32",
            "+sinks+sinks",
            "+cache=e4m3+cache=e4m3",
        ] {
            let refused = parse_shape(&format!("1x1x16x64{twice}")).unwrap_err();
            let message = refused.to_string();
            assert!(message.contains(twice), "{message}");
            assert!(message.contains("+packed=tail:0:7 or +used=even:1:3"));
            assert!(message.ends_with("each at most once"), "{message}");
        }
    }

    #[test]
    fn a_cache_is_for_queries_of_16_bits_and_rows_of_16_bytes() {
        let refusal = |text: &str, dtype| {
            let refused = Problem::new(parse_shape(text).unwrap(), dtype, Mask::Full);
            refused.unwrap_err().to_string()
        };
        let of_dtype = refusal("1x8x512x64+cache=e4m3", Dtype::E4m3);
        assert!(of_dtype.contains("these are e4m3"), "{of_dtype}");
        let of_head_dim = refusal("1x8x512x72+cache=e4m3", Dtype::Bf16);
        assert!(of_head_dim.contains("a multiple of 16"), "{of_head_dim}");
    }

    #[test]
    fn keys_in_a_cache_have_a_byte_for_each_element() {
        let shape = parse_shape("1x8x512x64+cache=e4m3").unwrap();
        let cached = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        assert_eq!((cached.dtype, cached.kv_dtype()), (Dtype::F16, Dtype::E4m3));
        let elements = 8 * 512 * 64;
        assert_eq!(cached.input_bytes(), 2 * elements + 2 * elements);
        let whole = cached.in_cache(None).unwrap();
        assert_eq!(whole.kv_dtype(), Dtype::F16);
        assert_eq!(whole.input_bytes(), 3 * 2 * elements);
    }

    #[test]
    fn a_text_is_read_back() {
        for text in [
            "1x8x512x64",
            "8x32:8x1024x128+packed=tail:0:7",
            "8x32:8x1:1024x128+used=even:1:3+window=127:0+sinks+cap=30+page=16+cache=e4m3",
            "1x8x512x64+window=*:3",
        ] {
            assert_eq!(parse_shape(text).unwrap().to_string(), text);
        }
        for bad in [
            "+packed",
            "+window=1",
            "+page=24",
            "+cap=0",
            "+pages=16",
            "+page=8",
            "+cache",
            "+cache=f16",
            "+cache=bf16",
        ] {
            let shape = parse_shape(&format!("1x8x512x64{bad}"));
            let refused = shape
                .map(|parsed| Problem::new(parsed, Dtype::F16, Mask::Full).is_err())
                .unwrap_or(true);
            assert!(refused, "{bad}");
        }
    }
}
