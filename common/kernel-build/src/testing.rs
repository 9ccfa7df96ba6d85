//! Programs that tests write and start.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program and makes it executable, in a process of its own. Where this one writes it, a
/// child that another thread starts meanwhile holds it open, and it cannot be started: "text file
/// busy".
pub fn write_program(path: &Path, text: &str) -> io::Result<()> {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = shell.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes())?;
    drop(input);
    if shell.wait()?.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("cannot write {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Several threads write programs and start them: one that this process holds open for writing
    /// would be in the way of another's.
    #[test]
    fn a_program_can_be_started_while_others_are_written() {
        let folder = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            for thread in 0..4 {
                let path = folder.path().join(format!("program{thread}"));
                scope.spawn(move || {
                    for number in 0..25 {
                        write_program(&path, &format!("#!/bin/sh\necho {number}\n")).unwrap();
                        let printed = Command::new(&path).output().unwrap();
                        assert_eq!(printed.stdout, format!("{number}\n").into_bytes());
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(write_program(&folder.path().join("none/program"), "").is_err());
    }
}
