//! Mutation testing of synchronisation: every barrier, wait, arrive and commit of a kernel is left out once. A *site* is a line
//! of the source. It is needed if, without it, one instance of the family has a hazard (H1), a launch that fails, or an output
//! that fails one of C1 to C6 under some schedule. A site that every instance does without *survives*, and
//! [`StageInfo::redundant`](crate::stage::StageInfo::redundant) must list it.

use crate::check::{Target, check, failures};
use crate::device::Staged;
use crate::device::emulated::{Selection, trace};
use crate::image::Layout;
use crate::inputs::{Family as Distribution, Inputs};
use crate::problem::{Dtype, Mask, Problem, Shape};
use crate::resources::KernelFacts;
use crate::stage::{LoadedStage, Prepared, Redundant};
use crate::tier0::SCHEDULES;
use crate::verdict::{GateId, GateResult};
use emulator::trace::{Hazard, HazardKind, SyncSite};
use emulator::{Place, Schedule, TraceReport};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Of keys, and one key more: rings of up to six tiles are filled, drained and used again, and the last tile is ragged.
pub const TILES: usize = 7;

/// For a survivor: deeper rings, and one for each of several groups of warps.
const MANY_TILES: usize = 16;

/// Of the plain build: also with one warp of each block, another under each, that runs only when no other can.
const THOROUGH: [Schedule; 6] = [
    SCHEDULES[0],
    SCHEDULES[1],
    SCHEDULES[2],
    Schedule::Starving(1),
    Schedule::Starving(2),
    Schedule::Starving(3),
];

/// The presets in which sites are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presets {
    /// See [`LoadedStage::family_variants`]. Others are asked only about a site that survives and is not listed. A listed
    /// site must show no hazard.
    OnePerFamily,
    All,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressed {
    pub sites: Vec<SiteResult>,
    /// Entries of [`StageInfo::redundant`](crate::stage::StageInfo::redundant) that name no site, or several, and refused
    /// launches.
    pub errors: Vec<String>,
    /// With all sites, so that nothing is said of their family's.
    pub broken: Vec<Broken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub stage: String,
    pub variant: String,
    /// H1 where there is a hazard.
    pub result: GateResult,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteResult {
    pub stage: String,
    pub family: String,
    pub operation: String,
    /// `stage0-scalar/kernel.cu:166`.
    pub place: String,
    pub finding: Finding,
    /// Why it is listed as redundant.
    pub listed: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Killed {
        gate: GateId,
        /// What the gate found, in a line.
        what: String,
        /// Variant and problem: `scalar-32x64 1x1x33:321x64 f16 full`.
        at: String,
    },
    Survived {
        cases: usize,
    },
}

impl SiteResult {
    pub fn is_killed(&self) -> bool {
        matches!(self.finding, Finding::Killed { .. })
    }

    /// For a site that survives and is not listed, or is listed and needed.
    pub fn remedy(&self) -> Option<&'static str> {
        match (self.is_killed(), &self.listed) {
            (false, None) => Some(
                "its mutant survives: remove it, or list it with the reason in `redundant` of the stage's StageInfo",
            ),
            (true, Some(_)) => {
                Some("it is needed: remove its entry from `redundant` of the stage's StageInfo")
            }
            _ => None,
        }
    }
}

/// Every site of `stages`, one at a time; `starts` gets the next stage.
pub fn suppress_each<'a>(
    stages: &[&'a LoadedStage],
    presets: Presets,
    mut starts: impl FnMut(&'a LoadedStage),
) -> Suppressed {
    let mut suppressed = Suppressed::default();
    for &stage in stages {
        starts(stage);
        for first in stage.family_variants() {
            let family = FamilyOfKernels::new(stage, first);
            match family.suppress_each(presets, &mut suppressed.errors) {
                Ok(sites) => suppressed.sites.extend(sites),
                Err(Unfit::Broken(broken)) => suppressed.broken.extend(broken),
                Err(Unfit::Refused(error)) => suppressed.errors.push(error),
            }
        }
    }
    suppressed
}

struct FamilyOfKernels<'a> {
    stage: &'a LoadedStage,
    name: &'a str,
    /// The one to begin with first.
    variants: Vec<&'a str>,
}

/// Nothing can be said of a family's sites.
enum Unfit {
    /// With all sites; one entry per variant.
    Broken(Vec<Broken>),
    Refused(String),
}

