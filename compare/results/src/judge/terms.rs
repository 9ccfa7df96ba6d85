//! What stages promise and are let off: claims, refutations, sites that no gate needs, and caps. A
//! reviewer reads beside the figures which of these a change has eased.

use crate::table::session::{Claim, Negative, Relation, StageMeta};
use common::resources::Caps;
use common::stage::Redundant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The terms of all stages, in the order of the ladder. A program prints them as JSON, so that
/// another one can compare its own with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    pub stages: Vec<StageTerms>,
}

/// The terms of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTerms {
    pub id: String,
    pub claims: Vec<ClaimTerms>,
    pub negatives: Vec<Negative>,
    pub waivers: Vec<Waiver>,
    /// The caps of instances, by symbol.
    pub caps: BTreeMap<String, Cap>,
}

/// A claim, and the bounds that it sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimTerms {
    /// The name that identifies it in its stage, whatever it promises.
    pub id: String,
    /// The promise: `>= 1.05x over stage0-scalar wmma-qk`.
    pub prediction: String,
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
}

/// A synchronisation site that no gate needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiver {
    pub family: String,
    pub site: String,
    pub reason: String,
}

/// The most registers of a thread, and bytes of shared memory of a block, of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cap {
    pub registers: u32,
    pub shared_bytes: usize,
}

impl StageTerms {
    /// Returns the terms of a stage as it is built, with its waivers and caps.
    pub fn new(stage: &StageMeta, waivers: &[Redundant], caps: &BTreeMap<&str, Caps>) -> Self {
        Self {
            id: stage.id.clone(),
            claims: stage.claims.iter().map(ClaimTerms::new).collect(),
            negatives: stage.negatives.clone(),
            waivers: waivers.iter().map(Waiver::new).collect(),
            caps: caps
                .iter()
                .map(|(symbol, cap)| (symbol.to_string(), Cap::new(*cap)))
                .collect(),
        }
    }
}

impl ClaimTerms {
    fn new(claim: &Claim) -> Self {
        let (at_least, at_most) = match claim.relation {
            Relation::Faster { at_least, .. } | Relation::FasterThanPeer { at_least, .. } => {
                (Some(at_least), None)
            }
            Relation::Ratio {
                at_least, at_most, ..
            } => (Some(at_least), Some(at_most)),
            Relation::AtLeast { bound } => (Some(bound), None),
            Relation::AtMost { bound } => (None, Some(bound)),
        };
        Self {
            id: claim.id(),
            prediction: claim.prediction(),
            at_least,
            at_most,
        }
    }

    /// Returns whether it asks for less than `before`.
    fn asks_for_less(&self, before: &Self) -> bool {
        let is_lower = before
            .at_least
            .is_some_and(|bound| self.at_least.is_none_or(|now| now < bound));
        let is_higher = before
            .at_most
            .is_some_and(|bound| self.at_most.is_none_or(|now| now > bound));
        is_lower || is_higher
    }
}

impl Waiver {
    fn new(redundant: &Redundant) -> Self {
        Self {
            family: redundant.family.into(),
            site: redundant.site.into(),
            reason: redundant.reason.into(),
        }
    }
}

impl Cap {
    fn new(caps: Caps) -> Self {
        Self {
            registers: caps.register_cap,
            shared_bytes: caps.shared_cap_bytes,
        }
    }
}

/// The kind of what was eased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Eased {
    /// A claim is on record as refuted that was not before.
    Negative,
    /// A synchronisation site needs no gate any more.
    Waiver,
    /// A claim asks for less, or is gone.
    Claim,
    /// An instance may take more registers or shared memory.
    Cap,
}

/// A term that a change has eased.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Concession {
    pub stage: String,
    pub kind: Eased,
    /// The claim, the site or the instance.
    pub what: String,
    /// The bounds before and now.
    pub change: String,
    /// The reason that the stage gives, of a refutation or waiver.
    pub why: Option<String>,
}

/// Returns what `new` eases of the terms of `base`. A new stage eases nothing but what it is let off
/// at once.
pub fn concessions(base: &Terms, new: &Terms) -> Vec<Concession> {
    let nothing = StageTerms::default();
    let mut found = Vec::new();
    for stage in &new.stages {
        let before = base
            .stages
            .iter()
            .find(|other| other.id == stage.id)
            .unwrap_or(&nothing);
        found.extend(new_negatives(before, stage));
        found.extend(new_waivers(before, stage));
        found.extend(lower_claims(before, stage));
        found.extend(raised_caps(before, stage));
    }
    found
}

