//! The times of former kernels that newer ones stand for: an accepted run drops them, since no page
//! shows them and no command would measure them again.

use crate::table::kernels::is_stale;
use crate::table::session::by_id;
use crate::table::{Kind, ProblemPlace, Row, Run, StageMeta, Subject, Table};
use std::collections::BTreeSet;

/// Drops what an accepted run, which is in the table, or one before it has measured of the kernels
/// as they are now.
pub fn drop_replaced(table: &mut Table, run: &Run) {
    if run.session.is_whole_tier2() {
        drop_times_of_tier2(table, run);
    }
    let stages = &run.session.stages;
    drop_pairs(table, stages);
    drop_times_beside_peers(table, stages);
}

/// Drops former times of the variants that a whole T2 timed, on problems that it left out: it times
/// every problem that a page shows and that a claim over another stage is about.
fn drop_times_of_tier2(table: &mut Table, run: &Run) {
    let timed: BTreeSet<&Subject> = run.table.latencies().map(|row| &row.subject).collect();
    table.retain(|row| {
        let is_time = matches!(row.kind, Kind::Latency(_) | Kind::Pair { .. });
        let is_former = is_time && is_stale(&run.session.stages, row);
        !(is_former && timed.contains(&row.subject))
    });
}

/// Drops former pairs of two families that were timed in turn again on the problem: another variant
/// is the fastest of one of them now.
fn drop_pairs(table: &mut Table, stages: &[StageMeta]) {
    let current: BTreeSet<PairOfFamilies> = table
        .rows()
        .filter(|row| matches!(row.kind, Kind::Pair { .. }) && !is_stale(stages, row))
        .filter_map(|row| PairOfFamilies::new(row, stages))
        .collect();
    table.retain(|row| {
        let pair = PairOfFamilies::new(row, stages);
        let is_timed_again = pair.is_some_and(|families| current.contains(&families));
        !(is_timed_again && is_stale(stages, row))
    });
}

/// Two families that were timed in turn on a problem.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PairOfFamilies {
    new: Subject,
    base: Subject,
    problem: ProblemPlace,
}

impl PairOfFamilies {
    /// Returns the families of a row's arms; `None` if it is no pair of two variants of `stages`.
    fn new(row: &Row, stages: &[StageMeta]) -> Option<Self> {
        let Kind::Pair { problem, base } = &row.kind else {
            return None;
        };
        Some(Self {
            new: family(&row.subject, stages)?,
            base: family(base, stages)?,
            problem: problem.clone(),
        })
    }
}

fn family(variant: &Subject, stages: &[StageMeta]) -> Option<Subject> {
    let stage = by_id(stages, variant.stage())?;
    let meta = stage.variant(variant.name())?;
    Some(stage.subject(&meta.family))
}

