//! What correct kernels measure against gates C2, C3 and C4: prints the tables of
//! `common/docs/error-budgets.md`.
//!
//! `cargo run -p common --example error_budgets`, with the names of dtypes behind it for theirs
//! alone

use common::faults::{Fault, Model, model_output};
use common::gate::{Errors, Evidence, c4_tolerance};
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::{Probability, Reference, reference_of_rows, unquantised_rows};

const LENGTHS: [usize; 5] = [17, 32, 512, 2048, 16384];
const HEAD_DIMS: [usize; 2] = [64, 128];
/// Keys per tile of the modelled kernel.
const TILES: [usize; 3] = [16, 64, 128];
const SEEDS: [u64; 2] = [0, 1];
/// Rows compared per case, evenly spread, the last one included.
const ROWS: usize = 64;

type Failure = Box<dyn std::error::Error>;

#[derive(Default)]
struct Worst {
    /// C2: error over bound.
    c2: f64,
    /// C2: root mean square of row errors over its bound.
    c2_rows: f64,
    /// C2's bound over the largest reference value: near 1 the gate would pass zeros.
    c2_looseness: f64,
    /// C3: relative error of a row.
    c3: f64,
    /// C4 for f16 and bf16 on the stored inputs: 1 is the bound.
    allclose: f64,
    /// The same against the values before rounding to storage.
    allclose_unrounded: f64,
}

fn main() -> Result<(), Failure> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_named = |dtype: Dtype| named.is_empty() || named.iter().any(|name| name == dtype.name());
    for (dtype, p) in [
        (Dtype::F16, Probability::F16),
        (Dtype::F16, Probability::F32),
        (Dtype::E4m3, Probability::F16),
        (Dtype::E4m3, Probability::E4m3),
        (Dtype::Bf16, Probability::Bf16),
        (Dtype::Bf16, Probability::F32),
    ]
    .into_iter()
    .filter(|(dtype, _)| is_named(*dtype))
    {
        println!("\n### {dtype} inputs, P in {}\n", p.name());
        println!(
            "| family | {} |",
            LENGTHS.map(|seq| format!("S = {seq}")).join(" | ")
        );
        println!("|---|{}", "---|".repeat(LENGTHS.len()));
        for family in Family::for_dtype(dtype) {
            let mut cells = Vec::new();
            for seq in LENGTHS {
                let worst = worst(dtype, p, family, seq)?;
                let Worst {
                    c2,
                    c2_rows,
                    c3,
                    c2_looseness,
                    ..
                } = worst;
                let mut cell = format!("{c2:.2} · {c2_rows:.2} · {c3:.1e} · {c2_looseness:.1e}");
                if dtype != Dtype::E4m3 {
                    cell += &format!(" · {:.3} · {:.2}", worst.allclose, worst.allclose_unrounded);
                }
                cells.push(cell);
            }
            println!("| {family} | {} |", cells.join(" | "));
        }
    }
    lost_precision(is_named)?;
    if is_named(Dtype::E4m3) {
        end_to_end()?;
    }
    Ok(())
}

/// Prints what the rounding of P, of the row sum, of the accumulator and of the output does to C2's
/// mean over rows, every row, tiles of 16 keys.
fn lost_precision(is_named: impl Fn(Dtype) -> bool) -> Result<(), Failure> {
    const FAULTS: [Fault; 4] = [
        Fault::ProbabilityTruncated,
        Fault::SumInHalf,
        Fault::AccumulatorInHalf,
        Fault::OutputTruncated,
    ];
    println!(
        "\n### Lost precision, P in 16 bits: root mean square of row errors over the \
         same-precision baseline's\n"
    );
    println!(
        "| dtype | shape | mask | family | bound | correct | {} |",
        FAULTS.map(Fault::name).join(" | ")
    );
    println!("|---|---|---|---|---|---|{}", "---|".repeat(FAULTS.len()));
    let ragged = Shape {
        seq_kv: 203,
        heads_kv: 1,
        ..Shape::bhsd(1, 2, 113, 64)
    };
    for dtype in Dtype::ALL.into_iter().filter(|&dtype| is_named(dtype)) {
        for (shape, mask, family) in [
            (Shape::bhsd(1, 1, 32, 64), Mask::Full, Family::Shifted),
            (ragged, Mask::Causal, Family::Normal),
            (Shape::bhsd(1, 8, 512, 64), Mask::Full, Family::Normal),
        ] {
            let problem = Problem::new(shape, dtype, mask)?;
            let inputs = Inputs::generate(&problem, family, 0);
            let rows = (0..shape.heads_q * shape.seq_q).collect();
            let reference = reference_of_rows(&inputs, Probability::half(dtype), rows)?;
            let measure = |output: &[f32]| {
                Errors::measure(&Evidence {
                    problem: &problem,
                    family: Some(family),
                    reference: &reference,
                    output,
                })
            };
            let correct = measure(&model_output(&inputs, None));
            let baseline = correct.baseline_rms_row_rel;
            let faulty = FAULTS
                .map(|fault| measure(&model_output(&inputs, Some(fault))).rms_row_rel / baseline);
            let mut cells = vec![
                format!("{:.2}", correct.c2_rows_bound() / baseline),
                format!("{:.2}", correct.rms_row_rel / baseline),
            ];
            cells.extend(faulty.map(|ratio| format!("{ratio:.2}")));
            println!(
                "| {dtype} | {shape} | {mask} | {family} | {} |",
                cells.join(" | ")
            );
        }
    }
    Ok(())
}

