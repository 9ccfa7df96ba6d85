//! The sustained regime of timing. A kernel that reaches the power limit of its GPU takes one time
//! alone, another beside kernels that draw less, and another after a second: clocks follow the mean
//! power of some hundred milliseconds. So the GPU is heated up first, arms take turns of a second,
//! and the first half second of a turn is not counted, unless the same arm had the turn before: then
//! the GPU is at the power of this arm already. Pure: a [`Stand`] launches kernels and reads the GPU.

use crate::telemetry::Reading;
use std::time::Duration;

named! {
    /// The way in which a time was taken.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Regime {
        /// Short chunks, interleaved (A B B A) where there are two arms.
        Burst = "burst",
        /// Turns on a GPU that is hot, of which the first half second is not counted where another arm
        /// was before.
        Sustained = "sustained",
    }
}

/// The share of the enforced power limit from which a kernel is timed sustained. At the limit
/// itself single readings scatter by several percent.
pub const POWER_SHARE: f64 = 0.9;

/// The launches before the first turn; they are not counted. A GPU that comes from less load lets a
/// kernel draw more than the limit for half a second, then slows it too far, and is steady from a
/// second on: of 22 kernels on an NVIDIA H200 launches took a median of 7 % longer (at most 16) from
/// 0.6 to 0.8 s after the first one, and what they take later, to 0.3 %, from 0.9 s on.
pub const HEATING: Duration = Duration::from_millis(1000);

/// The first part of a turn after another arm's; it is not counted.
pub const SETTLING: Duration = Duration::from_millis(500);

/// The part of a turn that is counted, at least.
pub const COUNTED: Duration = Duration::from_millis(500);

/// The device time of one sample: long against the gap between two commands to another process.
pub const CHUNK: Duration = Duration::from_millis(50);

/// The fewest samples of a turn, for kernels that take longer than [`CHUNK`].
const LEAST_CHUNKS: usize = 2;

/// Returns the arms by turn: A, A B B A, A B C C B A. A drift of the GPU cancels over the turns of an
/// arm that is compared.
fn turns(arms: usize) -> impl Iterator<Item = usize> {
    let back = if arms > 1 { arms } else { 0 };
    (0..arms).chain((0..back).rev())
}

impl Regime {
    /// Returns the regime that a kernel needs whose burst was read so. Without a reading of power,
    /// or a limit, it is the burst.
    pub fn needed<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> Self {
        if readings.into_iter().any(is_power_limited) {
            Regime::Sustained
        } else {
            Regime::Burst
        }
    }
}

fn is_power_limited(reading: &Reading) -> bool {
    match (reading.power_w, reading.power_limit_w) {
        (Some(power_w), Some(limit_w)) => limit_w > 0.0 && reaches(power_w, limit_w),
        _ => false,
    }
}

/// Returns whether a kernel that draws so much is timed sustained.
pub fn reaches(power_w: f64, limit_w: f64) -> bool {
    power_w >= POWER_SHARE * limit_w
}

/// The launches of one sample, and the GPU while they ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunk {
    /// The device time of all launches, in microseconds.
    pub us: f64,
    pub launches: usize,
    pub reading: Reading,
}

/// A GPU that launches arms and is read, or in tests is made up.
pub trait Stand {
    type Error;

    /// Returns the time since some moment.
    fn elapsed(&self) -> Duration;

    /// Launches an arm for about [`CHUNK`], and waits for it.
    fn chunk(&mut self, arm: usize) -> Result<Chunk, Self::Error>;
}

/// The readings of the GPU while an arm was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Millijoules per launch: the power for as long as one takes. A counter of energy moves every 100
    /// ms on an NVIDIA H200, which is a fifth of a turn.
    pub energy_mj: Option<f64>,
    /// The mean of the readings: a new one every 100 ms, which are 1 to 3 % apart.
    pub power_w: Option<f64>,
    /// The limit of the power, in watts.
    pub power_limit_w: Option<f64>,
    /// The mean of the readings.
    pub sm_mhz: Option<f64>,
    pub celsius: Option<u32>,
}

