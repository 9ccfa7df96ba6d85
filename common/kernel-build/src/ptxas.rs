//! Reads what `ptxas -v` prints: one block per entry.

use crate::report::Resources;

/// A report of ptxas that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportProblem {
    #[error("no number before '{unit}' in '{line}'")]
    NoNumber { unit: &'static str, line: String },
    #[error("'Used' before any entry")]
    UsedBeforeEntry,
    #[error("two 'Used' lines for {0}")]
    UsedTwice(String),
    #[error("no register count for {0}")]
    NoRegisters(String),
    #[error("{0} has no code in the cubin")]
    NoCode(String),
    #[error("no entry")]
    NoEntry,
}

/// A kernel and its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryResources {
    pub symbol: String,
    pub resources: Resources,
}

/// Returns the entries in the order printed.
pub(crate) fn parse(output: &str) -> Result<Vec<EntryResources>, ReportProblem> {
    let mut reader = Reader::default();
    for line in output.lines() {
        reader.read_line(line)?;
    }
    reader.finish()
}

/// An entry whose block is being read.
struct OpenEntry {
    symbol: String,
    resources: Resources,
    has_used_line: bool,
}

#[derive(Default)]
struct Reader {
    entries: Vec<OpenEntry>,
    /// The resources of called functions. Properties are printed for these too, without their
    /// callers: they count against every entry.
    called: Resources,
    /// Whether the properties that follow are those of the last entry.
    is_in_entry: bool,
}

impl Reader {
    fn read_line(&mut self, line: &str) -> Result<(), ReportProblem> {
        let Some(rest) = line.trim_start().strip_prefix("ptxas info") else {
            if line.contains("bytes stack frame") {
                self.read_properties(line)?;
            }
            return Ok(());
        };
        let info = rest.trim_start_matches([' ', ':']);
        if let Some(quoted) = info.strip_prefix("Compiling entry function '") {
            self.begin_entry(quoted.split('\'').next().unwrap_or_default());
        } else if let Some(function) = info.strip_prefix("Function properties for ") {
            self.is_in_entry = self
                .entries
                .last()
                .is_some_and(|entry| entry.symbol == function.trim());
        } else if let Some(usage) = info.strip_prefix("Used ") {
            self.read_usage(usage)?;
        }
        Ok(())
    }

    fn begin_entry(&mut self, symbol: &str) {
        self.entries.push(OpenEntry {
            symbol: symbol.to_string(),
            resources: Resources::default(),
            has_used_line: false,
        });
        self.is_in_entry = true;
    }

    /// Reads the line of stack and spills.
    fn read_properties(&mut self, line: &str) -> Result<(), ReportProblem> {
        let resources = match self.entries.last_mut() {
            Some(entry) if self.is_in_entry => &mut entry.resources,
            _ => &mut self.called,
        };
        resources.stack_frame_bytes += count_before(line, "bytes stack frame")?;
        resources.spill_store_bytes += count_before(line, "bytes spill stores")?;
        resources.spill_load_bytes += count_before(line, "bytes spill loads")?;
        Ok(())
    }

