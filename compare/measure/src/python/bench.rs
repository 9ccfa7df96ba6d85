//! One problem after the other, on the GPU and in Python, interleaved.

use super::arm::{Arm, ArmError, Program};
use super::pair::{Sampled, pair, rounds, sustained_arms, without_wrong_peer, wrong_clock};
use super::session::{Finished, Peer, Python, SessionError};
use super::turns::Turns;
use crate::instrument::process::Scratch;
use crate::timed_problem::{DenseOutput, TimedProblem};
use anyhow::bail;
use common::device::cuda::{self, CudaDevice, CudaError};
use common::format::Format;
use common::inputs::Inputs;
use common::problem::{Mask, Problem, Shape};
use common::reference::{Probability, ReferenceError};
use common::sequences::{Sequence, sinks};
use common::serving::{Lengths, Serving};
use common::stage::LoadedStage;
use common::timing::stats::Summary;
use common::timing::sustained::{Stand, sustain};
use common::timing::{Plan, Regime, SpeedOfLight};
use results::builds::loaded;
use results::judge::View;
use results::judge::best;
use results::judge::state::is_green;
use results::table::measured::not_launched;
use results::table::{ProblemPlace, Row, StageMeta, Subject, VariantMeta};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// The least device time that one sample covers, in microseconds: long against the GPU's change
/// from one process to the other.
const CHUNK_US: f64 = 20_000.0;

/// The fewest launches that one sample covers: large problems draw all the power there is, and
/// clocks follow slowly.
const CHUNK_LAUNCHES: f64 = 50.0;

/// Untimed work before each sample, as a share of it, so that clocks are this arm's own.
const LEAD_IN: f64 = 0.25;

/// The device time of a trial, which finds the fastest of ours, in microseconds.
const TRIAL_US: f64 = 2_000.0;

/// How often a graph is built anew until it is long enough. Starting one adds to the time of its
/// launches, the less the longer it is.
const SETTLING: usize = 4;

/// One problem, and the stages that are timed against the peers.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub place: ProblemPlace,
    pub problem: Problem,
    pub stages: Vec<String>,
    /// The stages of which the fastest in a trial takes part, if it is faster there than all of
    /// `stages`.
    pub tried: Vec<String>,
    /// The packaged library's choice, which is timed sustained beside the fastest.
    pub library: Option<Subject>,
}

/// The device, the variants of ours and the settings by which problems are timed.
pub struct Bench<'a> {
    pub device: &'a CudaDevice,
    pub stages: &'a [LoadedStage],
    /// The table that knows which of our variants are green and fastest. Where it knows nothing,
    /// none of ours is timed.
    pub view: View<'a>,
    pub plan: Plan,
    /// The time of an empty kernel.
    pub zero_us: f64,
    pub exchange: &'a Scratch,
}

impl<'a> Bench<'a> {
    /// Times one problem. Returns a row per arm, one per pair, and one per peer that was not timed.
    /// Pairs are of ours and each peer, or, if one of `pythons` has a candidate, of that and
    /// everything else.
    pub fn measure(&self, item: &Item, pythons: &mut [&mut Python]) -> anyhow::Result<Vec<Row>> {
        let mut round = Round::new(self, item, pythons)?;
        round.prepare_ours()?;
        round.prepare_theirs()?;
        round.sample()?;
        let sustained_peer = round.sustain()?;
        round.finish(sustained_peer.as_ref())
    }

    /// Returns what stands for a stage: the fastest of its claims' family, and of the others what is
    /// faster.
    fn fastest(
        &self,
        id: &str,
        item: &Item,
        problem: &TimedProblem,
    ) -> Result<Vec<Arm<'a>>, CudaError> {
        let Some(build) = self.view.stage(id) else {
            return Ok(vec![]);
        };
        let Representatives {
            of_claims,
            of_others,
        } = Representatives::new(&self.view, build, &item.place);
        let mut arms = Vec::new();
        for variants in [of_claims, of_others] {
            let fastest_us = arms.first().map(|arm: &Arm<'_>| arm.us);
            let fastest = self.fastest_variant(build, &variants, item, problem)?;
            arms.extend(fastest.filter(|arm| fastest_us.is_none_or(|us| arm.us < us)));
        }
        Ok(arms)
    }

