//! The ladder, which is a tree: the main path at two problems, and the branches, each at the problem that it is for. All times are
//! of one kernel alone; gains are of two that were timed in turn.

use super::{brief, or_dash, or_empty, state, three_digits, us};
use crate::document::{Block, Cell, Table, TableRow, Text, row};
use crate::judge::View;
use crate::judge::best::{self, Latency, p50};
use crate::judge::claims::{self, Claimed};
use crate::judge::gaps;
use crate::judge::list::{distinct, grouped, joined};
use crate::judge::peers;
use crate::judge::state::State;
use crate::judge::verdict::Report;
use crate::table::{Figure, ProblemPlace, Relation, Role, Row, Source, StageMeta, Subject};
use common::metric::Metric;
use common::problem::{Dtype, Kind, Mask};
use common::timing::{Change, Regime};
use common::verdict::Verdict;

/// The problem of the second half of the main path: a grid that fills any GPU.
const LARGE: &str = "big";

/// The most losses that are named.
const MOST_LOSSES: usize = 6;

/// What a run says of each stage that it ran, for a terminal.
pub fn ladder(report: &Report<'_>) -> Table {
    let stages = report.view.stages.iter();
    let stages = stages.filter(|stage| !ran(report, stage).is_empty());
    let of_stage = |stage: &StageMeta| {
        let subject = shown(report, stage);
        let judged = report.states.iter().find(|(other, _)| *other == subject);
        let [small, large] = problems(stage);
        row! {
            "stage" => &stage.id,
            "variant" => subject.name(),
            "gates" => or_dash(judged.map(|(_, of)| state(of))),
            "µs at mission" => time(report, stage, &small),
            "gain (claimed)" => gain(report, stage, &small).cell(),
            "µs at big" => time(report, stage, &large),
            "gain at big (claimed)" => gain(report, stage, &large).cell(),
        }
    };
    Table::of(stages.map(of_stage)).filled()
}

/// The small and the large problem of the main path, in the stage's own element type.
fn problems(stage: &StageMeta) -> [ProblemPlace; 2] {
    let large = ProblemPlace::new(LARGE, stage.first_dtype(), Mask::Full);
    [stage.first_place(), large]
}

/// What a branch is for.
fn purpose(stage: &StageMeta) -> Option<&'static str> {
    match stage.role {
        Role::Rung => None,
        Role::Branch { purpose, .. } => Some(purpose),
    }
}

/// The problem that a branch is for; none of a rung.
fn own_problem(stage: &StageMeta) -> Option<ProblemPlace> {
    match stage.role {
        Role::Rung => None,
        Role::Branch { on: place, .. } => {
            Some(ProblemPlace::new(place.shape, place.dtype, place.mask))
        }
    }
}

/// The problems that a stage is shown at.
pub fn places(stage: &StageMeta) -> Vec<ProblemPlace> {
    match own_problem(stage) {
        Some(place) => vec![place],
        None => problems(stage).into(),
    }
}

/// The tables of the main path and of the branches, under their titles, and what their figures are.
pub fn tables(report: &Report<'_>, title: impl Fn(&str) -> Block) -> Vec<Block> {
    let (rungs, branches): (Vec<&StageMeta>, Vec<&StageMeta>) =
        shown_stages(report).partition(|stage| stage.role == Role::Rung);
    let branches = grouped(branches.into_iter().map(|stage| (purpose(stage), stage)));
    let branches = branches
        .into_iter()
        .flat_map(|(_, stages)| stages)
        .collect();
    let of = |stages: Vec<&StageMeta>| {
        let table = Table::of(stages.into_iter().map(|stage| linked(report, stage)));
        super::some(table.filled())
    };
    let parts = [("Main path", of(rungs)), ("Branches", of(branches))];
    let tables = super::sections(title, parts);
    tables.into_iter().chain(about(report)).collect()
}

/// All stages; of a run those that it ran.
fn shown_stages<'a>(report: &'a Report<'_>) -> impl Iterator<Item = &'a StageMeta> {
    let is_shown = |stage: &&StageMeta| report.view.run.is_none() || !ran(report, stage).is_empty();
    report.view.stages.iter().filter(is_shown)
}

/// The row of a stage, with a link from the committed pages, which are beside the stages.
fn linked(report: &Report<'_>, stage: &StageMeta) -> TableRow {
    let mut cells = of_stage(report, stage);
    if report.view.run.is_none() {
        let name = short(&stage.id).trim_start_matches("stage");
        let link = Text::default().link(name, format!("{}/README.md", stage.id));
        let cell = cells.iter_mut().find(|(title, _)| title == "stage");
        cell.expect("a stage has its name").1 = link.into();
    }
    cells
}

