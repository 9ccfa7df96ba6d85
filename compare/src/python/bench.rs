//! One problem after the other, on the GPU and in Python, interleaved.

use super::pair::{Sampled, absent, deciding_rounds, pair, wrong_clock};
use super::session::{DeviceTime, Finished, Kind, Peer, Python, SessionError, SingleCalls};
use crate::instrument::process::Scratch;
use crate::judge::Known;
use crate::judge::best;
use crate::judge::state::is_green;
use crate::measure::rows::not_launched;
use crate::measure::timed_problem::TimedProblem;
use crate::record::StageMeta;
use crate::record::VariantMeta;
use crate::record::meta::by_id;
use crate::record::{On, Place, Row, Source, Subject};
use common::device::cuda::{Arm, CudaDevice, CudaError};
use common::inputs::{Inputs, Operand};
use common::metric::Metric;
use common::problem::{Mask, Problem};
use common::reference::Probability;
use common::stage::LoadedStage;
use common::timing::stats::SampleError;
use common::timing::{Plan, SpeedOfLight};
use serde::de::IgnoredAny;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Device time that one sample covers, in microseconds, at least: long against the GPU's change from one process to the
/// other.
const CHUNK_US: f64 = 20_000.0;

/// Launches that one sample covers, at least: large problems draw all the power there is, and clocks follow slowly.
const CHUNK_LAUNCHES: f64 = 50.0;

/// Untimed work before each sample, as a share of it, so that clocks are this arm's own.
const LEAD_IN: f64 = 0.25;

/// Device time of a trial: which of ours is the fastest.
const TRIAL_US: f64 = 2_000.0;

const CALLS: usize = 100;

/// One problem, and the stages that are timed against the peers.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub place: Place,
    pub problem: Problem,
    pub stages: Vec<String>,
}

pub struct Bench<'a> {
    pub device: &'a CudaDevice,
    pub stages: &'a [LoadedStage],
    /// What the record says of them.
    pub builds: &'a [StageMeta],
    /// What says which of our variants are green and fastest; without it, none of ours is timed.
    pub known: Option<Known<'a>>,
    pub plan: Plan,
    /// What an empty kernel takes.
    pub zero_us: f64,
    /// FLOP/s that a matrix product reached in this session, if it was measured.
    pub matrix_flops: Option<f64>,
    pub exchange: Scratch,
}

/// One of ours, ready to be timed.
struct Ours<'a> {
    arm: Arm<'a>,
    subject: Subject,
    probability: Probability,
    /// Microseconds per launch, roughly.
    us: f64,
}

impl Ours<'_> {
    /// One sample, in microseconds per launch.
    fn chunk(&mut self, plan: &Plan) -> Result<f64, CudaError> {
        launch_us(&mut self.arm, plan, LEAD_IN * chunk_us(self.us))?;
        launch_us(&mut self.arm, plan, chunk_us(self.us))
    }

    /// Single calls, and the gates on what it computed in the graph that was timed.
    fn finish(
        &mut self,
        device_us: Vec<f64>,
        bench: &mut TimedProblem,
    ) -> Result<Sampled, CudaError> {
        let calls = self.arm.calls(CALLS)?;
        Ok(Sampled {
            subject: self.subject.clone(),
            device_us,
            single_us: calls.single_us,
            host_us: calls.host_us,
            judged: bench.judge(&self.arm.outputs()?, self.probability),
            eager: None,
        })
    }
}

pub type Lost = (Peer, String);

pub struct Ready {
    pub peer: Peer,
    /// Which of the Pythons has it.
    of: usize,
    /// What a call takes, roughly.
    time: DeviceTime,
    /// The share of the time that passed here that it reported, chunk by chunk.
    reported: Vec<f64>,
}

/// How often a graph is built anew until it is long enough. Starting one adds to the time of its launches, the less the longer
/// it is.
const SETTLING: usize = 4;