/// Drops former times beside peers on problems where a kernel of ours was timed beside them since:
/// pages show its fastest of ours. Those of a stage that claims to beat a peer there stay, as what
/// was last measured of the claim.
fn drop_times_beside_peers(table: &mut Table, stages: &[StageMeta]) {
    let current: BTreeSet<ProblemPlace> = table
        .peer_times()
        .filter(|row| row.identity.is_some() && !is_stale(stages, row))
        .filter_map(|row| row.problem().cloned())
        .collect();
    table.retain(|row| {
        let (Kind::PeerTime(problem) | Kind::PeerPair { problem, .. }) = &row.kind else {
            return true;
        };
        let stage = by_id(stages, row.subject.stage());
        let is_claimed = stage.is_some_and(|meta| meta.claims_over_peer(problem));
        is_claimed || !current.contains(problem) || !is_stale(stages, row)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        CPASYNC, PeerArm, SCALAR, US, WMMA, claiming, emulated, mission, pair_with, row,
        table_of_sessions, time_beside_peers, timed,
    };

    /// The other variant of a family that has [`WMMA`].
    const WIDER: &str = "stage0-scalar/wmma-qk-64x64";

    /// Returns a run of nothing but these rows, of sources in which the family of [`WMMA`] has
    /// another variant.
    fn later(rows: &[Row]) -> Run {
        let mut run = emulated().without(|_| true);
        let stage = &mut run.session.stages[0];
        let mut wider = stage.variants[1].clone();
        wider.name = "wmma-qk-64x64".into();
        stage.variants.push(wider);
        run.extend(rows.iter().cloned());
        run
    }

    /// Returns the table of both sessions, after the second is accepted.
    fn accepted(before: &Run, run: &Run) -> Table {
        let mut table = table_of_sessions(&[before.clone(), run.clone()]);
        drop_replaced(&mut table, run);
        table
    }

    fn has_pair_with_scalar(table: &Table, new: &str) -> bool {
        table.row(&new.into(), pair_with(SCALAR)).is_some()
    }

    fn pair_of_wider() -> Row {
        let text = format!("{WIDER} | mission f16 full | gpu scalar | p50 18");
        row(&text)
    }

    #[test]
    fn a_former_pair_goes_where_its_families_were_timed_in_turn_again() {
        let table = accepted(&timed(US).rebuilt(), &later(&[pair_of_wider()]));
        assert!(has_pair_with_scalar(&table, WIDER));
        assert!(!has_pair_with_scalar(&table, WMMA));
    }

    #[test]
    fn a_former_pair_stays_as_what_was_last_measured_of_its_families() {
        let table = accepted(&timed(US).rebuilt(), &later(&[]));
        assert!(has_pair_with_scalar(&table, WMMA));
    }

    #[test]
    fn a_pair_of_the_kernels_as_they_are_stays_beside_another_of_its_families() {
        let table = accepted(&timed(US), &later(&[pair_of_wider()]));
        assert!(has_pair_with_scalar(&table, WIDER));
        assert!(has_pair_with_scalar(&table, WMMA));
    }

    #[test]
    fn a_former_pair_of_other_families_stays() {
        let table = accepted(&timed(US).rebuilt(), &later(&[pair_of_wider()]));
        assert!(table.row(&CPASYNC.into(), pair_with(WMMA)).is_some());
    }

    /// Returns a session in which a variant was timed beside peers on mission.
    fn beside_peers(run: Run, variant: &str) -> Run {
        run.beside(
            variant,
            &mission(),
            20.0,
            &[PeerArm::right("torch-flash", 30.0)],
        )
    }

    fn is_timed_beside_peers(table: &Table, variant: &str) -> bool {
        table.row(&variant.into(), time_beside_peers()).is_some()
    }

    #[test]
    fn a_former_time_beside_peers_goes_where_another_stage_was_timed_since() {
        let before = beside_peers(timed(US).rebuilt(), WMMA);
        let table = accepted(&before, &beside_peers(later(&[]), CPASYNC));
        assert!(!is_timed_beside_peers(&table, WMMA));
        assert!(is_timed_beside_peers(&table, CPASYNC));
    }

    #[test]
    fn a_former_time_beside_peers_stays_where_no_stage_was_timed_since() {
        let before = beside_peers(timed(US).rebuilt(), WMMA);
        assert!(is_timed_beside_peers(&accepted(&before, &later(&[])), WMMA));
    }

    #[test]
    fn a_time_beside_peers_of_a_kernel_as_it_is_stays() {
        let before = beside_peers(timed(US), WMMA);
        let table = accepted(&before, &beside_peers(later(&[]), CPASYNC));
        assert!(is_timed_beside_peers(&table, WMMA));
    }

    #[test]
    fn a_former_time_beside_peers_stays_for_its_stages_claim() {
        let before = beside_peers(timed(US).rebuilt(), CPASYNC);
        let mut run = beside_peers(later(&[]), WMMA);
        run.session.stages[1].claims = claiming().remove(1).claims;
        assert!(is_timed_beside_peers(&accepted(&before, &run), CPASYNC));
    }
}