pub fn of_stage(report: &Report<'_>, stage: &StageMeta) -> TableRow {
    match stage.role {
        Role::Rung => rung(report, stage),
        Role::Branch { purpose, on: place } => {
            let place = ProblemPlace::new(place.shape, place.dtype, place.mask);
            branch(report, stage, purpose, &place)
        }
    }
}

fn rung(report: &Report<'_>, stage: &StageMeta) -> TableRow {
    let view = &report.view;
    let [small, large] = problems(stage);
    let at_large = timed(report, stage, &large);
    row! {
        "stage" => &stage.id,
        "what changes" => &stage.idea,
        format!("µs at {}", sized(&small.shape)) => time(report, stage, &small),
        "gain (claimed)" => gain(report, stage, &small).cell(),
        format!("µs at {}", sized(LARGE)) => time(report, stage, &large),
        "TFLOP/s (share)" => or_empty(at_large.and_then(|row| rate(view, row, ""))),
        "SM MHz" => or_empty(at_large.and_then(clock)),
        "W" => or_empty(at_large.and_then(power)),
        "mJ per call" => or_empty(at_large.and_then(energy)),
        "gain there (claimed)" => gain(report, stage, &large).cell(),
    }
}

fn branch(report: &Report<'_>, stage: &StageMeta, purpose: &str, place: &ProblemPlace) -> TableRow {
    let view = &report.view;
    let row = alone(view, stage, place);
    row! {
        "for" => purpose,
        "stage" => &stage.id,
        "what changes" => &stage.idea,
        "problem" => format!("{place}, {}", extents(&place.shape)),
        "µs" => time(report, stage, place),
        "rate (share)" => or_empty(row.and_then(|row| rate(view, row, unit(place)))),
        "SM MHz" => or_empty(row.and_then(clock)),
        "W" => or_empty(row.and_then(power)),
        "mJ per call" => or_empty(row.and_then(energy)),
        "regime" => or_empty(row.and_then(regime)),
        "gain (claimed)" => gain(report, stage, place).cell(),
    }
}

/// `mission 1x8x512x64`
fn sized(shape: &str) -> String {
    format!("{shape} {}", extents(shape))
}

pub fn extents(shape: &str) -> String {
    let place = ProblemPlace::new(shape, Dtype::F16, Mask::Full);
    place.extents().map_or(String::new(), |of| of.to_string())
}

/// The best variant of a stage; of a run that left it out, the first that it included.
fn shown(report: &Report<'_>, stage: &StageMeta) -> Subject {
    let ran = ran(report, stage);
    let best = best::subject(&report.view, stage);
    match ran.first() {
        Some(first) if !ran.contains(&&best) => (*first).clone(),
        _ => best,
    }
}

/// `stage0` of `stage0-scalar`.
pub fn short(id: &str) -> &str {
    id.split_once('-').map_or(id, |(short, _)| short)
}

/// The fastest time of a stage's kernels as they are now, each alone on the GPU.
pub fn alone<'a>(view: &'a View<'_>, stage: &StageMeta, place: &ProblemPlace) -> Option<&'a Row> {
    best::best(view, stage, place, |_| true).filter(|row| !view.is_stale(row))
}

/// The time that a table shows of a stage. At the large problem of the main path all are of one regime: sustained where one of them
/// is.
pub fn timed<'a>(
    report: &'a Report<'_>,
    stage: &StageMeta,
    place: &ProblemPlace,
) -> Option<&'a Row> {
    let is_at_large = stage.role == Role::Rung && place.shape == LARGE;
    let row = alone(&report.view, stage, place)?;
    let regime = if is_at_large {
        regime_at_large(report)?
    } else {
        row.regime()
    };
    row.counts_in(regime).then_some(row)
}

/// The regime of the main path's times at the large problem, if there are any.
fn regime_at_large(report: &Report<'_>) -> Option<Regime> {
    let rungs = shown_stages(report).filter(|stage| stage.role == Role::Rung);
    let at_large = rungs.filter_map(|stage| alone(&report.view, stage, &problems(stage)[1]));
    at_large.map(Row::regime).max()
}