/// One instance, one problem.
struct Case<'a> {
    stage: &'a LoadedStage,
    prepared: Prepared<'a>,
    family: Distribution,
    /// Strided, so that what lies between rows is out of bounds.
    staged: Staged,
    name: String,
}

struct Site {
    operation: String,
    place: Place,
    words: String,
    cases: Vec<usize>,
}

impl<'a> FamilyOfKernels<'a> {
    fn new(stage: &'a LoadedStage, first: &'a str) -> Self {
        let name = stage.family_of(first);
        let others = stage
            .variants()
            .into_iter()
            .filter(|variant| *variant != first && stage.family_of(variant) == name);
        Self {
            stage,
            name: name.unwrap_or_default(),
            variants: std::iter::once(first).chain(others).collect(),
        }
    }

    /// What is wrong with the list goes into `errors`.
    fn suppress_each(
        &self,
        presets: Presets,
        errors: &mut Vec<String>,
    ) -> Result<Vec<SiteResult>, Unfit> {
        let searched = if presets == Presets::All {
            &self.variants[..]
        } else {
            &self.variants[..1]
        };
        let mut cases = self.cases(searched, TILES, Distribution::Normal);
        // A kernel may choose its way by the scales of E4M3.
        let large = self.cases(searched, TILES, Distribution::Large);
        let has_scales = |case: &Case<'_>| case.staged.problem.dtype == Dtype::E4m3;
        cases.extend(large.into_iter().filter(has_scales));
        let traced = cases
            .par_iter()
            .map(|case| case.trace(None, SCHEDULES[0]))
            .collect::<Result<Vec<_>, _>>()?;
        let mut broken: Vec<Broken> = cases
            .iter()
            .zip(&traced)
            .filter_map(|(case, report)| case.hazardous(report))
            .collect();
        broken.dedup_by(|next, first| next.variant == first.variant);
        if !broken.is_empty() {
            return Err(Unfit::Broken(broken));
        }
        let mut sites: BTreeMap<Place, Site> = BTreeMap::new();
        for (index, report) in traced.into_iter().enumerate() {
            for SyncSite { operation, place } in report.sync_sites {
                let new = || {
                    let words = words_of(self.stage.attention.artifacts().sources, &place);
                    Site {
                        operation: operation.clone(),
                        place: place.clone(),
                        words,
                        cases: Vec::new(),
                    }
                };
                let site = sites.entry(place.clone()).or_insert_with(new);
                if !site.operation.contains(&operation) {
                    site.operation += &format!(" and {operation}");
                }
                if site.cases.last() != Some(&index) {
                    site.cases.push(index);
                }
            }
        }
        let sites: Vec<Site> = sites.into_values().collect();
        if sites.is_empty() {
            errors.push(format!(
                "{}: no barrier, wait, arrive or commit was reached, so none was left out: is the traced build instrumented?",
                self.name
            ));
        }
        // One preset may not reach all that is listed.
        if presets == Presets::All {
            let words: Vec<&str> = sites.iter().map(|site| site.words.as_str()).collect();
            errors.extend(useless_listings(
                self.stage.info().redundant,
                self.name,
                &words,
            ));
        }
        sites
            .par_iter()
            .map(|site| self.suppress(site, &cases, presets))
            .collect()
    }

