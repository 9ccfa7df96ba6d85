use super::*;
use crate::timing::Comparison;
use std::convert::Infallible;

/// A GPU that is made up: what an arm takes at a moment, and the power that it draws then.
struct MadeUp<T, P> {
    now_us: f64,
    launch_us: T,
    power_w: P,
    /// The arm and the beginning of each chunk, in seconds.
    chunks: Vec<(usize, f64)>,
}

impl<T: Fn(usize, f64) -> f64, P: Fn(usize, f64) -> f64> MadeUp<T, P> {
    /// Time and power by the arm and the moment, in seconds.
    fn new(launch_us: T, power_w: P) -> Self {
        Self {
            now_us: 0.0,
            launch_us,
            power_w,
            chunks: Vec::new(),
        }
    }
}

impl<T: Fn(usize, f64) -> f64, P: Fn(usize, f64) -> f64> Stand for MadeUp<T, P> {
    type Error = Infallible;

    fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.now_us / 1e6)
    }

    fn chunk(&mut self, arm: usize) -> Result<Chunk, Infallible> {
        let seconds = self.now_us / 1e6;
        let (launch_us, power_w) = ((self.launch_us)(arm, seconds), (self.power_w)(arm, seconds));
        let launches = (CHUNK.as_secs_f64() * 1e6 / launch_us).ceil();
        let us = launches * launch_us;
        self.chunks.push((arm, seconds));
        self.now_us += us;
        Ok(Chunk {
            us,
            launches: launches as usize,
            reading: Reading {
                sm_mhz: Some(1500 + 10 * arm as u32),
                power_w: Some(power_w),
                celsius: Some(60),
                power_limit_w: Some(700.0),
            },
        })
    }
}

fn sustained<T, P>(stand: &mut MadeUp<T, P>, arms: usize) -> Vec<Sustained>
where
    T: Fn(usize, f64) -> f64,
    P: Fn(usize, f64) -> f64,
{
    let Ok(sustained) = sustain(stand, arms);
    sustained
}

fn reading(power_w: Option<f64>, power_limit_w: Option<f64>) -> Reading {
    Reading {
        power_w,
        power_limit_w,
        ..Reading::default()
    }
}

#[test]
fn a_kernel_below_nine_tenths_of_the_limit_stays_in_the_burst() {
    let below = [reading(Some(629.0), Some(700.0)); 2];
    assert_eq!(Regime::needed(&below), Regime::Burst);
}

#[test]
fn one_reading_at_nine_tenths_of_the_limit_asks_for_the_sustained_regime() {
    let at = reading(Some(630.0), Some(700.0));
    let below = reading(Some(300.0), Some(700.0));
    assert_eq!(Regime::needed([&at]), Regime::Sustained);
    assert_eq!(Regime::needed([&below, &at]), Regime::Sustained);
    assert_eq!(Regime::needed([&at, &below]), Regime::Sustained);
}

#[test]
fn unknown_power_or_an_unknown_limit_stays_in_the_burst() {
    for unknown in [
        reading(None, Some(700.0)),
        reading(Some(700.0), None),
        reading(Some(700.0), Some(0.0)),
        reading(Some(f64::NAN), Some(700.0)),
        Reading::default(),
    ] {
        assert_eq!(Regime::needed([&unknown]), Regime::Burst, "{unknown:?}");
    }
    assert_eq!(Regime::needed(&[]), Regime::Burst);
}

#[test]
fn no_time_is_spent_below_the_limit() {
    let mut stand = MadeUp::new(|_, _| 1000.0, |_, _| 600.0);
    let below = [reading(Some(600.0), Some(700.0))];
    assert_eq!(sustain_at_limit(&below, &mut stand, 1), Ok(None));
    assert_eq!(stand.elapsed(), Duration::ZERO);
    let at = [reading(Some(690.0), Some(700.0))];
    let Ok(sustained) = sustain_at_limit(&at, &mut stand, 2);
    assert_eq!(sustained.map(|arms| arms.len()), Some(2));
    assert_eq!(stand.elapsed(), Duration::from_millis(4000));
}

#[test]
fn arms_take_turns_there_and_back() {
    let mut stand = MadeUp::new(|_, _| 1000.0, |_, _| 600.0);
    sustained(&mut stand, 2);
    // The second arm has two turns in a row, of which the second is counted whole.
    let expected = [vec![0; 30], vec![1; 30], vec![0; 20]].concat();
    let arms: Vec<usize> = stand.chunks.iter().map(|(arm, _)| *arm).collect();
    assert_eq!(arms, expected);
}

