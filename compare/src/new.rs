//! `compare new`: a stage of one's own, as a registered copy of another.

use crate::answer::Answer;
use crate::measure::builds::StageBuild;
use crate::measure::machine;
use crate::measure::select::{self, SelectError};
use crate::record::StoreError;
use crate::record::files::write_atomically;
use crate::registry;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Copies a stage's crate under a new name and registers it. The copy has the same kernels, the predecessor that it is a copy of,
and no claims; the family of its default variant gets the new name.

Examples:
  compare new stage12-mine --from stage5-swizzle
  cargo test -p stage12-mine                    tier T0, barriers left out, counters: all pass before you change a line
  compare render                                its row in COMPARE.md and the README

Exit codes:
  0  made
  2  the name is taken, or is not one of a stage such as stage12-mine, there is no such stage to copy, or this is no checkout; nothing is written";

/// The flags of `new`.
#[derive(Clone, Debug, Args)]
pub struct NewArgs {
    /// The stage to make: the next number and words, such as stage12-mine
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The stage to copy, by id or number
    #[arg(long, value_name = "STAGE")]
    pub from: String,
}

/// Why no stage was made. Nothing was written, or all of it was taken back.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// No folder to write to.
    #[error(
        "the current folder is not inside a checkout of the workspace; clone it, go there and try again"
    )]
    NoCheckout,
    /// No name of a stage.
    #[error(
        "'{0}' is no name for a stage: give stage{1}-WORD, its word in small letters and digits, such as stage{1}-mine"
    )]
    Name(String, usize),
    /// A stage has it, or a folder, or a family of the source.
    #[error("'{name}' is taken by {by}; choose another word")]
    Taken { name: String, by: String },
    /// There is nothing to copy.
    #[error(transparent)]
    Source(#[from] SelectError),
    /// A file of the checkout is not as it should be.
    #[error(
        "{file} has no {lacks}; is this build of this checkout? Build again, or register the stage as CONTRIBUTING.md says"
    )]
    Unexpected { file: String, lacks: String },
    /// A file of the checkout cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file system.
    #[error("cannot {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NewError {
    let path = path.to_path_buf();
    move |source| NewError::Io { what, path, source }
}

/// Makes the stage in the checkout around the current folder.
pub fn new(args: &NewArgs) -> anyhow::Result<Answer> {
    let root = machine::workspace().ok_or(NewError::NoCheckout)?;
    let ladder = registry::builds()?;
    let copy = Copy::new(&root, &args.name, &args.from, &ladder)?;
    copy.make(&root)?;
    let Copy { new, source, .. } = &copy;
    Ok(Answer::pass(format!(
        "{} is a copy of {}: {} variants, the family {} now called {}, no claims.\n\
         Next: cargo test -p {0} passes as it is; cargo run -p compare -- render gives it a row. CONTRIBUTING.md has the rest.",
        new.id,
        source.id,
        copy.variants.len(),
        source.family,
        new.family,
    )))
}

/// What a stage is called, in every spelling.
#[derive(Clone, Debug, PartialEq)]
struct Names {
    /// `stage5-swizzle`
    id: String,
    /// `stage5_swizzle`
    module: String,
    /// `Swizzle`
    type_name: String,
    /// Of the default variant: `swizzle`
    family: String,
    /// `swizzle-32x256-k4`
    default_variant: String,
}

impl Names {
    /// Those of a stage that copies one with `default_variant` of `family`.
    fn new(id: &str, word: &str, (family, default_variant): (&str, &str)) -> Self {
        let capital = |part: &str| part[..1].to_uppercase() + &part[1..];
        Self {
            id: id.to_string(),
            module: id.replace('-', "_"),
            type_name: word.split('-').map(capital).collect(),
            family: word.to_string(),
            default_variant: default_variant.replacen(family, word, 1),
        }
    }
}

/// A stage to be made.
#[derive(Debug)]
struct Copy {
    new: Names,
    source: Names,
    /// Of the source, with their families.
    variants: Vec<(String, String)>,
    /// Its files below its folder.
    files: Vec<(PathBuf, String)>,
    /// Where stages are registered: path, what is there, what shall be.
    registers: Vec<(PathBuf, String, String)>,
}