fn new_negatives(before: &StageTerms, stage: &StageTerms) -> Vec<Concession> {
    let is_known = |negative: &Negative| {
        before
            .negatives
            .iter()
            .any(|other| (&other.claim, &other.gpu) == (&negative.claim, &negative.gpu))
    };
    stage
        .negatives
        .iter()
        .filter(|negative| !is_known(negative))
        .map(|negative| Concession {
            stage: stage.id.clone(),
            kind: Eased::Negative,
            what: match &negative.gpu {
                Some(gpu) => format!("{}, {gpu}", negative.claim),
                None => negative.claim.clone(),
            },
            change: "refuted".into(),
            why: Some(negative.why.clone()),
        })
        .collect()
}

fn new_waivers(before: &StageTerms, stage: &StageTerms) -> Vec<Concession> {
    stage
        .waivers
        .iter()
        .filter(|waiver| {
            !before
                .waivers
                .iter()
                .any(|other| (&other.family, &other.site) == (&waiver.family, &waiver.site))
        })
        .map(|waiver| Concession {
            stage: stage.id.clone(),
            kind: Eased::Waiver,
            what: format!("{}: {}", waiver.family, waiver.site),
            change: "no gate needs it".into(),
            why: Some(waiver.reason.clone()),
        })
        .collect()
}

fn lower_claims(before: &StageTerms, stage: &StageTerms) -> Vec<Concession> {
    let mut found = Vec::new();
    for old in &before.claims {
        // A stage may claim a little of many problems, and more of one of them under the same id.
        let claims = stage.claims.iter().filter(|claim| claim.id == old.id);
        let most = claims.reduce(|most, claim| {
            if most.asks_for_less(claim) {
                claim
            } else {
                most
            }
        });
        let change = match most {
            Some(now) if !now.asks_for_less(old) => continue,
            Some(now) => format!("{} → {}", old.prediction, now.prediction),
            None => format!("{} → gone", old.prediction),
        };
        found.push(Concession {
            stage: stage.id.clone(),
            kind: Eased::Claim,
            what: old.id.clone(),
            change,
            why: None,
        });
    }
    found
}