fn worst(dtype: Dtype, p: Probability, family: Family, seq: usize) -> Result<Worst, Failure> {
    let mut worst = Worst::default();
    for (head_dim, mask, seed) in HEAD_DIMS.iter().flat_map(|&d| {
        Mask::ALL
            .into_iter()
            .flat_map(move |m| SEEDS.map(|seed| (d, m, seed)))
    }) {
        // The zero-head family empties a different head of Q, K and V: with one head nothing would
        // be left.
        let heads = if family == Family::ZeroHead { 3 } else { 1 };
        let problem = Problem::new(Shape::bhsd(1, heads, seq, head_dim), dtype, mask)?;
        let inputs = Inputs::generate(&problem, family, seed);
        let count = ROWS.min(seq);
        let spread = (0..heads)
            .flat_map(|head| (1..=count).map(move |part| head * seq + part * seq / count - 1));
        let rows: Vec<usize> = spread.collect();
        let reference = reference_of_rows(&inputs, p, rows.clone())?;
        let unrounded = unquantised_rows(&inputs, &rows).ok_or("generated inputs")?;
        for block_n in TILES {
            let errors = model_errors(&inputs, family, &reference, block_n, p);
            worst.c2 = worst.c2.max(errors.max_abs / errors.c2_bound());
            worst.c2_rows = worst
                .c2_rows
                .max(errors.rms_row_rel / errors.c2_rows_bound());
            worst.c3 = worst.c3.max(errors.max_row_rel);
            worst.allclose = worst.allclose.max(errors.allclose);
            if errors.reference_max_abs > 0.0 {
                worst.c2_looseness = worst
                    .c2_looseness
                    .max(errors.c2_bound() / errors.reference_max_abs);
            }
        }
        for (i, (stored, exact)) in reference.output.iter().zip(&unrounded).enumerate() {
            let value_rms = reference.value_rms[i / head_dim];
            let tolerance = c4_tolerance(dtype.output(), value_rms, *exact);
            let share = (stored - exact).abs() / tolerance;
            worst.allclose_unrounded = worst.allclose_unrounded.max(share);
        }
    }
    Ok(worst)
}

fn model_errors(
    inputs: &Inputs,
    family: Family,
    reference: &Reference,
    block_n: usize,
    probability: Probability,
) -> Errors {
    let dim = inputs.problem.shape.head_dim;
    let rows = Model {
        block_n,
        probability,
    }
    .output(inputs, &reference.rows, None);
    // The gates want the whole output; rows outside the sample are not looked at.
    let mut output = vec![0.0; inputs.q.len()];
    for (row, values) in reference.rows.iter().zip(rows.chunks(dim)) {
        output[row * dim..(row + 1) * dim].copy_from_slice(values);
    }
    Errors::measure(&Evidence {
        problem: &inputs.problem,
        family: Some(family),
        reference,
        output: &output,
    })
}

/// C4 for E4M3 on the named shapes, every row.
fn end_to_end() -> Result<(), Failure> {
    println!("\n### E4M3 end to end, normal family, full mask, P in f16\n");
    println!("| shape | seed | mean | share above 0.06 | max | seeds' 0.06 / 0.02 / 1 % |");
    println!("|---|---|---|---|---|---|");
    for (name, shape, seeds) in [
        ("small", Shape::bhsd(1, 1, 32, 64), 0..5),
        ("mission", Shape::bhsd(1, 8, 512, 64), 0..5),
        ("long", Shape::bhsd(1, 8, 2048, 64), 0..2),
    ] {
        for seed in seeds {
            let problem = Problem::new(shape, Dtype::E4m3, Mask::Full)?;
            let inputs = Inputs::generate(&problem, Family::Normal, seed);
            let rows = (0..shape.heads_q * shape.seq_q).collect();
            let reference = reference_of_rows(&inputs, Probability::F16, rows)?;
            let errors = model_errors(&inputs, Family::Normal, &reference, 64, Probability::F16);
            let end = errors.end_to_end.ok_or("generated inputs")?;
            println!(
                "| {name} | {seed} | {:.5} | {:.3} % | {:.4} | {} |",
                end.mean_abs,
                100.0 * end.bad_share,
                end.max_abs,
                if end.meets_seeds { "met" } else { "missed" },
            );
        }
    }
    Ok(())
}