/// The graphs of the peers that each of the Pythons `given` has, by `prepare`, and how many launches each graph has: `launches`,
/// or, where none of ours is timed, as many as would be of ours, by the first peer that can be prepared. What cannot
/// goes to `lost`; with a Python that ends go all the graphs that it had built.
pub fn graphs(
    (plan, sets): (&Plan, usize),
    mut launches: Option<usize>,
    given: Vec<(usize, Vec<Peer>)>,
    lost: &mut Vec<Lost>,
    mut prepare: impl FnMut(usize, &Peer, usize) -> Result<DeviceTime, SessionError>,
) -> (usize, Vec<Ready>) {
    let mut ready = Vec::new();
    for (of, peers) in given {
        let (mut built, mut failed) = (Vec::new(), Vec::new());
        for peer in &peers {
            let mut settle = || {
                if let Some(count) = launches {
                    return prepare(of, peer, count);
                }
                let mut count = sets;
                let mut time = prepare(of, peer, count)?;
                for _ in 0..SETTLING {
                    let filling = plan.launches_per_sample(time.device_us, sets);
                    if filling <= count {
                        break;
                    }
                    count = filling;
                    time = prepare(of, peer, count)?;
                }
                launches = Some(count);
                Ok(time)
            };
            match settle() {
                Ok(time) => built.push(Ready {
                    peer: peer.clone(),
                    of,
                    time,
                    reported: Vec::new(),
                }),
                Err(error) if error.is_fatal() => {
                    (built, failed) = (vec![], all_lost(&peers, &error));
                    break;
                }
                Err(error) => failed.push((peer.clone(), error.to_string())),
            }
        }
        ready.extend(built);
        lost.extend(failed);
    }
    (launches.unwrap_or(sets), ready)
}

/// `peers` of a Python, with why none of them can be timed.
fn all_lost(peers: &[Peer], error: &SessionError) -> Vec<Lost> {
    let lost = peers.iter().map(|peer| (peer.clone(), error.to_string()));
    lost.collect()
}

struct Timed {
    place: Place,
    /// What the buffers amount to.
    cache: &'static str,
    speed_of_light: SpeedOfLight,
    /// Microseconds that the problem takes at the rate of a matrix product of the same 16-bit operands.
    matrix_us: Option<f64>,
    ours: Vec<Sampled>,
    theirs: Vec<(Kind, Sampled)>,
    lost: Vec<Lost>,
}

impl Timed {
    /// A row per arm, one per pair, and one per peer that was not timed. Pairs are of ours and each peer, or, where a candidate
    /// was to be timed, of that and everything else.
    fn rows(self) -> Result<Vec<Row>, SampleError> {
        let (mut candidates, mut peers) = (Vec::new(), Vec::new());
        for (kind, arm) in self.theirs {
            match kind {
                Kind::Candidate => candidates.push(arm),
                Kind::Library => peers.push(arm),
            }
        }
        let mut lost = self.lost.iter();
        let is_of_candidate =
            !candidates.is_empty() || lost.any(|(peer, _)| peer.kind == Kind::Candidate);
        let (mut judged, mut against) = (self.ours, peers);
        if is_of_candidate {
            for arm in &mut candidates {
                let least = arm.device_us.iter().copied().fold(f64::INFINITY, f64::min);
                let impossible = self.speed_of_light.impossible(least);
                arm.judged.gates.extend(impossible);
            }
            judged.append(&mut against);
            (judged, against) = (candidates, judged);
        }
        let mut rows = Vec::new();
        for arm in judged.iter().chain(&against) {
            let row = arm.row(&self.place, self.cache)?;
            // A wrong output has no rate.
            let us = row.value(Metric::P50).filter(|_| row.failure().is_none());
            rows.push(match self.matrix_us.zip(us) {
                Some((matrix_us, us)) => row.figure(Metric::PeakShare, matrix_us / us),
                None => row,
            });
        }
        for theirs in &against {
            for ours in &judged {
                rows.extend(pair(theirs, ours, &self.place, &self.speed_of_light)?);
            }
        }
        for (peer, reason) in self.lost {
            let row = absent(&peer.name, On::Problem(self.place.clone()), &reason);
            rows.push(match peer.kind {
                Kind::Candidate => row.verdict(&not_launched(&reason)),
                Kind::Library => row,
            });
        }
        Ok(rows)
    }
}

