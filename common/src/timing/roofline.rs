//! The time that no kernel can beat: a measurement below it is an error of kernel or timer.

use super::Rotation;
use crate::problem::{Dtype, Problem};
use crate::verdict::{GateId, GateResult};

/// The peak figures of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The words of the device name that select it.
    pub words: &'static [&'static str],
    /// The dense FLOP/s with f32 accumulation.
    pub f16_flops: f64,
    /// The dense FLOP/s in FP8.
    pub fp8_flops: f64,
    pub bytes: f64,
    pub source: &'static str,
}

/// The GPUs, of which the first whose words all occur counts. Data sheets give FLOP/s with
/// sparsity; these are half.
const PEAKS: [Peak; 6] = [
    Peak {
        words: &["GH200"],
        f16_flops: 989e12,
        fp8_flops: 1979e12,
        bytes: 4.9e12,
        source: "NVIDIA GH200 data sheet (HBM3e)",
    },
    Peak {
        words: &["H200"],
        f16_flops: 989e12,
        fp8_flops: 1979e12,
        bytes: 4.8e12,
        source: "NVIDIA H200 data sheet (SXM)",
    },
    Peak {
        words: &["H100", "NVL"],
        f16_flops: 989e12,
        fp8_flops: 1979e12,
        bytes: 3.94e12,
        source: "NVIDIA H100 data sheet (NVL memory, SXM arithmetic)",
    },
    Peak {
        words: &["H100"],
        f16_flops: 989e12,
        fp8_flops: 1979e12,
        bytes: 3.35e12,
        source: "NVIDIA H100 data sheet (SXM)",
    },
    Peak {
        words: &["L4"],
        f16_flops: 121e12,
        fp8_flops: 242e12,
        bytes: 0.3e12,
        source: "NVIDIA L4 data sheet",
    },
    Peak {
        words: &["L40S"],
        f16_flops: 362e12,
        fp8_flops: 733e12,
        bytes: 0.864e12,
        source: "NVIDIA L40S data sheet",
    },
];

/// Returns the peak figures for a device name: `NVIDIA H100 80GB HBM3`.
pub fn peak(device_name: &str) -> Option<&'static Peak> {
    let words: Vec<&str> = device_name.split([' ', '-']).collect();
    PEAKS
        .iter()
        .find(|peak| peak.words.iter().all(|word| words.contains(word)))
}

/// A time that no kernel can beat.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    pub us: f64,
    /// The reason: `0.54 GFLOP at 989 TFLOP/s`.
    pub why: String,
}

/// All bounds of a problem on a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeedOfLight {
    /// The bounds, of which the largest counts.
    pub bounds: Vec<Bound>,
}

/// The factor of an empty kernel's time: a single load from global memory takes about as long as
/// the whole empty launch.
const ZERO_LINE_FACTOR: f64 = 1.1;

impl SpeedOfLight {
    /// Returns the bounds by arithmetic and memory; none for a device that is not in the table.
    /// E4M3 may be multiplied as FP8. What L2 holds need not be read again: per rotation at least
    /// `input bytes - L2` cross device memory. Writes may stay in the cache.
    pub fn roofline(problem: &Problem, device_name: &str, rotation: &Rotation) -> Self {
        let Some(device) = peak(device_name) else {
            return Self::default();
        };
        let work = problem.flops() as f64;
        let flops_peak = match problem.dtype {
            Dtype::F16 | Dtype::Bf16 => device.f16_flops,
            Dtype::E4m3 => device.fp8_flops,
        };
        let mut bounds = vec![Bound {
            us: 1e6 * work / flops_peak,
            why: format!(
                "{:.3} GFLOP at {:.0} TFLOP/s, {}",
                work / 1e9,
                flops_peak / 1e12,
                device.source
            ),
        }];
        let bytes = rotation.uncached_input_bytes();
        if bytes > 0.0 {
            bounds.push(Bound {
                us: 1e6 * bytes / device.bytes,
                why: format!(
                    "{:.3} MB past the L2 cache at {:.2} TB/s, {}",
                    bytes / 1e6,
                    device.bytes / 1e12,
                    device.source
                ),
            });
        }
        Self { bounds }
    }

    /// Adds the bound by an empty kernel, timed in the same way in the same run: `empty_us` per
    /// launch.
    pub fn with_zero_line(mut self, empty_us: f64) -> Self {
        self.bounds.push(Bound {
            us: ZERO_LINE_FACTOR * empty_us,
            why: format!("{ZERO_LINE_FACTOR} x an empty kernel's {empty_us:.3} us"),
        });
        self
    }

    /// Returns the largest bound above `us` microseconds; NaN breaks every one.
    pub fn broken_by(&self, us: f64) -> Option<&Bound> {
        self.bounds
            .iter()
            .filter(|bound| us.is_nan() || us < bound.us)
            .max_by(|a, b| a.us.total_cmp(&b.us))
    }

