use super::*;
use crate::record::{On, Row, Source, Subject};
use crate::testing::{CPASYNC, GPU, SCALAR, US, VARIANTS, WMMA, mission, suppressed, timed};
use common::device::BackendKind;
use common::metric::Metric;
use common::verdict::{GateId, GateResult};
use tempfile::TempDir;

const NAME: &str = "20261120T183000Z-nvidia-h200";

/// A whole run on a GPU, completed by `compare sanitize`, as it lies in its folder: with passing cases and samples.
fn good() -> Record {
    with_cases(timed(US).clean())
}

fn with_cases(mut record: Record) -> Record {
    let place = mission().problem().unwrap().clone();
    let case = |seed: usize| {
        let on = On::Case(place.clone(), format!("normal:{seed}"));
        Row::new(VARIANTS[seed % 3], on, Source::Gpu).verdict(&GateResult::judge(
            GateId::C1,
            true,
            "fine",
        ))
    };
    record.cases = (0..10).map(case).collect();
    record
}

/// wmma-qk is 1.2x as fast as scalar; 1.5x are claimed.
fn with_failed_claim() -> Record {
    with_cases(timed([24.0, 20.0, 15.0]).clean())
}

/// Writes the record as a run would, and what it takes to accept it.
fn written(record: &Record) -> (TempDir, AcceptArgs) {
    let root = TempDir::new().unwrap();
    let folder = root.path().join("target").join(NAME);
    record.write(&folder).unwrap();
    let into = Some(root.path().join("results"));
    (
        root,
        AcceptArgs {
            record: folder,
            into,
            negative: None,
        },
    )
}

fn refused(record: &Record, negative: Option<&str>) -> String {
    let (_root, mut args) = written(record);
    args.negative = negative.map(str::to_string);
    let error = accept(&args).unwrap_err().to_string();
    let left = std::fs::read_dir(args.into.unwrap()).map_or(0, |entries| entries.count());
    assert_eq!(left, 0, "a refused record leaves nothing behind");
    error
}

fn taken(record: &Record) -> String {
    let (_root, args) = written(record);
    accept(&args).unwrap().text
}

#[test]
fn a_good_record_is_taken_without_passing_cases_and_samples() {
    let (_root, args) = written(&good());
    let text = accept(&args).unwrap().text;
    let kept = read_all(args.into.as_ref().unwrap()).unwrap();
    assert_eq!(kept.len(), 1);
    let (name, record) = &kept[0];
    assert_eq!(
        (name.as_str(), record.committed()),
        (NAME, good().committed())
    );
    assert_eq!((record.cases.len(), record.samples.len()), (0, 0));
    let size: usize = good()
        .committed()
        .iter()
        .map(|(_, bytes)| bytes.len())
        .sum();
    assert!(
        text.starts_with("accepted as ")
            && text.contains(&format!(
                " ({} KB)\nPASS: 3 variants are green\n",
                size.div_ceil(1000)
            )),
        "{text}"
    );
    assert!(
        !text.contains("refutes ") && !text.contains("note: "),
        "{text}"
    );
    let target = args.into.as_ref().unwrap().join(NAME);
    let files = std::fs::read_dir(target).unwrap().count();
    let folders = std::fs::read_dir(args.into.as_ref().unwrap())
        .unwrap()
        .count();
    assert_eq!((files, folders), (2, 1), "no temporary folder is left");
    assert!(
        accept(&args)
            .unwrap_err()
            .to_string()
            .contains("exists already")
    );
    // The run's own folder keeps all of it.
    assert_eq!(Record::read(&args.record).unwrap().cases.len(), 10);
    let large = accept_within(
        &AcceptArgs {
            into: Some(args.record.join("x")),
            ..args
        },
        size - 1,
    )
    .unwrap_err();
    assert!(
        large.to_string().contains(&format!("takes {size} bytes")),
        "{large}"
    );
}

#[test]
fn a_record_without_what_it_should_have_is_refused_whatever_it_refutes() {
    let is_summary = |row: &Row| row.on == On::All && row.subject.as_str() == WMMA;
    let partly = good().without(is_summary);
    let said = refused(&partly, Some("slower here"));
    assert!(
        said.contains("lacks what it should have measured")
            && said.contains("every gate: none of its cases ran"),
        "{said}"
    );
    let (_root, args) = written(&good().without(|_| true));
    assert!(accept(&args).is_err());
}

