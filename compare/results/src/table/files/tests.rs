use super::*;

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("COMPARE.md");
    write_atomically(&path, b"old").unwrap();
    write_atomically(&path, b"new").unwrap();
    assert_eq!(read(&path).unwrap().unwrap(), b"new");
    assert!(
        matches!(
            write_atomically(folder.path(), b"x"),
            Err(StoreError::Write { .. })
        ),
        "a folder is in the way"
    );
    assert!(matches!(
        write_atomically(&path.join("below"), b"x"),
        Err(StoreError::Write { .. })
    ));
    assert_eq!(read(&path).unwrap().unwrap(), b"new");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(
        matches!(read(&path.join("below")), Err(StoreError::Read { .. })),
        "not there for another reason"
    );
    assert!(read(&folder.path().join("nothing")).unwrap().is_none());
}

/// Two processes in different pid namespaces may have one number.
#[test]
fn writers_of_one_file_at_once_leave_one_of_theirs_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let texts = [vec![b'a'; 1 << 20], vec![b'b'; 1 << 20]];
    std::thread::scope(|scope| {
        for text in &texts {
            let path = &path;
            scope.spawn(move || (0..8).for_each(|_| write_atomically(path, text).unwrap()));
        }
    });
    assert!(texts.contains(&fs::read(&path).unwrap()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_devices_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    fs::write(&target, b"before").unwrap();
    std::os::unix::fs::symlink("target", &link).unwrap();
    write_atomically(&link, b"through").unwrap();
    assert_eq!(read(&target).unwrap().unwrap(), b"through");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    write_atomically(Path::new("/dev/null"), b"gone").unwrap();
    assert!(is_stream(Path::new("/dev/null")));
    assert!(matches!(
        write_atomically(Path::new("/dev/full"), b"x"),
        Err(StoreError::Write { .. })
    ));
}

#[test]
fn runs_at_once_have_folders_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let runs: Vec<PathBuf> = std::thread::scope(|scope| {
        let create = || create_folder(folder.path(), "run").unwrap();
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(create)).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let mut names: Vec<String> = runs.iter().map(|path| name_of(path)).collect();
    names.sort();
    assert_eq!(names, ["run", "run-2", "run-3", "run-4"]);
}