    /// Returns the fastest of these variants, by a trial of each that takes the problem.
    fn fastest_variant(
        &self,
        stage: &StageMeta,
        variants: &[String],
        item: &Item,
        problem: &TimedProblem,
    ) -> Result<Option<Arm<'a>>, CudaError> {
        let mut fastest: Option<Arm<'a>> = None;
        for variant in variants {
            let Some(arm) = self.arm(&stage.subject(variant), item, problem)? else {
                continue;
            };
            if fastest.as_ref().is_none_or(|other| arm.us < other.us) {
                fastest = Some(arm);
            }
        }
        Ok(fastest)
    }

    /// Prepares one of our variants and tries how long it takes; returns nothing if it does not
    /// support the problem.
    fn arm(
        &self,
        subject: &Subject,
        item: &Item,
        problem: &TimedProblem,
    ) -> Result<Option<Arm<'a>>, CudaError> {
        let stage = loaded(self.stages, subject.stage());
        let Ok(prepared) = stage.prepare(subject.name(), &item.problem) else {
            return Ok(None);
        };
        let mut arm = self.device.arm(stage, &prepared, &problem.pool)?;
        let us = launch_us(&mut arm, &self.plan, TRIAL_US)?;
        let program = Program::Ours {
            arm: Box::new(arm),
            probability: prepared.kernel.probability,
        };
        Ok(Some(Arm::new(subject.clone(), program, us)))
    }

    /// Describes the problem to a Python, and writes its inputs to files.
    fn describe(&self, problem: &TimedProblem) -> anyhow::Result<Value> {
        let shape = &problem.problem.shape;
        let keys = shape.kv_extents();
        let mut contents = Vec::new();
        for (index, Inputs { q, k, v, .. }) in problem.inputs.iter().enumerate() {
            let mut content = Vec::new();
            for (name, operand, extents) in
                [("q", q, shape.q_extents()), ("k", k, keys), ("v", v, keys)]
            {
                let file = self
                    .exchange
                    .write(&format!("{name}{index}"), &operand.bytes)?;
                content.push(json!({
                    "file": file,
                    "extents": extents,
                    "scales": operand.scales,
                }));
            }
            contents.push(content);
        }
        Ok(json!({
            "dtype": problem.problem.dtype,
            "causal": problem.problem.mask == Mask::Causal,
            "scale": problem.problem.softmax_scale,
            "decode": shape.is_decode(),
            "serving": serving(shape),
            "contents": contents,
            "sets": problem.pool.rotation().sets,
        }))
    }
}

/// Describes sequences as they are served to a Python, as its `Serving` has them; null for dense
/// tensors.
fn serving(shape: &Shape) -> Value {
    let Serving {
        lengths,
        window,
        softcap,
        page_rows,
        cache,
        ..
    } = shape.serving;
    if shape.serving.is_dense() {
        return Value::Null;
    }
    let mut sequences = Vec::new();
    for Sequence { queries, keys } in shape.sequences() {
        sequences.push([queries, keys]);
    }
    json!({
        "sequences": sequences,
        "packed": matches!(lengths, Lengths::Packed(_)),
        "window": [window.left, window.right],
        "sinks": sinks(shape),
        "softcap": softcap,
        "page_rows": page_rows,
        "cache": cache,
    })
}

/// One problem while it is timed.
struct Round<'r, 'a, 'p> {
    bench: &'r Bench<'a>,
    item: &'r Item,
    problem: TimedProblem,
    pythons: &'r mut [&'p mut Python],
    /// The index of the Python that has a candidate.
    candidate: Option<usize>,
    arms: Vec<Arm<'a>>,
    /// The number of launches in each graph, once one was built.
    launches: Option<usize>,
    rows: Vec<Row>,
}