impl<'a> Bench<'a> {
    pub fn measure(&self, item: &Item, pythons: &mut [&mut Python]) -> anyhow::Result<Vec<Row>> {
        // No library but ours takes a scale for each head.
        let mut bench = TimedProblem::of(self.device, &item.problem, Inputs::with_one_scale)?;
        let speed_of_light = bench.speed_of_light(self.device, self.zero_us);
        let mut ours = Vec::new();
        for id in &item.stages {
            ours.extend(self.fastest(id, item, &bench)?);
        }
        let mut launches = None;
        for arm in &mut ours {
            launches = launches.max(Some(arm.arm.graph_launches(&self.plan)?));
        }
        for arm in &mut ours {
            arm.arm.resize_graph(launches.expect("that of an arm"))?;
        }
        let mut lost = Vec::new();
        let (launches, mut ready) = self.prepare(&bench, launches, pythons, &mut lost)?;
        let mut samples = loop {
            match self.sample(&mut ours, &mut ready, launches, pythons) {
                Ok(samples) => break samples,
                Err(Interrupted::Ours(error)) => return Err(error.into()),
                // What its process had built went with it; the others go on.
                Err(Interrupted::Python(of, error)) => {
                    let (gone, stay): (Vec<Ready>, _) =
                        ready.into_iter().partition(|ready| ready.of == of);
                    ready = stay;
                    lost.extend(gone.into_iter().map(|gone| (gone.peer, error.to_string())));
                }
            }
        };
        let of_peers = samples.split_off(ours.len());
        let mut theirs = Vec::new();
        for (ready, us) in ready.into_iter().zip(of_peers) {
            match self.finish(&ready, us, &mut bench, pythons[ready.of]) {
                Ok(sampled) => theirs.push((ready.peer.kind, sampled)),
                Err(error) => lost.push((ready.peer, error.to_string())),
            }
        }
        let mut arms = Vec::new();
        for (us, ours) in samples.into_iter().zip(&mut ours) {
            arms.push(ours.finish(us, &mut bench)?);
        }
        let timed = Timed {
            place: item.place.clone(),
            cache: bench.pool.rotation().state.name(),
            speed_of_light,
            matrix_us: (self.matrix_flops)
                .filter(|_| item.problem.dtype.bytes() == 2)
                .map(|rate| item.problem.flops() as f64 / rate * 1e6),
            ours: arms,
            theirs,
            lost,
        };
        Ok(timed.rows()?)
    }