#[test]
fn what_does_not_lead_its_problem_keeps_what_it_is_judged_by() {
    let mut rows = good().rows;
    let before = rows.clone();
    keep_leading(&mut rows, 2);
    let (kept, changed): (Vec<_>, Vec<_>) =
        rows.iter().zip(&before).partition(|(is, was)| is == was);
    assert_eq!((changed.len(), kept.len()), (1, before.len() - 1));
    let (is, was) = changed[0];
    assert_eq!(is.subject, SCALAR.into(), "the slowest of three");
    let figures: Vec<_> = is.figures.iter().collect();
    let judged = OF_OTHERS
        .iter()
        .filter_map(|metric| Some((metric, was.figures.get(metric)?)));
    assert_eq!(figures, judged.collect::<Vec<_>>());
    assert!(figures.len() >= 2 && figures.len() < was.figures.len());
}

#[test]
fn a_record_that_runs_of_several_sources_made_is_refused() {
    let joined = |now: Git| {
        let later = |meta: &mut crate::record::Meta| {
            let (started, command) = ("2026-11-20T19:00:00Z".to_string(), meta.command.clone());
            let (tier, scope) = (meta.tier, meta.scope.clone());
            meta.joined = vec![crate::record::meta::Joined {
                started,
                command,
                git: now,
                tier,
                scope,
            }];
        };
        good().changed(later)
    };
    let Git::Commit { sha, .. } = good().meta.git else {
        panic!("it says its commit")
    };
    let with = |sha: &str, changes: Option<&str>| Git::Commit {
        sha: sha.into(),
        dirty: changes.is_some(),
        changes: changes.map(String::from),
    };
    let of_one = |git: Git| joined(git.clone()).changed(|meta| meta.git = git);
    let before_hashes = Git::Commit {
        sha: sha.clone(),
        dirty: true,
        changes: None,
    };
    for one in [with(&sha, None), with(&sha, Some("01ab"))] {
        assert!(taken(&of_one(one)).starts_with("accepted as "));
    }
    let said = refused(&of_one(before_hashes.clone()), None);
    assert!(said.contains("more than one source"), "{said}");
    for other in [
        with("another", None),
        with(&sha, Some("01ab")),
        before_hashes,
        Git::Unknown {
            reason: "no git".into(),
        },
    ] {
        let said = refused(&joined(other), None);
        assert!(
            said.contains("was put together by runs of more than one source ("),
            "{said}"
        );
    }
}

#[test]
fn what_is_no_record_or_no_whole_one_is_refused() {
    let root = TempDir::new().unwrap();
    let args = AcceptArgs {
        record: root.path().to_path_buf(),
        into: None,
        negative: None,
    };
    assert!(
        accept(&args)
            .unwrap_err()
            .to_string()
            .contains("the record cannot be accepted")
    );
    for (record, says) in [
        (
            good().changed(|meta| meta.device = "sm_89".parse().ok()),
            "is limited to what sm_89 offers and is not kept: run without --device",
        ),
        (
            good().changed(|meta| {
                meta.progress = Progress::Partial {
                    finished: 3,
                    planned: 10,
                }
            }),
            "interrupted run, with 3 of 10 cases",
        ),
        (
            good().changed(|meta| meta.source_lines = false),
            "without debug information, so that hazards in it name no source lines; build it unstripped",
        ),
    ] {
        // It cannot be waived.
        for negative in [None, Some("the kernel is new")] {
            let error = refused(&record, negative);
            assert!(error.contains(says), "{error}");
        }
    }
}

#[test]
fn a_selection_or_a_dirty_source_is_taken_with_a_note() {
    let text = taken(&good().changed(|meta| {
        meta.scope = Scope::Selected {
            flags: vec!["--shapes mission".into()],
        };
        meta.git = Git::Commit {
            sha: "0123abcd".into(),
            dirty: true,
            changes: None,
        };
    }));
    assert!(
        text.contains("note: it covers only what was selected: --shapes mission"),
        "{text}"
    );
    assert!(text.contains("with uncommitted changes"), "{text}");
    let text = taken(&good().changed(|meta| {
        meta.git = Git::Unknown {
            reason: "no git".into(),
        }
    }));
    assert!(text.contains("its source is unknown: no git"), "{text}");
}

#[test]
fn failed_gates_are_refused_and_cannot_be_waived() {
    let fail = |gate, reason: &str| GateResult::judge(gate, false, reason);
    let timed_wrong = |result: GateResult| {
        let mut record = good();
        let row = record.row_mut(WMMA, &mission(), Source::Gpu);
        *row = row.clone().verdict(&result);
        record
    };
    for (record, says) in [
        (
            with_failed_claim().failing(WMMA, GateId::C3),
            "stage0-scalar/wmma-qk-32x64 C3: too large",
        ),
        (
            good().built(96, 8),
            "stage0-scalar/scalar-32x64 R1: sm_90a: spilled bytes 8 > 0",
        ),
        (
            good().sanitized(
                CPASYNC,
                [
                    common::verdict::Verdict::Pass,
                    common::verdict::Verdict::Fail,
                ],
            ),
            "C7: racecheck: planted",
        ),
        (
            timed_wrong(fail(GateId::L1, "impossible: below 3 us")),
            "wmma-qk-32x64 L1: mission f16 full as timed: impossible",
        ),
        (
            timed_wrong(fail(GateId::C5, "they differ")),
            "wmma-qk-32x64 C5: mission f16 full as timed: they differ",
        ),
    ] {
        for negative in [None, Some("the kernel is new")] {
            let error = refused(&record, negative);
            assert!(
                error.contains("has failed gates") && error.contains(says),
                "{says}: {error}"
            );
        }
    }
}

