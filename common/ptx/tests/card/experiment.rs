//! A kernel around an instruction, and the operands that it runs on.

use sha2::{Digest, Sha256};

/// The threads of a block, each of which takes every 128th operand set.
pub const THREADS: u32 = 128;

/// What a word of a result holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Bits,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F64,
}

impl Format {
    /// Returns the word with each NaN in it replaced by one and the same.
    pub fn without_payload(self, word: u64) -> u64 {
        match self {
            Self::Bits => word,
            Self::F16 => canonical(word, 0x7c00),
            Self::Bf16 => canonical(word, 0x7f80),
            Self::F16x2 => canonical(word & 0xffff, 0x7c00) | canonical(word >> 16, 0x7c00) << 16,
            Self::Bf16x2 => canonical(word & 0xffff, 0x7f80) | canonical(word >> 16, 0x7f80) << 16,
            Self::F32 if f32::from_bits(word as u32).is_nan() => 0x7fff_ffff,
            Self::F64 if f64::from_bits(word).is_nan() => u64::MAX >> 1,
            Self::F32 | Self::F64 => word,
        }
    }
}

/// Replaces a NaN of 16 bits; `infinity` has all bits of the exponent.
fn canonical(code: u64, infinity: u64) -> u64 {
    if code & 0x7fff > infinity {
        0x7fff
    } else {
        code
    }
}

/// How results of an approximate instruction are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// The most that the specification and the rounding here allow.
    pub ulps: u64,
    /// A difference of no more than two to this power is allowed beside one of some ulp.
    pub absolute_exponent: Option<i32>,
}

/// What a card computes where the interpreter computes something else.
#[derive(Clone, Debug)]
pub struct Model {
    /// Completes "the card's are".
    pub says: &'static str,
    pub results: Vec<u64>,
}

/// A kernel and its operand sets.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The instruction's name or example on the page.
    pub row: String,
    /// Other rows of which this is the evidence, too.
    pub also: &'static [&'static str],
    /// What tells the experiments of one row apart.
    pub part: &'static str,
    /// A module of one entry, `experiment(from, to, sets)`.
    pub text: String,
    /// The words of each operand set.
    pub words: usize,
    /// All sets, one behind the other.
    pub operands: Vec<u64>,
    /// The words of each set's result.
    pub results: Vec<Format>,
    /// None where the results are to be equal.
    pub tolerance: Option<Tolerance>,
    /// What the card's results equal, where the interpreter's do not.
    pub model: Option<Model>,
    /// The blocks of its cluster; the first stores results.
    pub blocks: u32,
}

impl Experiment {
    pub fn sets(&self) -> usize {
        self.operands.len() / self.words
    }

    /// Returns a digest of the kernel and its operands.
    pub fn digest(&self) -> String {
        let mut bytes = self.text.clone().into_bytes();
        bytes.extend(self.operands.iter().flat_map(|word| word.to_le_bytes()));
        digest(&bytes)
    }

    /// Returns the results with each NaN replaced by one and the same.
    pub fn without_payloads(&self, results: &[u64]) -> Vec<u64> {
        let formats = self.results.iter().cycle();
        results
            .iter()
            .zip(formats)
            .map(|(&word, format)| format.without_payload(word))
            .collect()
    }
}

/// Returns the first 64 bits of a SHA-256, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn digest_of_words(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    digest(&bytes)
}

/// Makes the entry of a module one of a cluster of two blocks.
pub fn clustered(module: &str) -> String {
    module.replace(
        ".reqntid",
        ".explicitcluster\n.reqnctapercluster 2, 1, 1\n.reqntid",
    )
}

/// Writes a module whose threads run `body` on their sets one after another. The body reads its
/// operands at `[%from]` and stores its results at `[%to]`, both words of 8 bytes.
pub fn module(declarations: &str, body: &str, words: usize, results: usize) -> String {
    let (from, to) = (8 * words, 8 * results);
    format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n\n\
         .visible .entry experiment(.param .u64 operands, .param .u64 results, .param .u32 sets)\n\
         .reqntid {THREADS}, 1, 1\n{{\n\
         .reg .pred %p<40>;\n.reg .b16 %h<16>;\n.reg .b32 %r<80>;\n.reg .b64 %d<20>;\n\
         .reg .b64 %all_from;\n.reg .b64 %all_to;\n.reg .b64 %from;\n.reg .b64 %to;\n\
         .reg .b32 %sets;\n.reg .b32 %set;\n.reg .pred %more;\n{declarations}\
         ld.param.u64 %all_from, [operands];\nld.param.u64 %all_to, [results];\n\
         ld.param.u32 %sets, [sets];\nmov.u32 %set, %tid.x;\n\
         next:\n\
         mad.wide.u32 %from, %set, {from}, %all_from;\nmad.wide.u32 %to, %set, {to}, %all_to;\n\
         {body}\
         add.u32 %set, %set, {THREADS};\nsetp.lt.u32 %more, %set, %sets;\n@%more bra next;\n\
         ret;\n}}\n"
    )
}