fn time(report: &Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> Cell {
    or_empty(timed(report, stage, place).map(|row| us(p50(row))))
}

/// Of the counted time: at one moment of a burst a board draws anything.
fn power(row: &Row) -> Option<Cell> {
    let watts = Some(row).filter(|row| row.regime() == Regime::Sustained);
    let watts = watts.and_then(|row| row.value(Metric::PowerW))?;
    Some(Cell::Figure(format!("{watts:.0}")))
}

fn energy(row: &Row) -> Option<Cell> {
    Some(us(row.value(Metric::EnergyMj)?))
}

/// Named where it is not the burst.
pub fn regime(row: &Row) -> Option<&'static str> {
    let is_sustained = row.regime() == Regime::Sustained;
    is_sustained.then_some(Regime::Sustained.name())
}

fn clock(row: &Row) -> Option<Cell> {
    let mhz = row.value(Metric::SmMhz)?;
    Some(Cell::Figure(format!("{mhz:.0}")))
}

/// What a stage gained on a problem, and what it claimed there.
pub struct Gain<'a> {
    /// Over whom, if not over the predecessor.
    over: Option<&'a str>,
    pub measured: Option<&'a Row>,
    pub claim: Option<&'a Claimed>,
}

/// Returns the gain that a stage claims on a problem over its predecessor, else over another stage; where it claims none, what was
/// measured over its predecessor. What is stale, or was wrong, is not measured.
pub fn gain<'a>(report: &'a Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> Gain<'a> {
    let view = &report.view;
    let before = stage.predecessor.as_deref();
    let claimed = report
        .claims
        .iter()
        .filter_map(|of| match &of.claim.relation {
            Relation::Faster { base, .. } => {
                let counts =
                    of.stage == stage.id && of.claim.place == *place && base.stage != stage.id;
                counts.then_some((of, base.stage))
            }
            _ => None,
        });
    let claimed = claimed.min_by_key(|(_, base)| Some(*base) != before);
    let pair = match claimed {
        Some((of, _)) => of.pair(),
        None => before.and_then(|base| claims::fastest_pair(view, stage, view.stage(base)?, place)),
    };
    Gain {
        over: claimed
            .map(|(_, base)| base)
            .filter(|base| Some(*base) != before),
        measured: pair.filter(|row| row.failure().is_none() && !view.is_stale(row)),
        claim: claimed.map(|(of, _)| of),
    }
}

impl Gain<'_> {
    pub fn ratio(&self) -> Option<f64> {
        self.measured?.value(Metric::SpeedupP50)
    }

    /// `1.08x (1.10 ✗)`, `1.11x over stage6 (1.03)`, `0.80x`; nothing of neither.
    pub fn cell(&self) -> Cell {
        let measured = self.ratio().map(brief);
        let over = self.over.map(|base| format!("over {}", short(base)));
        let claimed = self.claim.map(|of| {
            let mark = match (of.verdict(), self.measured) {
                (_, None) => "",
                (None | Some(Verdict::Fail), _) => " ✗",
                (Some(Verdict::Ambiguous), _) => " ?",
                _ => "",
            };
            format!("({:.2}{mark})", at_least(of))
        });
        let words = [measured, over, claimed].into_iter().flatten();
        match (self.ratio(), self.claim) {
            (None, None) => Cell::Empty,
            (Some(_), None) => Cell::Figure(joined(words, " ")),
            _ => joined(words, " ").into(),
        }
    }
}

/// The least ratio that a claim of speed promises.
pub fn at_least(of: &Claimed) -> f64 {
    match of.claim.relation {
        Relation::Faster { at_least, .. } | Relation::FasterThanPeer { at_least, .. } => at_least,
        _ => f64::NAN,
    }
}

/// Whether device memory bounds the problem, so that its rate is bytes per second.
fn is_of_bytes(place: &ProblemPlace) -> bool {
    kind(place) == Kind::Decode
}

pub fn kind(place: &ProblemPlace) -> Kind {
    let named = place.extents().and_then(|shape| shape.named());
    named.map_or(Kind::Other, |named| named.kind)
}

pub fn unit(place: &ProblemPlace) -> &'static str {
    match is_of_bytes(place) {
        true => "TB/s",
        false => "TFLOP/s",
    }
}

/// `531 (73 %)`: what a kernel does per second, in the [`unit`] of its problem where that is given, and the share of the ceiling.
fn rate(view: &View<'_>, row: &Row, unit: &str) -> Option<String> {
    let place = row.problem()?;
    let rate = rate_of(place, p50(row))?;
    let share = share(view, place, rate).map(|share| format!("({share:.0} %)"));
    let words = [three_digits(rate / 1e12), unit.to_string()];
    let words = words.into_iter().chain(share);
    Some(joined(words.filter(|word| !word.is_empty()), " "))
}

