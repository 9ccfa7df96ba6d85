//! Mutation testing of synchronisation: every barrier, wait, arrive and commit of a kernel is left
//! out once.
//!
//! A *site* is a line of the source. It is needed if, without it, one instance of the family has a
//! hazard (H1), a launch that fails, or an output that fails one of C1 to C6 under some schedule. A
//! site that every instance does without *survives*, and
//! [`StageInfo::redundant`](crate::stage::StageInfo::redundant) must list it.

use crate::check::{Target, check, failures};
use crate::device::Staged;
use crate::device::emulated::{Selection, trace};
use crate::image::Layout;
use crate::inputs::{Family as Distribution, Inputs};
use crate::problem::{Dtype, Mask, Problem, Shape};
use crate::resources::KernelFacts;
use crate::serving::{Draw, LEAST_PAGE_ROWS, Lengths, Serving, Spread};
use crate::stage::{Kernel, LoadedStage, Prepared, Redundant};
use crate::tier0::SCHEDULES;
use crate::verdict::{GateId, GateResult};
use emulator::trace::{Hazard, HazardKind, SyncSite};
use emulator::{Place, Schedule, TraceReport};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// The number of tiles of keys, to which one key is added: rings of up to six tiles are filled,
/// drained and used again, and the last tile is ragged.
pub const TILES: usize = 7;

/// The number of tiles for a survivor: deeper rings, and one for each of several groups of warps.
const MANY_TILES: usize = 16;

/// The schedules of the plain build for a survivor. Under the last three, one warp of each block
/// runs only when no other can.
const THOROUGH: [Schedule; 6] = [
    SCHEDULES[0],
    SCHEDULES[1],
    SCHEDULES[2],
    Schedule::Starving(1),
    Schedule::Starving(2),
    Schedule::Starving(3),
];

/// Sequences of unequal lengths, one after the other.
const PACKED: Serving = Serving {
    lengths: Lengths::Packed(Draw {
        spread: Spread::Even,
        least: 0,
        seed: 1,
    }),
    ..Serving::DENSE
};

/// The same, half of them of one query, in pages of the fewest rows.
const PAGED: Serving = Serving {
    lengths: Lengths::Packed(Draw {
        spread: Spread::Mixed,
        least: 1,
        seed: 2,
    }),
    page_rows: Some(LEAST_PAGE_ROWS as u16),
    ..Serving::DENSE
};

/// The presets in which sites are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presets {
    /// The presets of [`LoadedStage::family_variants`]. Others are asked only about a site that
    /// survives and is not listed. A listed site must show no hazard.
    OnePerFamily,
    All,
}

/// The findings on the mutants of all sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressed {
    pub sites: Vec<SiteResult>,
    /// The entries of [`StageInfo::redundant`](crate::stage::StageInfo::redundant) that name no
    /// site, or several, and refused launches.
    pub errors: Vec<String>,
    /// The variants that are broken with all sites, so that their family's sites are not judged.
    pub broken: Vec<Broken>,
}

impl Suppressed {
    /// Adds the findings on other stages.
    pub fn add(&mut self, other: Self) {
        self.sites.extend(other.sites);
        self.errors.extend(other.errors);
        self.broken.extend(other.broken);
    }
}

/// A variant that is broken with all its synchronisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub stage: String,
    pub variant: String,
    /// H1 where there is a hazard.
    pub result: GateResult,
}

/// A site and what its mutant did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteResult {
    pub stage: String,
    pub family: String,
    pub operation: String,
    /// `stage0-scalar/kernel.cu:166`.
    pub place: String,
    pub finding: Finding,
    /// The reason for which it is listed as redundant.
    pub listed: Option<String>,
}

/// The finding on a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Killed {
        gate: GateId,
        /// The gate's finding, in a line.
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

    /// Returns what to do about a site that survives and is not listed, or is listed and needed.
    pub fn remedy(&self) -> Option<&'static str> {
        if !self.is_killed() && self.listed.is_none() {
            return Some(
                "its mutant survives: remove it, or list it with the reason in `redundant` of \
                 the stage's StageInfo",
            );
        }
        if self.is_killed() && self.listed.is_some() {
            return Some(
                "it is needed: remove its entry from `redundant` of the stage's StageInfo",
            );
        }
        None
    }
}