    /// The fastest variant that may stand for a stage, by a trial where the record does not say.
    fn fastest(
        &self,
        id: &str,
        item: &Item,
        bench: &TimedProblem,
    ) -> Result<Option<Ours<'a>>, CudaError> {
        let stage = self.stages.iter().find(|stage| stage.info().id == id);
        let (Some(build), Some(stage), Some(known)) = (by_id(self.builds, id), stage, &self.known)
        else {
            return Ok(None);
        };
        let mut best: Option<Ours<'a>> = None;
        for variant in stand_ins(known, build, &item.place) {
            let Ok(prepared) = stage.prepare(&variant, &bench.problem) else {
                continue;
            };
            let mut arm = self.device.arm(stage, &prepared, &bench.pool)?;
            let us = launch_us(&mut arm, &self.plan, TRIAL_US)?;
            if best.as_ref().is_none_or(|best| us < best.us) {
                best = Some(Ours {
                    arm,
                    subject: build.subject(&variant),
                    probability: prepared.kernel.probability,
                    us,
                });
            }
        }
        Ok(best)
    }

    /// Hands the problem to each Python and builds every peer's graph, with as many launches as ours have, if there are any:
    /// whole rotations over the sets, so that each has an output to judge.
    fn prepare(
        &self,
        bench: &TimedProblem,
        launches: Option<usize>,
        pythons: &mut [&mut Python],
        lost: &mut Vec<Lost>,
    ) -> anyhow::Result<(usize, Vec<Ready>)> {
        let (mut contents, mut scales) = (Vec::new(), Vec::new());
        for (index, Inputs { q, k, v, .. }) in bench.inputs.iter().enumerate() {
            let file = |name: &str, operand: &Operand| {
                self.exchange
                    .write(&format!("{name}{index}"), &operand.bytes)
            };
            contents.push([file("q", q)?, file("k", k)?, file("v", v)?]);
            let each = [q, k, v].map(|operand| operand.scales.first());
            scales.push(each.into_iter().flatten().collect::<Vec<_>>());
        }
        let (problem, sets) = (&bench.problem, bench.pool.rotation().sets);
        let arguments = json!({
            "q_extents": problem.shape.q_extents(),
            "kv_extents": problem.shape.kv_extents(),
            "dtype": problem.dtype,
            "causal": problem.mask == Mask::Causal,
            "scale": problem.softmax_scale,
            "contents": contents,
            "scales": scales,
            "sets": sets,
        });
        let mut given = Vec::new();
        for (of, python) in pythons.iter_mut().enumerate() {
            let mut peers = python.hello.peers.clone();
            peers.retain(|peer| peer.dtypes.contains(&problem.dtype));
            if let Some(reason) = unsupported(problem) {
                let refused = peers.extract_if(.., |peer| peer.kind == Kind::Library);
                lost.extend(refused.map(|peer| (peer, reason.to_string())));
            }
            if peers.is_empty() {
                continue;
            }
            let started = python.start().map(drop);
            match started.and_then(|()| python.ask("problem", arguments.clone())) {
                Ok(IgnoredAny) => given.push((of, peers)),
                Err(error) => lost.extend(all_lost(&peers, &error)),
            }
        }
        let rotation = (&self.plan, sets);
        Ok(graphs(
            rotation,
            launches,
            given,
            lost,
            |of, peer, launches| {
                let arguments = json!({ "peer": peer.name, "launches": launches });
                pythons[of].ask("prepare", arguments)
            },
        ))
    }

    /// Device times of ours, then of theirs.
    fn sample(
        &self,
        ours: &mut [Ours<'_>],
        peers: &mut [Ready],
        launches: usize,
        pythons: &mut [&mut Python],
    ) -> Result<Vec<Vec<f64>>, Interrupted> {
        let (arms, count) = (ours.len() + peers.len(), ours.len());
        deciding_rounds(arms, count, self.plan.samples, |arm| {
            if let Some(ours) = ours.get_mut(arm) {
                return ours.chunk(&self.plan).map_err(Interrupted::Ours);
            }
            let ready = &mut peers[arm - count];
            let (us, launches) = (ready.time.device_us, launches as f64);
            let replays = (chunk_us(us) / (us * launches).max(1.0)).ceil().max(1.0);
            let lead_in = (LEAD_IN * replays).ceil();
            let arguments = json!({
                "peer": ready.peer.name,
                "lead_in": lead_in as usize,
                "replays": replays as usize,
            });
            let start = Instant::now();
            let took: DeviceTime = pythons[ready.of]
                .ask("chunk", arguments)
                .map_err(|error| Interrupted::Python(ready.of, error))?;
            let here = start.elapsed().as_secs_f64() * 1e6;
            let reported = took.device_us * launches * (lead_in + replays);
            ready.reported.push(reported / here);
            Ok(took.device_us)
        })
    }

    /// Single calls of a peer, and the gates on what it computed in the graph that was timed.
    fn finish(
        &self,
        ready: &Ready,
        device_us: Vec<f64>,
        bench: &mut TimedProblem,
        python: &mut Python,
    ) -> Result<Sampled, SessionError> {
        let peer = ready.peer.name.as_str();
        if let Some(reason) = wrong_clock(&ready.reported) {
            return Err(SessionError::Refused(reason));
        }
        let calls: SingleCalls = python.ask("calls", json!({ "peer": peer, "count": CALLS }))?;
        let files: Vec<PathBuf> = (0..bench.pool.rotation().sets)
            .map(|index| self.exchange.path(&format!("o{index}")))
            .collect();
        let finished: Finished = python.ask("finish", json!({ "peer": peer, "outputs": files }))?;
        let format = bench.problem.dtype.output();
        // The graph was replayed on other values than it was captured on: each set has the content of the next one.
        let contents = bench.inputs.len();
        let outputs: Vec<(usize, Vec<f32>)> = files
            .iter()
            .enumerate()
            .map(|(set, file)| ((set + 1) % contents, format.decode_bytes(&take(file))))
            .collect();
        // P is of the type of the operands, as in all of these libraries.
        let probability = Probability::of_operands(bench.problem.dtype);
        Ok(Sampled {
            subject: peer.into(),
            device_us,
            single_us: calls.single_us,
            host_us: calls.host_us,
            judged: bench.judge_dense(&outputs, probability, finished.e4m3_scale),
            eager: ready.time.eager.clone(),
        })
    }
}

