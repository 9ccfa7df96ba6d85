//! How criterion counts and prints: nanoseconds of device time on a GPU, of wall time on the emulator.

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter};
use std::time::{Duration, Instant};

/// A duration. On a GPU every value comes from `iter_custom`, which returns device time; on the emulator criterion's own loop
/// takes wall time.
pub struct LaunchTime;

impl Measurement for LaunchTime {
    type Intermediate = Instant;
    type Value = Duration;

    fn start(&self) -> Instant {
        Instant::now()
    }

    fn end(&self, start: Instant) -> Duration {
        start.elapsed()
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &Formatter
    }
}

/// Throughput in floating-point operations per second.
struct Formatter;

impl ValueFormatter for Formatter {
    fn scale_values(&self, typical_ns: f64, values: &mut [f64]) -> &'static str {
        let (divisor, unit) = match typical_ns {
            ns if ns < 1e3 => (1.0, "ns"),
            ns if ns < 1e6 => (1e3, "µs"),
            ns if ns < 1e9 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        values.iter_mut().for_each(|value| *value /= divisor);
        unit
    }

    fn scale_throughputs(
        &self,
        _typical_ns: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        let (amount, unit) = match *throughput {
            Throughput::Elements(flops)
            | Throughput::ElementsAndBytes {
                elements: flops, ..
            } => (flops, "TFLOP/s"),
            Throughput::Bytes(bytes) | Throughput::BytesDecimal(bytes) => (bytes, "TB/s"),
            Throughput::Bits(bits) => (bits, "Tbit/s"),
        };
        // Per nanosecond is 10^9 per second.
        values
            .iter_mut()
            .for_each(|value| *value = amount as f64 / *value / 1e3);
        unit
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "ns"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_typical_value() {
        for (ns, scaled, unit) in [
            (600.0, 600.0, "ns"),
            (9_500.0, 9.5, "µs"),
            (2.5e6, 2.5, "ms"),
            (3e9, 3.0, "s"),
        ] {
            let mut values = [ns];
            assert_eq!(Formatter.scale_values(ns, &mut values), unit);
            assert_eq!(values, [scaled]);
        }
    }

    #[test]
    fn mission_in_ten_microseconds_is_54_teraflops() {
        let mut values = [10_000.0];
        let unit =
            Formatter.scale_throughputs(10_000.0, &Throughput::Elements(536_870_912), &mut values);
        assert_eq!(unit, "TFLOP/s");
        assert!((values[0] - 53.687).abs() < 0.001);
    }
}
