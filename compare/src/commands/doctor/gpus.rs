//! What each GPU of the machine can be used for.

use crate::judge::list::{count, grouped, joined};
use crate::table::StageMeta;

/// A GPU, and the ladder as limited to what it can run.
#[derive(Clone, Debug)]
pub struct GpuStages {
    /// `NVIDIA L4 (sm_89, 58 SMs, driver 580.65.06)`
    pub gpu: String,
    pub stages: Vec<StageMeta>,
    /// Why no stage has code for it, if none has.
    pub without_code: Option<String>,
}

impl GpuStages {
    /// Returns how many stages have a variant that runs.
    pub fn running(&self) -> usize {
        match self.without_code {
            Some(_) => 0,
            None => self
                .stages
                .iter()
                .filter(|stage| has_variants(stage))
                .count(),
        }
    }

    /// Returns a line of what runs, and one for each reason why others do not.
    pub fn lines(&self) -> Vec<String> {
        if let Some(why) = &self.without_code {
            return vec![format!("runs: nothing; {why}")];
        }
        let (runs, not): (Vec<&StageMeta>, Vec<&StageMeta>) =
            self.stages.iter().partition(|stage| has_variants(stage));
        let refused = not
            .into_iter()
            .map(|stage| (needs(stage), stage.id.as_str()));
        let refused = grouped(refused)
            .into_iter()
            .map(|(why, stages)| format!("does not run: {}, because {why}", joined(stages, ", ")));
        [format!(
            "runs: {}",
            joined(runs.into_iter().map(share), ", ")
        )]
        .into_iter()
        .chain(refused)
        .collect()
    }
}

fn has_variants(stage: &StageMeta) -> bool {
    !stage.variants.is_empty()
}

/// `stage5-swizzle (9 of 12 variants)`, or the stage alone if all run.
fn share(stage: &StageMeta) -> String {
    let refused = stage.refused.iter().map(|(variant, _)| variant);
    let lacking = refused.filter(|name| stage.variant(name).is_none()).count();
    match (stage.variants.len(), lacking) {
        (_, 0) => stage.id.clone(),
        (runs, lacking) => format!("{} ({runs} of {} variants)", stage.id, runs + lacking),
    }
}

/// What every variant of a stage lacks: that of the first.
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
    let rest = match missing {
        0 => String::new(),
        missing => format!(
            "; {} above",
            count(missing, "thing is missing", "things are missing")
        ),
    };
    let Some(first) = gpus.first() else {
        return format!(
            "GO without a GPU: all {all} stages run in the emulator, and nothing is timed{rest}"
        );
    };
    let (running, gpu) = (first.running(), &first.gpu);
    match running {
        0 => format!(
            "NO-GO on {gpu}: no stage runs there; `--backend emulated` checks all {all} without it{rest}"
        ),
        running if running < all => format!(
            "GO in part: {running} of {all} stages run on {gpu}; `--backend emulated` checks the others{rest}"
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
    let may = effective.is_none_or(|mask| mask >> CAP_SYS_ADMIN & 1 == 1);
    (is_restricted && !may).then(|| {
        "this user may not read the GPU's counters (RmProfilingAdminOnly is 1)".to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::Ladder;

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
        assert!(lines[0].contains("stage13-shares"), "{lines:#?}");
    }

    #[test]
    fn an_l4_runs_the_stages_without_hoppers_instructions() {
        let gpu = place("sm_89");
        assert_eq!(gpu.running(), 6);
        let [runs, not] = &gpu.lines()[..] else {
            panic!("{:#?}", gpu.lines());
        };
        let says = "runs: stage0-scalar, stage1-cpasync (1 of 2 variants), ";
        assert!(runs.starts_with(says), "{runs}");
        assert!(runs.ends_with(", stage5-swizzle"), "{runs}");
        let says = "does not run: stage6-tma, stage7-wgmma, ";
        let why = ", because it needs sm_90a; the device has sm_89";
        assert!(not.starts_with(says) && not.ends_with(why), "{not}");
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
    fn the_verdict_is_one_line() {
        let l4 = [place("sm_89")];
        let hopper = [place("sm_90")];
        let unbuilt = [GpuStages {
            without_code: Some("no GPU code".into()),
            ..place("sm_90")
        }];
        for (unfit, gpus, missing, expected) in [
            (
                Some("memory: too little"),
                &hopper[..],
                0,
                "NO-GO: memory: too little",
            ),
            (
                None,
                &[],
                2,
                "GO without a GPU: all 14 stages run in the emulator, and nothing is timed; 2 things are missing above",
            ),
            (None, &hopper, 0, "GO: all 14 stages run on a GPU of sm_90"),
            (
                None,
                &l4,
                1,
                "GO in part: 6 of 14 stages run on a GPU of sm_89; `--backend emulated` checks the others; \
                 1 thing is missing above",
            ),
            (
                None,
                &unbuilt,
                0,
                "NO-GO on a GPU of sm_90: no stage runs there; `--backend emulated` checks all 14 without it",
            ),
        ] {
            assert_eq!(verdict(unfit, gpus, 14, missing), expected);
        }
    }

    #[test]
    fn counters_are_refused_to_a_user_where_the_driver_restricts_them() {
        let (root, user) = ("CapEff:\t000001ffffffffff\n", "CapEff:\t0000000000000000\n");
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
