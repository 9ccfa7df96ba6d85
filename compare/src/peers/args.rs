//! The flags of `peers`.

use crate::measure::select::{Problems, at_least_one};
use clap::Args;
use std::path::PathBuf;

/// What the help shows at its end.
pub const EXAMPLES: &str = "\
Completes a record of `compare run` on this GPU: PyTorch's scaled_dot_product_attention by backend, and FlashAttention where
it is installed, interleaved (A B B A) with ours on the same values, become rows of its rows.jsonl. The record must be of this
build. Run again with the same packages, it goes on with a session that was interrupted, and adds to one that ended: chosen problems
are measured anew, the others stay. With other packages it begins anew. No Python, no torch or no GPU is NO DATA with the reason.

Examples:
  compare peers                                 mission, mission_b2, stretch, long, wide, big, big_wide under both masks, in f16
                                                and what stages claim of e4m3; ours alone against the sequence length
  compare peers --record target/compare/20261120T183000Z-nvidia-h200 --python /opt/venv/bin/python
  compare peers --shapes mission,1x8:2x512x64 --masks causal
                                                two shapes, one with grouped heads
  compare peers --dtypes e4m3                   ours beside FP8 of cuDNN (package nvidia-cudnn-frontend) and FlashAttention-3

Exit codes:
  0  measured and written; every claim against a peer holds, or a committed negative record refutes it
  1  such a claim fails, or one of ours cannot be launched
  2  wrong usage, a record of another build or GPU, or a file that cannot be read or written
  3  NO DATA: no GPU, no Python with torch, or no peer ran; or a claim is AMBIGUOUS";

/// The flags of `peers`.
#[derive(Clone, Debug, Default, Args)]
pub struct PeersArgs {
    /// The record to complete [default: the newest in target/compare]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Stages to time: all of these on mission; on other shapes the last, the fastest of the record and those with a claim there [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    #[command(flatten)]
    pub problems: Problems,
    /// Samples per arm and problem, each the mean over at least 20 ms of launches [default: 20]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub iters: Option<usize>,
    /// The Python that has torch [default: PYTHON, else what scripts/python installed, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
    /// FlashAttention-3 as a library of PyTorch operators, such as `_vllm_fa3_C.abi3.so` of the wheel vllm
    /// [default: FLASH_ATTN_3, else the package flash_attn_interface]
    #[arg(long, value_name = "FILE")]
    pub flash_attn_3: Option<PathBuf>,
    /// Where the report goes [default: COMPARE.md of the workspace]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// No table and no progress; errors only
    #[arg(long, short)]
    pub quiet: bool,
}
