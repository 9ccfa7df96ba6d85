//! `compare new`: a stage of one's own, as a registered copy of another.

use crate::answer::Answer;
use crate::measure::machine;
use crate::measure::select;
use crate::record::files::write_atomically;
use crate::record::{StageMeta, VariantMeta};
use crate::registry;
use anyhow::{Context, bail, ensure};
use clap::Args;
use std::iter::zip;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Copies a stage's crate under a new name and registers it. The copy has the same kernels, the copied stage as its predecessor,
and no claims; the family of its default variant gets the new name.

Examples:
  compare new stage12-mine --from stage5-swizzle
  cargo test -p stage12-mine                    tier T0, synchronisation, counters: all pass before you change a line
  compare render                                its row in COMPARE.md and the README

Exit codes:
  0  made
  2  the name is taken or is not a stage name such as stage12-mine, there is no such stage to copy, or the current folder is not in
     a checkout; nothing is written";

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

/// Makes the stage in the checkout around the current folder.
pub fn new(args: &NewArgs) -> anyhow::Result<Answer> {
    let root = machine::workspace().context(
        "the current folder is not inside a checkout of the workspace; clone it, go there and try again",
    )?;
    let copy = Copy::new(&root, &args.name, &args.from, &registry::builds()?)?;
    copy.make(&root)?;
    let Copy { new, source, .. } = &copy;
    Ok(Answer::pass(format!(
        "{0} is a copy of {1}: {2} variants, the family {3} now called {4}, no claims.\n\
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
}

/// A stage to be made.
#[derive(Debug)]
struct Copy {
    new: Names,
    source: Names,
    /// Of the source.
    default_variant: String,
    variants: Vec<VariantMeta>,
    /// Below the checkout: path, what is there, what shall be. First the new stage's files, then where stages are registered.
    files: Vec<(PathBuf, Option<String>, String)>,
}

/// Names that the new type would share with what every stage imports.
const IMPORTED: [&str; 4] = ["Attention", "Artifacts", "StageInfo", "Self"];

impl Copy {
    /// Reads and composes everything that is to be written.
    fn new(root: &Path, name: &str, from: &str, ladder: &[StageMeta]) -> anyhow::Result<Self> {
        let source = select::stage(from, ladder)?;
        let numbers = ladder.iter().filter_map(|stage| parts(&stage.id));
        let last = numbers.map(|(number, _)| number).max();
        let next = last.map_or(0, |last| last + 1);
        let taken = |by: String| format!("'{name}' is taken by {by}; choose another word");
        let word = match parts(name) {
            Some((_, word)) => {
                let is_stage = ladder.iter().any(|stage| stage.id == name);
                ensure!(
                    !is_stage && !root.join(name).exists(),
                    taken(format!("the stage or folder {name}"))
                );
                Some(word)
            }
            None => None,
        };
        let word = word.filter(|word| name == format!("stage{next}-{word}"));
        let word = word.with_context(|| {
            format!(
                "'{name}' is not a stage name: give stage{next}-WORD, its word in lower-case letters and digits, such as \
                 stage{next}-mine"
            )
        })?;
        let default_variant = source.default_variant.clone();
        let family = source.variant(&default_variant);
        let family = &family
            .expect("a loaded stage has its default variant")
            .family;
        let capital = |part: &str| part[..1].to_uppercase() + &part[1..];
        let new = Names {
            id: name.to_string(),
            module: name.replace('-', "_"),
            type_name: word.split('-').map(capital).collect(),
            family: word.to_string(),
        };
        ensure!(
            !IMPORTED.contains(&&*new.type_name),
            taken(format!("{}, which every stage imports", new.type_name))
        );
        let is_taken = source.variants.iter().any(|variant| variant.family == word);
        ensure!(
            word == family || !is_taken,
            taken(format!("the family {word} of {}", source.id))
        );
        let module = source.id.replace('-', "_");
        let tests = root.join(&source.id).join("tests/stage.rs");
        let type_name = read(&tests)?;
        let type_name = between(&type_name, &format!("tests!({module}::"), ")");
        let type_name = type_name
            .with_context(|| unexpected(&tests, &format!("stage_tests::tests!({module}::…)")))?;
        let source_names = Names {
            id: source.id.clone(),
            module,
            type_name: type_name.to_string(),
            family: family.clone(),
        };
        let mut copy = Self {
            new,
            source: source_names,
            default_variant,
            variants: source.variants.clone(),
            files: vec![],
        };
        copy.files = copy.of_stage(root, next)?;
        let last = &ladder.last().expect("there is a stage").id;
        copy.files.extend(copy.registers(root, last)?);
        Ok(copy)
    }

    /// The new stage's files. Tests that the source alone has are of its own idea and stay behind.
    fn of_stage(
        &self,
        root: &Path,
        number: usize,
    ) -> anyhow::Result<Vec<(PathBuf, Option<String>, String)>> {
        let mut files = Vec::new();
        let (folder, renames) = (root.join(&self.source.id), self.renames());
        for path in files_below(&folder)? {
            let below = path.strip_prefix(&folder).expect("found in it");
            let file_name = below.file_name().unwrap_or_default().to_string_lossy();
            let extension = below.extension().unwrap_or_default();
            let is_test = below.starts_with("tests")
                && !below.ends_with("stage.rs")
                && !(file_name.starts_with("stage__") && extension == "snap");
            if is_test || extension == "new" {
                continue;
            }
            let old = read(&path)?;
            let rename = |text: String, (old, new): &(String, String)| text.replace(old, new);
            let text = renames.iter().fold(old.clone(), rename);
            let text = match &*file_name {
                "README.md" => self.readme(number),
                "lib.rs" => self.library(&old, number),
                "Cargo.toml" => self.manifest(&text, number),
                _ if file_name.contains("__resources") => in_order(&text),
                _ => text,
            };
            files.push((Path::new(&self.new.id).join(below), None, text));
        }
        Ok(files)
    }

    /// The source's names, symbols and variants, each with the new stage's.
    fn renames(&self) -> Vec<(String, String)> {
        let (old, new) = (&self.source, &self.new);
        let of_type = |names: &Names| format!("{}::{}", names.module, names.type_name);
        let mut renames = vec![(of_type(old), of_type(new))];
        let is_of_family = |variant: &&VariantMeta| variant.family == old.family;
        for variant in self.variants.iter().filter(is_of_family) {
            // As a symbol, in the table of kernel.cu, and in the snapshot of counters.
            let spelled = |names: &Names| {
                let name = variant.name.replacen(&old.family, &names.family, 1);
                let [symbol, family] = [&name, &names.family].map(|name| name.replace('-', "_"));
                [
                    format!("{}_{symbol}_", names.module),
                    format!("VARIANT({family}, {symbol}, "),
                    format!(", {name}: "),
                ]
            };
            renames.extend(zip(spelled(old), spelled(new)));
        }
        let ids = [(&old.module, &new.module), (&old.id, &new.id)];
        renames.extend(ids.map(|(old, new)| (old.clone(), new.clone())));
        renames
    }

    fn manifest(&self, text: &str, number: usize) -> String {
        let line = |line: &str| match line.starts_with("description = ") {
            true => format!(
                "description = \"Stage {number}: a copy of {}\"\n",
                self.source.id
            ),
            false => format!("{line}\n"),
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
            source.id,
            new.type_name,
            new.id,
            self.default_variant
                .replacen(&source.family, &new.family, 1),
        )
    }

    fn readme(&self, number: usize) -> String {
        let (source, word) = (&self.source.id, self.new.family.replace('-', " "));
        format!(
            "# Stage {number}: {word}\n\n\
             A copy of [{source}](../{source}/README.md) so far. Describe the one idea here: what the previous kernel does,\n\
             what that costs, and what this one does instead.\n\n\
             ## Shape of the kernel\n\
             - What differs from {source}, and which hazard each new barrier closes.\n\n\
             ## What was expected and measured\n\
             Nothing is claimed yet. Predict before you measure: the speedup on mission, and which counter moves which way, as claims in\n\
             `src/lib.rs`.\n"
        )
    }

    /// Every file that lists stages, with the new one behind the `last`.
    fn registers(
        &self,
        root: &Path,
        last: &str,
    ) -> anyhow::Result<Vec<(PathBuf, Option<String>, String)>> {
        let Names {
            id,
            module,
            type_name,
            ..
        } = &self.new;
        let last_type = format!("&{}::", last.replace('-', "_"));
        let edited = |file: &str| {
            let path = root.join(file);
            let (old, mut new) = (read(&path)?, String::new());
            for line in old.split_inclusive('\n') {
                new += line;
                if line.contains(last) {
                    new += &line.replace(last, id);
                } else if line.contains(&last_type) {
                    new += &format!("    &{module}::{type_name},\n");
                }
            }
            ensure!(new != old, unexpected(&path, &format!("line of {last}")));
            Ok((file.into(), Some(old), new))
        };
        let files = [
            "Cargo.toml",
            "compare/Cargo.toml",
            "compare/src/registry.rs",
        ];
        files.into_iter().map(edited).collect()
    }

    /// Writes everything, or takes all of it back.
    fn make(&self, root: &Path) -> anyhow::Result<()> {
        let write = |path: &Path, text: &str| write_atomically(&root.join(path), text.as_bytes());
        let made = self
            .files
            .iter()
            .try_for_each(|(path, _, new)| write(path, new));
        if let Err(error) = made {
            let _ = std::fs::remove_dir_all(root.join(&self.new.id));
            for (path, old, _) in &self.files {
                // What could not be written has not changed.
                let _ = old.as_ref().map(|old| write(path, old));
            }
            bail!(error);
        }
        Ok(())
    }
}

fn unexpected(file: &Path, lacks: &str) -> String {
    format!(
        "{} has no {lacks}; is this program built from this checkout? Build again, or register the stage as CONTRIBUTING.md says",
        file.display()
    )
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

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files_below(&path)?),
            false => found.push(path),
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

    fn copy(name: &str, from: &str) -> anyhow::Result<Copy> {
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
                let path = Path::new(&copy.new.id).join(name);
                let found = copy.files.iter().find(|(below, ..)| *below == path);
                found.unwrap_or_else(|| panic!("{name}")).2.as_str()
            };
            let kernel = read(&root().join(stage.info().id).join("kernel.cu")).unwrap();
            let changed = kernel
                .lines()
                .zip(text("kernel.cu").lines())
                .filter(|(old, new)| old != new);
            let renamed = copy
                .variants
                .iter()
                .filter(|variant| variant.family == copy.source.family);
            assert_eq!(changed.count(), renamed.count(), "{}", stage.info().id);
            let library = text("src/lib.rs");
            assert!(library.contains("claims: &[],"), "{library}");
            let is_listed = !stage.info().redundant.is_empty();
            assert_eq!(library.contains("site: "), is_listed, "{library}");
            let is_new = |(_, old, _): &&(_, Option<String>, _)| old.is_none();
            for (name, _, text) in copy.files.iter().filter(is_new) {
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
        copy.files.retain(|(_, old, _)| old.is_none());
        let registers = [&first, &second]
            .map(|path| (path.clone(), Some("old".to_string()), "new".to_string()));
        copy.files.extend(registers);
        copy.make(folder.path()).unwrap_err();
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!((left.len(), read(&first).unwrap().as_str()), (2, "old"));
    }
}