    /// Work is skipped, or the timer is broken.
    pub fn impossible(&self, us: f64) -> Option<GateResult> {
        let bound = self.broken_by(us)?;
        let reason = format!(
            "impossible: {us:.3} us, below {:.3} us ({}); the kernel skips work or the timer is \
             broken",
            bound.us, bound.why
        );
        Some(GateResult::fail(GateId::L1, reason))
    }

    /// Returns the largest bound in microseconds; 0 without any.
    pub fn us(&self) -> f64 {
        self.bounds.iter().map(|bound| bound.us).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Mask, Shape};

    fn mission(dtype: Dtype) -> Problem {
        Problem::new(Shape::bhsd(1, 8, 512, 64), dtype, Mask::Full).unwrap()
    }

    const L2: u64 = 50 << 20;
    const INPUTS: u64 = 3 << 19;
    const OUTPUT: u64 = 1 << 19;

    #[test]
    fn names_select_their_own_peaks() {
        let source = |name| peak(name).map(|device| device.source);
        assert_eq!(source("NVIDIA H200"), Some("NVIDIA H200 data sheet (SXM)"));
        assert_eq!(
            source("NVIDIA GH200 480GB"),
            Some("NVIDIA GH200 data sheet (HBM3e)")
        );
        assert_eq!(
            source("NVIDIA H100 80GB HBM3"),
            Some("NVIDIA H100 data sheet (SXM)")
        );
        assert_eq!(
            source("NVIDIA H100 NVL"),
            Some("NVIDIA H100 data sheet (NVL memory, SXM arithmetic)")
        );
        assert_eq!(source("NVIDIA L4"), Some("NVIDIA L4 data sheet"));
        assert_eq!(source("NVIDIA L40S"), Some("NVIDIA L40S data sheet"));
        assert_eq!(source("NVIDIA L40"), None);
        assert_eq!(source("NVIDIA GeForce RTX 4090"), None);
    }

    #[test]
    fn warm_inputs_have_no_memory_bound() {
        let rotation = Rotation::choose(INPUTS, OUTPUT, L2);
        let speed_of_light = SpeedOfLight::roofline(&mission(Dtype::F16), "NVIDIA H200", &rotation);
        assert_eq!(speed_of_light.bounds.len(), 1);
        let us = speed_of_light.us();
        assert!((us - 0.543).abs() < 0.001, "{us}");
        let fp8 = SpeedOfLight::roofline(&mission(Dtype::E4m3), "NVIDIA H200", &rotation);
        assert!((fp8.us() - 0.271).abs() < 0.001, "{}", fp8.us());
        let bf16 = SpeedOfLight::roofline(&mission(Dtype::Bf16), "NVIDIA H200", &rotation);
        assert_eq!(bf16, speed_of_light);
        assert_eq!(speed_of_light.with_zero_line(10.0).us(), 11.0);
    }

    #[test]
    fn cold_inputs_must_cross_device_memory() {
        let rotation = Rotation::new((3 * L2).div_ceil(INPUTS) as usize, INPUTS, OUTPUT, L2);
        let speed_of_light = SpeedOfLight::roofline(&mission(Dtype::F16), "NVIDIA L4", &rotation);
        // Two thirds of 1.5 MiB at 0.3 TB/s, less than the 4.4 us of arithmetic.
        assert_eq!(speed_of_light.bounds.len(), 2);
        let by_memory = &speed_of_light.bounds[1];
        assert!((by_memory.us - 3.495).abs() < 0.1, "{by_memory:?}");
        let broken = speed_of_light.broken_by(4.0).unwrap();
        assert!(broken.why.contains("GFLOP"));
        assert!(speed_of_light.broken_by(4.5).is_none());
        assert!(speed_of_light.broken_by(f64::NAN).is_some());
    }

    #[test]
    fn of_several_broken_bounds_the_largest_is_named() {
        let speed_of_light = SpeedOfLight::default()
            .with_zero_line(1.0)
            .with_zero_line(3.0)
            .with_zero_line(2.0);
        let broken = speed_of_light.broken_by(0.5).unwrap();
        assert_eq!(broken.us, ZERO_LINE_FACTOR * 3.0);
    }

    #[test]
    fn an_unknown_device_has_the_zero_line_alone() {
        let rotation = Rotation::choose(INPUTS, OUTPUT, L2);
        let speed_of_light =
            SpeedOfLight::roofline(&mission(Dtype::F16), "NVIDIA GeForce RTX 4090", &rotation);
        assert!(speed_of_light.broken_by(0.001).is_none());
        assert!(
            speed_of_light
                .with_zero_line(0.6)
                .broken_by(0.001)
                .is_some()
        );
    }
}