pub fn best_of_default_family<'a>(
    known: &'a Known<'_>,
    stage: &StageMeta,
    place: &Place,
) -> Option<&'a Row> {
    best::best(known, stage, place, |name| of_default_family(stage, name))
}

fn of_default_family(stage: &StageMeta, name: &str) -> bool {
    let family = |name: &str| Some(stage.variant(name)?.family.as_str());
    family(name) == family(&stage.default_variant)
}

/// Why no peer can be asked for this problem, if so.
pub fn unsupported(problem: &Problem) -> Option<&'static str> {
    let differ = problem.shape.seq_q != problem.shape.seq_kv;
    (problem.mask == Mask::Causal && differ).then_some(
        "PyTorch aligns a causal mask top-left, this project bottom-right: they differ unless seq_q = seq_kv",
    )
}

/// Variants of `stage`, of its default's family, that may stand for it on a problem: the best where the record timed the
/// problem, else all that are green in the record, of which the caller takes the fastest.
pub fn stand_ins(known: &Known<'_>, stage: &StageMeta, place: &Place) -> Vec<String> {
    if let Some(fastest) = best_of_default_family(known, stage, place) {
        return vec![fastest.subject.name().to_string()];
    }
    let is_one = |variant: &&VariantMeta| {
        variant.takes(place.dtype)
            && of_default_family(stage, &variant.name)
            && is_green(known, &stage.subject(&variant.name), Source::Gpu)
    };
    let variants = stage.variants.iter().filter(is_one);
    variants.map(|variant| variant.name.clone()).collect()
}

/// How long a sample of an arm is that takes `us` microseconds per launch.
fn chunk_us(us: f64) -> f64 {
    CHUNK_US.max(CHUNK_LAUNCHES * us)
}

/// Microseconds per launch over about `us` microseconds of replays.
fn launch_us(arm: &mut Arm<'_>, plan: &Plan, us: f64) -> Result<f64, CudaError> {
    let graph = arm.graph_launches(plan)? as u64;
    let one = arm.device_time(graph, plan)?.as_secs_f64() * 1e6;
    let launches = graph * (us / one.max(0.1)).ceil().max(1.0) as u64;
    Ok(arm.device_time(launches, plan)?.as_secs_f64() * 1e6 / launches as f64)
}

/// The bytes of an output in a file, which is removed: an output that is not written must not be the one before.
pub fn take(path: &Path) -> Vec<u8> {
    // What cannot be read has no elements, which the gates fail.
    let bytes = std::fs::read(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    bytes
}

enum Interrupted {
    Ours(CudaError),
    Python(usize, SessionError),
}
