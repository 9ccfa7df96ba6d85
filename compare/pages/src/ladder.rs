//! The ladder, which is a tree: the main path at two problems, and the branches, each at the
//! problem that it is for. All times are of one kernel alone; gains are of two that were timed in
//! turn.

mod gain;
mod score;

pub use gain::{at_least, gain, own_gains};
pub use score::score;

use super::blocks::{Titled, sections, table_block};
use super::cells::{or_dash, or_empty, three_digits, us_cell};
use super::words::state_with_gates;
use common::metric::Metric;
use common::problem::{Dtype, Kind, Mask};
use common::timing::Regime;
use document::{Block, Cell, Table, TableRow, Text, row};
use results::judge::View;
use results::judge::best::{self, Latency, Withheld, p50};
use results::judge::gaps;
use results::judge::list::{distinct, grouped};
use results::judge::peers::{self, Problem};
use results::judge::state::State;
use results::judge::verdict::Report;
use results::table::session::LARGE;
use results::table::{ProblemPlace, Role, Row, Source, StageMeta, Subject};

/// The columns that the README leaves to COMPARE.md: with them its tables are wider than a window.
const POWER_COLUMNS: [&str; 3] = ["SM MHz", "W", "mJ per call"];

/// Returns a row for each stage that a run ran, for a terminal.
pub fn ladder(report: &Report<'_>) -> Table {
    let mut rows = Vec::new();
    for stage in report.view.stages {
        if !ran(report, stage).is_empty() {
            rows.push(terminal_row(report, stage));
        }
    }
    Table::from_rows(rows).filled()
}

fn terminal_row(report: &Report<'_>, stage: &StageMeta) -> TableRow {
    let subject = shown_variant(report, stage);
    let state = report
        .states
        .iter()
        .find(|(other, _)| *other == subject)
        .map(|(_, state)| state_with_gates(state));
    let (small, large) = (stage.first_place(), stage.large_place());
    row! {
        "stage" => &stage.id,
        "variant" => subject.name(),
        "gates" => or_dash(state),
        "µs at mission" => time(report, stage, &small),
        "gain (claimed)" => gain(report, stage, &small).cell(),
        "µs at big" => time(report, stage, &large),
        "gain at big (claimed)" => gain(report, stage, &large).cell(),
    }
}

/// Returns what a branch is for; nothing for a rung.
fn purpose(stage: &StageMeta) -> Option<&'static str> {
    match stage.role {
        Role::Rung => None,
        Role::Branch { purpose, .. } => Some(purpose),
    }
}

/// Returns the tables of the main path and of the branches, under their titles, and what their
/// figures are.
pub fn tables(report: &Report<'_>, heading: impl Fn(String) -> Block) -> Vec<Block> {
    let mut blocks = stage_tables(report, heading);
    blocks.extend(about(report));
    blocks
}

fn stage_tables(report: &Report<'_>, heading: impl Fn(String) -> Block) -> Vec<Block> {
    let mut rungs = Vec::new();
    let mut branches = Vec::new();
    for stage in shown_stages(report) {
        match stage.role {
            Role::Rung => rungs.push(stage),
            Role::Branch { purpose, .. } => branches.push((purpose, stage)),
        }
    }
    // Branches of one purpose stand together.
    let by_purpose = grouped(branches);
    let branches_in_order = by_purpose.into_iter().flat_map(|group| group.values);
    let parts = [
        Titled::new("Main path", stages_table(report, rungs)),
        Titled::new("Branches", stages_table(report, branches_in_order)),
    ];
    sections(heading, parts)
}

fn stages_table<'a>(
    report: &Report<'_>,
    stages: impl IntoIterator<Item = &'a StageMeta>,
) -> Vec<Block> {
    let rows = stages.into_iter().map(|stage| linked_row(report, stage));
    table_block(Table::from_rows(rows).filled())
}

/// Returns all stages; of a run those that it ran.
fn shown_stages<'a>(report: &'a Report<'_>) -> impl Iterator<Item = &'a StageMeta> {
    let is_run = report.view.run.is_some();
    let stages = report.view.stages.iter();
    stages.filter(move |stage| !is_run || !ran(report, stage).is_empty())
}