/// Names that the new type would share with what every stage imports.
const IMPORTED: [&str; 4] = ["Attention", "Artifacts", "StageInfo", "Self"];

impl Copy {
    /// Reads and composes all that is to be written.
    fn new(root: &Path, name: &str, from: &str, ladder: &[StageBuild]) -> Result<Self, NewError> {
        let source = select::stage(from, ladder)?;
        let number = |id: &str| parts(id).map(|(number, _)| number);
        let next = ladder.iter().filter_map(|stage| number(&stage.id)).max();
        let next = next.map_or(0, |last| last + 1);
        let bad_name = || NewError::Name(name.to_string(), next);
        let taken = |by: String| {
            let name = name.to_string();
            Err(NewError::Taken { name, by })
        };
        let (number, word) = parts(name).ok_or_else(bad_name)?;
        if ladder.iter().any(|stage| stage.id == name) || root.join(name).exists() {
            return taken(format!("the stage or folder {name}"));
        }
        if number != next {
            return Err(bad_name());
        }
        let variants: Vec<(String, String)> = source
            .variants
            .iter()
            .map(|variant| (variant.name.clone(), variant.family.clone()))
            .collect();
        let default = &source.meta.default_variant;
        let family = variants
            .iter()
            .find_map(|(variant, family)| (variant == default).then_some(family))
            .expect("a loaded stage has its default variant");
        let new = Names::new(name, word, (family, default));
        if IMPORTED.contains(&&*new.type_name) {
            return taken(format!("{}, which every stage imports", new.type_name));
        }
        if word != family && variants.iter().any(|(_, family)| family == word) {
            return taken(format!("the family {word} of {}", source.id));
        }
        let tests = read(&root.join(&source.id).join("tests/stage.rs"))?;
        let module = source.id.replace('-', "_");
        let type_name = between(&tests, &format!("tests!({module}::"), ")");
        let type_name = type_name.ok_or_else(|| NewError::Unexpected {
            file: format!("{}/tests/stage.rs", source.id),
            lacks: format!("stage_tests::tests!({module}::…)"),
        })?;
        let source = Names {
            id: source.id.clone(),
            module,
            type_name: type_name.to_string(),
            family: family.clone(),
            default_variant: default.clone(),
        };
        let mut copy = Self {
            new,
            source,
            variants,
            files: vec![],
            registers: vec![],
        };
        copy.files = copy.files(&root.join(&copy.source.id), number)?;
        copy.registers = copy.registers(root)?;
        Ok(copy)
    }

    /// The new stage's files. Tests that the source alone has are of its own idea and stay behind.
    fn files(&self, folder: &Path, number: usize) -> Result<Vec<(PathBuf, String)>, NewError> {
        let mut files = Vec::new();
        for path in files_below(folder)? {
            let below = path
                .strip_prefix(folder)
                .expect("found in it")
                .to_path_buf();
            let file_name = below.file_name().unwrap_or_default().to_string_lossy();
            let extension = below.extension().unwrap_or_default();
            let is_test = below.starts_with("tests")
                && !below.ends_with("stage.rs")
                && !(file_name.starts_with("stage__") && extension == "snap");
            if is_test || extension == "new" {
                continue;
            }
            let text = read(&path)?;
            let text = match &*file_name {
                "README.md" => self.readme(number),
                "lib.rs" => self.library(&text, number),
                "kernel.cu" => self.kernel(&text),
                "Cargo.toml" => self.manifest(&text, number),
                _ if file_name.contains("__resources") => in_order(&self.renamed(&text)),
                _ => self.renamed(&text),
            };
            files.push((below, text));
        }
        Ok(files)
    }

