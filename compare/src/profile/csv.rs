//! What `ncu --csv --page raw` prints: a line of names, a line of units, a line per launch. Pure.

use std::collections::BTreeMap;

/// The column of the kernel's name.
const KERNEL: &str = "Kernel Name";

/// One launch as ncu read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub kernel: String,
    /// Values in base units, by metric; what ncu calls n/a is not there.
    pub values: BTreeMap<String, f64>,
}

/// Why there is nothing to read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CsvError {
    /// There is no table.
    #[error("ncu printed no table: {0}")]
    NoTable(String),
    /// A metric was asked for and is not there.
    #[error("ncu's table has no column {0}")]
    NoColumn(String),
    /// The table ends within a line, or a line has lost fields.
    #[error("ncu's table is cut off: line {line} has {found} of {columns} fields")]
    CutOff {
        /// Counted from 1 at the line of names.
        line: usize,
        /// Fields in it.
        found: usize,
        /// Fields that the line of names has.
        columns: usize,
    },
    /// A field that should be a number.
    #[error("ncu's value of {metric} is no number: {text}")]
    NotANumber {
        metric: String,
        /// What stands there.
        text: String,
    },
    /// A unit that is not known, so that the value cannot be brought to its base.
    #[error("ncu's unit of {metric} is not known: {unit}")]
    UnknownUnit { metric: String, unit: String },
}

/// The values of `metrics` for every launch, in the order in which they were made.
pub fn parse(text: &str, metrics: &[&str]) -> Result<Vec<Launch>, CsvError> {
    // Messages may stand before the table.
    let lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("\"ID\""))
        .filter(|l| !l.is_empty())
        .collect();
    let [names, units, launches @ ..] = &lines[..] else {
        return Err(CsvError::NoTable(reason(text)));
    };
    let names = fields(names);
    let units = complete(units, 1, &names)?;
    let column = |name: &str| {
        let position = names.iter().position(|other| other == name);
        position.ok_or_else(|| CsvError::NoColumn(name.to_string()))
    };
    let kernel = column(KERNEL)?;
    let columns: Vec<(&str, usize)> = metrics
        .iter()
        .map(|name| Ok((*name, column(name)?)))
        .collect::<Result<_, CsvError>>()?;
    let launch = |(index, line): (usize, &&str)| {
        let fields = complete(line, index + 2, &names)?;
        let mut values = BTreeMap::new();
        for &(metric, column) in &columns {
            if let Some(value) = value(metric, &fields[column], &units[column])? {
                values.insert(metric.to_string(), value);
            }
        }
        Ok(Launch {
            kernel: fields[kernel].clone(),
            values,
        })
    };
    launches.iter().enumerate().map(launch).collect()
}

/// The fields of the line at `index`, which has as many as there are columns.
pub fn complete(line: &str, index: usize, columns: &[String]) -> Result<Vec<String>, CsvError> {
    let (found, columns) = (fields(line), columns.len());
    if found.len() == columns {
        return Ok(found);
    }
    Err(CsvError::CutOff {
        line: index + 1,
        found: found.len(),
        columns,
    })
}

/// A number in base units; `None` for what ncu could not measure.
fn value(metric: &str, text: &str, unit: &str) -> Result<Option<f64>, CsvError> {
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case("n/a") || text.eq_ignore_ascii_case("nan") {
        return Ok(None);
    }
    let number: Option<f64> = text
        .replace(',', "")
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite());
    let number = number.ok_or_else(|| CsvError::NotANumber {
        metric: metric.into(),
        text: text.into(),
    })?;
    let scale = scale(unit).ok_or_else(|| CsvError::UnknownUnit {
        metric: metric.into(),
        unit: unit.into(),
    })?;
    Ok(Some(number * scale))
}

/// What a unit is worth in bytes, nanoseconds, or things. ncu scales only bytes and times, in steps of 1000.
fn scale(unit: &str) -> Option<f64> {
    Some(match unit {
        "Kbyte" => 1e3,
        "Mbyte" => 1e6,
        "Gbyte" => 1e9,
        "ns" | "nsecond" => 1.0,
        "us" | "usecond" => 1e3,
        "ms" | "msecond" => 1e6,
        "s" | "second" => 1e9,
        "" | "%" | "byte" | "inst" | "cycle" | "sector" | "sectors" | "request" | "warp" => 1.0,
        _ => return None,
    })
}

/// The fields of a line: quoted, a quote within doubled.
pub fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    // A quote that never ends makes the line one field short, so that it counts as cut off.
    if !quoted {
        fields.push(field);
    }
    fields
}

/// Why ncu measured nothing, from what it printed: what a person can do about it where that is known, else its first
/// error.
pub fn reason(log: &str) -> String {
    if log.contains("ERR_NVGPUCTRPERM") {
        return "this user may not read the GPU's counters (ERR_NVGPUCTRPERM); run as root, or let the driver's \
                administrator set NVreg_RestrictProfilingToAdminUsers=0"
            .to_string();
    }
    let error = log
        .lines()
        .find_map(|line| line.strip_prefix("==ERROR=="))
        .map(str::trim);
    let warning = log
        .lines()
        .find_map(|line| line.strip_prefix("==WARNING== No kernels were profiled"));
    match (error, warning) {
        (Some(error), _) => format!("ncu says: {error}"),
        (None, Some(_)) => "no kernel was launched".to_string(),
        (None, None) => "it printed no error either".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two launches on an H200 as ncu 2025.3.1 printed them, of which only some columns are kept.
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

    #[test]
    fn planted_faults_are_named() {
        assert_eq!(
            parse(REAL, &["no__such.sum"]),
            Err(CsvError::NoColumn("no__such.sum".into()))
        );
        let cut = &REAL[..REAL.trim_end().len() - 5];
        assert!(
            matches!(parse(cut, &[TIME]), Err(CsvError::CutOff { line: 4, .. })),
            "{:?}",
            parse(cut, &[TIME])
        );
        let cut = &REAL[..REAL.find("Mbyte").unwrap()];
        assert!(
            matches!(parse(cut, &[TIME]), Err(CsvError::CutOff { line: 2, .. })),
            "{:?}",
            parse(cut, &[TIME])
        );
        let wrong = REAL.replace("2,270,633", "many");
        let error = parse(&wrong, &[WAVEFRONTS]).unwrap_err();
        assert_eq!(
            error,
            CsvError::NotANumber {
                metric: WAVEFRONTS.into(),
                text: "many".into()
            }
        );
        let unit = REAL.replace("Mbyte", "furlong");
        assert!(matches!(
            parse(&unit, &[BYTES]),
            Err(CsvError::UnknownUnit { .. })
        ));
        for nothing in [
            "",
            "==WARNING== No kernels were profiled.\n",
            "\"ID\",\"Kernel Name\"\n",
        ] {
            assert!(
                matches!(parse(nothing, &[TIME]), Err(CsvError::NoTable(_))),
                "{nothing}"
            );
        }
    }

    #[test]
    fn what_is_not_available_is_absent_and_not_0() {
        let launches = parse(&REAL.replace("2,270,633", "n/a"), &[WAVEFRONTS, TIME]).unwrap();
        assert_eq!(launches[0].values.get(WAVEFRONTS), Some(&1_917_440.0));
        assert_eq!(launches[1].values.get(WAVEFRONTS), None);
        assert_eq!(launches[1].values.get(TIME), Some(&14_624.0));
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