    /// Reads the items of a "Used" line.
    fn read_usage(&mut self, usage: &str) -> Result<(), ReportProblem> {
        let entry = self
            .entries
            .last_mut()
            .ok_or(ReportProblem::UsedBeforeEntry)?;
        if entry.has_used_line {
            return Err(ReportProblem::UsedTwice(entry.symbol.clone()));
        }
        entry.has_used_line = true;
        for item in usage.split(", ") {
            if item.ends_with(" registers") {
                entry.resources.registers = count_before(item, "registers")?;
            } else if item.ends_with(" bytes smem") {
                entry.resources.static_shared_bytes = count_before(item, "bytes smem")?;
            }
            // Others ("barriers", "bytes cmem[0]", "bytes cumulative stack size", "bytes lmem")
            // repeat or do not concern us.
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<EntryResources>, ReportProblem> {
        let mut finished = Vec::new();
        for entry in self.entries {
            if !entry.has_used_line || entry.resources.registers == 0 {
                return Err(ReportProblem::NoRegisters(entry.symbol));
            }
            let mut resources = entry.resources;
            resources.stack_frame_bytes += self.called.stack_frame_bytes;
            resources.spill_store_bytes += self.called.spill_store_bytes;
            resources.spill_load_bytes += self.called.spill_load_bytes;
            finished.push(EntryResources {
                symbol: entry.symbol,
                resources,
            });
        }
        Ok(finished)
    }
}

/// Returns the warnings that ptxas takes an entry's asynchronous products apart or ignores its
/// setmaxnreg (C7508 to C7519). A line that names no function counts against every entry.
pub(crate) fn warnings(output: &str, symbol: &str) -> Vec<String> {
    let quoted_symbol = format!("'{symbol}'");
    let mut warnings = Vec::new();
    for line in output.lines() {
        if !line.contains("(C75") || line.contains('\'') && !line.contains(&quoted_symbol) {
            continue;
        }
        let text = line
            .trim_start_matches("ptxas info")
            .trim_matches([' ', ':']);
        warnings.push(text.to_string());
    }
    warnings
}

fn count_before(text: &str, unit: &'static str) -> Result<u32, ReportProblem> {
    parsed_count(text, unit).ok_or_else(|| ReportProblem::NoNumber {
        unit,
        line: text.trim().to_string(),
    })
}

fn parsed_count(text: &str, unit: &str) -> Option<u32> {
    let before = text[..text.find(unit)?].trim_end();
    before.rsplit([' ', ',']).next()?.parse().ok()
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
ptxas info    : Used 14 registers, used 1 barriers, 256 bytes smem, 576 bytes cmem[0], \
8 bytes cmem[2]
ptxas info    : Compile time = 1.122 ms
";

    /// nvcc 13.0.88, sm_90a: spills, a warning above, no constant banks.
    const SPILLS: &str = "\
kernel.cu(7): warning #177-D: member \"x\" was declared but never referenced
ptxas info    : Overriding global maxrregcount 64 with entry-specific value 255 computed using \
thread count
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z6kernelILi64EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z6kernelILi64EEvPf
    664 bytes stack frame, 1252 bytes spill stores, 1256 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 664 bytes cumulative stack size
ptxas info    : Compile time = 72.334 ms
";

    fn entry(symbol: &str, resources: Resources) -> EntryResources {
        EntryResources {
            symbol: symbol.to_string(),
            resources,
        }
    }

    #[test]
    fn reads_static_shared_memory() {
        let expected = Resources {
            registers: 14,
            static_shared_bytes: 256,
            ..Resources::default()
        };
        let symbols = [
            "stage0_scalar_wmma_32x64_e4m3_d128",
            "stage0_scalar_wmma_32x64_e4m3_d64",
        ];
        assert_eq!(
            parse(STATIC_SHARED).unwrap(),
            symbols.map(|symbol| entry(symbol, expected))
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
            [entry("_Z6kernelILi64EEvPf", expected)]
        );
    }

    #[test]
    fn spills_of_a_called_function_count_against_the_entry() {
        let called = "ptxas info    : Function properties for _Z6helperf\n    \
                      48 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n";
        let mut expected = parse(SPILLS).unwrap();
        expected[0].resources.stack_frame_bytes += 48;
        expected[0].resources.spill_store_bytes += 4;
        expected[0].resources.spill_load_bytes += 8;
        assert_eq!(parse(&format!("{SPILLS}{called}")).unwrap(), expected);
        let entries = parse(&format!("{STATIC_SHARED}{called}")).unwrap();
        let spills = entries.iter().map(|entry| entry.resources.spill_load_bytes);
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
            parse(&cut).unwrap_err().to_string(),
            "no register count for _Z6kernelILi64EEvPf"
        );
        assert!(parse(&SPILLS.replace("Used 255", "Used many")).is_err());
        assert!(parse(&SPILLS.replace("Used 255 registers, used", "Used")).is_err());
        let twice = format!("{SPILLS}ptxas info    : Used 9 registers\n");
        let expected = "two 'Used' lines for _Z6kernelILi64EEvPf";
        assert_eq!(parse(&twice).unwrap_err().to_string(), expected);
    }

    #[test]
    fn warnings_belong_to_the_entry_they_name() {
        let serialized = "(C7510) wgmma.mma_async instructions are serialized due to a call in \
                          function 'one'";
        let ignored = "(C7508) setmaxnreg is ignored";
        let output = format!(
            "ptxas info    : {serialized}\n\
             ptxas info    : {ignored}\n\
             ptxas info    : (C7600) of no product\n\
             {SPILLS}"
        );
        assert_eq!(warnings(&output, "one"), [serialized, ignored]);
        assert_eq!(warnings(&output, "on"), [ignored]);
        assert!(warnings(SPILLS, "_Z6kernelILi64EEvPf").is_empty());
    }

    #[test]
    fn a_file_without_entries_has_none() {
        assert_eq!(parse("ptxas info    : 0 bytes gmem\n"), Ok(Vec::new()));
    }
}
