//! One problem after the other, on the GPU and in Python, interleaved.

use super::pair::{
    Sampled, SustainedArms, pair, rounds, sustained_arms, without_wrong_peer, wrong_clock,
};
use super::session::{Finished, Peer, Python, SessionError};
use crate::instrument::process::Scratch;
use crate::judge::View;
use crate::judge::best;
use crate::judge::state::is_green;
use crate::measure::builds::loaded;
use crate::measure::timed_problem::TimedProblem;
use crate::table::StageMeta;
use crate::table::VariantMeta;
use crate::table::measured::not_launched;
use crate::table::{ProblemPlace, Row, Subject};
use anyhow::bail;
use common::device::cuda::{self, CudaDevice, CudaError};
use common::format::Format;
use common::inputs::{Inputs, Operand};
use common::problem::{Mask, Problem};
use common::reference::{Probability, ReferenceError};
use common::stage::LoadedStage;
use common::telemetry::Reading;
use common::timing::stats::Summary;
use common::timing::sustained::{CHUNK, Chunk, Stand, Sustained, sustain};
use common::timing::{Plan, Regime};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Device time that one sample covers, in microseconds, at least: long against the GPU's change from one process to the
/// other.
const CHUNK_US: f64 = 20_000.0;

/// Launches that one sample covers, at least: large problems draw all the power there is, and clocks follow slowly.
const CHUNK_LAUNCHES: f64 = 50.0;

/// Untimed work before each sample, as a share of it, so that clocks are this arm's own.
const LEAD_IN: f64 = 0.25;

/// After so long another process has submitted a chunk, and the GPU works on it.
const UNDER_LOAD: Duration = Duration::from_millis(20);

/// Device time of a trial: which of ours is the fastest.
const TRIAL_US: f64 = 2_000.0;

/// One problem, and the stages that are timed against the peers.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub place: ProblemPlace,
    pub problem: Problem,
    pub stages: Vec<String>,
    /// Of these, the fastest in a trial, if it is faster there than all of `stages`.
    pub tried: Vec<String>,
    /// What the packaged library chooses, which is timed sustained beside the fastest.
    pub library: Option<Subject>,
}

pub struct Bench<'a> {
    pub device: &'a CudaDevice,
    pub stages: &'a [LoadedStage],
    /// What says which of our variants are green and fastest; where it says nothing, none of ours is timed.
    pub view: View<'a>,
    pub plan: Plan,
    /// What an empty kernel takes.
    pub zero_us: f64,
    pub exchange: Scratch,
}

struct Arm<'a> {
    subject: Subject,
    program: Program<'a>,
    /// Microseconds per launch, roughly.
    us: f64,
}

/// An arm with its samples.
struct Timed<'a> {
    arm: Arm<'a>,
    device_us: Vec<f64>,
    sustained: Option<Sustained>,
}

/// What failed, and in which of the Pythons, if it was one of those.
type Failed = (Option<usize>, anyhow::Error);

enum Program<'a> {
    Ours {
        arm: Box<cuda::Arm<'a>>,
        probability: Probability,
    },
    Theirs {
        /// Which of the Pythons has it.
        python: usize,
        /// The share of the time that passed here that it reported, chunk by chunk.
        reported: Vec<f64>,
    },
}

impl<'a> Arm<'a> {
    fn ours(&mut self) -> Option<&mut cuda::Arm<'a>> {
        match &mut self.program {
            Program::Ours { arm, .. } => Some(arm.as_mut()),
            Program::Theirs { .. } => None,
        }
    }

    fn python(&self) -> Option<usize> {
        match self.program {
            Program::Ours { .. } => None,
            Program::Theirs { python, .. } => Some(python),
        }
    }
}

/// How often a graph is built anew until it is long enough. Starting one adds to the time of its launches, the less the longer
/// it is.
const SETTLING: usize = 4;

