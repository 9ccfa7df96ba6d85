//! Reads what `ncu --csv --page raw --print-units base` prints: a line of names, a line of units, a
//! line per launch. Pure.

use std::collections::BTreeMap;

/// A launch in ncu's table.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub kernel: String,
    /// The values in base units, by metric, without those that ncu calls n/a.
    pub values: BTreeMap<String, f64>,
}

/// The units that `--print-units base` leaves: no figure is in thousands of anything.
const BASE_UNITS: [&str; 11] = [
    "", "%", "byte", "ns", "nsecond", "inst", "cycle", "sector", "sectors", "request", "warp",
];

/// Reads the values of `metrics` for every launch, in the order in which they were made. A metric
/// without a column is absent, unless all are.
pub fn parse(text: &str, metrics: &[&str]) -> Result<Vec<Launch>, String> {
    // Messages may stand before the table. Every field is quoted, and none has quotes within.
    let lines: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("\"ID\""))
        .filter(|line| !line.is_empty())
        .map(fields)
        .collect();
    let [names, units, launches @ ..] = &lines[..] else {
        return Err(match first_error(text) {
            Some(error) => format!("ncu printed no table: {error}"),
            None => "ncu printed neither a table nor an error".to_string(),
        });
    };
    let width = names.len();
    if let Some(cut) = lines.iter().position(|line| line.len() != width) {
        return Err(format!(
            "ncu's table is cut off: line {} has {} of {width} fields",
            cut + 1,
            lines[cut].len()
        ));
    }
    let Some(kernel) = names.iter().position(|name| *name == "Kernel Name") else {
        return Err("ncu's table has no column Kernel Name".to_string());
    };
    let mut columns = Vec::new();
    for &metric in metrics {
        if let Some(index) = names.iter().position(|name| *name == metric) {
            columns.push(Column {
                metric,
                index,
                unit: units[index],
            });
        }
    }
    if columns.is_empty() {
        return Err("ncu's table has no column of any metric".to_string());
    }
    let mut parsed = Vec::new();
    for fields in launches {
        let mut values = BTreeMap::new();
        for column in &columns {
            if let Some(value) = column.value(fields)? {
                values.insert(column.metric.to_string(), value);
            }
        }
        parsed.push(Launch {
            kernel: fields[kernel].to_string(),
            values,
        });
    }
    Ok(parsed)
}

/// Splits a line into its fields; a line that is cut off has none.
fn fields(line: &str) -> Vec<&str> {
    let unquoted = line
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match unquoted {
        Some(values) => values.split("\",\"").collect(),
        None => vec![],
    }
}

/// The column of a metric.
struct Column<'a> {
    metric: &'a str,
    index: usize,
    unit: &'a str,
}

impl Column<'_> {
    /// Reads the value of a launch; returns nothing where ncu has none.
    fn value(&self, fields: &[&str]) -> Result<Option<f64>, String> {
        let Self { metric, unit, .. } = self;
        if !BASE_UNITS.contains(unit) {
            return Err(format!("ncu's unit of {metric} is not a base unit: {unit}"));
        }
        let text = fields[self.index];
        if ["", "n/a", "nan"].contains(&&*text.to_ascii_lowercase()) {
            return Ok(None);
        }
        match text.replace(',', "").parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(format!("ncu's value of {metric} is not a number: {text}")),
        }
    }
}

/// Returns those of `metrics` that ncu does not know on the GPU, as its errors name them.
pub fn unknown<'a>(log: &str, metrics: &[&'a str]) -> Vec<&'a str> {
    // A name may stand as a pattern: `regex:^dram__bytes\.sum$`.
    let errors: Vec<String> = log
        .lines()
        .filter(|line| line.starts_with("==ERROR==") && line.contains("metric"))
        .map(|line| line.replace('\\', ""))
        .collect();
    let words: Vec<&str> = errors
        .iter()
        .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && !"_.".contains(c)))
        .map(|word| word.trim_end_matches('.'))
        .collect();
    let mut unknown = Vec::new();
    for &metric in metrics {
        let base = metric.split('.').next().unwrap_or(metric);
        if words.contains(&metric) || words.contains(&base) {
            unknown.push(metric);
        }
    }
    unknown
}

/// Returns why ncu measured nothing, from what it printed: what a person can do about it where that
/// is known, else its first error.
pub fn reason(log: &str) -> String {
    first_error(log).unwrap_or("ncu printed no error".to_string())
}