impl<'r, 'a, 'p> Round<'r, 'a, 'p> {
    fn new(
        bench: &'r Bench<'a>,
        item: &'r Item,
        pythons: &'r mut [&'p mut Python],
    ) -> anyhow::Result<Self> {
        // No library but ours takes a scale for each head.
        let problem = TimedProblem::with_inputs(
            bench.device,
            &item.problem,
            item.place.cold,
            Inputs::with_one_scale,
        )?;
        let candidate = pythons.iter().position(|python| python.candidate.is_some());
        Ok(Self {
            bench,
            item,
            problem,
            pythons,
            candidate,
            arms: Vec::new(),
            launches: None,
            rows: Vec::new(),
        })
    }

    /// Adds ours: the representatives of each stage, and of the stages that are tried the fastest
    /// if it is faster than those.
    fn prepare_ours(&mut self) -> anyhow::Result<()> {
        for id in &self.item.stages {
            let representatives = self.bench.fastest(id, self.item, &self.problem)?;
            self.arms.extend(representatives);
        }
        let mut least_us = f64::INFINITY;
        for arm in &self.arms {
            least_us = least_us.min(arm.us);
        }
        let mut faster = None;
        for id in &self.item.tried {
            for arm in self.bench.fastest(id, self.item, &self.problem)? {
                if arm.us < least_us {
                    least_us = arm.us;
                    faster = Some(arm);
                }
            }
        }
        self.arms.extend(faster);
        for arm in self.arms.iter_mut().filter_map(Arm::ours) {
            let launches = arm.graph_launches(&self.bench.plan)?;
            self.launches = self.launches.max(Some(launches));
        }
        if let Some(launches) = self.launches {
            for arm in self.arms.iter_mut().filter_map(Arm::ours) {
                arm.resize_graph(launches)?;
            }
        }
        Ok(())
    }

    /// Adds the peers of each Python that take the element type.
    fn prepare_theirs(&mut self) -> anyhow::Result<()> {
        let arguments = self.bench.describe(&self.problem)?;
        for index in 0..self.pythons.len() {
            let mut peers = self.pythons[index].hello.peers.clone();
            peers.retain(|peer| peer.takes(&self.item.problem));
            if peers.is_empty() {
                continue;
            }
            let graphs = self.build_graphs(index, &peers, &arguments);
            for (peer, graph) in peers.iter().zip(graphs) {
                match graph {
                    Ok(us) => {
                        let program = Program::Theirs {
                            python: index,
                            reported: Vec::new(),
                        };
                        let subject = peer.name.as_str().into();
                        self.arms.push(Arm::new(subject, program, us));
                    }
                    Err(error) => self.lose(index, &peer.name, &error.into()),
                }
            }
        }
        // First the arms that are judged against the others.
        let candidate = self.candidate;
        self.arms.sort_by_key(|arm| arm.python() != candidate);
        Ok(())
    }

    fn build_graphs(
        &mut self,
        index: usize,
        peers: &[Peer],
        arguments: &Value,
    ) -> Vec<Result<f64, SessionError>> {
        let python = &mut self.pythons[index];
        if let Err(error) = python.start() {
            return vec![Err(error); peers.len()];
        }
        if let Err(error) = python.ask::<IgnoredAny>("problem", arguments.clone()) {
            return vec![Err(error); peers.len()];
        }
        let mut graphs = Graphs {
            plan: &self.bench.plan,
            sets: self.problem.pool.rotation().sets,
            launches: self.launches,
        };
        let built = graphs.build(peers, |peer, launches| {
            let graph = json!({ "peer": peer.name, "launches": launches });
            python.ask("prepare", graph)
        });
        self.launches = graphs.launches;
        built
    }

    /// Returns whether an arm is judged against the others: ours, or a candidate.
    fn is_judged(&self, arm: &Arm<'_>) -> bool {
        arm.python() == self.candidate
    }

    /// Returns the launches of each graph; without a graph, of one that would be built.
    fn graph_launches(&self) -> usize {
        self.launches.unwrap_or(self.problem.pool.rotation().sets)
    }

    /// Samples all arms in bursts. A Python that ends takes its arms along, and the others begin
    /// again.
    fn sample(&mut self) -> anyhow::Result<()> {
        loop {
            let judged = self.arms.iter().filter(|arm| self.is_judged(arm)).count();
            let samples = self.bench.plan.samples;
            match rounds(self.arms.len(), judged, samples, |index| self.chunk(index)) {
                Ok(sampled) => {
                    for (arm, device_us) in self.arms.iter_mut().zip(sampled) {
                        arm.device_us = device_us;
                    }
                    return Ok(());
                }
                Err(failed) => self.drop_arms(failed)?,
            }
        }
    }

    /// Takes one sample of an arm, in microseconds per launch.
    fn chunk(&mut self, index: usize) -> Result<f64, ArmError> {
        let launches = self.graph_launches() as f64;
        let arm = &mut self.arms[index];
        let chunk_us = CHUNK_US.max(CHUNK_LAUNCHES * arm.us);
        let (python, reported) = match &mut arm.program {
            Program::Ours { arm: ours, .. } => {
                launch_us(ours, &self.bench.plan, LEAD_IN * chunk_us)?;
                return Ok(launch_us(ours, &self.bench.plan, chunk_us)?);
            }
            Program::Theirs { python, reported } => (*python, reported),
        };
        let graph_us = (arm.us * launches).max(1.0);
        let replays = (chunk_us / graph_us).ceil().max(1.0);
        let lead_in = (LEAD_IN * replays).ceil();
        let arguments = json!({
            "peer": arm.subject,
            "lead_in": lead_in as usize,
            "replays": replays as usize,
        });
        let start = Instant::now();
        let us: f64 = self.pythons[python]
            .ask("chunk", arguments)
            .map_err(|error| ArmError::Python {
                index: python,
                error: error.into(),
            })?;
        let passed_us = start.elapsed().as_secs_f64() * 1e6;
        reported.push(us * launches * (lead_in + replays) / passed_us);
        Ok(us)
    }

    /// Takes out the arms of a Python that failed: what its process had built went with it.
    fn drop_arms(&mut self, failed: ArmError) -> anyhow::Result<()> {
        let (index, error) = match failed {
            ArmError::Ours(error) => return Err(error),
            ArmError::Python { index, error } => (index, error),
        };
        for arm in std::mem::take(&mut self.arms) {
            if arm.python() == Some(index) {
                self.lose(index, arm.subject.as_str(), &error);
            } else {
                self.arms.push(arm);
            }
        }
        Ok(())
    }

    /// Adds the row of a peer that was not timed. A candidate that fails, other than by not
    /// supporting the problem, fails C1.
    fn lose(&mut self, python: usize, name: &str, error: &anyhow::Error) {
        let reason = error.to_string();
        let place = self.item.place.clone();
        let mut row = Row::absent_peer(name, Some(place), &reason);
        let is_unsupported = matches!(error.downcast_ref(), Some(SessionError::Unsupported(_)));
        if self.candidate == Some(python) && !is_unsupported {
            row = row.verdict(&not_launched(&reason));
        }
        self.rows.push(row);
    }

    /// Times ours, the library's choice and the fastest peer sustained, if one of all arms reaches
    /// the power limit. Returns that peer. A candidate is timed in bursts alone.
    fn sustain(&mut self) -> anyhow::Result<Option<Subject>> {
        if self.candidate.is_some() {
            return Ok(None);
        }
        match self.sustain_at_limit() {
            Ok(peer) => Ok(peer),
            Err(failed) => {
                self.drop_arms(failed)?;
                Ok(None)
            }
        }
    }

    fn sustain_at_limit(&mut self) -> Result<Option<Subject>, ArmError> {
        if self.needed_regime()? == Regime::Burst {
            return Ok(None);
        }
        let library = self.library_arm()?;
        let samples: Vec<&[f64]> = self.arms.iter().map(|arm| &*arm.device_us).collect();
        let Some(chosen) = sustained_arms(&samples, self.count_ours(), library) else {
            return Ok(None);
        };
        let counted = sustain(&mut self.turns(&chosen.arms), chosen.arms.len())?;
        for (index, sustained) in chosen.arms.into_iter().zip(counted) {
            self.arms[index].sustained = Some(sustained);
        }
        Ok(Some(self.arms[chosen.peer].subject.clone()))
    }

    /// Returns the regime that the power of all arms asks for, by a chunk of each.
    fn needed_regime(&mut self) -> Result<Regime, ArmError> {
        let all: Vec<usize> = (0..self.arms.len()).collect();
        let mut readings = Vec::new();
        for &arm in &all {
            readings.push(self.turns(&all).chunk(arm)?.reading);
        }
        Ok(Regime::needed(&readings))
    }

    /// Returns the arms of these indices, ready to take turns.
    fn turns(&mut self, indices: &[usize]) -> Turns<'_, 'a, 'p> {
        let launches = self.graph_launches();
        let mut arms = Vec::new();
        for (index, arm) in self.arms.iter_mut().enumerate() {
            if indices.contains(&index) {
                arms.push(arm);
            }
        }
        Turns {
            device: self.bench.device,
            arms,
            launches,
            pythons: self.pythons,
            start: Instant::now(),
        }
    }

    fn count_ours(&self) -> usize {
        let ours = self.arms.iter().filter(|arm| arm.python().is_none());
        ours.count()
    }

    /// Returns the index of the library's choice among ours, behind the others if it was not timed
    /// yet; nothing if the run does not have it as green.
    fn library_arm(&mut self) -> Result<Option<usize>, ArmError> {
        let Some(subject) = &self.item.library else {
            return Ok(None);
        };
        let known = self.arms.iter().position(|arm| arm.subject == *subject);
        let view = &self.bench.view;
        if known.is_some() || !is_green(view, subject, view.backend()) {
            return Ok(known);
        }
        let Some(mut chosen) = self.bench.arm(subject, self.item, &self.problem)? else {
            return Ok(None);
        };
        let launches = self.graph_launches();
        if let Some(arm) = chosen.ours() {
            arm.resize_graph(launches)?;
        }
        let place = self.count_ours();
        self.arms.insert(place, chosen);
        Ok(Some(place))
    }

    /// Judges what each arm computed in the graph that was timed, and makes the rows.
    fn finish(mut self, sustained_peer: Option<&Subject>) -> anyhow::Result<Vec<Row>> {
        let speed_of_light = self
            .problem
            .speed_of_light(self.bench.device, self.bench.zero_us);
        let mut arms = self.finish_arms(&speed_of_light)?;
        if let Some(peer) = sustained_peer {
            without_wrong_peer(&mut arms.sampled, peer);
        }
        let place = &self.item.place;
        let cache = self.problem.pool.rotation().state.name();
        for sampled in &arms.sampled {
            self.rows.push(sampled.row(place, cache)?);
        }
        for theirs in arms.sampled.iter().filter(|arm| !arms.is_judged(arm)) {
            for ours in arms.sampled.iter().filter(|arm| arms.is_judged(arm)) {
                let row = pair(theirs, ours, place, cache, &speed_of_light)?;
                self.rows.extend(row);
            }
        }
        Ok(self.rows)
    }

    /// Judges all arms. One whose process fails is lost; a candidate must not be faster than is
    /// possible.
    fn finish_arms(&mut self, speed_of_light: &SpeedOfLight) -> anyhow::Result<FinishedArms> {
        let mut finished = FinishedArms::default();
        for arm in std::mem::take(&mut self.arms) {
            let is_judged = self.is_judged(&arm);
            let subject = arm.subject.clone();
            let python = arm.python();
            let mut sampled = match (self.finish_arm(arm), python) {
                (Ok(sampled), _) => sampled,
                // A missing reference is no fault of the process.
                (Err(error), Some(index)) if !error.is::<ReferenceError>() => {
                    self.lose(index, subject.as_str(), &error);
                    continue;
                }
                (Err(error), _) => return Err(error),
            };
            if self.candidate.is_some() && is_judged {
                let least_us = Summary::new(&sampled.device_us)?.min;
                let impossible = speed_of_light.impossible(least_us);
                sampled.judged.gates.extend(impossible);
            }
            if is_judged {
                finished.judged.push(subject);
            }
            finished.sampled.push(sampled);
        }
        Ok(finished)
    }

    /// Judges what an arm computed in the graph that was timed, and asks for the host's time of a
    /// call.
    fn finish_arm(&mut self, arm: Arm<'a>) -> anyhow::Result<Sampled> {
        let device = self.bench.device;
        let (python, reported) = match &arm.program {
            Program::Ours {
                arm: ours,
                probability,
            } => {
                let judged = self.problem.judge(device, &ours.outputs()?, *probability)?;
                return Ok(Sampled {
                    subject: arm.subject,
                    device_us: arm.device_us,
                    sustained: arm.sustained,
                    host_us: None,
                    judged,
                });
            }
            Program::Theirs { python, reported } => (&mut *self.pythons[*python], reported),
        };
        let dtype = self.problem.problem.dtype;
        let written = PeerOutputs::ask(
            python,
            self.bench.exchange,
            &arm.subject,
            reported,
            self.problem.pool.rotation().sets,
            dtype.output(),
        )?;
        let contents = self.problem.inputs.len();
        let mut outputs = written.outputs;
        for output in &mut outputs {
            output.set %= contents;
        }
        // P has the type of the operands, as in all of these libraries.
        let probability = Probability::of_operands(dtype);
        let judged = self
            .problem
            .judge_dense(device, &outputs, probability, written.e4m3_scale)?;
        Ok(Sampled {
            subject: arm.subject,
            device_us: arm.device_us,
            sustained: arm.sustained,
            host_us: Some(written.host_us),
            judged,
        })
    }
}

