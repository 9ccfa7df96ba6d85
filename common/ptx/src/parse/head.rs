//! The directives that begin a module: its version of PTX, and what it is for.

use super::error::Refusal;

/// The options that may follow an architecture; none changes what is judged.
const OPTIONS: [&str; 4] = [
    "texmode_unified",
    "texmode_independent",
    "debug",
    "map_f64_to_f32",
];

/// The most bytes of parameters of an entry: PTX has more since 8.1, for sm_70 and later.
const MOST_PARAMETER_BYTES: u32 = 32_764;
const MOST_PARAMETER_BYTES_BEFORE: u32 = 4_352;

/// The version and the architecture as numbers, which say how much there may be of what.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    pub(super) version: [u32; 2],
    pub(super) architecture: u32,
}

impl Numbers {
    /// Returns the most bytes that the parameters of an entry have.
    pub(super) fn most_parameter_bytes(self) -> u32 {
        if self.version >= [8, 1] && self.architecture >= 70 {
            MOST_PARAMETER_BYTES
        } else {
            MOST_PARAMETER_BYTES_BEFORE
        }
    }
}

/// Reads `8.3` of `.version`.
pub(super) fn version(line: u32, text: &str) -> Result<[u32; 2], Refusal> {
    let numbers = text.trim().split_once('.');
    numbers
        .and_then(|(major, minor)| Some([digits(major)?, digits(minor)?]))
        .ok_or_else(|| {
            let reason = format!("`.version {}`: give two numbers, as in 8.0", text.trim());
            Refusal::invalid(line, reason)
        })
}

/// Reads `sm_90a` of `.target`, which options may follow. Returns the architecture's number.
pub(super) fn target(line: u32, text: &str) -> Result<u32, Refusal> {
    let mut words = text.split(',').map(str::trim);
    let number = words
        .next()
        .and_then(|word| word.strip_prefix("sm_"))
        .and_then(|rest| digits(rest.strip_suffix(['a', 'f']).unwrap_or(rest)));
    number
        .filter(|_| words.all(|word| OPTIONS.contains(&word)))
        .ok_or_else(|| {
            let reason = format!("`.target {}`: name an architecture, as sm_90a", text.trim());
            Refusal::invalid(line, reason)
        })
}

/// Refuses any size of addresses but 64 bits.
pub(super) fn check_address_size(line: u32, text: &str) -> Result<(), Refusal> {
    if text.trim() == "64" {
        return Ok(());
    }
    let reason = format!(
        "`.address_size {}`: addresses have 64 bits here, compile for these",
        text.trim()
    );
    Err(Refusal::invalid(line, reason))
}

/// Reads a number that has digits alone, and no sign.
fn digits(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}
