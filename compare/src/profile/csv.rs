//! What `ncu --csv --page raw --print-units base` prints: a line of names, a line of units, a line per launch. Pure.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub kernel: String,
    /// Values in base units, by metric; what ncu calls n/a is not there.
    pub values: BTreeMap<String, f64>,
}

/// Units that `--print-units base` leaves: no figure is in thousands of anything.
const BASE_UNITS: [&str; 11] = [
    "", "%", "byte", "ns", "nsecond", "inst", "cycle", "sector", "sectors", "request", "warp",
];

/// The values of `metrics` for every launch, in the order in which they were made. A metric without
/// a column is absent, unless all are.
pub fn parse(text: &str, metrics: &[&str]) -> Result<Vec<Launch>, String> {
    // Messages may stand before the table. Every field is quoted, and none has quotes within.
    let table = text.lines().skip_while(|line| !line.starts_with("\"ID\""));
    let lines: Vec<Vec<&str>> = table
        .filter(|line| !line.is_empty())
        .map(|line| {
            let whole = line
                .strip_prefix('"')
                .and_then(|line| line.strip_suffix('"'));
            whole.map_or(vec![], |line| line.split("\",\"").collect())
        })
        .collect();
    let [names, units, launches @ ..] = &lines[..] else {
        return Err(format!("ncu printed no table: {}", reason(text)));
    };
    let all = names.len();
    if let Some(cut) = lines.iter().position(|line| line.len() != all) {
        return Err(format!(
            "ncu's table is cut off: line {} has {} of {all} fields",
            cut + 1,
            lines[cut].len()
        ));
    }
    let column = |name: &str| {
        let position = names.iter().position(|other| *other == name);
        position.ok_or_else(|| format!("ncu's table has no column {name}"))
    };
    let kernel = column("Kernel Name")?;
    let measured = Vec::from_iter(metrics.iter().filter(|name| names.contains(name)));
    if measured.is_empty() {
        return Err("ncu's table has no column of any metric".to_string());
    }
    let mut read: Vec<Launch> = Vec::new();
    for fields in launches {
        let mut values = BTreeMap::new();
        for &&metric in &measured {
            let column = column(metric)?;
            let unit = units[column];
            if !BASE_UNITS.contains(&unit) {
                return Err(format!("ncu's unit of {metric} is not a base unit: {unit}"));
            }
            let text = fields[column];
            if ["", "n/a", "nan"].contains(&&*text.to_ascii_lowercase()) {
                continue;
            }
            let number = text.replace(',', "").parse().ok();
            let number = number.filter(|number: &f64| number.is_finite());
            let number =
                number.ok_or_else(|| format!("ncu's value of {metric} is not a number: {text}"))?;
            values.insert(metric.to_string(), number);
        }
        read.push(Launch {
            kernel: fields[kernel].to_string(),
            values,
        });
    }
    Ok(read)
}

/// Returns those of `metrics` that ncu does not know on the GPU, as its errors name them.
pub fn unknown<'a>(log: &str, metrics: &[&'a str]) -> Vec<&'a str> {
    // A name may stand as a pattern: `regex:^dram__bytes\.sum$`.
    let named = Vec::from_iter(
        log.lines()
            .filter(|line| line.starts_with("==ERROR==") && line.contains("metric"))
            .map(|line| line.replace('\\', "")),
    );
    let is_named = |metric: &&str| {
        let (base, _) = metric.split_once('.').unwrap_or((metric, ""));
        named
            .iter()
            .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && !"_.".contains(c)))
            .map(|word| word.trim_end_matches('.'))
            .any(|word| word == *metric || word == base)
    };
    metrics.iter().copied().filter(is_named).collect()
}

/// Why ncu measured nothing, from what it printed: what a person can do about it where that is known, else its first
/// error.
pub fn reason(log: &str) -> String {
    if log.contains("ERR_NVGPUCTRPERM") {
        return "this user may not read the GPU's counters (ERR_NVGPUCTRPERM); run as root, or let the driver's \
                administrator set NVreg_RestrictProfilingToAdminUsers=0"
            .to_string();
    }
    let line = |start: &str| log.lines().find_map(|line| line.strip_prefix(start));
    if let Some(error) = line("==ERROR==") {
        format!("ncu says: {}", error.trim())
    } else if line("==WARNING== No kernels were profiled").is_some() {
        "no kernel was launched".to_string()
    } else {
        "it printed no error either".to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two launches on an H200 as ncu 2025.3.1 printed them, of which only some columns are kept; its units are made base units.
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
        let error = |text: &str, metric: &str| parse(text, &[metric]).unwrap_err();
        assert_eq!(
            error(REAL, "no__such.sum"),
            "ncu's table has no column of any metric"
        );
        for (cut, line) in [
            (&REAL[..REAL.trim_end().len() - 5], "line 4"),
            (&REAL[..REAL.find("byte\"").unwrap()], "line 2"),
        ] {
            let error = error(cut, TIME);
            let expected = format!("ncu's table is cut off: {line} has ");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert_eq!(
            error(&REAL.replace("2,270,633", "many"), WAVEFRONTS),
            format!("ncu's value of {WAVEFRONTS} is not a number: many")
        );
        assert_eq!(
            error(&REAL.replace("\"byte\"", "\"Mbyte\""), BYTES),
            format!("ncu's unit of {BYTES} is not a base unit: Mbyte")
        );
        for nothing in [
            "",
            "==WARNING== No kernels were profiled.\n",
            "\"ID\",\"Kernel Name\"\n",
        ] {
            assert!(error(nothing, TIME).starts_with("ncu printed no table: "));
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
