//! From a record of version 1, as this program still measures it, to rows.

use crate::measure::rows;
use crate::record::{Meta, Negative, On, Place, Record, Refuted, Row, Source, Subject};
use common::check::Outcome;
use common::metric::Metric;
use common::problem::Dtype;
use common::record::{Ceilings, PeerOutcome, Planted, Samples};
use common::suppression::Synchronisation;
use common::timing::Comparison;
use common::verdict::{GateId, GateResult};
use std::collections::BTreeMap;

/// The rows of a record of version 1.
pub fn record(old: &common::record::Record) -> Record {
    let mut record = Record::new(meta(old));
    let mut rows: Vec<Row> = old.meta.stages.iter().flat_map(rows::built).collect();
    correctness(old, &mut record, &mut rows);
    rows.extend(performance(old));
    for counters in &old.evidence.counters {
        let subject = Subject::variant(&counters.stage, &counters.variant);
        let counted = Dtype::ALL.into_iter().filter_map(|dtype| Some((dtype, counters.with(dtype)?)));
        rows.extend(counted.map(|(dtype, counting)| rows::counters(subject.clone(), dtype, counting)));
    }
    for found in &old.evidence.rows {
        let mut row = Row::new(Subject::variant(&found.stage, &found.variant), On::All, Source::Input);
        row = row.verdict(&found.result).note(&*found.value);
        match rows.iter_mut().find(|other| other.key() == row.key()) {
            Some(other) => row.verdicts.into_iter().for_each(|(gate, judged)| other.judge(gate, judged)),
            None => rows.push(row),
        }
    }
    for launch in old.profile.iter().flat_map(|profile| &profile.launches) {
        let subject = Subject::variant(&launch.stage, &launch.variant);
        let place = Place::new(&launch.shape_name, launch.dtype, launch.mask);
        rows.push(rows::profiled(subject, place, &launch.metrics));
    }
    let mut sanitized: BTreeMap<Subject, Vec<&common::record::SanitizerCheck>> = BTreeMap::new();
    for check in old.sanitizer.iter().flat_map(|sanitizer| &sanitizer.checks) {
        sanitized.entry(Subject::variant(&check.stage, &check.variant)).or_default().push(check);
    }
    for (subject, checks) in sanitized {
        let tools: Vec<(&str, &GateResult)> = checks.iter().map(|check| (check.tool.as_str(), &check.result)).collect();
        rows.push(rows::sanitized(subject, &tools, checks.iter().map(|check| check.launches).sum()));
    }
    rows.extend(peers(old));
    rows.into_iter().for_each(|row| record.append(row));
    record
}

fn meta(old: &common::record::Record) -> Meta {
    let from = old.meta.clone();
    let mut tools = BTreeMap::new();
    let mut methods = BTreeMap::new();
    if let Some(performance) = &old.performance {
        methods.insert(Source::Gpu, performance.method.clone());
    }
    if let Some(profile) = &old.profile {
        tools.insert(Source::Ncu, vec![profile.tool.clone()]);
        methods.insert(Source::Ncu, profile.method.clone());
    }
    if let Some(sanitizer) = &old.sanitizer {
        tools.insert(Source::ComputeSanitizer, vec![sanitizer.tool.clone()]);
        let (problems, blind) = (sanitizer.problems.join(", "), sanitizer.blind_spots.join("; "));
        methods.insert(Source::ComputeSanitizer, format!("launched on {problems}. Not seen: {blind}"));
    }
    if let Some(peers) = &old.peers {
        tools.insert(Source::Peers, peers.software.iter().map(|(name, version)| format!("{name} {version}")).collect());
        methods.insert(Source::Peers, peers.method.clone());
    }
    let cases = old.correctness.cases.iter().map(|case| rows::shape(&case.key));
    let timed = old.performance.iter().flat_map(|performance| &performance.timings);
    let timed = timed.map(|timing| (timing.shape_name.clone(), timing.shape));
    let beside = old.peers.iter().flat_map(|peers| &peers.problems);
    let beside = beside.map(|problem| (problem.shape_name.clone(), problem.shape));
    let is_name = |(name, shape): &(String, common::problem::Shape)| *name != shape.to_string();
    let negative = old.negative.as_ref().map(|negative| Negative {
        reason: negative.reason.clone(),
        claims: negative
            .claims
            .iter()
            .map(|claim| Refuted {
                stage: claim.stage.clone(),
                claim: claim.what.clone(),
                evidence: claim.evidence.clone(),
            })
            .collect(),
    });
    Meta {
        schema: crate::record::store::SCHEMA,
        started: from.started,
        progress: from.progress,
        tool_version: from.tool_version,
        command: from.command,
        git: from.git,
        machine: from.machine,
        tier: from.tier,
        backend: from.backend,
        scope: from.scope,
        device: from.device,
        toggles: from.toggles,
        source_lines: from.source_lines,
        gates: from.gates,
        tools,
        methods,
        left_out: old.performance.as_ref().map(|performance| performance.scopes.clone()).unwrap_or_default(),
        shapes: cases.chain(timed).chain(beside).chain([rows::claims_shape()]).filter(is_name).collect(),
        stages: from.stages.iter().map(rows::stage).collect(),
        negative,
    }
}

