//! Reads what `ptxas -v` prints: one block per entry.

use crate::report::Resources;

/// In the order printed, or what could not be read.
pub(crate) fn parse(output: &str) -> Result<Vec<(String, Resources)>, String> {
    // (symbol, resources, whether its "Used" line was seen)
    let mut entries: Vec<(String, Resources, bool)> = Vec::new();
    // Properties are printed for called functions too, without their callers: they count against every entry.
    let mut called = Resources::default();
    let mut in_entry = false;
    for line in output.lines() {
        let Some(text) = line
            .trim_start()
            .strip_prefix("ptxas info")
            .map(|rest| rest.trim_start_matches([' ', ':']))
        else {
            if line.contains("bytes stack frame") {
                let resources = match entries.last_mut() {
                    Some((_, resources, _)) if in_entry => resources,
                    _ => &mut called,
                };
                resources.stack_frame_bytes += count_before(line, "bytes stack frame")?;
                resources.spill_store_bytes += count_before(line, "bytes spill stores")?;
                resources.spill_load_bytes += count_before(line, "bytes spill loads")?;
            }
            continue;
        };
        if let Some(rest) = text.strip_prefix("Compiling entry function '") {
            let symbol = rest.split('\'').next().unwrap_or_default();
            entries.push((symbol.to_string(), Resources::default(), false));
            in_entry = true;
        } else if let Some(function) = text.strip_prefix("Function properties for ") {
            in_entry = entries
                .last()
                .is_some_and(|(symbol, ..)| symbol == function.trim());
        } else if text.starts_with("Used ") {
            let (symbol, resources, used) = entries.last_mut().ok_or("'Used' before any entry")?;
            if *used {
                return Err(format!("two 'Used' lines for {symbol}"));
            }
            *used = true;
            for item in text.trim_start_matches("Used ").split(", ") {
                if item.ends_with(" registers") {
                    resources.registers = count_before(item, "registers")?;
                } else if item.ends_with(" bytes smem") {
                    resources.static_shared_bytes = count_before(item, "bytes smem")?;
                }
                // Others ("barriers", "bytes cmem[0]", "bytes cumulative stack size", "bytes lmem") repeat or do not concern us.
            }
        }
    }
    if let Some((symbol, ..)) = entries
        .iter()
        .find(|(_, resources, used)| !used || resources.registers == 0)
    {
        return Err(format!("no register count for {symbol}"));
    }
    for (_, resources, _) in &mut entries {
        resources.stack_frame_bytes += called.stack_frame_bytes;
        resources.spill_store_bytes += called.spill_store_bytes;
        resources.spill_load_bytes += called.spill_load_bytes;
    }
    Ok(entries
        .into_iter()
        .map(|(symbol, resources, _)| (symbol, resources))
        .collect())
}

/// Of an entry whose asynchronous products ptxas takes apart, or whose setmaxnreg it ignores (C7508 to C7519). A line that
/// names no function counts against every entry.
pub(crate) fn warnings(output: &str, symbol: &str) -> Vec<String> {
    let concerns = |line: &&str| {
        line.contains("(C75") && (!line.contains('\'') || line.contains(&format!("'{symbol}'")))
    };
    output
        .lines()
        .filter(concerns)
        .map(|line| {
            line.trim_start_matches("ptxas info")
                .trim_matches([' ', ':'])
                .into()
        })
        .collect()
}

