//! Make-style dependency files, as `-MD -MF` writes them.

use std::path::PathBuf;

/// Returns the prerequisites of all rules in `text`, in order. A backslash escapes a space or a
/// `#`, `$$` is `$`, and a backslash at the end of a line continues it.
pub(crate) fn prerequisites(text: &str) -> Vec<PathBuf> {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let mut paths = Vec::new();
    for rule in joined.lines() {
        // A colon in a file name is not followed by a space, the one after the target is.
        let Some((_, list)) = rule.split_once(": ") else {
            continue;
        };
        paths.extend(words(list).into_iter().map(PathBuf::from));
    }
    paths
}

fn words(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = list.chars().peekable();
    while let Some(c) = characters.next() {
        let escaped = match (c, characters.peek()) {
            ('\\', Some(&next @ (' ' | '#'))) | ('$', Some(&next @ '$')) => Some(next),
            _ => None,
        };
        let word = words.last_mut().expect("never empty");
        if let Some(next) = escaped {
            characters.next();
            word.push(next);
        } else if c.is_whitespace() {
            words.push(String::new());
        } else {
            word.push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_gcc_writes() {
        let text = "/out/stage.o: /out/stage.cpp /repo/include/emulator/prelude.h \\\r\n\
                    \t/repo/a\\ b/kernel.cu /repo/x$$y.h \\\n /repo/c\\#.h\n\
                    /repo/other.h:\n";
        let expected = [
            "/out/stage.cpp",
            "/repo/include/emulator/prelude.h",
            "/repo/a b/kernel.cu",
            "/repo/x$y.h",
            "/repo/c#.h",
        ];
        assert_eq!(prerequisites(text), expected.map(PathBuf::from));
    }

    #[test]
    fn a_rule_without_prerequisites_has_none() {
        assert!(prerequisites("a.o:\n").is_empty());
        assert!(prerequisites("").is_empty());
    }
}
