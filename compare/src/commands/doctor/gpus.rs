//! The use of each GPU of the machine.

use results::judge::list::{Grouped, count, grouped};
use results::table::StageMeta;

/// A GPU, and the ladder as limited to what it can run.
#[derive(Clone, Debug)]
pub struct GpuStages {
    /// The GPU with its facts: `NVIDIA L4 (sm_89, 58 SMs, driver 580.65.06)`.
    pub gpu: String,
    pub stages: Vec<StageMeta>,
    /// The reason why no stage has code for it, if none has.
    pub without_code: Option<String>,
}

impl GpuStages {
    /// Returns how many stages have a variant that runs.
    pub fn running(&self) -> usize {
        if self.without_code.is_some() {
            return 0;
        }
        let running = self.stages.iter().filter(|stage| has_variants(stage));
        running.count()
    }

    /// Returns a line on what runs, and one for each reason why others do not.
    pub fn lines(&self) -> Vec<String> {
        if let Some(why) = &self.without_code {
            return vec![format!("runs: nothing; {why}")];
        }
        let mut running = Vec::new();
        let mut refused = Vec::new();
        for stage in &self.stages {
            if has_variants(stage) {
                running.push(with_share(stage));
            } else {
                refused.push((needs(stage), stage.id.as_str()));
            }
        }
        let mut lines = vec![format!("runs: {}", running.join(", "))];
        for Grouped { key: why, values } in grouped(refused) {
            let names = values.join(", ");
            lines.push(format!("does not run: {names}, because {why}"));
        }
        lines
    }
}

fn has_variants(stage: &StageMeta) -> bool {
    !stage.variants.is_empty()
}

/// Returns `stage5-swizzle (9 of 12 variants)`, or the stage alone if all run.
fn with_share(stage: &StageMeta) -> String {
    let running = stage.variants.len();
    let lacking = stage
        .refused
        .iter()
        .filter(|(variant, _)| stage.variant(variant).is_none())
        .count();
    if lacking == 0 {
        return stage.id.clone();
    }
    format!("{} ({running} of {} variants)", stage.id, running + lacking)
}

/// Returns what every variant of a stage lacks: what the first lacks.
fn needs(stage: &StageMeta) -> String {
    let Some((_, why)) = stage.refused.first() else {
        return "it has no variant".to_string();
    };
    // Of the kernel's element types and head sizes one stands for all.
    let (kernels, device) = why.split_once("; ").unwrap_or((why, ""));
    let first = kernels.split(", ").next().unwrap_or(kernels);
    let (_, needed) = first.split_once(" needs ").unwrap_or(("", first));
    format!("it needs {needed}; {device}")
}

/// Returns in one line whether the machine is ready, and for what. `unfit` is why nothing may be
/// started at all.
pub fn verdict(unfit: Option<&str>, gpus: &[GpuStages], all: usize, missing: usize) -> String {
    if let Some(why) = unfit {
        return format!("NO-GO: {why}");
    }
    let rest = if missing == 0 {
        String::new()
    } else {
        let things = count(missing, "thing is missing", "things are missing");
        format!("; {things} above")
    };
    let Some(first) = gpus.first() else {
        return format!(
            "GO without a GPU: all {all} stages run in the emulator, and nothing is timed{rest}"
        );
    };
    let gpu = &first.gpu;
    match first.running() {
        0 => format!(
            "NO-GO on {gpu}: no stage runs there; \
             `--backend emulated` checks all {all} without it{rest}"
        ),
        running if running < all => format!(
            "GO in part: {running} of {all} stages run on {gpu}; \
             `--backend emulated` checks the others{rest}"
        ),
        _ => format!("GO: all {all} stages run on {gpu}{rest}"),
    }
}

/// The capability by which Linux lets a process read the counters of a GPU that is restricted.
const CAP_SYS_ADMIN: u32 = 21;