    fn suppress(
        &self,
        site: &Site,
        cases: &[Case<'_>],
        presets: Presets,
    ) -> Result<SiteResult, Unfit> {
        let mut listings = self.stage.info().redundant.iter();
        let listing = listings.find(|listing| lists(listing, self.name, &site.words));
        let reached: Vec<&Case<'_>> = site.cases.iter().map(|&index| &cases[index]).collect();
        let finding = match self.hazard(site, reached.iter().copied(), true)? {
            Some(killed) => killed,
            // A quick look takes the list's word for the rest.
            None if presets == Presets::OnePerFamily && listing.is_some() => Finding::Survived {
                cases: reached.len(),
            },
            None => self.thoroughly(site, &reached, presets == Presets::OnePerFamily)?,
        };
        Ok(SiteResult {
            stage: self.stage.info().id.to_string(),
            family: self.name.to_string(),
            operation: site.operation.clone(),
            place: site.place.to_string(),
            finding,
            listed: listing.map(|listing| listing.reason.to_string()),
        })
    }

    /// The first of the traced build, which only a kernel that depends on the schedule changes: each case gets one, and all are
    /// tried.
    fn hazard<'c>(
        &self,
        site: &Site,
        cases: impl IntoIterator<Item = &'c Case<'a>>,
        is_known: bool,
    ) -> Result<Option<Finding>, Unfit>
    where
        'a: 'c,
    {
        for (case, &schedule) in cases.into_iter().zip(SCHEDULES.iter().cycle()) {
            let report = case.trace(Some(&site.place), schedule)?;
            let Some(hazard) = most_telling(&report.hazards) else {
                continue;
            };
            if !(is_known && schedule == SCHEDULES[0])
                && let Some(broken) = case.hazardous(&case.trace(None, schedule)?)
            {
                return Err(Unfit::Broken(vec![broken]));
            }
            let what = in_a_line(hazard, &site.place.file);
            return Ok(Some(case.killed(GateId::H1, what)));
        }
        Ok(None)
    }

    /// C1 to C6 under all schedules, and the same of more problems and, if asked, of the other presets.
    fn thoroughly(
        &self,
        site: &Site,
        reached: &[&Case<'a>],
        other_presets: bool,
    ) -> Result<Finding, Unfit> {
        // First, since it is the cheapest: a wait that is left behind by a phase stops a schedule, and shows no hazard.
        if let Some(killed) = wrong(site, reached.iter().copied())? {
            return Ok(killed);
        }
        let variant = reached.first().map_or(self.variants[0], |case| {
            case.prepared.kernel.variant.as_str()
        });
        let mut more = self.cases(&[variant], 0, Distribution::Normal);
        more.extend(self.cases(&[variant], MANY_TILES, Distribution::Normal));
        // Maxima that rise from tile to tile make a kernel correct itself.
        more.extend(self.cases(&[variant], MANY_TILES, Distribution::Large));
        if other_presets {
            more.extend(self.cases(&self.variants[1..], TILES, Distribution::Normal));
        }
        if let Some(killed) = self.hazard(site, &more, false)? {
            return Ok(killed);
        }
        let cases = reached.len() + more.len();
        Ok(wrong(site, &more)?.unwrap_or(Finding::Survived { cases }))
    }

    /// One problem per instance: two blocks of rows, the second with a single row; `tiles` tiles of keys and one key.
    fn cases(&self, variants: &[&str], tiles: usize, family: Distribution) -> Vec<Case<'a>> {
        let instances = variants.iter().flat_map(|variant| {
            self.stage
                .kernels
                .iter()
                .filter(move |kernel| kernel.variant == *variant)
        });
        let case = |facts: &KernelFacts, variant: &str| {
            let (shape, mask) = ring(facts, facts.block_m + 1, tiles);
            let problem = Problem::new(shape, facts.dtype, mask).ok()?;
            let prepared = self.stage.prepare(variant, &problem).ok()?;
            let staged = Staged::new(&Inputs::generate(&problem, family, 0), Layout::Strided);
            let name = format!("{variant} {shape} {} {mask} {family}", facts.dtype);
            Some(Case {
                stage: self.stage,
                prepared,
                family,
                staged,
                name,
            })
        };
        instances
            .filter_map(|kernel| case(&kernel.facts, &kernel.variant))
            .collect()
    }
}

/// The first case whose output is wrong without the site.
fn wrong<'c, 'a: 'c>(
    site: &Site,
    cases: impl IntoIterator<Item = &'c Case<'a>>,
) -> Result<Option<Finding>, Unfit> {
    for case in cases {
        if let Some((gate, what)) = case.check(Some(&site.place)) {
            return match case.check(None) {
                Some((gate, before)) => Err(Unfit::Broken(vec![case.broken(gate, &before)])),
                None => Ok(Some(case.killed(gate, what))),
            };
        }
    }
    Ok(None)
}