/// Leaves out every site of a stage, one at a time.
pub fn suppress_each(stage: &LoadedStage, presets: Presets) -> Suppressed {
    let mut suppressed = Suppressed::default();
    for first in stage.family_variants() {
        let family = FamilyOfKernels::new(stage, first);
        match family.suppress_each(presets, &mut suppressed.errors) {
            Ok(sites) => suppressed.sites.extend(sites),
            Err(SkippedFamily::Broken(broken)) => suppressed.broken.extend(broken),
            Err(SkippedFamily::Refused(error)) => suppressed.errors.push(error),
        }
    }
    suppressed
}

struct FamilyOfKernels<'a> {
    stage: &'a LoadedStage,
    name: &'a str,
    /// The family's presets, the one to begin with first.
    variants: Vec<&'a str>,
}

/// A reason why a family's sites are not judged.
enum SkippedFamily {
    /// The variants that are broken with all sites.
    Broken(Vec<Broken>),
    /// A launch that was refused.
    Refused(String),
}

/// One instance on one problem.
struct Case<'a> {
    stage: &'a LoadedStage,
    prepared: Prepared<'a>,
    family: Distribution,
    /// The inputs, strided, so that what lies between rows is out of bounds.
    staged: Staged,
    name: String,
}

struct Site {
    operation: String,
    place: Place,
    /// The words by which the stage's list may name it.
    words: String,
    /// The indices of the cases that reach it.
    cases: Vec<usize>,
}

impl<'a> FamilyOfKernels<'a> {
    fn new(stage: &'a LoadedStage, first: &'a str) -> Self {
        let name = stage.family_of(first);
        let mut variants = stage.variants();
        variants.retain(|variant| *variant != first && stage.family_of(variant) == name);
        variants.insert(0, first);
        Self {
            stage,
            name: name.unwrap_or_default(),
            variants,
        }
    }

    /// Leaves out every site of the family. What is wrong with the list goes into `errors`.
    fn suppress_each(
        &self,
        presets: Presets,
        errors: &mut Vec<String>,
    ) -> Result<Vec<SiteResult>, SkippedFamily> {
        let searched = if presets == Presets::All {
            &self.variants[..]
        } else {
            &self.variants[..1]
        };
        let mut cases = self.cases(searched, TILES, Distribution::Normal);
        // A kernel may choose its way by the scales of E4M3.
        let mut large = self.cases(searched, TILES, Distribution::Large);
        large.retain(|case| case.staged.problem.dtype == Dtype::E4m3);
        cases.extend(large);
        cases.extend(self.served_cases(searched));

        let traced = trace_unbroken(&cases)?;
        let sites = self.sites(traced);
        if sites.is_empty() {
            errors.push(format!(
                "{}: no barrier, wait, arrive or commit was reached, so none was left out: is the \
                 traced build instrumented?",
                self.name
            ));
        }
        // One preset may not reach all that is listed.
        if presets == Presets::All {
            let site_words: Vec<&str> = sites.iter().map(|site| site.words.as_str()).collect();
            let listings = self.stage.info().redundant;
            errors.extend(useless_listings(listings, self.name, &site_words));
        }
        sites
            .par_iter()
            .map(|site| self.suppress(site, &cases, presets))
            .collect()
    }

    /// Returns the sites that any case reached, in order of their place.
    fn sites(&self, traced: Vec<TraceReport>) -> Vec<Site> {
        let sources = self.stage.attention.artifacts().sources;
        let mut sites: BTreeMap<Place, Site> = BTreeMap::new();
        for (index, report) in traced.into_iter().enumerate() {
            for SyncSite { operation, place } in report.sync_sites {
                let site = sites.entry(place.clone()).or_insert_with(|| Site {
                    operation: operation.clone(),
                    words: words_at(sources, &place),
                    place,
                    cases: Vec::new(),
                });
                if !site.operation.contains(&operation) {
                    site.operation += &format!(" and {operation}");
                }
                if site.cases.last() != Some(&index) {
                    site.cases.push(index);
                }
            }
        }
        sites.into_values().collect()
    }

