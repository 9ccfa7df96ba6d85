//! A literal `peers.json` beside the records of the tests.

use super::{ladder, samples};
use crate::peers::pair::{self, Sampled, absent, peer_arm};
use crate::timed_problem::Judged;
use common::problem::{Dtype, Mask, Shape};
use common::record::{Ceilings, OurArm, PeerClaimTerms, PeerProblem, Peers, Record, SCHEMA, StageBuild};
use common::stage::Rival;
use common::timing::{Floor, Rotation};
use common::verdict::{GateId, GateResult};

/// The literal ladder, whose last stage claims 1.5x over the fastest of PyTorch and 1x over its flash, on mission.
pub fn claiming() -> Vec<StageBuild> {
    let mut stages = ladder();
    let terms = |rival, at_least, goal| PeerClaimTerms {
        family: "cpasync".into(),
        shape: "mission".into(),
        mask: Mask::Full,
        rival,
        at_least,
        goal,
    };
    stages[1].peer_claims = vec![terms(Rival::FastestPyTorch, 1.5, Some(1.7)), terms(Rival::PyTorchFlash, 1.0, None)];
    stages
}

/// Samples around `us`, with an output that is right or not.
pub fn sampled(us: f64, is_right: bool) -> Sampled {
    let gates = [GateId::C1, GateId::C2, GateId::C3].map(|gate| {
        GateResult::judge(gate, is_right || gate != GateId::C2, if is_right { "fine" } else { "too large" })
    });
    Sampled {
        device_us: samples(us),
        single_us: samples(us + 40.0),
        host_us: samples(20.0),
        judged: Judged { max_abs: 1.5e-4, gates: gates.to_vec() },
    }
}

/// One problem: cpasync-32x64 takes `ours` microseconds; peers by name with what they take and whether they are right;
/// flash-attn is not installed.
pub fn problem(shape_name: &str, mask: Mask, ours: f64, peers: &[(&str, f64, bool)]) -> PeerProblem {
    let stage = &ladder()[1];
    let figures = sampled(ours, true).figures().unwrap();
    let (stage, identity) = (stage.id.clone(), stage.identity.clone());
    let arms = [(OurArm { stage, variant: "cpasync-32x64".into(), identity, figures }, sampled(ours, true))];
    let timed = peers.iter().map(|&(peer, us, is_right)| peer_arm(peer, &sampled(us, is_right), &arms).unwrap());
    let missing = absent("flash-attn", "ModuleNotFoundError: No module named 'flash_attn'");
    PeerProblem {
        shape_name: shape_name.into(),
        shape: Shape::bhsd(1, 8, 512, 64),
        dtype: Dtype::F16,
        mask,
        rotation: Rotation::of(4, 1_572_864, 524_288, 62_914_560),
        launches_per_graph: 20,
        peers: timed.chain([missing]).collect(),
        ours: arms.map(|(arm, _)| arm).to_vec(),
    }
}

/// Adds peers on these problems to a record of the literal ladder on a GPU, with the claims of [`claiming`] judged.
pub fn completed(mut record: Record, problems: Vec<PeerProblem>) -> Record {
    record.meta.stages = claiming();
    let floor = Floor::none("literal samples");
    record.peers = Some(Peers {
        schema: SCHEMA,
        started: "2026-11-20T19:00:00Z".into(),
        method: "in turns".into(),
        gpu: "NVIDIA H200".into(),
        software: [("torch".to_string(), "2.11.0".to_string())].into(),
        ceilings: Ceilings::Measured { matrix_flops: 790e12, copy_bytes: 4.3e12 },
        claims: problems.iter().flat_map(|problem| pair::claims(&claiming(), problem, &floor)).collect(),
        problems,
    });
    record
}
