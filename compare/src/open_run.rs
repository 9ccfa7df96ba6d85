//! The run that `profile`, `sanitize` and `peers` complete. It must be of this build and GPU, and
//! is reported on in the end.

use anyhow::{Context, ensure};
use clap::Args;
use document::terminal::terminal;
use measure::select::Chosen;
use pages::files;
use pages::show::{self, Section};
use results::judge::list::joined;
use results::judge::state::is_green;
use results::judge::{View, verdict};
use results::table::StageMeta;
use results::table::run::newest_run;
use results::table::{Claim, Results, Row, Run, Source, StoreError};
use results::workspace;
use stages::Ladder;
use std::path::{Path, PathBuf};

/// The flags of every command that completes a run.
#[derive(Clone, Debug, Default, Args)]
pub struct Target {
    /// The run to complete: a folder that `compare run` wrote [default: the newest under
    /// target/compare]
    #[arg(long, value_name = "DIR")]
    pub run: Option<PathBuf>,
}

/// A run that is being completed.
#[derive(Debug)]
pub struct OpenRun {
    pub folder: PathBuf,
    pub run: Run,
    root: Option<PathBuf>,
}

/// The report on a run after it was completed.
pub struct Conclusion {
    /// A section of the report, and the places of all of it.
    pub text: String,
    /// A line for each claim that fails.
    pub broken: Vec<String>,
    /// Whether a claim is undecided.
    pub is_undecided: bool,
}

impl OpenRun {
    /// Opens the run of `target`, and the ladder with that run's device limits. Refuses, in this
    /// order, unknown names, a run of another build, and one of another GPU; reporting a missing
    /// GPU is up to the caller.
    pub fn begin(target: &Target, chosen: &Chosen) -> anyhow::Result<(Self, Ladder)> {
        let mut ladder = Ladder::open()?;
        let builds = ladder.builds()?;
        chosen.pick(&builds)?;
        let opened = Self::open(target, &builds)?;
        if let Ok(gpu) = &ladder.gpu {
            opened.of_gpu(&gpu.info().name)?;
        }
        ladder.limit(opened.run.session.device)?;
        Ok((opened, ladder))
    }

    fn open(target: &Target, builds: &[StageMeta]) -> anyhow::Result<Self> {
        let folder = match &target.run {
            Some(folder) => folder.clone(),
            None => newest(&below_target("compare"))?,
        };
        let run = Run::read(&folder, builds)
            .context("the run cannot be completed; choose another with --run DIR")?;
        check_current(&run)?;
        Ok(Self {
            folder,
            run,
            root: workspace::find(),
        })
    }

    fn of_gpu(&self, here: &str) -> anyhow::Result<()> {
        let measured_on = self.run.session.gpu().unwrap_or("no GPU");
        ensure!(
            measured_on == here,
            "{} was measured on {measured_on}, and this is {here}; run `compare` here first, then \
             complete that run",
            self.run.session.name
        );
        Ok(())
    }

    /// Writes the report on the run as it is now, as `compare run` does, and judges the claims that
    /// it `is_about`.
    pub fn conclude(
        &self,
        section: Section,
        is_about: impl Fn(&Claim) -> bool,
    ) -> anyhow::Result<Conclusion> {
        let results = Results::read(&workspace::results())?;
        let table = results.of_gpu(&self.run.session.machine.name);
        let report = verdict::report_of_run(&self.run, &table);
        let checks = verdict::report_of_checks(&self.run, &table);
        let places = files::write_report(&checks, &self.folder, self.root.as_deref())?;
        // The section shows the run by itself.
        let alone = verdict::report(View::alone(&self.run));
        let asked = show::Asked {
            parts: &[section],
            ..show::Asked::default()
        };
        let shown = terminal(&show::document(&alone, &asked));
        let mut broken = Vec::new();
        let mut is_undecided = false;
        for claim in report.claims.iter().filter(|claim| is_about(&claim.claim)) {
            if claim.is_broken() {
                broken.push(format!("FAIL {}: {}", claim.title(), claim.finding.reason));
            }
            is_undecided |= claim.is_ambiguous();
        }
        Ok(Conclusion {
            text: format!("{shown}\n{places}"),
            broken,
            is_undecided,
        })
    }

    /// Makes an empty folder below target/ for the files of a tool.
    pub fn work(&self, below: &str) -> anyhow::Result<PathBuf> {
        let work = below_target(below).join(&self.run.session.name);
        let _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir_all(&work)
            .with_context(|| format!("cannot write {}", work.display()))?;
        Ok(work)
    }

    /// Records the versions of the tools of `source`, and drops the rows of other versions.
    pub fn set_tools(&mut self, source: Source, versions: Vec<String>) {
        if self.run.session.tools.get(&source) != Some(&versions) {
            self.run.table.retain(|row| row.source() != source);
            self.run.session.tools.insert(source, versions);
        }
    }

    /// Adds rows to the run, and writes it.
    pub fn append(&mut self, rows: impl IntoIterator<Item = Row>) -> Result<(), StoreError> {
        self.run.extend(rows);
        self.run.write(&self.folder)
    }
}

fn below_target(folder: &str) -> PathBuf {
    let workspace = workspace::find().unwrap_or_default();
    workspace.join("target").join(folder)
}