    /// The source's names, symbols and variants in `text` as the new stage's.
    fn renamed(&self, text: &str) -> String {
        let Self { new, source, .. } = self;
        let of_family = self
            .variants
            .iter()
            .filter(|(_, family)| *family == source.family);
        let mut text = text.replace(
            &format!("{}::{}", source.module, source.type_name),
            &format!("{}::{}", new.module, new.type_name),
        );
        for (variant, _) in of_family {
            let renamed = variant.replacen(&source.family, &new.family, 1);
            let symbol =
                |module: &str, variant: &str| format!("{module}_{variant}_").replace('-', "_");
            text = text
                .replace(
                    &symbol(&source.module, variant),
                    &symbol(&new.module, &renamed),
                )
                .replace(&format!(", {variant}: "), &format!(", {renamed}: "));
        }
        text.replace(&source.module, &new.module)
            .replace(&source.id, &new.id)
    }

    /// kernel.cu with the new names in its table.
    fn kernel(&self, text: &str) -> String {
        let [old, new] = [&self.source, &self.new].map(|names| names.family.replace('-', "_"));
        let line = |line: &str| {
            let entry = line.strip_prefix("ATTN_").and_then(|entry| {
                let (kind, arguments) = entry.split_once("VARIANT(")?;
                let (family, variant) = arguments.split_once(", ")?;
                (family == old).then(|| {
                    let variant = variant.replacen(&old, &new, 1);
                    format!("ATTN_{kind}VARIANT({new}, {variant}")
                })
            });
            entry.unwrap_or_else(|| line.to_string()) + "\n"
        };
        text.lines().map(line).collect()
    }

    fn manifest(&self, text: &str, number: usize) -> String {
        let line = |line: &str| match line.starts_with("description = ") {
            true => format!(
                "description = \"Stage {number}: a copy of {}\"\n",
                self.source.id
            ),
            false => self.renamed(line) + "\n",
        };
        text.lines().map(line).collect()
    }

    /// src/lib.rs without claims; a barrier that is redundant in the source is so in its copy.
    fn library(&self, text: &str, number: usize) -> String {
        let Self { new, source, .. } = self;
        let redundant = between(text, "    redundant: &[", "],\n};").unwrap_or_default();
        let family = |names: &Names| format!("family: \"{}\"", names.family);
        let redundant = redundant.replace(&family(source), &family(new));
        let imports = match redundant.is_empty() {
            true => "Artifacts, Attention, StageInfo",
            false => "Artifacts, Attention, Redundant, StageInfo",
        };
        format!(
            "//! Stage {number}: a copy of {0}.\n\n\
             use common::stage::{{{imports}}};\n\n\
             include!(concat!(env!(\"OUT_DIR\"), \"/artifacts.rs\"));\n\n\
             /// The stage.\n\
             pub struct {1};\n\n\
             const INFO: StageInfo = StageInfo {{\n    \
                 id: \"{2}\",\n    \
                 idea: \"a copy of {0}\",\n    \
                 predecessor: Some(\"{0}\"),\n    \
                 default_variant: \"{3}\",\n    \
                 claims: &[],\n    \
                 redundant: &[{redundant}],\n\
             }};\n\n\
             impl Attention for {1} {{\n    \
                 fn info(&self) -> &'static StageInfo {{\n        &INFO\n    }}\n\n    \
                 fn artifacts(&self) -> &'static Artifacts {{\n        &ARTIFACTS\n    }}\n\
             }}\n",
            source.id, new.type_name, new.id, new.default_variant,
        )
    }

    fn readme(&self, number: usize) -> String {
        let (source, word) = (&self.source.id, self.new.family.replace('-', " "));
        format!(
            "# Stage {number}: {word}\n\n\
             A copy of [{source}](../{source}/README.md) so far. Here stands the one idea: what the kernel before does, what that\n\
             costs, and what this one does instead.\n\n\
             ## Shape of the kernel\n\
             - What differs from {source}, and which hazard each barrier that is new closes.\n\n\
             ## What was expected and measured\n\
             Nothing is claimed yet. Predict before you measure: the factor at mission, and which counter goes which way, as claims in\n\
             `src/lib.rs`.\n"
        )
    }

