//! Findings as GitHub's workflow commands, which show each at its line of a pull request.

use ptx::{Hazard, Place};
use std::path::Path;

/// Returns an annotation for each hazard, at the later access's line, and for each other finding, at
/// the module. Files below `root` are named as the repository has them.
pub fn annotations(
    hazards: &[Hazard],
    others: &[String],
    module: &Path,
    root: &Path,
) -> Vec<String> {
    let mut lines = Vec::new();
    for hazard in hazards {
        let message = escaped_message(&hazard.to_string());
        lines.push(format!(
            "::error {}title=hazard::{message}",
            position(hazard, root)
        ));
    }
    for other in others {
        let file = escaped_property(&relative(&module.display().to_string(), root));
        let message = escaped_message(other);
        lines.push(format!("::error file={file},title=hazards::{message}"));
    }
    lines
}

/// Returns the file and line of a hazard as properties; nothing if it has no place.
fn position(hazard: &Hazard, root: &Path) -> String {
    let accesses = [&hazard.second, &hazard.first];
    let place = accesses
        .into_iter()
        .flatten()
        .find_map(|access| access.places.first());
    match place {
        Some(Place { file, line }) => {
            let name = escaped_property(&relative(file, root));
            format!("file={name},line={line},")
        }
        None => String::new(),
    }
}

fn relative(file: &str, root: &Path) -> String {
    match Path::new(file).strip_prefix(root) {
        Ok(below) => below.display().to_string(),
        Err(_) => file.to_string(),
    }
}

/// Escapes what would end a command.
fn escaped_message(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes what would end a property of a command.
fn escaped_property(text: &str) -> String {
    escaped_message(text)
        .replace(':', "%3A")
        .replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptx::{HazardAccess, HazardKind};

    fn access(file: &str, line: u32) -> HazardAccess {
        HazardAccess {
            does: "reads".into(),
            block: [0, 0, 0],
            thread: Some(3),
            warp: 0,
            places: vec![Place {
                file: file.into(),
                line,
            }],
        }
    }

    fn hazard(first: Option<HazardAccess>, second: Option<HazardAccess>) -> Hazard {
        Hazard {
            kind: HazardKind::Race,
            block: [0, 0, 0],
            memory: "bytes 0-3 of shared memory".into(),
            first,
            second,
            missing: "a barrier".into(),
            times: 1,
        }
    }

    fn lines(hazards: &[Hazard], others: &[&str]) -> Vec<String> {
        let found: Vec<String> = others.iter().map(ToString::to_string).collect();
        annotations(
            hazards,
            &found,
            Path::new("k.ptx"),
            Path::new("/repository"),
        )
    }

    #[test]
    fn a_hazard_stands_at_the_line_of_its_later_access() {
        let race = hazard(
            Some(access("/repository/a.cu", 7)),
            Some(access("/repository/src/b.cu", 9)),
        );
        let found = lines(&[race], &[]);
        let start = "::error file=src/b.cu,line=9,title=hazard::";
        assert!(found[0].starts_with(start), "{found:?}");
        assert!(found[0].contains("thread 3 (warp 0) reads"), "{found:?}");
    }

    #[test]
    fn a_hazard_with_one_access_stands_there() {
        let found = lines(&[hazard(Some(access("/elsewhere/a.cu", 7)), None)], &[]);
        assert!(found[0].starts_with("::error file=/elsewhere/a.cu,line=7,"));
    }

    #[test]
    fn a_hazard_without_a_place_has_no_position() {
        let found = lines(&[hazard(None, None)], &[]);
        assert!(found[0].starts_with("::error title=hazard::"), "{found:?}");
    }

    #[test]
    fn what_has_no_line_stands_at_the_module() {
        let found = lines(&[], &["100 % of lanes\nwait"]);
        let expected = "::error file=k.ptx,title=hazards::100 %25 of lanes%0Await";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_comma_or_colon_in_a_name_ends_no_property() {
        let found = lines(&[hazard(None, Some(access("C:/a,b.cu", 1)))], &[]);
        assert!(
            found[0].starts_with("::error file=C%3A/a%2Cb.cu,line=1,"),
            "{found:?}"
        );
    }
}