/// The graphs of `peers`, all of one Python, by `prepare`. Each has as many `launches`; where none of ours is timed, as many as would
/// be of ours, by the first peer that can be prepared. Gives microseconds per call. A Python that ends takes all its graphs along.
pub fn graphs(
    (plan, sets): (&Plan, usize),
    launches: &mut Option<usize>,
    peers: &[Peer],
    mut prepare: impl FnMut(&Peer, usize) -> Result<f64, SessionError>,
) -> Vec<Result<f64, SessionError>> {
    let mut settle = |peer| -> Result<f64, SessionError> {
        let mut count = launches.unwrap_or(sets);
        let mut us = prepare(peer, count)?;
        for _ in 0..SETTLING {
            let filling = plan.launches_per_sample(us, sets);
            if launches.is_some() || filling <= count {
                break;
            }
            count = filling;
            us = prepare(peer, count)?;
        }
        *launches = Some(count);
        Ok(us)
    };
    let mut graphs = Vec::new();
    for peer in peers {
        match settle(peer) {
            Err(error) if error.is_fatal() => return vec![Err(error); peers.len()],
            graph => graphs.push(graph),
        }
    }
    graphs
}

impl<'a> Bench<'a> {
    /// A row per arm, one per pair, and one per peer that was not timed. Pairs are of ours and each peer, or, if one of `pythons` has a
    /// candidate, of that and everything else.
    pub fn measure(&self, item: &Item, pythons: &mut [&mut Python]) -> anyhow::Result<Vec<Row>> {
        // No library but ours takes a scale for each head.
        let mut problem = TimedProblem::of(
            self.device,
            &item.problem,
            item.place.cold,
            Inputs::with_one_scale,
        )?;
        let speed_of_light = problem.speed_of_light(self.device, self.zero_us);
        let candidate = pythons.iter().position(|python| python.candidate.is_some());
        let lost = |python, name: &str, error: &anyhow::Error| {
            let reason = error.to_string();
            let row = Row::absent_peer(name, Some(item.place.clone()), &reason);
            match error.downcast_ref() {
                Some(SessionError::Unsupported(_)) => row,
                _ if candidate == Some(python) => row.verdict(&not_launched(&reason)),
                _ => row,
            }
        };
        let mut rows = Vec::new();
        let mut arms = Vec::new();
        for id in &item.stages {
            arms.extend(self.fastest(id, item, &problem)?);
        }
        let mut least = arms.iter().map(|arm| arm.us).fold(f64::INFINITY, f64::min);
        let mut tried = None;
        for id in &item.tried {
            for arm in self.fastest(id, item, &problem)? {
                if arm.us < least {
                    least = arm.us;
                    tried = Some(arm);
                }
            }
        }
        arms.extend(tried);
        let mut launches = None;
        for arm in arms.iter_mut().filter_map(Arm::ours) {
            launches = launches.max(Some(arm.graph_launches(&self.plan)?));
        }
        for arm in arms.iter_mut().filter_map(Arm::ours) {
            arm.resize_graph(launches.expect("that of an arm"))?;
        }
        let sets = problem.pool.rotation().sets;
        let arguments = self.arguments(&problem)?;
        for (index, python) in pythons.iter_mut().enumerate() {
            let mut peers = python.hello.peers.clone();
            peers.retain(|peer| peer.dtypes.contains(&item.problem.dtype));
            if peers.is_empty() {
                continue;
            }
            let started = python.start().map(drop);
            let given =
                started.and_then(|()| python.ask::<IgnoredAny>("problem", arguments.clone()));
            let graphs = match given {
                Err(error) => vec![Err(error); peers.len()],
                Ok(_) => graphs(
                    (&self.plan, sets),
                    &mut launches,
                    &peers,
                    |peer, launches| {
                        python.ask(
                            "prepare",
                            json!({ "peer": peer.name, "launches": launches }),
                        )
                    },
                ),
            };
            for (peer, graph) in peers.iter().zip(graphs) {
                match graph {
                    Ok(us) => arms.push(Arm {
                        subject: peer.name.as_str().into(),
                        program: Program::Theirs {
                            python: index,
                            reported: Vec::new(),
                        },
                        us,
                    }),
                    Err(error) => rows.push(lost(index, &peer.name, &error.into())),
                }
            }
        }
        let launches = launches.unwrap_or(sets);
        // First what is judged against the others.
        let is_judged = |arm: &Arm<'_>| arm.python() == candidate;
        arms.sort_by_key(|arm| !is_judged(arm));
        let samples = loop {
            let judged = arms.iter().filter(|arm| is_judged(arm)).count();
            let sampled = rounds(arms.len(), judged, self.plan.samples, |index| {
                let arm = &mut arms[index];
                let python = arm.python();
                self.chunk(arm, launches, pythons)
                    .map_err(|error| (python, error))
            });
            match sampled {
                Ok(samples) => break samples,
                Err((None, error)) => return Err(error),
                // What its process had built went with it; the others go on.
                Err((Some(python), error)) => {
                    let gone = arms.extract_if(.., |arm| arm.python() == Some(python));
                    rows.extend(gone.map(|arm| lost(python, arm.subject.as_str(), &error)));
                }
            }
        };
        let mut timed: Vec<Timed<'_>> = arms
            .into_iter()
            .zip(samples)
            .map(|(arm, device_us)| Timed {
                arm,
                device_us,
                sustained: None,
            })
            .collect();
        let mut sustained_peer = None;
        if candidate.is_none() {
            match self.sustain(item, &mut timed, &problem, launches, pythons) {
                Ok(peer) => sustained_peer = peer,
                Err((None, error)) => return Err(error),
                Err((Some(python), error)) => {
                    let gone = timed.extract_if(.., |timed| timed.arm.python() == Some(python));
                    rows.extend(gone.map(|timed| lost(python, timed.arm.subject.as_str(), &error)));
                }
            }
        }
        let is_of_candidate = |arm: &Arm<'_>| candidate.is_some() && is_judged(arm);
        let cache = problem.pool.rotation().state.name();
        let mut sampled_arms = Vec::new();
        let mut judged_subjects = Vec::new();
        for timed in timed {
            let python = timed.arm.python();
            let subject = timed.arm.subject.clone();
            if is_judged(&timed.arm) {
                judged_subjects.push(subject.clone());
            }
            let is_of_candidate = is_of_candidate(&timed.arm);
            let mut sampled = match (self.finish(timed, &mut problem, pythons), python) {
                (Ok(sampled), _) => sampled,
                (Err(error), None) => return Err(error),
                // No fault of the process.
                (Err(error), _) if error.is::<ReferenceError>() => return Err(error),
                (Err(error), Some(python)) => {
                    rows.push(lost(python, subject.as_str(), &error));
                    continue;
                }
            };
            if is_of_candidate {
                let least = Summary::of(&sampled.device_us)?.min;
                let impossible = speed_of_light.impossible(least);
                sampled.judged.gates.extend(impossible);
            }
            sampled_arms.push(sampled);
        }
        if let Some(peer) = &sustained_peer {
            without_wrong_peer(&mut sampled_arms, peer);
        }
        for sampled in &sampled_arms {
            rows.push(sampled.row(&item.place, cache)?);
        }
        let (judged, paired_with): (Vec<&Sampled>, Vec<&Sampled>) = sampled_arms
            .iter()
            .partition(|sampled| judged_subjects.contains(&sampled.subject));
        for theirs in &paired_with {
            for ours in &judged {
                rows.extend(pair(theirs, ours, &item.place, cache, &speed_of_light)?);
            }
        }
        Ok(rows)
    }