/// Returns the row of a stage, with a link from the committed pages, which are beside the stages.
fn linked_row(report: &Report<'_>, stage: &StageMeta) -> TableRow {
    let mut cells = stage_row(report, stage);
    if report.view.run.is_none() {
        let name = short(&stage.id).trim_start_matches("stage");
        let link = Text::default().link(name, format!("{}/README.md", stage.id));
        for (title, cell) in &mut cells {
            if title == "stage" {
                *cell = link.clone().into();
            }
        }
    }
    cells
}

/// Returns the row of a stage in the table of the main path or of the branches.
pub fn stage_row(report: &Report<'_>, stage: &StageMeta) -> TableRow {
    match (purpose(stage), stage.own_place()) {
        (Some(purpose), Some(place)) => branch_row(report, stage, purpose, &place),
        _ => rung_row(report, stage),
    }
}

fn rung_row(report: &Report<'_>, stage: &StageMeta) -> TableRow {
    let view = &report.view;
    let (small, large) = (stage.first_place(), stage.large_place());
    let at_large = timed(report, stage, &large);
    let us_at_small = format!("µs at {}", with_extents(&small.shape));
    let us_at_large = format!("µs at {}", with_extents(LARGE));
    let mut cells = row! {
        "stage" => &stage.id,
        "what changes" => &stage.idea,
        us_at_small => time(report, stage, &small),
        "gain (claimed)" => gain(report, stage, &small).cell(),
        us_at_large => time(report, stage, &large),
        "TFLOP/s (share)" => or_empty(at_large.and_then(|row| rate(view, row, ""))),
        "gain there (claimed)" => gain(report, stage, &large).cell(),
    };
    cells.extend(power_cells(at_large));
    cells
}

fn branch_row(
    report: &Report<'_>,
    stage: &StageMeta,
    purpose: &str,
    place: &ProblemPlace,
) -> TableRow {
    let view = &report.view;
    let timed_row = alone(view, stage, place);
    let rate_cell = or_empty(timed_row.and_then(|row| rate(view, row, unit(place))));
    let mut cells = row! {
        "for" => purpose,
        "stage" => &stage.id,
        "what changes" => &stage.idea,
        "problem" => format!("{place}, {}", extents(&place.shape)),
        "µs" => time(report, stage, place),
        "rate (share)" => rate_cell,
    };
    cells.extend(power_cells(timed_row));
    cells.extend(row! {
        "regime" => or_empty(timed_row.and_then(regime)),
        "gain (claimed)" => gain(report, stage, place).cell(),
    });
    cells
}

/// Returns the cells of [`POWER_COLUMNS`].
fn power_cells(row: Option<&Row>) -> TableRow {
    row! {
        "SM MHz" => or_empty(row.and_then(clock)),
        "W" => or_empty(row.and_then(power)),
        "mJ per call" => or_empty(row.and_then(energy)),
    }
}

/// Returns `mission 1x8x512x64`.
fn with_extents(shape: &str) -> String {
    format!("{shape} {}", extents(shape))
}

/// Returns `1x8x512x64` for `mission`; nothing for a shape without a name.
pub fn extents(shape: &str) -> String {
    let place = ProblemPlace::new(shape, Dtype::F16, Mask::Full);
    match place.extents() {
        Some(extents) => extents.to_string(),
        None => String::new(),
    }
}

/// Returns the best variant of a stage; of a run that left it out, the first that it included.
fn shown_variant(report: &Report<'_>, stage: &StageMeta) -> Subject {
    let best = best::subject(&report.view, stage);
    let ran = ran(report, stage);
    if ran.contains(&&best) {
        return best;
    }
    match ran.first() {
        Some(first) => (*first).clone(),
        None => best,
    }
}

/// Returns `stage0` for `stage0-scalar`.
pub fn short(id: &str) -> &str {
    id.split_once('-').map_or(id, |(short, _)| short)
}

/// Returns the fastest time of a stage's kernels as they are now, each alone on the GPU.
pub fn alone<'a>(view: &'a View<'_>, stage: &StageMeta, place: &ProblemPlace) -> Option<&'a Row> {
    let row = best::best(view, stage, place, |_| true)?;
    (!view.is_stale(row)).then_some(row)
}