fn count_before(text: &str, unit: &str) -> Result<u32, String> {
    let bad = || format!("no number before '{unit}' in '{}'", text.trim());
    let end = text.find(unit).ok_or_else(bad)?;
    let digits = text[..end]
        .trim_end()
        .rsplit([' ', ','])
        .next()
        .unwrap_or_default();
    digits.parse().map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nvcc 13.0.88, sm_89: static shared memory, constant banks.
    const STATIC_SHARED: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'stage0_scalar_wmma_32x64_e4m3_d128' for 'sm_89'
ptxas info    : Function properties for stage0_scalar_wmma_32x64_e4m3_d128
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 256 bytes smem, 576 bytes cmem[0]
ptxas info    : Compile time = 8.193 ms
ptxas info    : Compiling entry function 'stage0_scalar_wmma_32x64_e4m3_d64' for 'sm_89'
ptxas info    : Function properties for stage0_scalar_wmma_32x64_e4m3_d64
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 256 bytes smem, 576 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 1.122 ms
";

    /// nvcc 13.0.88, sm_90a: spills, a warning above, no constant banks.
    const SPILLS: &str = "\
kernel.cu(7): warning #177-D: member \"x\" was declared but never referenced
ptxas info    : Overriding global maxrregcount 64 with entry-specific value 255 computed using thread count
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z6kernelILi64EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z6kernelILi64EEvPf
    664 bytes stack frame, 1252 bytes spill stores, 1256 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 664 bytes cumulative stack size
ptxas info    : Compile time = 72.334 ms
";

    #[test]
    fn reads_static_shared_memory() {
        let expected = Resources {
            registers: 14,
            static_shared_bytes: 256,
            ..Resources::default()
        };
        assert_eq!(
            parse(STATIC_SHARED).unwrap(),
            [
                ("stage0_scalar_wmma_32x64_e4m3_d128".to_string(), expected),
                ("stage0_scalar_wmma_32x64_e4m3_d64".to_string(), expected),
            ]
        );
    }

    #[test]
    fn reads_spills_and_stack() {
        let expected = Resources {
            registers: 255,
            spill_store_bytes: 1252,
            spill_load_bytes: 1256,
            stack_frame_bytes: 664,
            ..Resources::default()
        };
        assert_eq!(
            parse(SPILLS).unwrap(),
            [("_Z6kernelILi64EEvPf".to_string(), expected)]
        );
    }

    #[test]
    fn spills_of_a_called_function_count_against_the_entry() {
        let called = "ptxas info    : Function properties for _Z6helperf\n    48 bytes stack frame, 4 bytes spill stores, 8 \
                      bytes spill loads\n";
        let mut expected = parse(SPILLS).unwrap();
        expected[0].1.stack_frame_bytes += 48;
        expected[0].1.spill_store_bytes += 4;
        expected[0].1.spill_load_bytes += 8;
        assert_eq!(parse(&format!("{SPILLS}{called}")).unwrap(), expected);
        let of_two = parse(&format!("{STATIC_SHARED}{called}")).unwrap();
        let spills = of_two.iter().map(|(_, of_one)| of_one.spill_load_bytes);
        assert_eq!(spills.collect::<Vec<_>>(), [8, 8]);
    }

    #[test]
    fn an_entry_without_its_count_is_an_error_not_a_zero() {
        let cut: String = SPILLS
            .lines()
            .filter(|line| !line.contains("Used"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(
            parse(&cut),
            Err("no register count for _Z6kernelILi64EEvPf".to_string())
        );
        assert!(parse(&SPILLS.replace("Used 255", "Used many")).is_err());
        assert!(parse(&SPILLS.replace("Used 255 registers, used", "Used")).is_err());
        let twice = format!("{SPILLS}ptxas info    : Used 9 registers\n");
        let expected = "two 'Used' lines for _Z6kernelILi64EEvPf";
        assert_eq!(parse(&twice), Err(expected.to_string()));
    }

    #[test]
    fn what_ptxas_takes_apart_is_told_of_the_entry_it_names() {
        let of = |symbol| {
            format!(
                "(C7510) wgmma.mma_async instructions are serialized due to a call in function '{symbol}'"
            )
        };
        let output = format!(
            "ptxas info    : {}\nptxas info    : (C7508) setmaxnreg is ignored\nptxas info    : (C7600) of no product\n{SPILLS}",
            of("one")
        );
        assert_eq!(
            warnings(&output, "one"),
            [of("one"), "(C7508) setmaxnreg is ignored".to_string()]
        );
        assert_eq!(warnings(&output, "on"), ["(C7508) setmaxnreg is ignored"]);
        assert!(warnings(SPILLS, "_Z6kernelILi64EEvPf").is_empty());
    }

    #[test]
    fn a_file_without_entries_has_none() {
        assert_eq!(parse("ptxas info    : 0 bytes gmem\n"), Ok(Vec::new()));
    }
}