/// Percent of the rate of a matrix product on that GPU, of 16-bit types; of a problem that device memory bounds, of a copy.
fn share(view: &View<'_>, place: &ProblemPlace, rate: f64) -> Option<f64> {
    let ceiling = match is_of_bytes(place) {
        true => Metric::CopyBytesPerSecond,
        false => Some(Metric::MatrixFlops).filter(|_| place.dtype != Dtype::E4m3)?,
    };
    let mut ceilings = view.table.rows_by(Source::Peers);
    let ceiling = ceilings.find_map(|row| row.value(ceiling))?;
    Some(100.0 * rate / ceiling)
}

/// Per second, in the [`unit`] of the problem over 10^12.
pub fn rate_of(place: &ProblemPlace, us: f64) -> Option<f64> {
    let problem = place.problem()?;
    let work = match is_of_bytes(place) {
        true => problem.min_bytes(),
        false => problem.flops(),
    };
    Some(work as f64 / (us * 1e-6))
}

/// Everything that the tables show of a stage, so that the sessions that they name are those of their figures.
fn figures<'a>(report: &'a Report<'_>, stage: &StageMeta) -> Vec<&'a Row> {
    let of = |place: &ProblemPlace| {
        [
            timed(report, stage, place),
            gain(report, stage, place).measured,
        ]
    };
    places(stage).iter().flat_map(of).flatten().collect()
}

/// What the figures of the tables are, the sessions that they are from, and the command that fills empty cells; nothing where there is no
/// figure.
pub fn about(report: &Report<'_>) -> Option<Block> {
    let view = &report.view;
    let rows = shown_stages(report).flat_map(|stage| figures(report, stage));
    let sessions = distinct(rows.map(|row| format!("`{}`", row.session)));
    let withheld = shown_stages(report).filter_map(|stage| {
        let place = own_problem(stage).unwrap_or_else(|| stage.first_place());
        let latency = best::latency(view, &best::subject(view, stage), &place)?;
        match latency {
            Latency::Shown(_) => None,
            Latency::Withheld(why) => Some(format!("No latency of {}: {why}.", stage.id)),
        }
    });
    let about = (!sessions.is_empty()).then(|| {
        format!(
            "Times are of one kernel alone on an {}: device time of one launch in a CUDA graph, full mask, f16 or the type named, with the SM \
             clock meanwhile.{} A gain is the time of the stage before / this one's, the two timed in turn (A B B A); it is not the quotient \
             of times alone where the GPU is at its power limit. In parentheses what was claimed before it was measured: ✗ refuted, ? \
             undecided. Shares are of an 8192 × 8192 × 8192 f16 matrix product, at decode of a copy. Sessions {}.",
            view.gpu().unwrap_or("no GPU"),
            regime_in_words(report),
            joined(sessions, ", ")
        )
    });
    let gap = about.as_ref().and_then(|_| gap(report)).map(|how| {
        format!("An empty cell is the first row or was not measured: on a GPU `{how}` measures it.")
    });
    let text = joined(about.into_iter().chain(gap).chain(withheld), " ");
    (!text.is_empty()).then(|| Block::paragraph(text))
}