/// The counted time of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Sustained {
    /// Microseconds per launch, sample by sample, turn after turn: as many of each turn of each
    /// arm, so that two arms have their pairs of turns in the same places.
    pub us: Vec<f64>,
    pub load: Load,
}

/// The sustained times of all arms, in their order.
pub type SustainedArms = Vec<Sustained>;

/// The counted chunks of one turn.
type Turn = Vec<Chunk>;

/// Times arms sustained, if the readings of their bursts ask for it.
pub fn sustain_at_limit<'r, S: Stand<Error = E>, E>(
    readings: impl IntoIterator<Item = &'r Reading>,
    stand: &mut S,
    arms: usize,
) -> Result<Option<SustainedArms>, E> {
    match Regime::needed(readings) {
        Regime::Burst => Ok(None),
        Regime::Sustained => sustain(stand, arms).map(Some),
    }
}

/// Times `arms` arms in turns.
pub fn sustain<S: Stand>(stand: &mut S, arms: usize) -> Result<SustainedArms, S::Error> {
    let mut turns_of_arms: Vec<Vec<Turn>> = (0..arms).map(|_| Vec::new()).collect();
    let mut hot_arm = None;
    for arm in turns(arms) {
        match hot_arm {
            None => launch(stand, arm, HEATING)?,
            Some(other) if other != arm => launch(stand, arm, SETTLING)?,
            Some(_) => (),
        }
        turns_of_arms[arm].push(turn(stand, arm)?);
        hot_arm = Some(arm);
    }
    let all_turns = turns_of_arms.iter().flatten();
    let fewest = all_turns.map(Vec::len).min().unwrap_or(0);
    let mut sustained = Vec::with_capacity(arms);
    for turns_of_arm in &turns_of_arms {
        sustained.push(Sustained {
            us: samples(turns_of_arm, fewest),
            load: load(turns_of_arm),
        });
    }
    Ok(sustained)
}

/// Launches an arm for a time that is not counted.
fn launch<S: Stand>(stand: &mut S, arm: usize, length: Duration) -> Result<(), S::Error> {
    let start = stand.elapsed();
    while stand.elapsed() - start < length {
        stand.chunk(arm)?;
    }
    Ok(())
}

/// Takes the counted part of a turn.
fn turn<S: Stand>(stand: &mut S, arm: usize) -> Result<Turn, S::Error> {
    let counted_from = stand.elapsed();
    let mut chunks = Vec::new();
    while chunks.len() < LEAST_CHUNKS || stand.elapsed() - counted_from < COUNTED {
        chunks.push(stand.chunk(arm)?);
    }
    Ok(chunks)
}

/// Returns the first samples of each turn, microseconds per launch.
fn samples(turns: &[Turn], of_each: usize) -> Vec<f64> {
    let counted = turns.iter().flat_map(|chunks| &chunks[..of_each]);
    counted
        .map(|chunk| chunk.us / chunk.launches as f64)
        .collect()
}

fn load(turns: &[Turn]) -> Load {
    let chunks = || turns.iter().flatten();
    let launches: usize = chunks().map(|chunk| chunk.launches).sum();
    let us: f64 = chunks().map(|chunk| chunk.us).sum();
    let readings = || chunks().map(|chunk| chunk.reading);
    let clocks = readings().filter_map(|reading| reading.sm_mhz);
    let power_w = mean(readings().filter_map(|reading| reading.power_w));
    Load {
        energy_mj: power_w.map(|watts| watts * us / launches as f64 / 1e3),
        power_w,
        power_limit_w: readings().find_map(|reading| reading.power_limit_w),
        sm_mhz: mean(clocks.filter(|mhz| *mhz > 0).map(f64::from)),
        celsius: readings().filter_map(|reading| reading.celsius).next_back(),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests;
