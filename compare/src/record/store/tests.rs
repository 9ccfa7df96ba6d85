use super::*;
use crate::testing::{CPASYNC, SCALAR, US, WMMA, emulated, mission, timed};
use common::metric::Metric;
use std::error::Error;

/// Writes a record and gives its folder a change.
fn read_after(change: impl Fn(&Path)) -> Result<Record, StoreError> {
    let folder = tempfile::tempdir().unwrap();
    timed(US).write(folder.path()).unwrap();
    change(folder.path());
    Record::read(folder.path())
}

#[test]
fn rows_are_written_before_the_cases_that_they_sum_up_and_meta_data_last() {
    let mut record = timed(US);
    record.cases.push(Row::new(
        WMMA,
        On::Case(mission().problem().unwrap().clone(), "normal:0".into()),
        Source::Gpu,
    ));
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(CASES)).unwrap(); // where writing stops
    assert!(record.write(folder.path()).is_err());
    assert_eq!(
        [ROWS, META].map(|file| folder.path().join(file).exists()),
        [true, false]
    );
    std::fs::remove_dir(folder.path().join(CASES)).unwrap();
    record.write(folder.path()).unwrap();
    record.cases.clear();
    record.write(folder.path()).unwrap();
    assert_eq!(Record::read(folder.path()).unwrap().cases, []);
}

#[test]
fn samples_of_a_later_try_replace_those_of_the_same_row_alone() {
    let samples = |subject: &str, ns: f64| Samples {
        subject: subject.into(),
        on: mission(),
        by: Source::Gpu,
        device_ns: vec![ns],
    };
    let mut record = emulated();
    for (subject, ns) in [(SCALAR, 1.0), (WMMA, 2.0), (SCALAR, 3.0)] {
        record.keep(samples(subject, ns));
    }
    assert_eq!(record.samples, [samples(WMMA, 2.0), samples(SCALAR, 3.0)]);
}

#[test]
fn rows_that_were_lost_are_missed() {
    let whole = read_after(|_| ()).unwrap().rows.len();
    let lost = read_after(|folder| {
        let text = std::fs::read_to_string(folder.join(ROWS)).unwrap();
        let (_, rest) = text.split_once('\n').unwrap();
        std::fs::write(folder.join(ROWS), rest).unwrap();
    });
    let said = lost.unwrap_err().to_string();
    let expected = format!("{} of the {whole} rows that were written", whole - 1);
    assert!(said.contains(&expected), "{said}");
    let none = read_after(|folder| std::fs::remove_file(folder.join(ROWS)).unwrap());
    assert!(matches!(none, Err(StoreError::Lost { found: 0, .. })));
}

#[test]
fn what_is_written_is_read_back_and_the_bytes_are_the_same_for_the_same_rows() {
    let mut whole =
        timed(US)
            .built(96, 0)
            .clean()
            .peers("mission", 10.0, &[("torch-flash", 16.0, true)]);
    whole.cases.push(Row::new(
        WMMA,
        On::Case(mission().problem().unwrap().clone(), "normal:0".into()),
        Source::Gpu,
    ));
    let folder = tempfile::tempdir().unwrap();
    whole.write(folder.path()).unwrap();
    let read = Record::read(folder.path()).unwrap();
    assert_eq!(
        (&read.meta, &read.cases, &read.samples),
        (&whole.meta, &whole.cases, &whole.samples)
    );
    assert_eq!(read.rows.len(), whole.rows.len());
    assert_eq!(read.committed(), whole.committed());
    // Whatever the order in which they were appended.
    let mut shuffled = Record::new(whole.meta.clone());
    whole
        .rows
        .iter()
        .rev()
        .for_each(|row| shuffled.append(row.clone()));
    assert_eq!(shuffled.committed(), whole.committed());
    let [(ROWS, bytes), (META, meta)] = whole.committed() else {
        panic!("what is committed, the meta data last")
    };
    assert_eq!(std::fs::read(folder.path().join(ROWS)).unwrap(), bytes);
    let keys: Vec<_> = read.rows.iter().map(Row::key).collect();
    assert!(keys.is_sorted() && bytes.ends_with(b"\n") && meta.ends_with(b"}\n"));
    assert_eq!(
        bytes.iter().filter(|byte| **byte == b'\n').count(),
        keys.len()
    );
    // Digits of a record are few, and do not change by being read and written again.
    let again = read
        .rows
        .iter()
        .fold(Record::new(whole.meta.clone()), |record, row| {
            record.with(row.clone())
        });
    assert_eq!(again.committed(), whole.committed());
}

#[test]
fn a_row_of_the_same_key_is_replaced() {
    let count = emulated().rows.len();
    let again = emulated().counted(SCALAR, 7, 0);
    assert_eq!(again.rows.len(), count);
    assert_eq!(
        again
            .row(&SCALAR.into(), &mission(), Source::Emulator)
            .unwrap()
            .value(Metric::GlobalReadBytes),
        Some(7.0)
    );
    let mut named = emulated();
    named.names("long", Shape::bhsd(1, 8, 2048, 64));
    named.names("1x8x2048x64", Shape::bhsd(1, 8, 2048, 64));
    assert_eq!(
        named.meta.shapes.keys().collect::<Vec<_>>(),
        ["long", "mission"]
    );
}