fn first_error(log: &str) -> Option<String> {
    if log.contains("ERR_NVGPUCTRPERM") {
        let remedy = "this user may not read the GPU's counters (ERR_NVGPUCTRPERM); run as root, \
                      or let the driver's administrator set \
                      NVreg_RestrictProfilingToAdminUsers=0";
        return Some(remedy.to_string());
    }
    for line in log.lines() {
        if let Some(error) = line.strip_prefix("==ERROR==") {
            return Some(format!("ncu says: {}", error.trim()));
        }
    }
    let is_idle = log
        .lines()
        .any(|line| line.starts_with("==WARNING== No kernels were profiled"));
    is_idle.then(|| "no kernel was launched".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two launches on an H200 as ncu 2025.3.1 printed them, of which only some columns are kept;
    /// its units are made base units.
    const REAL: &str = include_str!("ncu-raw.csv");

    const TIME: &str = "gpu__time_duration.sum";
    const BYTES: &str = "dram__bytes.sum";
    const WAVEFRONTS: &str = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum";
    const STALLS: &str = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio";

    #[test]
    fn a_real_table_is_read_in_base_units() {
        let launches = parse(REAL, &[TIME, BYTES, WAVEFRONTS, STALLS]).unwrap();
        let kernels: Vec<&str> = launches
            .iter()
            .map(|launch| launch.kernel.as_str())
            .collect();
        assert_eq!(
            kernels,
            [
                "stage0_scalar_wmma_qk_32x64_k2_f16_d64",
                "stage5_swizzle_mma_linear_32x256_k4_f16_d64"
            ]
        );
        let values: Vec<Vec<f64>> = launches
            .iter()
            .map(|launch| launch.values.values().copied().collect())
            .collect();
        // DRAM bytes, time, wavefronts, stalls: in the order of the names.
        assert_eq!(values[0], [1_593_856.0, 22_816.0, 1_917_440.0, 0.166238]);
        assert_eq!(values[1], [1_603_840.0, 14_624.0, 2_270_633.0, 0.803495]);
    }

    fn refused(text: &str, metric: &str) -> String {
        parse(text, &[metric]).unwrap_err()
    }

    #[test]
    fn planted_faults_are_named() {
        assert_eq!(
            refused(REAL, "no__such.sum"),
            "ncu's table has no column of any metric"
        );
        for (cut, line) in [
            (&REAL[..REAL.trim_end().len() - 5], "line 4"),
            (&REAL[..REAL.find("byte\"").unwrap()], "line 2"),
        ] {
            let error = refused(cut, TIME);
            let expected = format!("ncu's table is cut off: {line} has ");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert_eq!(
            refused(&REAL.replace("2,270,633", "many"), WAVEFRONTS),
            format!("ncu's value of {WAVEFRONTS} is not a number: many")
        );
        assert_eq!(
            refused(&REAL.replace("\"byte\"", "\"Mbyte\""), BYTES),
            format!("ncu's unit of {BYTES} is not a base unit: Mbyte")
        );
        for nothing in [
            "",
            "==WARNING== No kernels were profiled.\n",
            "\"ID\",\"Kernel Name\"\n",
        ] {
            let error = refused(nothing, TIME);
            assert!(
                error.starts_with("ncu printed no table: ")
                    || error == "ncu printed neither a table nor an error",
                "{error}"
            );
        }
        let warning = "==WARNING== No kernels were profiled.\n";
        let message = "ncu printed no table: no kernel was launched";
        assert_eq!(refused(warning, TIME), message);
    }

    #[test]
    fn what_is_not_available_is_absent_and_not_0() {
        let launches = parse(&REAL.replace("2,270,633", "n/a"), &[WAVEFRONTS, TIME]).unwrap();
        assert_eq!(launches[0].values.get(WAVEFRONTS), Some(&1_917_440.0));
        assert_eq!(launches[1].values.get(WAVEFRONTS), None);
        assert_eq!(launches[1].values.get(TIME), Some(&14_624.0));
    }

    #[test]
    fn a_metric_without_a_column_is_absent() {
        let launches = parse(REAL, &["no__such.sum", TIME]).unwrap();
        assert_eq!(launches[0].values.get(TIME), Some(&22_816.0));
        assert!(!launches[0].values.contains_key("no__such.sum"));
    }

    #[test]
    fn metrics_that_ncu_does_not_know_are_read_from_its_errors() {
        for (log, expected) in [
            (
                "==ERROR== Failed to find metric dram__bytes.sum\n",
                vec![BYTES],
            ),
            (
                "==ERROR== Failed to find metric regex:^dram__bytes\\.sum$\n",
                vec![BYTES],
            ),
            ("==ERROR== Failed to find metric dram__bytes\n", vec![BYTES]),
            (
                "==ERROR== Failed to find metrics gpu__time_duration.sum, dram__bytes.sum.\n",
                vec![TIME, BYTES],
            ),
            (
                "==ERROR== Failed to find metric dram__bytes.sum\n\
                 ==PROF== Disconnected\n\
                 ==ERROR== Failed to find metric gpu__time_duration.sum\n",
                vec![TIME, BYTES],
            ),
            // A flag of the caller's, and what is no error.
            ("==ERROR== Failed to find metric their__own.sum\n", vec![]),
            ("==PROF== Collecting metric dram__bytes.sum\n", vec![]),
            (
                "==ERROR== Failed to find metric dram__bytes_read.sum\n",
                vec![],
            ),
        ] {
            assert_eq!(unknown(log, &[TIME, BYTES]), expected, "{log}");
        }
    }

    #[test]
    fn reasons_say_what_to_do() {
        let denied = "==PROF== Connected to process 7\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to \
                      access NVIDIA GPU Performance Counters on the target device 0.\n";
        assert!(reason(denied).contains("run as root"));
        let unknown = "==PROF== Connected\n==ERROR== Failed to find metric regex:^no__such$\n";
        assert_eq!(
            reason(unknown),
            "ncu says: Failed to find metric regex:^no__such$"
        );
        assert_eq!(
            reason("==WARNING== No kernels were profiled.\n"),
            "no kernel was launched"
        );
        assert!(
            parse(denied, &[TIME])
                .unwrap_err()
                .to_string()
                .contains("ERR_NVGPUCTRPERM")
        );
    }
}