impl Case<'_> {
    fn trace(&self, without: Option<&Place>, schedule: Schedule) -> Result<TraceReport, Unfit> {
        let selection = Selection {
            suppress: without,
            ..Selection::default()
        };
        trace(&self.prepared, &self.staged, schedule, &selection).map_err(|fault| {
            Unfit::Refused(format!(
                "{}: the traced build does not start: {fault}",
                self.name
            ))
        })
    }

    /// H1 on a trace with all sites.
    fn hazardous(&self, report: &TraceReport) -> Option<Broken> {
        Some(self.broken(GateId::H1, &report.hazards.first()?.to_string()))
    }

    fn killed(&self, gate: GateId, what: String) -> Finding {
        let at = self.name.clone();
        Finding::Killed { gate, what, at }
    }

    fn broken(&self, gate: GateId, what: &str) -> Broken {
        Broken {
            stage: self.stage.info().id.to_string(),
            variant: self.prepared.kernel.variant.clone(),
            result: GateResult::fail(
                gate,
                format!("{} with all its synchronisation: {what}", self.name),
            ),
        }
    }

    /// The first that fails, and why.
    fn check(&self, without: Option<&Place>) -> Option<(GateId, String)> {
        let checked = check(
            self.stage,
            &self.prepared.kernel.variant,
            &self.staged.problem,
            self.family,
            Target::Emulated {
                schedules: &THOROUGH,
                traced: &[],
                suppress: without,
            },
        );
        let failed = failures(checked).into_iter().next()?;
        Some((failed.gate, failed.reason))
    }
}

/// Rings are filled, drained and used again, and the last tile is ragged. Half of the instances get the full mask, the others
/// the causal one.
pub fn ring(facts: &KernelFacts, seq_q: usize, tiles: usize) -> (Shape, Mask) {
    let seq_kv = tiles * facts.cluster as usize * facts.block_n + 1; // for each block
    let shape = Shape {
        seq_kv,
        ..Shape::bhsd(1, 1, seq_q, facts.head_dim)
    };
    let is_full = (facts.dtype == Dtype::F16) == (facts.head_dim == 64);
    (shape, if is_full { Mask::Full } else { Mask::Causal })
}

/// A copy that is read too early says more of a wait or commit than the races it comes with.
fn most_telling(hazards: &[Hazard]) -> Option<&Hazard> {
    hazards
        .iter()
        .find(|hazard| hazard.kind == HazardKind::ReadInFlight)
        .or(hazards.first())
}

/// Kind and both places, in the site's file where they are inlined from there.
fn in_a_line(hazard: &Hazard, file: &str) -> String {
    let sides = [&hazard.first, &hazard.second]
        .into_iter()
        .flatten()
        .map(|side| {
            let place = side
                .places
                .iter()
                .find(|place| place.file == file)
                .or(side.places.first());
            place.map_or(side.does.clone(), |place| {
                format!("{} at {place}", side.does)
            })
        });
    let sides: Vec<String> = sides.collect();
    let detail = if sides.is_empty() {
        hazard.missing.clone()
    } else {
        sides.join(", ")
    };
    format!("{}: {detail}", hazard.kind.label())
}

/// The comment above, and the line.
fn words_of(sources: &[(&str, &str)], place: &Place) -> String {
    let file = place.file.strip_prefix("./").unwrap_or(&place.file);
    let text = sources.iter().find(|(name, _)| *name == file);
    let lines = text.into_iter().flat_map(|(_, text)| text.lines());
    let lines: Vec<&str> = lines.map(str::trim).take(place.line as usize).collect();
    let Some((line, above)) = lines.split_last() else {
        return String::new();
    };
    let is_code = |line: &&str| !line.starts_with("//");
    let start = above.iter().rposition(is_code).map_or(0, |last| last + 1);
    let comment: Vec<&str> = above[start..]
        .iter()
        .map(|line| line.trim_start_matches('/').trim())
        .collect();
    format!("{} {line}", comment.join(" ")).trim().to_string()
}

fn lists(listing: &Redundant, family: &str, words: &str) -> bool {
    listing.family == family && words.contains(listing.site)
}

