//! The least squares that coefficients are fitted by: weighted, not negative, and with a prior.

use super::equations::Equation;
use common::choice::TERMS;

/// The microseconds per unit of each term.
pub type Coefficients = [f64; TERMS];

/// The weight of the prior, in problems of the instance: it decides where there are few.
const PRIOR_WEIGHT: f64 = 3.0;

/// The number of sweeps over the coefficients: they have settled long before.
const SWEEPS: usize = 300;

/// The normal equations of the weighted least squares.
#[derive(Default)]
struct NormalEquations {
    products: [Coefficients; TERMS],
    right: Coefficients,
    /// The number of equations that were added.
    count: f64,
}

impl NormalEquations {
    fn add(&mut self, equation: &Equation) {
        // Relative, and more where the variant may be chosen.
        let weight = 1.0 / equation.scale / equation.slowdown;
        let row = equation.terms.map(|term| term * weight);
        for i in 0..TERMS {
            self.right[i] += row[i] * equation.us * weight;
            for j in 0..TERMS {
                self.products[i][j] += row[i] * row[j];
            }
        }
        self.count += 1.0;
    }

    /// Adds the prior as [`PRIOR_WEIGHT`] equations for each coefficient.
    fn add_prior(&mut self, prior: &Coefficients) {
        for (i, expected) in prior.iter().enumerate() {
            let weight = PRIOR_WEIGHT * self.products[i][i] / self.count;
            self.products[i][i] += weight;
            self.right[i] += weight * expected;
        }
    }

    /// Returns the solution without negative coefficients, by coordinate descent from `start`.
    fn solve(&self, start: Coefficients) -> Coefficients {
        let mut solution = start;
        for _ in 0..SWEEPS {
            for i in 0..TERMS {
                let curvature = self.products[i][i];
                if curvature > 0.0 {
                    let residual = self.right[i] - dot(&self.products[i], &solution);
                    solution[i] = (solution[i] + residual / curvature).max(0.0);
                }
            }
        }
        solution
    }
}

/// Returns the coefficients, none negative, of the least weighted squares; without equations the
/// prior.
pub fn least_squares<'a>(
    equations: impl Iterator<Item = &'a Equation>,
    prior: Option<Coefficients>,
) -> Coefficients {
    let mut normal = NormalEquations::default();
    for equation in equations {
        normal.add(equation);
    }
    let start = prior.unwrap_or_default();
    if normal.count == 0.0 {
        return start;
    }
    if prior.is_some() {
        normal.add_prior(&start);
    }
    normal.solve(start)
}

/// Returns the scalar product.
pub fn dot(left: &Coefficients, right: &Coefficients) -> f64 {
    let mut sum = 0.0;
    for (a, b) in left.iter().zip(right) {
        sum += a * b;
    }
    sum
}