#[test]
fn a_full_run_on_a_gpu_that_no_sanitizer_saw_is_refused_and_others_are_not() {
    let without = || {
        good().without(|row| {
            row.by == Source::ComputeSanitizer && row.subject != Subject::from(SCALAR)
        })
    };
    let error = refused(&without(), None);
    assert!(
        error.contains("no gate C7 for 2 variants, first stage0-scalar/wmma-qk-32x64"),
        "{error}"
    );
    assert!(error.contains("`compare sanitize`"), "{error}");
    refused(
        &good().without(|row| row.by == Source::ComputeSanitizer),
        None,
    );
    let selected = without().changed(|meta| {
        meta.scope = Scope::Selected {
            flags: vec!["--stages 0".into()],
        }
    });
    refused(&selected, None);
    taken(&crate::testing::emulated());
    taken(&without().changed(|meta| meta.tier = crate::record::meta::Tier::T1));
    // A device with too little memory takes none of the variant's cases.
    let mut unsupported = without();
    for subject in &VARIANTS[1..] {
        let row = unsupported.summary_mut(subject);
        row.figures.extend([
            (Metric::Cases, 0_u32.into()),
            (Metric::CasesUnsupported, 10_u32.into()),
        ]);
    }
    taken(&unsupported);
    assert_eq!(good().meta.backend, BackendKind::Cuda);
}

#[test]
fn gates_that_misjudge_and_mutants_that_survive_are_refused() {
    let mut unlisted = suppressed().sites[0].clone();
    unlisted.listed = None;
    let escaped = common::faults::Caught {
        fault: Some(common::faults::Fault::DroppedTile),
        cases: 8,
        cases_failed: 0,
        gates_that_failed: vec![],
        survived: vec![],
    };
    for (row, says) in [
        (
            crate::measure::rows::planted(&escaped),
            "self-test: dropped tile: no gate fails",
        ),
        (
            crate::measure::rows::site(&unlisted),
            "stage0-scalar/scalar: __syncthreads stage0-scalar/kernel.cu:159: its mutant survives",
        ),
    ] {
        let error = refused(&good().with(row), Some("the kernel is new"));
        assert!(
            error.contains("the self-test of") && error.contains(says),
            "{error}"
        );
    }
}

#[test]
fn failed_claims_need_a_reason_and_a_reason_needs_failed_claims() {
    let title = "stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: wmma-qk-32x64 against stage0-scalar/scalar-32x64: p50 1.2";
    let error = refused(&with_failed_claim(), None);
    assert!(
        error.contains(&format!("--negative REASON:\n  {title}")),
        "{error}"
    );
    assert!(refused(&with_failed_claim(), Some("  ")).contains("needs a reason"));
    assert!(refused(&good(), Some("memory-bound")).contains("nothing to refute"));

    let (_root, mut args) = written(&with_failed_claim());
    args.negative = Some(" memory-bound at this length ".into());
    let text = accept(&args).unwrap().text;
    let into = args.into.as_ref().unwrap();
    let kept = Record::read(&into.join(NAME)).unwrap();
    let negative = kept.meta.negative.unwrap();
    assert_eq!(negative.reason, "memory-bound at this length");
    assert_eq!(
        (negative.claims.len(), negative.claims[0].stage.as_str()),
        (1, "stage0-scalar")
    );
    assert_eq!(
        negative.claims[0].claim,
        "wmma-qk >= 1.50x over stage0-scalar scalar"
    );
    assert!(text.contains(&format!("\nrefutes {title}")), "{text}");
    assert_eq!(kept.meta.machine.gpu.name(), Some(GPU));

    // The same failure in a later record is settled by the first; the failure of another claim is not.
    let later = |name: &str, record: &Record| {
        let folder = args.record.with_file_name(name);
        record.write(&folder).unwrap();
        accept(&AcceptArgs {
            record: folder,
            negative: None,
            into: args.into.clone(),
        })
    };
    let second = "20261121T183000Z-nvidia-h200";
    later(second, &with_failed_claim()).unwrap();
    let second = Record::read(&into.join(second)).unwrap();
    assert_eq!(second.meta.negative, None);
    let third = later(
        "20261122T183000Z-nvidia-h200",
        &timed([24.0, 20.0, 19.0]).clean(),
    );
    assert!(third.unwrap_err().to_string().contains("has failed claims"));
}