fn correctness(old: &common::record::Record, record: &mut Record, rows: &mut Vec<Row>) {
    let backend = old.meta.backend;
    let mut by_variant: BTreeMap<(&str, &str), Vec<&common::check::CaseResult>> = BTreeMap::new();
    for case in &old.correctness.cases {
        by_variant.entry((&case.key.stage, &case.key.variant)).or_default().push(case);
        let row = rows::case(case);
        let is_whole = case.is_green() && matches!(case.outcome, Outcome::Checked { .. });
        if is_whole || matches!(case.outcome, Outcome::Unsupported { .. }) {
            record.cases.push(row);
        } else {
            rows.push(row);
        }
    }
    for summary in &old.correctness.variants {
        let cases = by_variant.get(&(&*summary.stage, &*summary.variant)).map_or(&[][..], Vec::as_slice);
        rows.push(rows::summary(summary, backend, cases));
    }
    if let Planted::Tried { subjects } = &old.correctness.planted {
        rows.extend(subjects.iter().map(rows::planted));
    }
    if let Synchronisation::Tried { suppressed, .. } = &old.correctness.synchronisation {
        rows.extend(suppressed.sites.iter().map(rows::site));
        for (at, error) in suppressed.errors.iter().enumerate() {
            let on = On::Named(format!("error {}", at + 1));
            rows.push(Row::new("self-test", on, Source::SelfTest).verdict(&GateResult::judge(
                GateId::S1,
                false,
                &**error,
            )));
        }
    }
}

fn performance(old: &common::record::Record) -> Vec<Row> {
    let Some(performance) = &old.performance else { return Vec::new() };
    let mut rows = Vec::new();
    for timing in &performance.timings {
        let subject = Subject::variant(&timing.stage, &timing.variant);
        let place = Place::new(&timing.shape_name, timing.dtype, timing.mask);
        rows.push(rows::timing(subject, place, &timing.measurement, &timing.after));
        debug_assert!(timing.samples == Samples::Omitted || !timing.measurement.device_us.is_empty());
    }
    for claim in &performance.claims {
        let place = Place::claims(claim.terms.dtype);
        let new = || Subject::variant(&claim.stage, &claim.variant);
        let base = Subject::variant(&claim.terms.base_stage, &claim.base_variant);
        rows.push(impossible(
            rows::pair(new(), base, place.clone(), Source::Gpu, &claim.comparison, None),
            &claim.result,
        ));
        if let Some(same) = &claim.same_preset {
            let name = format!("{}-{}", claim.terms.base_family, same.preset);
            let base = Subject::variant(&claim.terms.base_stage, &name);
            rows.push(rows::pair(new(), base, place, Source::Gpu, &same.comparison, None));
        }
    }
    rows
}

/// A time below the floor fails whatever is claimed.
fn impossible(row: Row, result: &GateResult) -> Row {
    if result.reason.starts_with("impossible") { row.verdict(result) } else { row }
}

