//! Problems as models are served: sequences of unequal lengths that are packed one after the other,
//! padded or in pages; windows, sinks and softcaps; caches of fewer bits than queries have.
//!
//! A [`Serving`] is a part of a shape, with a text of its own:
//! `8x32:8x1024x128+packed=tail:0:7+window=127:0+sinks+cap=30+page=16+cache=e4m3`. Lengths, page
//! tables and sinks are drawn from its seed, so that a shape's text says all of them.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The least rows of a page: one box of TMA.
pub const LEAST_PAGE_ROWS: usize = 16;

/// The properties of a problem beyond equal sequences in dense tensors.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Serving {
    pub lengths: Lengths,
    pub window: Window,
    /// Whether each query head has a logit that takes weight and has no value.
    pub sinks: bool,
    /// The bound `c` of scaled scores `s`, which become `c * tanh(s / c)`.
    pub softcap: Option<u16>,
    /// The rows of a page of K and V: a power of two of at least [`LEAST_PAGE_ROWS`].
    pub page_rows: Option<u16>,
    /// The element type of K and V, if it is not that of Q.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
}

named! {
    /// An element type of K and V under queries of 16 bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Cache {
        /// OCP FP8 E4M3FN with one f32 scale per sequence and key head: `value = scale * code`.
        E4m3 = "e4m3",
    }
}

/// The lengths of a problem's sequences.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum Lengths {
    /// The extents of the shape.
    #[default]
    Equal,
    /// Sequences of unequal lengths, one after the other; the shape has the largest. K and V lie in
    /// pages, if there are any.
    Packed(Draw),
    /// As many queries in each, and the first keys of those that the shape has.
    Used(Draw),
}

/// A distribution of lengths and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Draw {
    pub spread: Spread,
    /// The shortest length. From 0 on, one sequence is empty and another has one row.
    pub least: u32,
    pub seed: u8,
}

named! {
    /// A distribution of lengths up to the longest, which the first sequence has.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Spread {
        Even = "even",
        /// Mostly short sequences and a few long ones: the cube of an even share.
        Tail = "tail",
        /// Every second sequence has one query, as in decoding beside chunks of prefill.
        Mixed = "mixed",
    }
}

/// The keys around a query's own that it sees; `None` for all. Query `i` of a sequence stands at
/// key `i + keys - queries`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Window {
    pub left: Option<u32>,
    pub right: Option<u32>,
}

impl Serving {
    /// Equal sequences in dense tensors, every key as the mask has it.
    pub const DENSE: Self = Self {
        lengths: Lengths::Equal,
        window: Window {
            left: None,
            right: None,
        },
        sinks: false,
        softcap: None,
        page_rows: None,
        cache: None,
    };

    pub fn is_dense(&self) -> bool {
        *self == Self::DENSE
    }

    /// Reads what follows the extents: `packed=tail:0:7`, `used=even:1:3`, `window=127:0` (`*` for
    /// no bound), `sinks`, `cap=30`, `page=16`, `cache=e4m3`; `None` for another text, and for one
    /// that says a property twice.
    pub fn parse<'a>(parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut serving = Self::DENSE;
        let mut said = BTreeSet::new();
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            // The lengths are packed or used.
            let property = if key == "used" { "packed" } else { key };
            if !said.insert(property) {
                return None;
            }
            match key {
                "sinks" if part == key => serving.sinks = true,
                "packed" => serving.lengths = Lengths::Packed(Draw::parse(value)?),
                "used" => serving.lengths = Lengths::Used(Draw::parse(value)?),
                "window" => serving.window = Window::parse(value)?,
                "cap" => serving.softcap = Some(value.parse().ok()?),
                "page" => serving.page_rows = Some(value.parse().ok()?),
                "cache" => serving.cache = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(serving)
    }

    /// Returns what is wrong with it, if anything.
    pub fn complaint(&self) -> Option<String> {
        if let Some(rows) = self.page_rows
            && (usize::from(rows) < LEAST_PAGE_ROWS || !rows.is_power_of_two())
        {
            return Some(format!(
                "page = {rows} is no power of two of at least {LEAST_PAGE_ROWS}"
            ));
        }
        (self.softcap == Some(0)).then(|| "cap = 0: scores need a positive bound".to_string())
    }
}

impl fmt::Display for Serving {
    /// Writes `+packed=tail:0:7+sinks`; nothing for dense tensors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lengths {
            Lengths::Equal => {}
            Lengths::Packed(draw) => write!(f, "+packed={draw}")?,
            Lengths::Used(draw) => write!(f, "+used={draw}")?,
        }
        if self.window != Window::default() {
            write!(f, "+window={}", self.window)?;
        }
        if self.sinks {
            f.write_str("+sinks")?;
        }
        if let Some(cap) = self.softcap {
            write!(f, "+cap={cap}")?;
        }
        if let Some(rows) = self.page_rows {
            write!(f, "+page={rows}")?;
        }
        if let Some(cache) = self.cache {
            write!(f, "+cache={cache}")?;
        }
        Ok(())
    }
}

impl Draw {
    fn parse(text: &str) -> Option<Self> {
        let [spread, least, seed] = text.split(':').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Self {
            spread: spread.parse().ok()?,
            least: least.parse().ok()?,
            seed: seed.parse().ok()?,
        })
    }

    /// Draws a length of at most `most` for the sequence with the number `index`.
    pub(crate) fn length(&self, random: &mut ChaCha8Rng, index: usize, most: usize) -> usize {
        let even = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let share = match self.spread {
            Spread::Even | Spread::Mixed => even,
            Spread::Tail => even.powi(3),
        };
        let least = (self.least as usize).min(most);
        match (index, least) {
            (0, _) => most,
            (1 | 2, 0) => (index - 1).min(most),
            _ => least + (share * (most - least + 1) as f64) as usize,
        }
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            spread,
            least,
            seed,
        } = self;
        write!(f, "{spread}:{least}:{seed}")
    }
}

impl Window {
    fn parse(text: &str) -> Option<Self> {
        let bound = |keys: &str| match keys {
            "*" => Some(None),
            number => number.parse().ok().map(Some),
        };
        let (left, right) = text.split_once(':')?;
        Some(Self {
            left: bound(left)?,
            right: bound(right)?,
        })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |keys: Option<u32>| keys.map_or("*".to_string(), |most| most.to_string());
        write!(f, "{}:{}", bound(self.left), bound(self.right))
    }
}