    /// Leaves out one site.
    fn suppress(
        &self,
        site: &Site,
        cases: &[Case<'_>],
        presets: Presets,
    ) -> Result<SiteResult, SkippedFamily> {
        let redundant = self.stage.info().redundant;
        let listing = redundant
            .iter()
            .find(|listing| lists(listing, self.name, &site.words));
        let reached = soonest_first(site.cases.iter().map(|&index| &cases[index]).collect());
        let is_quick = presets == Presets::OnePerFamily;
        let finding = match first_hazard(site, &reached)? {
            Some(killed) => killed,
            // A quick look takes the list's word for the rest.
            None if is_quick && listing.is_some() => Finding::Survived {
                cases: reached.len(),
            },
            None => self.search_thoroughly(site, &reached, is_quick)?,
        };
        Ok(SiteResult {
            stage: self.stage.info().id.to_string(),
            family: self.name.to_string(),
            operation: site.operation.clone(),
            place: site.place.to_string(),
            finding,
            listed: listing.map(|entry| entry.reason.to_string()),
        })
    }

    /// Judges C1 to C6 under all schedules, then gates and hazards on more problems and, if asked,
    /// of the other presets.
    fn search_thoroughly(
        &self,
        site: &Site,
        reached: &[&Case<'a>],
        other_presets: bool,
    ) -> Result<Finding, SkippedFamily> {
        // First, since it is the cheapest: a wait that is left behind by a phase stops a schedule,
        // and shows no hazard.
        for case in reached {
            if let Some(killed) = case.wrong(site)? {
                return Ok(killed);
            }
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
        for (case, schedule) in with_schedules(&more) {
            if let Some(killed) = case.wrong(site)? {
                return Ok(killed);
            }
            if let Some(killed) = case.hazard(site, schedule)? {
                case.refuse_hazard(schedule)?;
                return Ok(killed);
            }
        }
        Ok(Finding::Survived {
            cases: reached.len() + more.len(),
        })
    }

    /// Makes one problem per instance: two blocks of rows, the second with a single row; `tiles`
    /// tiles of keys and one key.
    fn cases(&self, variants: &[&str], tiles: usize, family: Distribution) -> Vec<Case<'a>> {
        let mut cases = Vec::new();
        for variant in variants {
            let instances = self.stage.kernels.iter();
            for kernel in instances.filter(|kernel| kernel.variant == *variant) {
                let (shape, mask) = if self.stage.attention.is_persistent(kernel) {
                    rings_over_items(kernel, tiles)
                } else {
                    ring(kernel, kernel.block_m + 1, tiles)
                };
                cases.extend(Case::new(self.stage, kernel, shape, mask, family));
            }
        }
        cases
    }

    /// Makes the problems of an instance that takes sequences as they are served: packed ones,
    /// one of them empty, ones in pages, and short ones of which many have no key.
    fn served_cases(&self, variants: &[&str]) -> Vec<Case<'a>> {
        let mut cases = Vec::new();
        for kernel in &self.stage.kernels {
            let is_searched = variants.contains(&kernel.variant.as_str());
            if !is_searched || !self.stage.attention.serves(kernel) {
                continue;
            }
            let (dense, mask) = ring(kernel, kernel.block_m + 1, TILES / 2);
            let served = |serving| Shape {
                batch: 4,
                serving,
                ..dense
            };
            // Every second sequence has no key: between such items is nothing but their stores.
            let keys_of_few = Shape {
                batch: 16,
                heads_q: 2,
                heads_kv: 2,
                seq_q: 20,
                seq_kv: 1,
                ..served(PACKED)
            };
            for shape in [served(PACKED), served(PAGED), keys_of_few] {
                let family = Distribution::Normal;
                cases.extend(Case::new(self.stage, kernel, shape, mask, family));
            }
        }
        cases
    }
}

/// Sorts cases: the smallest of each kind, then the second of each. Most sites are missed in any
/// case, and others in all of one kind.
fn soonest_first<'c, 'a>(mut cases: Vec<&'c Case<'a>>) -> Vec<&'c Case<'a>> {
    cases.sort_by_key(|case| case.staged.problem.scores());
    let mut counts = BTreeMap::new();
    let mut ranked = Vec::new();
    for case in cases {
        let kind = (case.staged.problem.shape.serving, case.family);
        let count = counts.entry(kind).or_insert(0);
        ranked.push((*count, case));
        *count += 1;
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, case)| case).collect()
}