/// The arms of a problem, with the judgements of their outputs.
#[derive(Default)]
struct FinishedArms {
    sampled: Vec<Sampled>,
    /// The arms that are judged against the others.
    judged: Vec<Subject>,
}

impl FinishedArms {
    fn is_judged(&self, arm: &Sampled) -> bool {
        self.judged.contains(&arm.subject)
    }
}

/// The graphs of one problem, which all have as many launches.
pub struct Graphs<'p> {
    pub plan: &'p Plan,
    /// The number of input sets, over which a graph rotates.
    pub sets: usize,
    /// The number of launches, once a graph of ours or of a peer was built.
    pub launches: Option<usize>,
}

impl Graphs<'_> {
    /// Builds the graphs of `peers`, all of one Python, by `prepare`, and returns microseconds per
    /// call. Where none of ours is timed, the first peer that can be prepared decides how many
    /// launches all have: as many as would a kernel of ours. A Python that ends takes all its
    /// graphs along.
    pub fn build(
        &mut self,
        peers: &[Peer],
        mut prepare: impl FnMut(&Peer, usize) -> Result<f64, SessionError>,
    ) -> Vec<Result<f64, SessionError>> {
        let mut built = Vec::new();
        for peer in peers {
            let graph = match self.launches {
                Some(launches) => prepare(peer, launches),
                None => self.settle(|launches| prepare(peer, launches)),
            };
            match graph {
                Err(error) if error.is_fatal() => return vec![Err(error); peers.len()],
                graph => built.push(graph),
            }
        }
        built
    }

    /// Builds a graph anew until it is long enough, and keeps the number of its launches.
    fn settle(
        &mut self,
        mut prepare: impl FnMut(usize) -> Result<f64, SessionError>,
    ) -> Result<f64, SessionError> {
        let mut launches = self.sets;
        let mut us = prepare(launches)?;
        for _ in 0..SETTLING {
            let needed = self.plan.launches_per_sample(us, self.sets);
            if needed <= launches {
                break;
            }
            launches = needed;
            us = prepare(launches)?;
        }
        self.launches = Some(launches);
        Ok(us)
    }
}