    /// Times ours, the library's choice and the fastest peer sustained, if one of all arms reaches the power limit. Returns that peer.
    fn sustain(
        &self,
        item: &Item,
        timed: &mut Vec<Timed<'a>>,
        problem: &TimedProblem,
        launches: usize,
        pythons: &mut [&mut Python],
    ) -> Result<Option<Subject>, Failed> {
        let mut turns = Turns {
            bench: self,
            arms: timed.iter_mut().map(|timed| &mut timed.arm).collect(),
            launches,
            pythons,
            start: Instant::now(),
        };
        let mut readings = Vec::new();
        for arm in 0..turns.arms.len() {
            readings.push(turns.chunk(arm)?.reading);
        }
        if Regime::needed(&readings) == Regime::Burst {
            return Ok(None);
        }
        let library = self.library(item, timed, problem, launches)?;
        let ours = count_ours(timed);
        let samples: Vec<&[f64]> = timed.iter().map(|timed| &*timed.device_us).collect();
        let Some(SustainedArms { arms, peer }) = sustained_arms(&samples, ours, library) else {
            return Ok(None);
        };
        let peer = timed[peer].arm.subject.clone();
        let mut chosen: Vec<&mut Timed<'_>> = Vec::new();
        for (index, timed) in timed.iter_mut().enumerate() {
            if arms.contains(&index) {
                chosen.push(timed);
            }
        }
        let mut turns = Turns {
            bench: self,
            arms: chosen.iter_mut().map(|timed| &mut timed.arm).collect(),
            launches,
            pythons,
            start: Instant::now(),
        };
        let sustained = sustain(&mut turns, arms.len())?;
        for (timed, sustained) in chosen.into_iter().zip(sustained) {
            timed.sustained = Some(sustained);
        }
        Ok(Some(peer))
    }