/// That are not about exactly one of the family's sites, of which `words` are the words.
fn useless_listings(listings: &[Redundant], family: &str, words: &[&str]) -> Vec<String> {
    let of_family = listings.iter().filter(|listing| listing.family == family);
    let useless = of_family.filter_map(|listing| {
        let named = match words.iter().filter(|words| lists(listing, family, words)).count() {
            1 => return None,
            0 => "no synchronisation site".to_string(),
            several => format!("{several} synchronisation sites"),
        };
        Some(format!(
            "`redundant` of the stage's StageInfo has an entry for {family}, '{}', that names {named}: quote words of one \
             call's line, or of the comment directly above it",
            listing.site
        ))
    });
    useless.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulator::trace::HazardAccess;

    const SOURCE: &str = "\
        void attention() {\n    \
            // Q was written by all threads\n    \
            // and is read by every warp.\n    \
            __syncthreads();\n\n    \
            __syncwarp(); // scores\n\
        }\n";

    fn words(line: u32) -> String {
        let place = Place {
            file: "./stage9/kernel.cu".into(),
            line,
        };
        words_of(
            &[("common/tile.cuh", ""), ("stage9/kernel.cu", SOURCE)],
            &place,
        )
    }

    fn site(finding: Finding, listed: Option<&str>) -> SiteResult {
        SiteResult {
            stage: "stage9".into(),
            family: "mma".into(),
            operation: "__syncthreads".into(),
            place: "stage9/kernel.cu:4".into(),
            finding,
            listed: listed.map(String::from),
        }
    }

    fn killed() -> Finding {
        Finding::Killed {
            gate: GateId::H1,
            what: "race".into(),
            at: "mma-32x64".into(),
        }
    }

    #[test]
    fn a_site_is_known_by_its_comment_or_its_line() {
        assert_eq!(
            words(4),
            "Q was written by all threads and is read by every warp. __syncthreads();"
        );
        assert_eq!(words(6), "__syncwarp(); // scores");
        assert_eq!(
            words_of(
                &[],
                &Place {
                    file: "elsewhere.h".into(),
                    line: 3
                }
            ),
            ""
        );
    }

    #[test]
    fn entries_of_the_list_name_one_site_of_their_family() {
        let entry = |family, site| Redundant {
            family,
            site,
            reason: "",
        };
        let (barrier, scores) = (words(4), words(6));
        let useless = |entry| useless_listings(&[entry], "mma", &[&barrier, &scores]);
        assert_eq!(useless(entry("mma", "all threads and is read")), [""; 0]);
        assert_eq!(
            useless(entry("other", "nothing of the kind")),
            [""; 0],
            "judged with its own family"
        );
        assert!(
            useless(entry("mma", "K and V"))[0]
                .contains("names no synchronisation site: quote words")
        );
        assert!(useless(entry("mma", "__sync"))[0].contains("names 2 synchronisation sites"));
    }

    #[test]
    fn a_survivor_needs_a_reason_and_a_reason_a_survivor() {
        let survived = || Finding::Survived { cases: 4 };
        assert_eq!(site(killed(), None).remedy(), None);
        assert_eq!(site(survived(), Some("why")).remedy(), None);
        let unlisted = site(survived(), None).remedy().unwrap();
        assert!(unlisted.starts_with("its mutant survives: remove it, or list it with the reason"));
        let stale = site(killed(), Some("why")).remedy().unwrap();
        assert!(stale.starts_with("it is needed: remove its entry from `redundant`"));
    }

    #[test]
    fn a_hazard_is_told_in_the_kernels_own_lines() {
        let place = |file: &str, line| Place {
            file: file.into(),
            line,
        };
        let side = |does: &str, places| HazardAccess {
            does: does.into(),
            block: [0; 3],
            thread: None,
            warp: 0,
            places,
        };
        let inlined = vec![
            place("common/attn/tile.cuh", 34),
            place("./stage9/kernel.cu", 168),
        ];
        let mut hazard = Hazard {
            kind: HazardKind::Race,
            block: [0; 3],
            memory: String::new(),
            first: Some(side("writes", inlined)),
            second: Some(side("reads", vec![place("common/attn/softmax.cuh", 5)])),
            missing: "a deadlock".into(),
            times: 1,
        };
        let early = Hazard {
            kind: HazardKind::ReadInFlight,
            ..hazard.clone()
        };
        assert_eq!(most_telling(&[hazard.clone(), early.clone()]), Some(&early));
        assert_eq!(most_telling(&[hazard.clone()]), Some(&hazard));
        let line = in_a_line(&hazard, "./stage9/kernel.cu");
        assert_eq!(
            line,
            "race: writes at stage9/kernel.cu:168, reads at attn/softmax.cuh:5"
        );
        (hazard.first, hazard.second) = (None, None);
        assert_eq!(in_a_line(&hazard, ""), "race: a deadlock");
    }
}