/// Returns the time that a table shows of a stage. At the large problem of the main path all are of
/// one regime: sustained where one of them is.
pub fn timed<'a>(
    report: &'a Report<'_>,
    stage: &StageMeta,
    place: &ProblemPlace,
) -> Option<&'a Row> {
    let row = alone(&report.view, stage, place)?;
    let is_at_large = stage.role == Role::Rung && place.shape == LARGE;
    let regime = if is_at_large {
        regime_at_large(report)?
    } else {
        row.regime()
    };
    row.counts_in(regime).then_some(row)
}

/// Returns the regime of the main path's times at the large problem, if there are any.
pub fn regime_at_large(report: &Report<'_>) -> Option<Regime> {
    let mut latest = None;
    for stage in shown_stages(report) {
        if stage.role == Role::Rung {
            let row = alone(&report.view, stage, &stage.large_place());
            latest = latest.max(row.map(Row::regime));
        }
    }
    latest
}

fn time(report: &Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> Cell {
    or_empty(timed(report, stage, place).map(|row| us_cell(p50(row))))
}

/// Returns the power of the counted time: at one moment of a burst a board draws anything.
fn power(row: &Row) -> Option<Cell> {
    if row.regime() != Regime::Sustained {
        return None;
    }
    let watts = row.value(Metric::PowerW)?;
    Some(Cell::Figure(format!("{watts:.0}")))
}

fn energy(row: &Row) -> Option<Cell> {
    Some(us_cell(row.value(Metric::EnergyMj)?))
}

/// Returns the regime's name, if it is not the burst.
pub fn regime(row: &Row) -> Option<&'static str> {
    match row.regime() {
        Regime::Burst => None,
        Regime::Sustained => Some(Regime::Sustained.name()),
    }
}

fn clock(row: &Row) -> Option<Cell> {
    let mhz = row.value(Metric::SmMhz)?;
    Some(Cell::Figure(format!("{mhz:.0}")))
}

/// Whether device memory bounds the problem, so that its rate is bytes per second.
fn is_of_bytes(place: &ProblemPlace) -> bool {
    kind(place) == Kind::Decode
}

/// Returns the kind of a problem; [`Kind::Other`] for a shape without a name.
pub fn kind(place: &ProblemPlace) -> Kind {
    match place.extents().and_then(|shape| shape.named()) {
        Some(named) => named.kind,
        None => Kind::Other,
    }
}

/// Returns the unit of a problem's rate.
pub fn unit(place: &ProblemPlace) -> &'static str {
    if is_of_bytes(place) {
        "TB/s"
    } else {
        "TFLOP/s"
    }
}

/// Returns `531 (73 %)`: what a kernel does per second, in the [`unit`] of its problem if that is
/// given, and the share of the ceiling.
fn rate(view: &View<'_>, row: &Row, unit: &str) -> Option<String> {
    let place = row.problem()?;
    let per_second = rate_of(place, p50(row))?;
    let mut words = three_digits(per_second / 1e12);
    if !unit.is_empty() {
        words += &format!(" {unit}");
    }
    if let Some(share) = share_of_ceiling(view, place, per_second) {
        // No line ends before the percent sign.
        words += &format!(" ({share:.0}\u{a0}%)");
    }
    Some(words)
}

/// Returns the percentage of the rate of a matrix product on that GPU, of 16-bit types; of a
/// problem that device memory bounds, of a copy.
fn share_of_ceiling(view: &View<'_>, place: &ProblemPlace, rate: f64) -> Option<f64> {
    let metric = if is_of_bytes(place) {
        Metric::CopyBytesPerSecond
    } else if place.dtype == Dtype::E4m3 {
        return None;
    } else {
        Metric::MatrixFlops
    };
    Some(100.0 * rate / ceiling(view, metric)?)
}

/// Returns a rate that was measured of the GPU itself: of a matrix product or of a copy.
pub fn ceiling(view: &View<'_>, metric: Metric) -> Option<f64> {
    let mut peers = view.table.rows_by(Source::Peers);
    peers.find_map(|row| row.value(metric))
}

/// Returns the work per second, in the [`unit`] of the problem over 10^12.
pub fn rate_of(place: &ProblemPlace, us: f64) -> Option<f64> {
    let problem = place.problem()?;
    let work = if is_of_bytes(place) {
        problem.min_bytes()
    } else {
        problem.flops()
    };
    Some(work as f64 / (us * 1e-6))
}

/// Returns what the figures of the tables are, the sessions that they are from, and the command
/// that fills empty cells; nothing where there is no figure.
pub fn about(report: &Report<'_>) -> Option<Block> {
    explanation(report, Detail::Sessions)
}