#[test]
fn a_lone_arm_has_one_counted_half_second_on_a_hot_gpu() {
    let mut stand = MadeUp::new(|_, _| 1000.0, |_, _| 600.0);
    let arms = sustained(&mut stand, 1);
    assert_eq!(arms.len(), 1);
    assert_eq!(arms[0].us, [1000.0; 10]);
    assert_eq!(stand.elapsed(), Duration::from_millis(1500));
}

/// Returns whether the GPU is heated up, or one of two arms is in its first half second after the
/// other one.
fn is_settling(seconds: f64) -> bool {
    let parts = [0.0..0.99, 1.49..1.99, 2.99..3.49];
    parts.iter().any(|part| part.contains(&seconds))
}

#[test]
fn an_arm_settles_after_another_one() {
    let mut stand = MadeUp::new(
        |_, seconds| if is_settling(seconds) { 400.0 } else { 500.0 },
        |_, _| 700.0,
    );
    let arms = sustained(&mut stand, 2);
    assert_eq!(arms[0].us, [500.0; 20]);
    assert_eq!(arms[1].us, [500.0; 20]);
}

/// Fast and hungry until the power is limited, then too slow for as long as a GPU takes to find its
/// clock: as an NVIDIA H200 was seen to be.
#[test]
fn what_a_gpu_does_on_the_way_to_its_clock_is_not_counted() {
    let mut stand = MadeUp::new(
        |_, seconds| match seconds {
            s if s < 0.55 => 400.0,
            s if s < 0.9 => 570.0,
            _ => 500.0,
        },
        |_, seconds| if seconds < 0.55 { 900.0 } else { 700.0 },
    );
    let arms = sustained(&mut stand, 2);
    assert_eq!(arms[0].us, [500.0; 20]);
    assert_eq!(arms[1].us, [500.0; 20]);
    assert_eq!(arms[0].load.power_w.map(f64::round), Some(700.0));
}

#[test]
fn a_drift_over_the_turns_cancels_in_the_ratio() {
    let mut stand = MadeUp::new(
        |arm, seconds| {
            let drift = 1.0 + 0.01 * seconds.floor();
            [300.0, 200.0][arm] * drift
        },
        |_, _| 700.0,
    );
    let arms = sustained(&mut stand, 2);
    let Comparison {
        base, new, ratios, ..
    } = Comparison::new(&arms[0].us, &arms[1].us).unwrap();
    assert_eq!((base.samples, new.samples), (20, 20));
    for ratio in [ratios.p50, ratios.mean] {
        assert!((ratio.value - 1.5).abs() < 1e-9, "{ratios:?}");
    }
    // The first pair of turns has a ratio below that, the second one above.
    let pairs = |turn: usize| arms[0].us[10 * turn] / arms[1].us[10 * turn];
    assert!(pairs(0) < 1.49 && pairs(1) > 1.51, "{arms:?}");
    assert!(ratios.mean.interval.low < 1.5 && ratios.mean.interval.high > 1.5);
}

#[test]
fn every_turn_has_as_many_samples() {
    // Six chunks of 90 ms fill a half second, and four of 150.
    let mut stand = MadeUp::new(|arm, _| [90_000.0, 150_000.0][arm], |_, _| 700.0);
    let arms = sustained(&mut stand, 2);
    assert_eq!(arms[0].us, [90_000.0; 8]);
    assert_eq!(arms[1].us, [150_000.0; 8]);
}

#[test]
fn a_launch_of_seconds_is_counted_twice_a_turn() {
    let mut stand = MadeUp::new(|_, _| 3e6, |_, _| 700.0);
    assert_eq!(sustained(&mut stand, 1)[0].us, [3e6; 2]);
}

#[test]
fn energy_is_the_power_of_the_counted_time_for_a_launch() {
    let mut stand = MadeUp::new(
        |arm, _| [1000.0, 500.0][arm],
        |arm, seconds| {
            if is_settling(seconds) {
                100.0
            } else {
                [600.0, 700.0][arm]
            }
        },
    );
    let arms = sustained(&mut stand, 2);
    let loads: Vec<Load> = arms.iter().map(|arm| arm.load).collect();
    let rounded = |value: Option<f64>| value.map(f64::round);
    for (load, [energy_mj, power_w, sm_mhz]) in loads
        .iter()
        .zip([[600.0, 600.0, 1500.0], [350.0, 700.0, 1510.0]])
    {
        assert_eq!(rounded(load.energy_mj), Some(energy_mj), "{load:?}");
        assert_eq!(rounded(load.power_w), Some(power_w), "{load:?}");
        assert_eq!(load.sm_mhz, Some(sm_mhz), "{load:?}");
        assert_eq!((load.celsius, load.power_limit_w), (Some(60), Some(700.0)));
    }
}