fn raised_caps(before: &StageTerms, stage: &StageTerms) -> Vec<Concession> {
    let mut found = Vec::new();
    for (symbol, cap) in &stage.caps {
        let Some(old) = before.caps.get(symbol) else {
            continue;
        };
        let mut parts = Vec::new();
        if cap.registers > old.registers {
            parts.push(format!("registers {} → {}", old.registers, cap.registers));
        }
        if cap.shared_bytes > old.shared_bytes {
            parts.push(format!(
                "shared bytes {} → {}",
                old.shared_bytes, cap.shared_bytes
            ));
        }
        if !parts.is_empty() {
            found.push(Concession {
                stage: stage.id.clone(),
                kind: Eased::Cap,
                what: symbol.clone(),
                change: parts.join(", "),
                why: None,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(at_least: Option<f64>, at_most: Option<f64>) -> ClaimTerms {
        ClaimTerms {
            id: "wmma p50 over stage0".into(),
            prediction: format!("{at_least:?} to {at_most:?}"),
            at_least,
            at_most,
        }
    }

    fn stage() -> StageTerms {
        StageTerms {
            id: "stage1-cpasync".into(),
            claims: vec![claim(Some(1.1), None)],
            negatives: vec![negative(None)],
            waivers: vec![waiver("__syncwarp")],
            caps: BTreeMap::from([("kernel_f16_d64".into(), cap(96, 1024))]),
        }
    }

    fn negative(gpu: Option<&str>) -> Negative {
        Negative {
            claim: "wmma p50 over stage0".into(),
            gpu: gpu.map(String::from),
            measured: "1.04x".into(),
            why: "memory bounds it".into(),
        }
    }

    fn waiver(site: &str) -> Waiver {
        Waiver {
            family: "wmma".into(),
            site: site.into(),
            reason: "the next barrier orders it".into(),
        }
    }

    fn cap(registers: u32, shared_bytes: usize) -> Cap {
        Cap {
            registers,
            shared_bytes,
        }
    }

    /// Returns what an edit of the stage eases.
    fn eased(edit: impl FnOnce(&mut StageTerms)) -> Vec<Concession> {
        let base = Terms {
            stages: vec![stage()],
        };
        let mut new = base.clone();
        edit(&mut new.stages[0]);
        concessions(&base, &new)
    }

    /// Checks that an edit eases one thing.
    #[track_caller]
    fn assert_eases(kind: Eased, what: &str, change: &str, edit: impl FnOnce(&mut StageTerms)) {
        let found = eased(edit);
        let [one] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((one.kind, &*one.what, &*one.change), (kind, what, change));
    }

    #[test]
    fn the_same_terms_ease_nothing() {
        assert_eq!(eased(|_| ()), []);
    }

    #[test]
    fn a_claim_refuted_on_another_gpu_is_a_new_negative() {
        let what = "wmma p50 over stage0, NVIDIA L4";
        assert_eases(Eased::Negative, what, "refuted", |stage| {
            stage.negatives.push(negative(Some("NVIDIA L4")));
        });
    }

    #[test]
    fn another_site_that_no_gate_needs_is_a_new_waiver() {
        let what = "wmma: mbarrier_wait";
        assert_eases(Eased::Waiver, what, "no gate needs it", |stage| {
            stage.waivers.push(waiver("mbarrier_wait"));
        });
    }

    #[test]
    fn a_lower_bound_that_falls_asks_for_less() {
        let change = "Some(1.1) to None → Some(1.05) to None";
        assert_eases(Eased::Claim, "wmma p50 over stage0", change, |stage| {
            stage.claims[0] = claim(Some(1.05), None);
        });
    }

    #[test]
    fn an_upper_bound_that_rises_asks_for_less() {
        let before = claim(None, Some(0.05));
        assert!(claim(None, Some(0.06)).asks_for_less(&before));
        assert!(!claim(None, Some(0.04)).asks_for_less(&before));
        assert!(claim(Some(0.0), None).asks_for_less(&before), "it has none");
    }

    #[test]
    fn a_claim_that_asks_for_more_eases_nothing() {
        assert_eq!(eased(|stage| stage.claims[0] = claim(Some(1.2), None)), []);
    }

    /// Gives the stage a second claim under the same id.
    fn claim_twice(mut stage: StageTerms, other: f64) -> StageTerms {
        stage.claims.push(claim(Some(other), None));
        stage
    }

    #[test]
    fn two_claims_of_one_id_that_stay_ease_nothing() {
        for (first, second) in [(1.3, 1.0), (1.0, 1.3)] {
            let mut both = claim_twice(stage(), second);
            both.claims[0] = claim(Some(first), None);
            assert_eq!(lower_claims(&both, &both), []);
        }
    }

    #[test]
    fn of_two_claims_of_one_id_the_higher_that_goes_is_named() {
        let both = claim_twice(stage(), 1.0);
        let mut lower = stage();
        lower.claims[0] = claim(Some(1.0), None);
        let [one] = &lower_claims(&both, &lower)[..] else {
            panic!("one of them asks for less");
        };
        assert_eq!(one.change, "Some(1.1) to None → Some(1.0) to None");
    }

    #[test]
    fn a_claim_that_falls_is_compared_with_the_highest_that_is_left() {
        let before = claim_twice(stage(), 1.0);
        let mut after = claim_twice(stage(), 1.0);
        after.claims[0] = claim(Some(1.05), None);
        let [one] = &lower_claims(&before, &after)[..] else {
            panic!("one of them asks for less");
        };
        assert_eq!(one.change, "Some(1.1) to None → Some(1.05) to None");
    }

    #[test]
    fn a_claim_that_is_gone_is_named() {
        let change = "Some(1.1) to None → gone";
        assert_eases(Eased::Claim, "wmma p50 over stage0", change, |stage| {
            stage.claims.clear();
        });
    }

    #[test]
    fn a_cap_that_rises_is_named_with_both_figures() {
        let change = "registers 96 → 104, shared bytes 1024 → 2048";
        assert_eases(Eased::Cap, "kernel_f16_d64", change, |stage| {
            stage.caps.insert("kernel_f16_d64".into(), cap(104, 2048));
        });
    }

    #[test]
    fn a_cap_that_falls_or_is_of_a_new_instance_eases_nothing() {
        let found = eased(|stage| {
            stage.caps.insert("kernel_f16_d64".into(), cap(88, 1024));
            stage.caps.insert("kernel_f16_d128".into(), cap(200, 1024));
        });
        assert_eq!(found, []);
    }

    #[test]
    fn a_new_stage_is_let_off_what_it_brings() {
        let new = Terms {
            stages: vec![stage()],
        };
        let found = concessions(&Terms::default(), &new);
        let kinds: Vec<Eased> = found.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [Eased::Negative, Eased::Waiver]);
    }

    #[test]
    fn terms_are_read_as_they_were_written() {
        let terms = Terms {
            stages: vec![stage()],
        };
        let text = serde_json::to_string(&terms).unwrap();
        assert_eq!(serde_json::from_str::<Terms>(&text).unwrap(), terms);
    }
}