/// The detail in which a page explains its times.
#[derive(Clone, Copy)]
enum Detail {
    /// The conditions of the measurement and its sessions, for COMPARE.md and `show`.
    Sessions,
    /// The facts that a reader of the README needs.
    Short,
}

/// Returns what the figures are, and why a latency is not shown.
fn explanation(report: &Report<'_>, detail: Detail) -> Option<Block> {
    let mut sentences = Vec::new();
    let sessions = sessions_of_figures(report);
    if !sessions.is_empty() {
        sentences.push(match detail {
            Detail::Sessions => about_times(report, &sessions),
            Detail::Short => about_times_in_short(report),
        });
        sentences.push(match gap(report) {
            Some(command) => format!(
                "An empty cell is the first row or was not measured: on a GPU `{command}` \
                 measures it."
            ),
            None => "An empty cell is the first row or was not measured.".to_string(),
        });
    }
    sentences.extend(without_latency(report));
    (!sentences.is_empty()).then(|| Block::paragraph(sentences.join(" ")))
}

/// Returns the sessions of everything that the tables show.
fn sessions_of_figures(report: &Report<'_>) -> Vec<String> {
    let mut sessions = Vec::new();
    for stage in shown_stages(report) {
        for place in stage.places() {
            let time = timed(report, stage, &place);
            let pair = gain(report, stage, &place).measured;
            for row in [time, pair].into_iter().flatten() {
                sessions.push(format!("`{}`", row.session));
            }
        }
    }
    distinct(sessions)
}

fn about_times(report: &Report<'_>, sessions: &[String]) -> String {
    format!(
        "Times are of one kernel alone on an {}: device time of one launch in a CUDA graph, full \
         mask, f16 or the type named, with the SM clock meanwhile.{} A gain is the time of the \
         stage before, or named, / this one's, the two timed in turn (A B B A); it is not the \
         quotient of times alone where the GPU is at its power limit. In parentheses what was \
         claimed before it was measured: ✗ refuted, ? undecided. Shares are of an \
         8192 × 8192 × 8192 f16 matrix product, at decode of a copy. Sessions {}.",
        report.view.gpu().unwrap_or("no GPU"),
        regime_in_words(report),
        sessions.join(", ")
    )
}

/// Returns what a reader needs for the README's tables; COMPARE.md has the rest.
fn about_times_in_short(report: &Report<'_>) -> String {
    let regime = match regime_at_large(report) {
        Some(Regime::Sustained) => ", at big sustained at the power limit",
        Some(Regime::Burst) | None => "",
    };
    format!(
        "Times are of one kernel alone on an {}, full mask, f16 or the type named{regime}. A gain \
         is the time of the stage before, or named, / this one's, the two timed in turn, with the \
         claim made before it in parentheses: ✗ refuted, ? undecided. Shares are of a large \
         matrix product, at decode of a copy. Clocks, power and sessions: COMPARE.md.",
        report.view.gpu().unwrap_or("no GPU")
    )
}