/// The outputs of a peer in the graph that was timed.
#[derive(Debug)]
pub struct PeerOutputs {
    /// The host's time of one of several calls back to back.
    pub host_us: Vec<f64>,
    /// The scale of outputs that were held in E4M3.
    pub e4m3_scale: Option<f32>,
    /// Each output that differs from the others of its set.
    pub outputs: Vec<DenseOutput>,
}

impl PeerOutputs {
    /// Asks `python` to replay the graph of `peer` once more, and reads what it wrote. Refuses a
    /// process that `reported` a wrong share of the time that passed here, and one that wrote no
    /// output of one of the `sets`.
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
        let mut outputs = Vec::new();
        for (index, set) in finished.sets.into_iter().enumerate() {
            let bytes = read_and_remove(&exchange.path(&format!("o{index}")));
            outputs.push(DenseOutput {
                set,
                values: format.decode_bytes(&bytes),
            });
        }
        Ok(Self {
            host_us: finished.host_us,
            e4m3_scale: finished.e4m3_scale,
            outputs,
        })
    }
}

/// The variants of which the fastest stands for a stage on a problem.
#[derive(Debug, PartialEq, Eq)]
pub struct Representatives {
    /// Those of the default's family, or of the first that takes the problem, which claims over
    /// peers are about: the best where the run timed the problem, else all that are green in the
    /// run.
    pub of_claims: Vec<String>,
    /// Those of other families, which may be faster: the best of the stage where the run timed it
    /// on the problem, else all that are green in the run.
    pub of_others: Vec<String>,
}