fn regime_in_words(report: &Report<'_>) -> &'static str {
    match regime_at_large(report) {
        None => "",
        Some(Regime::Burst) => " Times at big are of bursts.",
        Some(Regime::Sustained) => {
            " Times at big are sustained: of turns of a second, whose first half is not counted; W and mJ per call are \
             of the counted time."
        }
    }
}

/// The command that measures what the tables lack, of a committed table.
pub fn gap(report: &Report<'_>) -> Option<String> {
    let view = &report.view;
    let stages = view.stages.iter().filter(|_| view.run.is_none());
    let wanted =
        stages.flat_map(|stage| places(stage).into_iter().map(move |place| (stage, place)));
    let lacking = wanted.filter(|(stage, place)| timed(report, stage, place).is_none());
    let lacking = Vec::from_iter(lacking);
    let of = lacking.iter().map(|(stage, place)| (&*stage.id, place));
    gaps::command("compare --full", of)
}

/// `faster on 63 of 64 problems, from 0.95x to 2.99x; slower: big_wide e4m3 full (0.95x cudnn-fp8)`
pub fn score(view: &View<'_>) -> Option<String> {
    let problems = peers::problems(view);
    let judged = problems
        .iter()
        .filter(|problem| !view.is_stale(problem.ours));
    let judged = judged.filter_map(|problem| {
        let rival = problem.fastest?;
        let ratio = rival.over.estimate(Metric::SpeedupP50);
        Some((ratio, rival.time, problem.place))
    });
    let mut ratios: Vec<(Figure, &Row, &ProblemPlace)> = judged.collect();
    ratios.sort_by(|(a, ..), (b, ..)| a.value.total_cmp(&b.value));
    let ((lowest, ..), (highest, ..)) = (ratios.first()?, ratios.last()?);
    let with = |change: Change| {
        let those = ratios
            .iter()
            .filter(move |(ratio, ..)| peers::outcome(*ratio) == change);
        Vec::from_iter(those)
    };
    let undecided = [Change::Same, Change::Ambiguous].map(with).concat();
    let named = |word: &str, those: Vec<&(Figure, &Row, &ProblemPlace)>| {
        let shown = those.iter().take(MOST_LOSSES);
        let names = shown.map(|(ratio, peer, place)| {
            format!("{place} ({} {})", brief(ratio.value), peer.subject)
        });
        let more = those.len().saturating_sub(MOST_LOSSES);
        let more = (more > 0).then(|| format!("and {more} more"));
        let names = joined(names.chain(more), ", ");
        (!those.is_empty()).then(|| format!("; {word}: {names}"))
    };
    let faster = with(Change::Faster).len();
    let rest = [
        named("slower", with(Change::Slower)),
        named("undecided", undecided),
    ];
    Some(format!(
        "our fastest variant is faster than the fastest peer on {faster} of {} problems, from {} to {}{}",
        ratios.len(),
        brief(lowest.value),
        brief(highest.value),
        joined(rest.into_iter().flatten(), "")
    ))
}

/// What a visitor wants to know first: our times at the small and the large problem, beside the fastest peer's, and what is correct.
fn headline(report: &Report<'_>) -> Option<String> {
    let view = &report.view;
    let problems = peers::problems(view);
    let facts = ["mission", LARGE].into_iter().filter_map(|shape| {
        let place = ProblemPlace::new(shape, Dtype::F16, Mask::Full);
        let problem = problems.iter().find(|problem| *problem.place == place)?;
        let peer = problem
            .fastest
            .filter(|_| !view.is_stale(problem.ours))?
            .time;
        let rate = rate_of(&place, p50(problem.ours))?;
        let share = share(view, &place, rate).filter(|_| kind(&place) == Kind::Large);
        let rate = share.map_or(String::new(), |share| {
            let rate = three_digits(rate / 1e12);
            format!(": {rate} TFLOP/s, {share:.0} % of a matrix product")
        });
        let peer_name = peer
            .subject
            .as_str()
            .replace("flash-attn-", "FlashAttention-");
        let [ours, theirs] = [problem.ours, peer].map(|row| three_digits(p50(row)));
        Some(format!(
            "{ours} µs where {peer_name} takes {theirs} ({}{rate})",
            sized(shape)
        ))
    });
    let facts = joined(facts, "; ");
    let green = report
        .states
        .iter()
        .filter(|(_, state)| *state == State::Green);
    (!facts.is_empty()).then(|| {
        format!(
            "{facts}, each timed in turn beside the peers (f16, full mask). {} of {} variants pass every gate.",
            green.count(),
            report.states.len()
        )
    })
}

/// The README's section.
pub fn readme(report: &Report<'_>) -> Vec<Block> {
    let headline = headline(report).map(Block::strong);
    let title = |title: &str| Block::strong(title);
    let score = score(&report.view).map(|score| {
        let text = Text::from("Against PyTorch, cuDNN and FlashAttention-3 and -4: ");
        let text = text.strong(score).plain(" (");
        Block::Paragraph(text.link("each problem", "COMPARE.md").plain(")."))
    });
    let parts = headline.into_iter().chain(tables(report, title));
    parts.chain(score).collect()
}

/// The variants of a stage that were run.
fn ran<'a>(report: &'a Report<'_>, stage: &StageMeta) -> Vec<&'a Subject> {
    let ran = report.states.iter().filter(|(subject, state)| {
        subject.stage() == stage.id && !matches!(state, State::NotRun(_))
    });
    ran.map(|(subject, _)| subject).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Kind;
    use crate::testing::scenario;

    #[test]
    fn a_rate_of_e4m3_is_no_share_of_a_product_of_16_bit_types() {
        let product = Row::new("gpu", Kind::PeerSession).figure(Metric::MatrixFlops, 8e14);
        let run = scenario::run("timed").with(product);
        let view = View::alone(&run);
        let of = |dtype| share(&view, &ProblemPlace::claims(dtype), 4e14);
        assert_eq!(of(Dtype::F16), Some(50.0));
        assert_eq!(of(Dtype::E4m3), None);
    }
}