fn regime_in_words(report: &Report<'_>) -> &'static str {
    match regime_at_large(report) {
        None => "",
        Some(Regime::Burst) => " Times at big are of bursts.",
        Some(Regime::Sustained) => {
            " Times at big are sustained: on a GPU that is hot, of turns of a second, whose first half \
             after another kernel is not counted; W and mJ per call are of the counted time."
        }
    }
}

/// Returns why latencies of stages are not shown that were timed: in one sentence those whose gates
/// fail, and each other one in its own.
fn without_latency(report: &Report<'_>) -> Vec<String> {
    let view = &report.view;
    let mut not_green = Vec::new();
    let mut sentences = Vec::new();
    for stage in shown_stages(report) {
        let place = stage.own_place().unwrap_or_else(|| stage.first_place());
        match best::latency(view, &best::subject(view, stage), &place) {
            Some(Latency::Withheld(Withheld::NotGreen(subject))) => not_green.push(subject),
            Some(Latency::Withheld(why)) => {
                sentences.push(format!("No latency of {}: {why}.", stage.id));
            }
            Some(Latency::Shown(_)) | None => {}
        }
    }
    if !not_green.is_empty() {
        let subjects: Vec<&str> = not_green.iter().map(Subject::as_str).collect();
        sentences.push(format!(
            "No latency, for want of C1-C6 or B1: {}.",
            subjects.join(", ")
        ));
    }
    sentences
}

/// Returns the command that measures what the tables lack; nothing for a run.
pub fn gap(report: &Report<'_>) -> Option<String> {
    let view = &report.view;
    if view.run.is_some() {
        return None;
    }
    let mut lacking = Vec::new();
    for stage in view.stages {
        for place in stage.places() {
            if timed(report, stage, &place).is_none() {
                lacking.push((stage, place));
            }
        }
    }
    let cells = lacking.iter().map(|(stage, place)| (&*stage.id, place));
    gaps::command("compare --full", cells)
}

/// Returns what a visitor wants to know first: our times beside the fastest peer's, what is
/// correct, and on how many problems ours is the faster.
pub fn headline(report: &Report<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    blocks.extend(strongest_figures(report).map(Block::strong));
    if let Some(score) = score(&report.view) {
        let text = Text::from("Against PyTorch, cuDNN and FlashAttention-3 and -4: ")
            .plain(score)
            .plain(" (")
            .link("each problem", "COMPARE.md")
            .plain(").");
        blocks.push(Block::Paragraph(text));
    }
    blocks
}

/// Returns our times at the small and the large problem beside the fastest peer's, and how many
/// variants are correct.
fn strongest_figures(report: &Report<'_>) -> Option<String> {
    let problems = peers::problems(&report.view);
    let mut facts = Vec::new();
    for shape in ["mission", LARGE] {
        let place = ProblemPlace::new(shape, Dtype::F16, Mask::Full);
        if let Some(problem) = problems.iter().find(|problem| *problem.place == place) {
            facts.extend(time_beside_peer(&report.view, problem));
        }
    }
    if facts.is_empty() {
        return None;
    }
    let states = report.states.iter().map(|(_, state)| state);
    let green = states.filter(|state| **state == State::Green).count();
    Some(format!(
        "{}, each timed in turn beside the peers (f16, full mask). \
         {green} of {} variants pass every gate.",
        facts.join("; "),
        report.states.len()
    ))
}

fn time_beside_peer(view: &View<'_>, problem: &Problem<'_>) -> Option<String> {
    let peer = problem.fastest.as_ref()?.time;
    if view.is_stale(problem.ours) {
        return None;
    }
    let place = problem.place;
    let rate = rate_of(place, p50(problem.ours))?;
    let share = if kind(place) == Kind::Large {
        share_of_ceiling(view, place, rate)
    } else {
        None
    };
    let rate_words = match share {
        Some(percent) => format!(
            ": {} TFLOP/s, {percent:.0} % of a matrix product",
            three_digits(rate / 1e12)
        ),
        None => String::new(),
    };
    Some(format!(
        "{} µs where {} takes {} ({}{rate_words})",
        three_digits(p50(problem.ours)),
        peer.subject
            .as_str()
            .replace("flash-attn-", "FlashAttention-"),
        three_digits(p50(peer)),
        with_extents(&place.shape)
    ))
}

/// Returns the README's tables, what their figures are, and the figures that another GPU model has
/// of stages that have none here.
pub fn readme(report: &Report<'_>, reports: &[Report<'_>]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for block in stage_tables(report, Block::strong) {
        blocks.push(match block {
            Block::Table(table) => Block::Table(table.without(&POWER_COLUMNS)),
            other => other,
        });
    }
    blocks.extend(explanation(report, Detail::Short));
    for stage in report.view.stages {
        if !has_figures(report, stage) {
            blocks.extend(elsewhere(reports, stage).map(Block::paragraph));
        }
    }
    blocks
}

fn has_figures(report: &Report<'_>, stage: &StageMeta) -> bool {
    stage
        .places()
        .iter()
        .any(|place| timed(report, stage, place).is_some())
}