#[test]
fn what_cannot_be_read_says_where_and_why() {
    let rows = |folder: &Path| std::fs::read_to_string(folder.join(ROWS)).unwrap();
    let first = |folder: &Path| rows(folder).lines().next().unwrap().to_string();
    type Change<'a> = &'a dyn Fn(&Path);
    let cases: [(Change<'_>, &str); 8] = [
        (
            &|folder| {
                std::fs::write(folder.join(ROWS), rows(folder) + "{\"subject\": 1}\n").unwrap()
            },
            "rows.jsonl: line ",
        ),
        (
            &|folder| {
                std::fs::write(folder.join(ROWS), format!("\n{}\n{{", first(folder))).unwrap()
            },
            "rows.jsonl: line 3 is malformed",
        ),
        (
            &|folder| {
                std::fs::write(
                    folder.join(ROWS),
                    first(folder).replace("\"by\"", "\"bye\""),
                )
                .unwrap()
            },
            "rows.jsonl: line 1",
        ),
        (
            &|folder| {
                std::fs::write(folder.join(ROWS), format!("{0}\n{0}\n", first(folder))).unwrap()
            },
            "duplicate row of ",
        ),
        (
            &|folder| std::fs::write(folder.join(SAMPLES), "[]").unwrap(),
            "samples.jsonl: line 1",
        ),
        (
            &|folder| std::fs::write(folder.join(META), "{").unwrap(),
            "meta.json: line 1",
        ),
        (
            &|folder| {
                let meta = std::fs::read_to_string(folder.join(META)).unwrap();
                std::fs::write(
                    folder.join(META),
                    meta.replace("\"schema\": 2", "\"schema\": 3"),
                )
                .unwrap();
            },
            "meta.json has schema 3, and this program reads 2: use the version of compare that wrote it",
        ),
        (
            &|folder| std::fs::remove_file(folder.join(META)).unwrap(),
            " is not a record: it has no meta.json",
        ),
    ];
    for (change, says) in cases {
        let error = read_after(change).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    // A record of version 1 had another first file.
    let old = |folder: &Path| {
        std::fs::remove_file(folder.join(META)).unwrap();
        std::fs::write(folder.join("build_meta.json"), "{\"schema\": 1}").unwrap();
    };
    let error = read_after(old).unwrap_err();
    assert!(
        matches!(error, StoreError::Schema { found: Some(1), .. })
            && error.to_string().contains("has schema 1"),
        "{error}"
    );
    // What is there and cannot be read is an error, not nothing.
    let unreadable = |folder: &Path| {
        std::fs::remove_file(folder.join(ROWS)).unwrap();
        std::fs::create_dir(folder.join(ROWS)).unwrap();
    };
    let error = read_after(unreadable).unwrap_err();
    assert!(
        matches!(&error, StoreError::Read { .. }) && error.source().is_some(),
        "{error}"
    );
    assert_eq!(
        read_after(|folder| std::fs::remove_file(folder.join(SAMPLES)).unwrap())
            .unwrap()
            .samples,
        []
    );
}

#[test]
fn what_the_registry_has_no_metric_for_any_more_is_kept_by_name() {
    let folder = tempfile::tempdir().unwrap();
    timed(US).write(folder.path()).unwrap();
    let change = |name: &str, was: &str, is: &str| {
        let path = folder.path().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(was));
        std::fs::write(path, text.replace(was, is)).unwrap();
    };
    change(ROWS, "\"global_read_sectors\":", "\"global_read_lines\":");
    change(
        META,
        "\"metric\": \"global_read_bytes\"",
        "\"metric\": \"global_read_kilobytes\"",
    );
    for _ in 0..2 {
        let record = Record::read(folder.path()).unwrap();
        let counted = record
            .row(&SCALAR.into(), &mission(), Source::Emulator)
            .unwrap();
        assert_eq!(counted.retired["global_read_lines"].value, 32_768.0);
        assert_eq!(counted.value(Metric::GlobalReadBytes), Some(1_048_576.0));
        let stage = &record.meta.stages[0];
        assert_eq!(
            stage.claims.len() + stage.retired.len(),
            timed(US).meta.stages[0].claims.len()
        );
        assert_eq!(stage.retired[0]["metric"], "global_read_kilobytes");
        record.write(folder.path()).unwrap();
    }
    change(ROWS, "\"by\":\"emulator\"", "\"by\":\"simulator\"");
    assert!(
        matches!(
            Record::read(folder.path()),
            Err(StoreError::Malformed { .. })
        ),
        "other names stay what they are"
    );
}

#[test]
fn finished_records_are_listed_oldest_first() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["2-b", "1-a", "3-c.partial", ".4-d.1.tmp"] {
        emulated().write(&folder.path().join(name)).unwrap();
    }
    std::fs::create_dir(folder.path().join("notes")).unwrap();
    std::fs::write(folder.path().join("README.md"), "").unwrap();
    let names = |folder: &Path| {
        read_all(folder).map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
    };
    assert_eq!(names(folder.path()).unwrap(), ["1-a", "2-b"]);
    assert_eq!(names(&folder.path().join("nowhere")).unwrap(), [""; 0]);
    assert!(matches!(
        names(&folder.path().join("README.md")),
        Err(StoreError::Read { .. })
    ));
    std::fs::create_dir(folder.path().join("0-old")).unwrap();
    std::fs::write(folder.path().join("0-old/build_meta.json"), "{}").unwrap();
    let error = names(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("0-old has schema 1"),
        "one of another version is not passed over: {error}"
    );
}

#[test]
fn rows_are_found_by_what_they_are_of() {
    let record = timed(US);
    let p50 = |subject: &str, on: &On, by| record.row(&subject.into(), on, by)?.value(Metric::P50);
    assert!(
        p50(CPASYNC, &mission(), Source::Gpu).is_some()
            && p50(CPASYNC, &mission(), Source::Peers).is_none()
    );
    assert_eq!(p50(CPASYNC, &On::All, Source::Gpu), None);
    assert_eq!(record.by(Source::SelfTest).count(), 4);
}