/// Traces all cases with all sites. Refuses a family with a hazard.
fn trace_unbroken(cases: &[Case<'_>]) -> Result<Vec<TraceReport>, SkippedFamily> {
    let traced = cases
        .par_iter()
        .map(|case| case.trace(None, SCHEDULES[0]))
        .collect::<Result<Vec<_>, _>>()?;
    let mut broken: Vec<Broken> = cases
        .iter()
        .zip(&traced)
        .filter_map(|(case, report)| case.broken_by_hazard(report))
        .collect();
    broken.dedup_by(|next, first| next.variant == first.variant);
    if broken.is_empty() {
        Ok(traced)
    } else {
        Err(SkippedFamily::Broken(broken))
    }
}

/// Gives each case one schedule; all are given. Without a site, only a kernel that depends on the
/// schedule has other hazards under another.
fn with_schedules<C>(cases: impl IntoIterator<Item = C>) -> impl Iterator<Item = (C, Schedule)> {
    cases.into_iter().zip(SCHEDULES.into_iter().cycle())
}

/// Returns the first hazard of cases that were traced with all sites.
fn first_hazard(site: &Site, cases: &[&Case<'_>]) -> Result<Option<Finding>, SkippedFamily> {
    for (case, schedule) in with_schedules(cases) {
        if let Some(killed) = case.hazard(site, schedule)? {
            // All were traced under the first one.
            if schedule != SCHEDULES[0] {
                case.refuse_hazard(schedule)?;
            }
            return Ok(Some(killed));
        }
    }
    Ok(None)
}

impl<'a> Case<'a> {
    /// Makes a case, unless the stage refuses its problem.
    fn new(
        stage: &'a LoadedStage,
        kernel: &Kernel,
        shape: Shape,
        mask: Mask,
        family: Distribution,
    ) -> Option<Self> {
        let problem = Problem::new(shape, kernel.dtype, mask)
            .and_then(|plain| plain.in_cache(stage.attention.cache(kernel)))
            .ok()?;
        let prepared = stage.prepare(&kernel.variant, &problem).ok()?;
        Some(Self {
            stage,
            prepared,
            family,
            staged: Staged::new(&Inputs::generate(&problem, family, 0), Layout::Strided),
            name: format!(
                "{} {} {} {mask} {family}",
                kernel.variant, problem.shape, kernel.dtype
            ),
        })
    }

    fn trace(
        &self,
        without: Option<&Place>,
        schedule: Schedule,
    ) -> Result<TraceReport, SkippedFamily> {
        let selection = Selection {
            suppress: without,
            ends_at_hazard: without.is_some(),
            ..Selection::default()
        };
        trace(&self.prepared, &self.staged, schedule, &selection).map_err(|fault| {
            SkippedFamily::Refused(format!(
                "{}: the traced build does not start: {fault}",
                self.name
            ))
        })
    }

    /// Returns the hazard of the traced build without a site.
    fn hazard(&self, site: &Site, schedule: Schedule) -> Result<Option<Finding>, SkippedFamily> {
        let report = self.trace(Some(&site.place), schedule)?;
        let Some(hazard) = most_telling(&report.hazards) else {
            return Ok(None);
        };
        let line = in_a_line(hazard, &site.place.file);
        Ok(Some(self.killed(GateId::H1, line)))
    }

    /// Refuses a case that has a hazard with all sites.
    fn refuse_hazard(&self, schedule: Schedule) -> Result<(), SkippedFamily> {
        match self.broken_by_hazard(&self.trace(None, schedule)?) {
            Some(broken) => Err(SkippedFamily::Broken(vec![broken])),
            None => Ok(()),
        }
    }

    /// Returns the gate that the output fails without a site. A case that fails one with all sites
    /// is broken.
    fn wrong(&self, site: &Site) -> Result<Option<Finding>, SkippedFamily> {
        let Some(failure) = self.check(Some(&site.place)) else {
            return Ok(None);
        };
        match self.check(None) {
            Some(before) => Err(SkippedFamily::Broken(vec![
                self.broken(before.gate, &before.reason),
            ])),
            None => Ok(Some(self.killed(failure.gate, failure.reason))),
        }
    }

    /// Returns what H1 finds in a trace with all sites.
    fn broken_by_hazard(&self, report: &TraceReport) -> Option<Broken> {
        let hazard = report.hazards.first()?;
        Some(self.broken(GateId::H1, &hazard.to_string()))
    }

    fn killed(&self, gate: GateId, what: String) -> Finding {
        Finding::Killed {
            gate,
            what,
            at: self.name.clone(),
        }
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

    /// Returns the first gate that fails without a site.
    fn check(&self, without: Option<&Place>) -> Option<GateResult> {
        let outcome = check(
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
        failures(outcome).into_iter().next()
    }
}

/// Returns a problem in which rings are filled, drained and used again, and the last tile is
/// ragged. Half of the instances get the full mask, the others the causal one.
pub fn ring(facts: &KernelFacts, seq_q: usize, tiles: usize) -> (Shape, Mask) {
    // So many tiles for each block of a cluster.
    let seq_kv = tiles * facts.cluster as usize * facts.block_n + 1;
    let shape = Shape {
        seq_kv,
        ..Shape::bhsd(1, 1, seq_q, facts.head_dim)
    };
    let is_full = (facts.dtype == Dtype::F16) == (facts.head_dim == 64);
    (shape, if is_full { Mask::Full } else { Mask::Causal })
}

/// The heads of a problem for a persistent kernel. Its blocks take three items each (see
/// [`emulated::blocks`]), so that slots for rows are used again.
const PERSISTENT_HEADS: usize = 4;

/// Returns the same for a persistent kernel. Its rings run on from one item to the next, so that
/// each item needs fewer tiles.
fn rings_over_items(facts: &KernelFacts, tiles: usize) -> (Shape, Mask) {
    let (shape, mask) = ring(facts, facts.block_m + 1, tiles.div_ceil(3));
    let heads = Shape {
        heads_q: PERSISTENT_HEADS,
        heads_kv: PERSISTENT_HEADS,
        ..shape
    };
    (heads, mask)
}

/// Returns the hazard to report: a copy that is read too early tells more about a wait or commit
/// than the races it comes with.
fn most_telling(hazards: &[Hazard]) -> Option<&Hazard> {
    hazards
        .iter()
        .find(|hazard| hazard.kind == HazardKind::ReadInFlight)
        .or(hazards.first())
}

/// Describes a hazard by its kind and both places, in the site's file where they are inlined from
/// there.
fn in_a_line(hazard: &Hazard, file: &str) -> String {
    let mut sides = Vec::new();
    for side in [&hazard.first, &hazard.second].into_iter().flatten() {
        let in_file = side.places.iter().find(|place| place.file == file);
        sides.push(match in_file.or(side.places.first()) {
            Some(place) => format!("{} at {place}", side.does),
            None => side.does.clone(),
        });
    }
    let detail = if sides.is_empty() {
        hazard.missing.clone()
    } else {
        sides.join(", ")
    };
    format!("{}: {detail}", hazard.kind.label())
}

/// Returns the words of a place's line and of the comment above it.
fn words_at(sources: &[(&str, &str)], place: &Place) -> String {
    let file = place.file.strip_prefix("./").unwrap_or(&place.file);
    let Some((_, source)) = sources.iter().find(|(name, _)| *name == file) else {
        return String::new();
    };
    let lines: Vec<&str> = source
        .lines()
        .map(str::trim)
        .take(place.line as usize)
        .collect();
    let Some((line, above)) = lines.split_last() else {
        return String::new();
    };
    let last_code = above.iter().rposition(|text| !text.starts_with("//"));
    let comment_start = last_code.map_or(0, |index| index + 1);
    let mut words = String::new();
    for comment in &above[comment_start..] {
        words += comment.trim_start_matches('/').trim();
        words.push(' ');
    }
    words += line;
    words.trim().to_string()
}

fn lists(listing: &Redundant, family: &str, words: &str) -> bool {
    listing.family == family && words.contains(listing.site)
}

/// Returns a message for each listing that does not name exactly one of the family's sites, which
/// have the words `site_words`.
fn useless_listings(listings: &[Redundant], family: &str, site_words: &[&str]) -> Vec<String> {
    let mut useless = Vec::new();
    for listing in listings.iter().filter(|listing| listing.family == family) {
        let named = site_words
            .iter()
            .filter(|words| lists(listing, family, words));
        let count = match named.count() {
            1 => continue,
            0 => "no synchronisation site".to_string(),
            several => format!("{several} synchronisation sites"),
        };
        useless.push(format!(
            "`redundant` of the stage's StageInfo has an entry for {family}, '{}', that names \
             {count}: quote words of one call's line, or of the comment directly above it",
            listing.site
        ));
    }
    useless
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
        let sources = [("common/tile.cuh", ""), ("stage9/kernel.cu", SOURCE)];
        words_at(&sources, &place)
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
    }

    #[test]
    fn a_place_outside_of_the_sources_has_no_words() {
        let elsewhere = Place {
            file: "elsewhere.h".into(),
            line: 3,
        };
        assert_eq!(words_at(&[], &elsewhere), "");
    }

    /// Returns the messages about an entry of the list, in a family with two sites.
    fn messages(family: &'static str, site: &'static str) -> Vec<String> {
        let entry = Redundant {
            family,
            site,
            reason: "",
        };
        useless_listings(&[entry], "mma", &[&words(4), &words(6)])
    }

    #[test]
    fn an_entry_that_names_one_site_is_right() {
        assert_eq!(messages("mma", "all threads and is read"), [""; 0]);
    }

    #[test]
    fn an_entry_of_another_family_is_judged_with_its_own() {
        assert_eq!(messages("other", "nothing of the kind"), [""; 0]);
    }

    #[test]
    fn an_entry_that_names_no_site_or_two_is_useless() {
        let no_site = &messages("mma", "K and V")[0];
        assert!(no_site.contains("names no synchronisation site: quote words"));
        let two_sites = &messages("mma", "__sync")[0];
        assert!(two_sites.contains("names 2 synchronisation sites"));
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

    fn place(file: &str, line: u32) -> Place {
        Place {
            file: file.into(),
            line,
        }
    }

    fn access(does: &str, places: Vec<Place>) -> HazardAccess {
        HazardAccess {
            does: does.into(),
            block: [0; 3],
            thread: None,
            warp: 0,
            places,
        }
    }

    /// Returns a race between the kernel and a function that it calls.
    fn race() -> Hazard {
        let inlined = vec![
            place("common/attn/tile.cuh", 34),
            place("./stage9/kernel.cu", 168),
        ];
        Hazard {
            kind: HazardKind::Race,
            block: [0; 3],
            memory: String::new(),
            first: Some(access("writes", inlined)),
            second: Some(access("reads", vec![place("common/attn/softmax.cuh", 5)])),
            missing: "a deadlock".into(),
            times: 1,
        }
    }

    #[test]
    fn a_copy_that_is_read_too_early_comes_before_races() {
        let early = Hazard {
            kind: HazardKind::ReadInFlight,
            ..race()
        };
        assert_eq!(most_telling(&[race(), early.clone()]), Some(&early));
        assert_eq!(most_telling(&[race()]), Some(&race()));
    }

    #[test]
    fn a_hazard_is_described_in_the_kernels_own_lines() {
        let line = in_a_line(&race(), "./stage9/kernel.cu");
        assert_eq!(
            line,
            "race: writes at stage9/kernel.cu:168, reads at attn/softmax.cuh:5"
        );
    }

    #[test]
    fn a_hazard_without_places_is_described_by_what_is_missing() {
        let stopped = Hazard {
            first: None,
            second: None,
            ..race()
        };
        assert_eq!(in_a_line(&stopped, ""), "race: a deadlock");
    }
}