/// Returns why this process may not read a GPU's counters, from the driver's parameters and the
/// process's status; `None` where it may, or nobody says.
pub fn counters_refused(parameters: &str, status: &str) -> Option<String> {
    let is_restricted = parameters
        .lines()
        .any(|line| line.replace(' ', "") == "RmProfilingAdminOnly:1");
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_allowed = effective.is_none_or(|mask| mask >> CAP_SYS_ADMIN & 1 == 1);
    (is_restricted && !is_allowed).then(|| {
        "this user may not read the GPU's counters (RmProfilingAdminOnly is 1)".to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stages::Ladder;

    fn place(device: &str) -> GpuStages {
        let mut ladder = Ladder::without_gpu("as if there were none").unwrap();
        ladder.limit(device.parse().ok()).unwrap();
        GpuStages {
            gpu: format!("a GPU of {device}"),
            stages: ladder.builds().unwrap(),
            without_code: None,
        }
    }

    #[test]
    fn a_hopper_runs_every_stage() {
        let gpu = place("sm_90");
        assert_eq!(gpu.running(), gpu.stages.len());
        let lines = gpu.lines();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].starts_with("runs: stage0-scalar, "), "{lines:#?}");
        assert!(lines[0].contains("stage13-persistent"), "{lines:#?}");
    }

    #[test]
    fn an_l4_runs_the_stages_without_hoppers_instructions() {
        let gpu = place("sm_89");
        assert_eq!(gpu.running(), 6);
        let [running, refused] = &gpu.lines()[..] else {
            panic!("{:#?}", gpu.lines());
        };
        let first_running = "runs: stage0-scalar, stage1-cpasync (1 of 2 variants), ";
        assert!(running.starts_with(first_running), "{running}");
        assert!(running.ends_with(", stage5-swizzle"), "{running}");
        let first_refused = "does not run: stage6-tma, stage7-wgmma, ";
        assert!(refused.starts_with(first_refused), "{refused}");
        let why = ", because it needs sm_90a; the device has sm_89";
        assert!(refused.ends_with(why), "{refused}");
    }

    #[test]
    fn a_gpu_that_nothing_was_built_for_runs_nothing() {
        let gpu = GpuStages {
            without_code: Some("stage0-scalar was built without GPU code".into()),
            ..place("sm_90")
        };
        assert_eq!(gpu.running(), 0);
        let line = "runs: nothing; stage0-scalar was built without GPU code";
        assert_eq!(gpu.lines(), [line]);
    }

    #[test]
    fn a_machine_that_is_unfit_is_no_go() {
        assert_eq!(
            verdict(Some("memory: too little"), &[place("sm_90")], 14, 0),
            "NO-GO: memory: too little"
        );
    }

    #[test]
    fn a_machine_without_a_gpu_runs_the_emulator() {
        assert_eq!(
            verdict(None, &[], 14, 2),
            "GO without a GPU: all 14 stages run in the emulator, and nothing is timed; \
             2 things are missing above"
        );
    }

    #[test]
    fn a_gpu_that_runs_every_stage_is_a_go() {
        assert_eq!(
            verdict(None, &[place("sm_90")], 14, 0),
            "GO: all 14 stages run on a GPU of sm_90"
        );
    }

    #[test]
    fn a_gpu_that_runs_some_stages_is_a_go_in_part() {
        assert_eq!(
            verdict(None, &[place("sm_89")], 14, 1),
            "GO in part: 6 of 14 stages run on a GPU of sm_89; \
             `--backend emulated` checks the others; 1 thing is missing above"
        );
    }

    #[test]
    fn a_gpu_that_runs_no_stage_is_no_go() {
        let unbuilt = GpuStages {
            without_code: Some("no GPU code".into()),
            ..place("sm_90")
        };
        assert_eq!(
            verdict(None, &[unbuilt], 14, 0),
            "NO-GO on a GPU of sm_90: no stage runs there; \
             `--backend emulated` checks all 14 without it"
        );
    }

    #[test]
    fn counters_are_refused_to_a_user_where_the_driver_restricts_them() {
        let root = "CapEff:\t000001ffffffffff\n";
        let user = "CapEff:\t0000000000000000\n";
        // Root in a container without the capability.
        let container = "CapEff:\t00000000a80425fb\n";
        let restricted = "EnableMSI: 1\nRmProfilingAdminOnly: 1\n";
        for (parameters, status, is_refused) in [
            (restricted, root, false),
            (restricted, user, true),
            (restricted, container, true),
            ("RmProfilingAdminOnly: 0\n", user, false),
            ("", user, false),
            (restricted, "", false),
        ] {
            let refused = counters_refused(parameters, status);
            assert_eq!(refused.is_some(), is_refused, "{parameters}{status}");
        }
    }
}