    /// Every place that lists stages, with the new one behind the last.
    fn registers(&self, root: &Path) -> Result<Vec<(PathBuf, String, String)>, NewError> {
        let Names {
            id,
            module,
            type_name,
            ..
        } = &self.new;
        let edit = |file: &str, before: &[(&str, &str)], lines: &[String]| {
            let path = root.join(file);
            let old = read(&path)?;
            let mut new = old.clone();
            for (&(start, end), line) in before.iter().zip(lines) {
                new = behind_last(&new, start, end, line).ok_or_else(|| NewError::Unexpected {
                    file: file.to_string(),
                    lacks: format!("line like '{start}…{end}' of a stage"),
                })?;
            }
            Ok::<_, NewError>((path, old, new))
        };
        Ok(vec![
            edit(
                "Cargo.toml",
                &[("    \"", "\","), ("", "\" }")],
                &[
                    format!("    \"{id}\",\n"),
                    format!("{id} = {{ path = \"{id}\" }}\n"),
                ],
            )?,
            edit(
                "compare/Cargo.toml",
                &[("", ".workspace = true")],
                &[format!("{id}.workspace = true\n")],
            )?,
            edit(
                "compare/src/registry.rs",
                &[("    &", ",")],
                &[format!("    &{module}::{type_name},\n")],
            )?,
        ])
    }