fn peers(old: &common::record::Record) -> Vec<Row> {
    let Some(peers) = &old.peers else { return Vec::new() };
    let mut rows = Vec::new();
    if let Ceilings::Measured { matrix_flops, copy_bytes } = peers.ceilings {
        let row = Row::new("ceiling", On::All, Source::Peers);
        rows.push(row.figure(Metric::MatrixFlops, matrix_flops).figure(Metric::CopyBytesPerSecond, copy_bytes));
    }
    for problem in &peers.problems {
        let place = || Place::new(&problem.shape_name, problem.dtype, problem.mask);
        let cache = problem.rotation.state.label();
        let ours = |stage: &str, variant: &str| Subject::variant(stage, variant);
        for arm in &problem.ours {
            rows.push(rows::peer_arm(ours(&arm.stage, &arm.variant), place(), &arm.figures, cache));
        }
        for arm in &problem.peers {
            let arm_name = arm.peer.clone();
            match &arm.outcome {
                PeerOutcome::NoData { reason } => {
                    rows.push(Row::new(&*arm.peer, On::Problem(place()), Source::Peers).note(reason));
                }
                PeerOutcome::Timed { figures, over } => {
                    rows.push(rows::peer_arm(&*arm.peer, place(), figures, cache));
                    for over in over {
                        let of_arm =
                            |arm: &&common::record::OurArm| (&arm.stage, &arm.variant) == (&over.stage, &over.variant);
                        let Some(arm) = problem.ours.iter().find(of_arm) else { continue };
                        let comparison =
                            Comparison { base: figures.device, new: arm.figures.device, ratios: over.ratios };
                        let new = ours(&over.stage, &over.variant);
                        let peer = Subject::from(&*arm_name);
                        rows.push(rows::pair(new, peer, place(), Source::Peers, &comparison, None));
                    }
                }
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn committed_records_are_small_as_rows_and_read_back() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        for (name, old) in common::record::store::read_all(&results).unwrap() {
            let record = record(&old);
            let folder = std::env::temp_dir().join(format!("rows-{}", std::process::id())).join(&name);
            record.write(&folder).unwrap();
            assert_eq!(Record::read(&folder).unwrap().rows.len(), record.rows.len());
            for file in ["meta.json", "rows.jsonl"] {
                println!("{} {}", folder.join(file).display(), std::fs::metadata(folder.join(file)).unwrap().len());
            }
        }
    }

    #[test]
    fn the_committed_records_say_as_rows_what_they_say_now() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        let old = common::record::store::read_all(&results).unwrap();
        let stages = &old.last().unwrap().1.meta.stages;
        let before = crate::comparison::report(stages, None, &old);
        let rows: Vec<(String, Record)> = old.iter().map(|(name, old)| (name.clone(), record(old))).collect();
        let metas: Vec<_> = stages.iter().map(rows::stage).collect();
        let known = crate::judge::Known { stages: &metas, run: None, committed: &rows };
        let after = crate::judge::verdict::report(known);
        println!("{}\n{}", before.overall, after.overall);
        for (row, (subject, state)) in before.rows.iter().zip(&after.states) {
            println!("{}/{} {:?} | {subject} {state:?}", row.stage, row.variant, row.state);
        }
        let titles = before.claims.iter().map(|c| (c.title(), crate::render::markdown::claim_state(&c.state)));
        let titles = titles.chain(before.peer_claims.iter().map(|c| (c.title(), crate::render::markdown::claim_state(&c.state))));
        let titles = titles.chain(before.evidence_claims.iter().map(|c| (c.title(), crate::render::markdown::claim_state(&c.state))));
        for ((title, (verdict, words)), claimed) in titles.zip(&after.claims) {
            let now = serde_json::to_value(&claimed.status).unwrap();
            println!("{title} {verdict} {words}\n   {} {now}", claimed.title());
        }
        let since = after.since.unwrap();
        println!("{} {}", since.name, since.overall);
        println!("{} changes before", before.changes.len());
    }
}