/// Returns `stage13 on an NVIDIA H200: mission f16 full (1x8x512x64): 7.62 µs, 70.5 TFLOP/s (10 %)`,
/// by the first GPU model that has figures of the stage.
fn elsewhere(reports: &[Report<'_>], stage: &StageMeta) -> Option<String> {
    let other = reports.iter().find(|other| has_figures(other, stage))?;
    let gpu = other.view.gpu()?;
    Some(format!(
        "{} on an {gpu}: {}.",
        short(&stage.id),
        facts(other, stage).join("; ")
    ))
}

/// Returns the stage's figures at each problem that it is shown at and has some.
fn facts(report: &Report<'_>, stage: &StageMeta) -> Vec<String> {
    let mut facts = Vec::new();
    for place in stage.places() {
        facts.extend(figures_at(report, stage, &place));
    }
    facts
}

/// Returns one line of a stage's figures (time, rate and gain at each problem that it is shown at)
/// and a line of its profile at each of them.
pub fn figures(report: &Report<'_>, stage: &StageMeta) -> Vec<Block> {
    let facts = facts(report, stage);
    let mut profiles = Vec::new();
    for place in stage.places() {
        profiles.extend(profile_line(&report.view, stage, &place));
    }
    let mut blocks = Vec::new();
    if !facts.is_empty() {
        blocks.push(Block::strong(format!("{}.", facts.join("; "))));
    }
    if !profiles.is_empty() {
        blocks.push(Block::bullets(profiles));
    }
    blocks
}

/// Returns `mission f16 full (1x8x512x64): 15.1 µs, 35.6 TFLOP/s (5 %), 1.07x over stage0`.
fn figures_at(report: &Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> Option<String> {
    let mut figures = Vec::new();
    if let Some(row) = timed(report, stage, place) {
        figures.push(format!("{} µs", three_digits(p50(row))));
        figures.extend(rate(&report.view, row, unit(place)));
    }
    figures.extend(gain(report, stage, place).sentence());
    figures.extend(own_gains(report, stage, place));
    if figures.is_empty() {
        return None;
    }
    let extents = extents(&place.shape);
    Some(format!("{place} ({extents}): {}", figures.join(", ")))
}

/// Returns what ncu says about the time of a stage's fastest kernel on a problem.
fn profile_line(view: &View<'_>, stage: &StageMeta, place: &ProblemPlace) -> Option<String> {
    let mut profiles: Vec<&Row> = view.table.rows_by(Source::Ncu).collect();
    profiles.retain(|row| {
        row.subject.stage() == stage.id && row.problem() == Some(place) && !view.is_stale(row)
    });
    let duration = |row: &Row| row.value(Metric::ProfiledNs).unwrap_or(f64::INFINITY);
    let row = profiles
        .into_iter()
        .min_by(|a, b| duration(a).total_cmp(&duration(b)))?;
    let percent = |metric| Some(100.0 * row.value(metric)?);
    let mut line = format!(
        "ncu at {}, {}: tensor cores busy {:.0} % of the time",
        place.shape,
        row.subject.name(),
        percent(Metric::TensorPipeActive)?
    );
    if let Some(wavefronts) = row.value(Metric::SharedReadWavefronts) {
        line += &loads(wavefronts);
    }
    line += &format!(
        "; a warp waits {:.0} % of its time for shared memory or a special function, {:.0} % for \
         global memory, {:.0} % at barriers",
        percent(Metric::ShortScoreboardShare)?,
        percent(Metric::LongScoreboardShare)?,
        percent(Metric::BarrierStallShare)?
    );
    Some(line)
}

fn loads(wavefronts: f64) -> String {
    if wavefronts == 0.0 {
        return "; no load from shared memory".into();
    }
    let millions = three_digits(wavefronts / 1e6);
    format!("; {millions} million wavefronts of shared-memory loads")
}

/// Returns the variants of a stage that were run.
fn ran<'a>(report: &'a Report<'_>, stage: &StageMeta) -> Vec<&'a Subject> {
    let mut subjects = Vec::new();
    for (subject, state) in &report.states {
        if subject.stage() == stage.id && !matches!(state, State::NotRun(_)) {
            subjects.push(subject);
        }
    }
    subjects
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::table::Kind;
    use results::testing::{US, timed};

    #[test]
    fn a_rate_of_e4m3_is_no_share_of_a_product_of_16_bit_types() {
        let product = Row::new("gpu", Kind::PeerSession).figure(Metric::MatrixFlops, 8e14);
        let run = timed(US).with_row(product);
        let view = View::alone(&run);
        let share = |dtype| share_of_ceiling(&view, &ProblemPlace::claims(dtype), 4e14);
        assert_eq!(share(Dtype::F16), Some(50.0));
        assert_eq!(share(Dtype::E4m3), None);
    }
}