    /// The place of the library's choice among ours, behind the others if it was not timed yet; `None` if the run does not say that
    /// it is green.
    fn library(
        &self,
        item: &Item,
        timed: &mut Vec<Timed<'a>>,
        problem: &TimedProblem,
        launches: usize,
    ) -> Result<Option<usize>, Failed> {
        let Some(subject) = &item.library else {
            return Ok(None);
        };
        let place = timed.iter().position(|timed| timed.arm.subject == *subject);
        if place.is_some() || !is_green(&self.view, subject, self.view.backend()) {
            return Ok(place);
        }
        let arm = self.arm_of(subject, item, problem, launches);
        let Some(arm) = arm.map_err(|error| (None, error.into()))? else {
            return Ok(None);
        };
        let place = count_ours(timed);
        let chosen = Timed {
            arm,
            device_us: Vec::new(),
            sustained: None,
        };
        timed.insert(place, chosen);
        Ok(Some(place))
    }

    /// One of our variants with a graph of so many `launches`; `None` if it does not support the problem.
    fn arm_of(
        &self,
        subject: &Subject,
        item: &Item,
        problem: &TimedProblem,
        launches: usize,
    ) -> Result<Option<Arm<'a>>, CudaError> {
        let stage = loaded(self.stages, subject.stage());
        let Ok(prepared) = stage.prepare(subject.name(), &item.problem) else {
            return Ok(None);
        };
        let mut arm = self.device.arm(stage, &prepared, &problem.pool)?;
        let us = launch_us(&mut arm, &self.plan, TRIAL_US)?;
        arm.resize_graph(launches)?;
        Ok(Some(Arm {
            subject: subject.clone(),
            program: Program::Ours {
                arm: Box::new(arm),
                probability: prepared.kernel.probability,
            },
            us,
        }))
    }

    /// The variants that stand for a stage, by a trial where the run does not say.
    fn fastest(
        &self,
        id: &str,
        item: &Item,
        problem: &TimedProblem,
    ) -> Result<Vec<Arm<'a>>, CudaError> {
        let Some(build) = self.view.stage(id) else {
            return Ok(vec![]);
        };
        let stage = loaded(self.stages, id);
        let mut arms = Vec::new();
        for variants in stand_ins(&self.view, build, &item.place) {
            let mut best: Option<Arm<'a>> = None;
            for variant in &variants {
                let Ok(prepared) = stage.prepare(variant, &item.problem) else {
                    continue;
                };
                let mut arm = self.device.arm(stage, &prepared, &problem.pool)?;
                let us = launch_us(&mut arm, &self.plan, TRIAL_US)?;
                if best.as_ref().is_none_or(|best| us < best.us) {
                    best = Some(Arm {
                        subject: build.subject(variant),
                        program: Program::Ours {
                            arm: Box::new(arm),
                            probability: prepared.kernel.probability,
                        },
                        us,
                    });
                }
            }
            arms.extend(best);
        }
        Ok(arms)
    }

    /// The problem as each Python is told of it.
    fn arguments(&self, problem: &TimedProblem) -> anyhow::Result<Value> {
        let mut contents = Vec::new();
        for (index, Inputs { q, k, v, .. }) in problem.inputs.iter().enumerate() {
            let shape = &problem.problem.shape;
            let keys = shape.kv_extents();
            let mut content = Vec::new();
            for (name, Operand { bytes, scales, .. }, extents) in
                [("q", q, shape.q_extents()), ("k", k, keys), ("v", v, keys)]
            {
                let file = self.exchange.write(&format!("{name}{index}"), bytes)?;
                content.push(json!({ "file": file, "extents": extents, "scales": scales }));
            }
            contents.push(content);
        }
        Ok(json!({
            "dtype": problem.problem.dtype,
            "causal": problem.problem.mask == Mask::Causal,
            "scale": problem.problem.softmax_scale,
            "decode": problem.problem.shape.is_decode(),
            "contents": contents,
            "sets": problem.pool.rotation().sets,
        }))
    }

    /// One sample, in microseconds per launch, of an arm whose graph has so many `launches`.
    fn chunk(
        &self,
        arm: &mut Arm<'_>,
        launches: usize,
        pythons: &mut [&mut Python],
    ) -> anyhow::Result<f64> {
        match &mut arm.program {
            Program::Ours { arm: ours, .. } => {
                launch_us(ours, &self.plan, LEAD_IN * chunk_us(arm.us))?;
                Ok(launch_us(ours, &self.plan, chunk_us(arm.us))?)
            }
            Program::Theirs { python, reported } => {
                let launches = launches as f64;
                let replays = (chunk_us(arm.us) / (arm.us * launches).max(1.0))
                    .ceil()
                    .max(1.0);
                let lead_in = (LEAD_IN * replays).ceil();
                let arguments = json!({
                    "peer": arm.subject,
                    "lead_in": lead_in as usize,
                    "replays": replays as usize,
                });
                let start = Instant::now();
                let us: f64 = pythons[*python].ask("chunk", arguments)?;
                let here = start.elapsed().as_secs_f64() * 1e6;
                reported.push(us * launches * (lead_in + replays) / here);
                Ok(us)
            }
        }
    }

    /// The gates on what it computed in the graph that was timed, and the host's time of a call.
    fn finish(
        &self,
        timed: Timed<'_>,
        problem: &mut TimedProblem,
        pythons: &mut [&mut Python],
    ) -> anyhow::Result<Sampled> {
        let Timed {
            arm,
            device_us,
            sustained,
        } = timed;
        let subject = arm.subject.clone();
        let (python, reported) = match &arm.program {
            Program::Ours { arm, probability } => {
                return Ok(Sampled {
                    subject,
                    device_us,
                    sustained,
                    host_us: None,
                    judged: problem.judge(self.device, &arm.outputs()?, *probability)?,
                });
            }
            Program::Theirs { python, reported } => (&mut pythons[*python], reported),
        };
        let dtype = problem.problem.dtype;
        let sets = problem.pool.rotation().sets;
        let written = PeerOutputs::ask(
            python,
            &self.exchange,
            &subject,
            reported,
            sets,
            dtype.output(),
        )?;
        let contents = problem.inputs.len();
        let outputs: Vec<(usize, Vec<f32>)> = written
            .outputs
            .into_iter()
            .map(|(set, output)| (set % contents, output))
            .collect();
        // P is of the type of the operands, as in all of these libraries.
        let probability = Probability::of_operands(dtype);
        Ok(Sampled {
            subject,
            device_us,
            sustained,
            host_us: Some(written.host_us),
            judged: problem.judge_dense(self.device, &outputs, probability, written.e4m3_scale)?,
        })
    }
}

