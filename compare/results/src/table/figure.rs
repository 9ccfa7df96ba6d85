//! A value of a row, and the digits that a table keeps of it.

use common::metric::{Metric, Unit};
use common::timing::stats::{Interval, Ratio, Summary};

/// A value, with its 95 % interval if it is an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub value: f64,
    pub interval: Option<(f64, f64)>,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self {
            value,
            interval: None,
        }
    }
}

impl From<(f64, f64, f64)> for Figure {
    fn from((value, low, high): (f64, f64, f64)) -> Self {
        Self {
            value,
            interval: Some((low, high)),
        }
    }
}

impl From<Ratio> for Figure {
    fn from(Ratio { value, interval }: Ratio) -> Self {
        (value, interval.low, interval.high).into()
    }
}

impl From<&Summary> for Figure {
    fn from(summary: &Summary) -> Self {
        let Interval { low, high } = summary.p50_interval;
        (summary.p50, low, high).into()
    }
}

macro_rules! figure_from {
    ($($integer:ty),*) => {
        $(impl From<$integer> for Figure {
            fn from(value: $integer) -> Self {
                Self::from(value as f64)
            }
        })*
    };
}
figure_from!(u32, u64, usize);

impl Figure {
    /// Returns it as a ratio, with NaN for ends if it has no interval.
    pub fn ratio(self) -> Ratio {
        let (low, high) = self.interval.unwrap_or((f64::NAN, f64::NAN));
        Ratio {
            value: self.value,
            interval: Interval { low, high },
        }
    }

    /// Returns the ends of its interval; twice the value if it has none.
    pub fn ends(self) -> (f64, f64) {
        self.interval.unwrap_or((self.value, self.value))
    }

    /// Returns it as a run keeps it: counts are whole, everything else has four digits. Intervals
    /// are rounded outwards, so that no claim holds because of digits that were not measured.
    pub fn rounded(self, metric: Metric) -> Self {
        if metric.spec().unit == Unit::Count {
            return Self {
                value: self.value.round(),
                ..self
            };
        }
        Self {
            value: four_digits(self.value),
            interval: self.interval.map(|(low, high)| (-above(-low), above(high))),
        }
    }
}

fn four_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        value
    } else {
        format!("{value:.3e}").parse().unwrap_or(value)
    }
}

/// Returns the smallest number with four digits that is not below `value`.
fn above(value: f64) -> f64 {
    let near = four_digits(value);
    if near >= value || !value.is_finite() {
        return near;
    }
    let step = 10_f64.powi(near.abs().log10().floor() as i32 - 3);
    four_digits(near + step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_rounded_outwards() {
        let rounded = |value| Figure::from(value).rounded(Metric::SpeedupP50);
        assert_eq!(
            rounded((1.4998, 1.4996, 1.5002)),
            Figure::from((1.5, 1.499, 1.501))
        );
        assert_eq!(
            rounded((5.2744, 5.2744, 5.2744)),
            Figure::from((5.274, 5.274, 5.275))
        );
        assert_eq!(
            rounded((0.92949, 0.929, 0.93)),
            Figure::from((0.9295, 0.929, 0.93))
        );
        assert_eq!(Figure::from(8.4).rounded(Metric::Cases).value, 8.0);
        let nan = rounded((f64::NAN, f64::NAN, f64::NAN));
        assert!(
            nan.interval
                .is_some_and(|(low, high)| low.is_nan() && high.is_nan())
        );
    }
}