fn newest(folder: &Path) -> anyhow::Result<PathBuf> {
    newest_run(folder)?.with_context(|| {
        format!(
            "there is no finished run in {}; run `compare` first, or name one with --run DIR",
            folder.display()
        )
    })
}

/// Refuses a run of other kernels than this build's, and one without a green variant.
fn check_current(run: &Run) -> anyhow::Result<()> {
    let view = View::alone(run);
    let name = &run.session.name;
    let stale = view.stale_stages();
    ensure!(
        stale.is_empty(),
        "{name} is of other versions of {}; run `compare` again with this build, then complete \
         that run",
        joined(stale, ", ")
    );
    let backend = run.session.backend;
    ensure!(
        run.variants()
            .any(|subject| is_green(&view, &subject, backend)),
        "{name} has no variant that passes C1-C6 and B1; fix the kernels and run \
         `compare` again"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::verdict::{GateId, Verdict};
    use results::testing::{CPASYNC, GPU, ON_GPU, SCALAR, US, WMMA, ladder, row, timed};

    fn written(run: &Run, names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        names
            .iter()
            .for_each(|name| run.write(&folder.path().join(name)).unwrap());
        folder
    }

    #[test]
    fn the_newest_record_is_taken() {
        let names = ["20261120T000000Z-b", "20261121T000000Z-a"];
        let folder = written(&timed(US), &names);
        std::fs::create_dir(folder.path().join("29991121T000000Z-not-a-record")).unwrap();
        assert_eq!(newest(folder.path()).unwrap(), folder.path().join(names[1]));
        let missing = newest(&folder.path().join("nowhere"))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("run `compare` first"), "{missing}");
    }

    #[test]
    fn a_record_of_this_build_and_gpu_is_opened() {
        // The second stage is slower than the first, and claims to be faster.
        let folder = written(&timed([32.0, 20.0, 25.0]), &["a"]);
        let target = Target {
            run: Some(folder.path().join("a")),
        };
        let opened = OpenRun {
            root: Some(folder.path().into()),
            ..OpenRun::open(&target, &ladder()).unwrap()
        };
        opened.of_gpu(GPU).unwrap();
        let other = opened.of_gpu("NVIDIA L4").unwrap_err().to_string();
        assert!(
            other.contains("measured on NVIDIA H200, and this is NVIDIA L4"),
            "{other}"
        );
        let of_speed = opened
            .conclude(Section::Sanitizer, Claim::is_of_speed)
            .unwrap();
        assert!(
            of_speed.broken[0].starts_with("FAIL stage1-cpasync: cpasync >= 1.10x over "),
            "{:?}",
            of_speed.broken
        );
        assert!(!of_speed.is_undecided);
        let of_counters = opened.conclude(Section::Sanitizer, |claim| !claim.is_of_speed());
        assert_eq!(of_counters.unwrap().broken, [""; 0]);
        assert!(of_speed.text.contains("run: "), "{}", of_speed.text);
        let written = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(written("a/COMPARE.md").starts_with("# COMPARE"));
        assert_eq!(written("a/COMPARE.md"), written("COMPARE.md"));
        let slow_run = OpenRun {
            run: timed([30.0, 20.0, 15.0]),
            ..opened
        };
        let undecided = slow_run.conclude(Section::Sanitizer, |_| true);
        assert!(undecided.unwrap().is_undecided);
    }

    #[test]
    fn what_another_version_of_a_tool_found_goes() {
        let mut open_run = OpenRun {
            folder: PathBuf::new(),
            run: timed(US),
            root: None,
        };
        let mut counts = Vec::new();
        for version in ["ncu 1", "ncu 1", "ncu 2"] {
            open_run.set_tools(Source::Ncu, vec![version.into()]);
            counts.push(open_run.run.table.rows_by(Source::Ncu).count());
            let measured = row("scalar | mission f16 full | ncu | profiled_ns 5");
            open_run.run.append(measured);
        }
        assert_eq!(counts, [0, 1, 0]);
    }

    fn refused(run: &Run) -> String {
        check_current(run).unwrap_err().to_string()
    }

    /// Returns a run in which these variants fail C2.
    fn with_red(variants: &[&str]) -> Run {
        variants.iter().fold(timed(US), |run, variant| {
            run.with_gate(variant, ON_GPU, GateId::C2, Verdict::Fail)
        })
    }

    #[test]
    fn a_record_of_other_kernels_is_refused() {
        let changed = refused(&timed(US).with_later_identity(1, "another"));
        assert!(
            changed.contains("other versions of stage1-cpasync; run `compare` again"),
            "{changed}"
        );
    }

    #[test]
    fn a_record_with_one_green_variant_is_opened() {
        assert!(check_current(&with_red(&[SCALAR, WMMA])).is_ok());
    }

    #[test]
    fn a_record_without_a_green_variant_is_refused() {
        let red = refused(&with_red(&[SCALAR, WMMA, CPASYNC]));
        assert!(red.contains("no variant that passes"), "{red}");
    }

    #[test]
    fn a_record_that_is_nowhere_is_refused() {
        let nowhere = Target {
            run: Some("no/such".into()),
        };
        let missing = OpenRun::open(&nowhere, &ladder()).unwrap_err();
        assert!(missing.to_string().contains("with --run DIR"), "{missing}");
    }
}