    /// Writes all of it. The folder appears whole; where a register cannot be written, what was done is undone.
    fn make(&self, root: &Path) -> Result<(), NewError> {
        let folder = root.join(&self.new.id);
        let temporary = root.join(format!(".{}.{}.tmp", self.new.id, std::process::id()));
        let written = self
            .write(&temporary)
            .and_then(|()| std::fs::rename(&temporary, &folder).map_err(io_error("make", &folder)));
        if written.is_err() {
            // It may never have come to be.
            let _ = std::fs::remove_dir_all(&temporary);
            return written;
        }
        for (done, (path, _, new)) in self.registers.iter().enumerate() {
            if let Err(error) = write_atomically(path, new.as_bytes()) {
                for (path, old, _) in &self.registers[..done] {
                    let _ = write_atomically(path, old.as_bytes());
                }
                let _ = std::fs::remove_dir_all(&folder);
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn write(&self, folder: &Path) -> Result<(), NewError> {
        for (below, text) in &self.files {
            let path = folder.join(below);
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent).map_err(io_error("make", parent))?;
            std::fs::write(&path, text).map_err(io_error("write", &path))?;
        }
        Ok(())
    }
}

/// Number and word of `stage12-mine`.
fn parts(id: &str) -> Option<(usize, &str)> {
    let (number, word) = id.strip_prefix("stage")?.split_once('-')?;
    let is_word = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit())
        && (number == "0" || !number.starts_with('0'));
    (is_number && word.split('-').all(is_word)).then_some((number.parse().ok()?, word))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// `text` with `line` behind the last of its lines that names a stage between `start` and `end`.
fn behind_last(text: &str, start: &str, end: &str, line: &str) -> Option<String> {
    let names_a_stage = |line: &str| {
        let name = line.trim_end().strip_prefix(start)?.strip_suffix(end)?;
        name.strip_prefix("stage")?
            .starts_with(|c: char| c.is_ascii_digit())
            .then_some(())
    };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let last = lines
        .iter()
        .rposition(|line| names_a_stage(line).is_some())?;
    Some(
        [&lines[..=last], &[line], &lines[last + 1..]]
            .concat()
            .concat(),
    )
}

/// The snapshot of resources with its columns and its order as the tests write them.
fn in_order(text: &str) -> String {
    let (head, body) = match text.rfind("---\n") {
        Some(at) => text.split_at(at + 4),
        None => ("", text),
    };
    let line = |line: &str| {
        let (counted, rest) = line.split_once(" registers")?;
        let [arch, symbol, count] = counted.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(format!("{arch:7} {symbol:38} {count:>3} registers{rest}\n"))
    };
    let mut lines: Vec<String> = body
        .lines()
        .map(|text| line(text).unwrap_or_else(|| format!("{text}\n")))
        .collect();
    lines.sort();
    head.to_string() + &lines.concat()
}

fn read(path: &Path) -> Result<String, NewError> {
    std::fs::read_to_string(path).map_err(io_error("read", path))
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>, NewError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io_error("read", folder))? {
        let path = entry.map_err(io_error("read", folder))?.path();
        if path.is_dir() {
            found.extend(files_below(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn copy(name: &str, from: &str) -> Result<Copy, NewError> {
        Copy::new(&root(), name, from, &registry::builds().unwrap())
    }

    /// The name that every stage of the repository would get next.
    fn next(word: &str) -> String {
        format!("stage{}-{word}", registry::STAGES.len())
    }

    #[test]
    fn names_that_are_none_or_taken_are_refused() {
        let (next, family) = (registry::STAGES.len(), next("mma-linear"));
        for (name, from, says) in [
            ("mine", "5", format!("give stage{next}-WORD")),
            ("stage77-mine", "5", format!("give stage{next}-WORD")),
            ("stage010-mine", "5", format!("give stage{next}-WORD")),
            ("stage10-Mine", "5", format!("give stage{next}-WORD")),
            ("stage10-", "5", format!("give stage{next}-WORD")),
            ("stage10-../x", "5", format!("give stage{next}-WORD")),
            (
                "stage5-swizzle",
                "5",
                "is taken by the stage or folder".into(),
            ),
            (
                &family,
                "5",
                "the family mma-linear of stage5-swizzle".into(),
            ),
            (
                &self::next("attention"),
                "5",
                "which every stage imports".into(),
            ),
            (&self::next("mine"), "stage5-swizle", "did you mean".into()),
        ] {
            let error = copy(name, from).expect_err(name).to_string();
            assert!(error.contains(&says), "{name}: {error}");
        }
    }

    #[test]
    fn every_stage_can_be_copied_and_only_names_differ() {
        for stage in registry::STAGES {
            let copy = copy(&next("mine"), stage.info().id).unwrap();
            let text = |name: &str| {
                let found = copy
                    .files
                    .iter()
                    .find(|(below, _)| below == Path::new(name));
                found.unwrap_or_else(|| panic!("{name}")).1.as_str()
            };
            let kernel = read(&root().join(stage.info().id).join("kernel.cu")).unwrap();
            let changed = kernel
                .lines()
                .zip(text("kernel.cu").lines())
                .filter(|(old, new)| old != new);
            let renamed = copy
                .variants
                .iter()
                .filter(|(_, family)| *family == copy.source.family);
            assert_eq!(changed.count(), renamed.count(), "{}", stage.info().id);
            let library = text("src/lib.rs");
            assert!(library.contains("claims: &[],"), "{library}");
            let is_listed = !stage.info().redundant.is_empty();
            assert_eq!(library.contains("site: "), is_listed, "{library}");
            for (name, text) in &copy.files {
                let is_own = |line: &&str| !line.contains("copy of");
                let lines: Vec<&str> = text.lines().filter(is_own).collect();
                let names_the_source = lines.iter().any(|line| line.contains(&copy.source.module));
                assert!(!names_the_source, "{}", name.display());
            }
        }
    }

    #[test]
    fn a_snapshot_of_resources_keeps_its_columns_and_order() {
        let mut seen = 0;
        for stage in registry::STAGES {
            let folder = root().join(stage.info().id).join("tests/snapshots");
            for path in files_below(&folder).unwrap() {
                if path.to_string_lossy().contains("__resources") {
                    let text = read(&path).unwrap();
                    assert_eq!(in_order(&text), text);
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, registry::STAGES.len());
    }

    #[test]
    fn a_stage_that_cannot_be_registered_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut copy = copy(&next("mine"), "5").unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        std::fs::write(&first, "old").unwrap();
        std::fs::create_dir_all(second.join("in the way")).unwrap();
        copy.registers = [&first, &second]
            .map(|path| (path.clone(), "old".to_string(), "new".to_string()))
            .into();
        copy.make(folder.path()).unwrap_err();
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!((left.len(), read(&first).unwrap().as_str()), (2, "old"));
    }
}