fn count_ours(timed: &[Timed<'_>]) -> usize {
    let ours = timed.iter().filter(|timed| timed.arm.python().is_none());
    ours.count()
}

/// Arms of both processes that take turns of a second.
struct Turns<'t, 'a, 'p> {
    bench: &'t Bench<'a>,
    arms: Vec<&'t mut Arm<'a>>,
    /// Of each graph.
    launches: usize,
    pythons: &'t mut [&'p mut Python],
    start: Instant,
}

impl Stand for Turns<'_, '_, '_> {
    type Error = Failed;

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn energy_mj(&self) -> Option<f64> {
        self.bench.device.energy_mj()
    }

    fn chunk(&mut self, arm: usize) -> Result<Chunk, Failed> {
        let Arm {
            subject,
            program,
            us,
        } = &mut *self.arms[arm];
        let (python, reported) = match program {
            Program::Ours { arm, .. } => {
                return arm.chunk(CHUNK).map_err(|error| (None, error.into()));
            }
            Program::Theirs { python, reported } => (*python, reported),
        };
        let chunk_us = CHUNK.as_secs_f64() * 1e6;
        let graph_us = *us * self.launches as f64;
        let replays = (chunk_us / graph_us.max(1.0)).ceil().max(1.0) as usize;
        let launches = replays * self.launches;
        let mut reading = Reading::default();
        let read = || {
            thread::sleep(UNDER_LOAD);
            reading = self.bench.device.conditions();
        };
        let arguments = json!({ "peer": subject, "replays": replays });
        let start = Instant::now();
        let launch_us: f64 = self.pythons[python]
            .ask_meanwhile("steady", arguments, read)
            .map_err(|error| (Some(python), error.into()))?;
        let us = launch_us * launches as f64;
        reported.push(us / (start.elapsed().as_secs_f64() * 1e6));
        Ok(Chunk {
            us,
            launches,
            reading,
        })
    }
}