impl Representatives {
    pub fn new(view: &View<'_>, stage: &StageMeta, place: &ProblemPlace) -> Self {
        let passes = |variant: &VariantMeta| {
            let subject = stage.subject(&variant.name);
            variant.takes(place.dtype)
                && takes_shape(variant, place)
                && is_green(view, &subject, view.backend())
        };
        let stands = |variant: &VariantMeta, best: Option<&Row>| match best {
            Some(row) => row.subject.name() == variant.name,
            None => passes(variant),
        };
        let family = claiming_family(stage, place);
        let best_of_family = best::best_of(view, stage, family, place);
        let best = best::best(view, stage, place, |_| true);
        let (mut of_claims, mut of_others) = (Vec::new(), Vec::new());
        for variant in &stage.variants {
            if variant.is_of(family) {
                if stands(variant, best_of_family) {
                    of_claims.push(variant.name.clone());
                }
            } else if stands(variant, best) {
                of_others.push(variant.name.clone());
            }
        }
        Self {
            of_claims,
            of_others,
        }
    }

    /// Returns whether no variant stands for the stage.
    pub fn is_empty(&self) -> bool {
        self.of_claims.is_empty() && self.of_others.is_empty()
    }
}

/// Returns the family that claims over peers are about.
fn claiming_family<'a>(stage: &'a StageMeta, place: &ProblemPlace) -> &'a str {
    let takes_it = |variant: &&VariantMeta| takes_shape(variant, place);
    let default = stage.variant(&stage.default_variant).filter(takes_it);
    match default.or_else(|| stage.variants.iter().find(takes_it)) {
        Some(first) => &first.family,
        None => "",
    }
}

fn takes_shape(variant: &VariantMeta, place: &ProblemPlace) -> bool {
    let problem = place.problem();
    problem.is_none_or(|known| variant.takes_shape(&known.shape))
}

/// Returns microseconds per launch over about `us` microseconds of replays.
fn launch_us(arm: &mut cuda::Arm<'_>, plan: &Plan, us: f64) -> Result<f64, CudaError> {
    let graph_launches = arm.graph_launches(plan)? as u64;
    let graph_time = arm.device_time(graph_launches, plan)?;
    let graph_us = graph_time.as_secs_f64() * 1e6;
    let replays = (us / graph_us.max(0.1)).ceil().max(1.0) as u64;
    let launches = graph_launches * replays;
    let time = arm.device_time(launches, plan)?;
    Ok(time.as_secs_f64() * 1e6 / launches as f64)
}

/// Returns the bytes of an output in a file, and removes the file: an output that is not written
/// must not be the one before.
pub fn read_and_remove(path: &Path) -> Vec<u8> {
    // A file that cannot be read has no elements, which the gates fail.
    let bytes = std::fs::read(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    bytes
}