/// What a peer computed in the graph that was timed.
#[derive(Debug)]
pub struct PeerOutputs {
    /// Host time of one of several calls back to back.
    pub host_us: Vec<f64>,
    /// The scale of outputs that were held in E4M3.
    pub e4m3_scale: Option<f32>,
    /// Each output that differs from the others of its set, behind the number of the set.
    pub outputs: Vec<(usize, Vec<f32>)>,
}

impl PeerOutputs {
    /// Asks `python` to replay the graph of `peer` once more, and reads what it wrote. Refuses a process that `reported` a wrong
    /// share of the time that passed here, and one that wrote no output of one of the `sets`.
    pub fn ask(
        python: &mut Python,
        exchange: &Scratch,
        peer: &Subject,
        reported: &[f64],
        sets: usize,
        format: Format,
    ) -> anyhow::Result<Self> {
        if let Some(reason) = wrong_clock(reported) {
            bail!(reason);
        }
        let arguments = json!({ "peer": peer, "output": exchange.path("o") });
        let finished: Finished = python.ask("finish", arguments)?;
        let missing = (0..sets).find(|set| !finished.sets.contains(set));
        if let Some(set) = missing {
            bail!("Python wrote no output of set {set}");
        }
        let outputs = finished
            .sets
            .into_iter()
            .enumerate()
            .map(|(index, set)| {
                let bytes = take(&exchange.path(&format!("o{index}")));
                (set, format.decode_bytes(&bytes))
            })
            .collect();
        Ok(Self {
            host_us: finished.host_us,
            e4m3_scale: finished.e4m3_scale,
            outputs,
        })
    }
}

/// Groups of variants of `stage` of which the fastest stands for it on a problem. Of its default's family, which claims over peers are
/// about: the best where the run timed the problem, else all that are green in the run. And the best of all, if it is of another family.
pub fn stand_ins(view: &View<'_>, stage: &StageMeta, place: &ProblemPlace) -> Vec<Vec<String>> {
    let default = stage.variant(&stage.default_variant);
    let family = default.map_or("", |default| default.family.as_str());
    let timed = |row: &Row| vec![row.subject.name().to_string()];
    let of_family = best::best_of(view, stage, family, place).map_or_else(
        || {
            let is_one = |variant: &&VariantMeta| {
                let subject = stage.subject(&variant.name);
                variant.takes(place.dtype) && is_green(view, &subject, view.backend())
            };
            let variants = stage.family(family).filter(is_one);
            variants.map(|variant| variant.name.clone()).collect()
        },
        timed,
    );
    let of_all = best::best(view, stage, place, |_| true);
    let of_another = of_all.filter(|row| {
        let variant = stage.variant(row.subject.name());
        variant.is_some_and(|variant| !variant.is_of(family))
    });
    let groups = [of_family].into_iter().chain(of_another.map(timed));
    groups.filter(|group| !group.is_empty()).collect()
}

/// How long a sample of an arm is that takes `us` microseconds per launch.
fn chunk_us(us: f64) -> f64 {
    CHUNK_US.max(CHUNK_LAUNCHES * us)
}

/// Microseconds per launch over about `us` microseconds of replays.
fn launch_us(arm: &mut cuda::Arm<'_>, plan: &Plan, us: f64) -> Result<f64, CudaError> {
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
