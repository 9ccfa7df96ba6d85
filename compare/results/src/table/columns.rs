//! A row as one JSON object of flat columns, and back.

use super::figure::Figure;
use super::kind::{CasePlace, Instance, Kind, Place, ProblemPlace, REGRET, Source};
use super::row::{Impossible, Judged, Row};
use super::subject::Subject;
use common::device::BackendKind;
use common::metric::Metric;
use common::verdict::GateId;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;

/// Suffixes of the columns that belong to a metric or a gate.
const LOW: &str = "_low";
const HIGH: &str = "_high";
const REASON: &str = "_reason";
const PASSED: &str = "_passed";
const CASES: &str = "_cases";

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("subject", &self.subject)?;
        write_kind(&mut map, &self.kind)?;
        optional(&mut map, "under", self.conditions.as_ref())?;
        if !self.session.is_empty() {
            map.serialize_entry("session", &self.session)?;
        }
        optional(&mut map, "identity", self.identity.as_ref())?;
        optional(&mut map, "code", self.code.as_ref())?;
        write_figures(&mut map, self)?;
        write_verdicts(&mut map, self)?;
        optional(&mut map, "note", self.note.as_ref())?;
        map.end()
    }
}

fn write_kind<M: SerializeMap>(map: &mut M, kind: &Kind) -> Result<(), M::Error> {
    match kind.place() {
        Place::All => {}
        Place::Problem(problem) => write_problem(map, problem)?,
        Place::Case(case) => {
            write_problem(map, &case.problem)?;
            map.serialize_entry("input", &case.input)?;
        }
        Place::Instance { instance, arch } => {
            map.serialize_entry("dtype", &instance.dtype)?;
            map.serialize_entry("head_dim", &instance.head_dim)?;
            optional(map, "arch", arch)?;
        }
        Place::Named(item) => map.serialize_entry("item", item)?,
    }
    map.serialize_entry("by", &kind.source())?;
    optional(map, "against", kind.base())
}

fn write_problem<M: SerializeMap>(map: &mut M, problem: &ProblemPlace) -> Result<(), M::Error> {
    map.serialize_entry("shape", &problem.shape)?;
    map.serialize_entry("dtype", &problem.dtype)?;
    map.serialize_entry("mask", &problem.mask)?;
    optional(map, "cold", problem.cold.then_some(true))
}

fn write_figures<M: SerializeMap>(map: &mut M, row: &Row) -> Result<(), M::Error> {
    for (metric, figure) in &row.figures {
        let name = metric.name();
        map.serialize_entry(&name, &number(figure.value))?;
        if let Some((low, high)) = figure.interval {
            map.serialize_entry(&format!("{name}{LOW}"), &number(low))?;
            map.serialize_entry(&format!("{name}{HIGH}"), &number(high))?;
        }
    }
    Ok(())
}

fn write_verdicts<M: SerializeMap>(map: &mut M, row: &Row) -> Result<(), M::Error> {
    for (gate, judged) in &row.verdicts {
        map.serialize_entry(&gate.to_string(), &judged.verdict)?;
        optional(map, &format!("{gate}{PASSED}"), judged.passed)?;
        optional(map, &format!("{gate}{CASES}"), judged.of)?;
        if !judged.reason.is_empty() {
            map.serialize_entry(&format!("{gate}{REASON}"), &judged.reason)?;
        }
    }
    Ok(())
}

fn optional<M: SerializeMap>(
    map: &mut M,
    column: &str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    match value {
        Some(present) => map.serialize_entry(column, &present),
        None => Ok(()),
    }
}

/// Returns a whole number as one: 216, not 216.0. JSON has no NaN, so null stands for it.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        (value as i64).into()
    } else {
        value.into()
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let columns = deserializer.deserialize_map(EachOnce)?;
        read_row(&columns).map_err(D::Error::custom)
    }
}

/// A reason why a line is no row.
#[derive(Debug, thiserror::Error)]
enum ColumnError {
    #[error("column `{column}`: {source}")]
    Malformed {
        column: String,
        source: serde_json::Error,
    },
    #[error("missing field `{0}`")]
    Missing(&'static str),
    #[error("an interval has two ends: `{low}` and `{high}`")]
    OneEnd { low: String, high: String },
    #[error("no row by {source_name} has these columns of a place and of another arm")]
    NoKind { source_name: Source },
    #[error(transparent)]
    Impossible(#[from] Impossible),
}

/// The columns of a line, each of which occurs once: JSON would take the last of two.
struct Columns(Map<String, Value>);

struct EachOnce;

impl<'de> Visitor<'de> for EachOnce {
    type Value = Columns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("columns")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut columns = Map::new();
        while let Some((column, value)) = entries.next_entry::<String, _>()? {
            if columns.insert(column.clone(), value).is_some() {
                return Err(A::Error::custom(format!("duplicate field `{column}`")));
            }
        }
        Ok(Columns(columns))
    }
}

impl Columns {
    fn read<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, ColumnError> {
        let value = self.0.get(column).map(T::deserialize).transpose();
        value.map_err(|source| ColumnError::Malformed {
            column: column.to_string(),
            source,
        })
    }

    fn required<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, ColumnError> {
        self.read(column)?.ok_or(ColumnError::Missing(column))
    }

    fn number(&self, column: &str) -> Result<Option<f64>, ColumnError> {
        let figure: Option<Option<f64>> = self.read(column)?;
        Ok(figure.map(|value| value.unwrap_or(f64::NAN)))
    }
}

/// The columns that show where a row stands.
enum PlaceColumns {
    All,
    Problem(ProblemPlace),
    Case(CasePlace),
    Instance {
        instance: Instance,
        arch: Option<String>,
    },
    Named(String),
}

/// Reads the columns that this version knows, and no others.
fn read_row(columns: &Columns) -> Result<Row, ColumnError> {
    let place = read_place(columns)?;
    let subject: Subject = columns.required("subject")?;
    let kind = read_kind(columns, &subject, place)?;
    let mut row = Row {
        conditions: columns.read("under")?,
        session: columns.read("session")?.unwrap_or_default(),
        identity: columns.read("identity")?,
        code: columns.read("code")?,
        note: columns.read("note")?,
        ..Row::new(subject, kind)
    };
    read_figures(columns, &mut row)?;
    read_verdicts(columns, &mut row)?;
    match row.impossible() {
        Some(impossible) => Err(impossible.into()),
        None => Ok(row),
    }
}

fn read_place(columns: &Columns) -> Result<PlaceColumns, ColumnError> {
    if let Some(item) = columns.read("item")? {
        return Ok(PlaceColumns::Named(item));
    }
    if let Some(shape) = columns.read("shape")? {
        let problem = ProblemPlace {
            shape,
            dtype: columns.required("dtype")?,
            mask: columns.required("mask")?,
            cold: columns.read("cold")?.unwrap_or_default(),
        };
        return Ok(match columns.read("input")? {
            Some(input) => PlaceColumns::Case(CasePlace { problem, input }),
            None => PlaceColumns::Problem(problem),
        });
    }
    let Some(dtype) = columns.read("dtype")? else {
        return Ok(PlaceColumns::All);
    };
    let head_dim = columns.required("head_dim")?;
    Ok(PlaceColumns::Instance {
        instance: Instance { dtype, head_dim },
        arch: columns.read("arch")?,
    })
}

/// Returns the kind that has these columns: no two kinds of one subject have the same.
fn read_kind(
    columns: &Columns,
    subject: &Subject,
    place: PlaceColumns,
) -> Result<Kind, ColumnError> {
    use PlaceColumns::{All, Case, Named, Problem};
    let source = columns.required("by")?;
    if let Some(base) = columns.read("against")? {
        return match (source, place) {
            (Source::Gpu, Problem(problem)) => Ok(Kind::Pair { problem, base }),
            (Source::Peers, Problem(problem)) => Ok(Kind::PeerPair { problem, base }),
            _ => Err(ColumnError::NoKind {
                source_name: source,
            }),
        };
    }
    let kind = match (source, place) {
        (
            Source::Kernel,
            PlaceColumns::Instance {
                instance,
                arch: None,
            },
        ) => Kind::Declared(instance),
        (
            Source::Ptxas,
            PlaceColumns::Instance {
                instance,
                arch: Some(arch),
            },
        ) => Kind::Compiled { instance, arch },
        (Source::Emulator, All) => Kind::Checked(BackendKind::Emulated),
        (Source::Emulator, Case(case)) => Kind::Case(BackendKind::Emulated, case),
        (Source::Emulator, Problem(problem)) => Kind::Counters(problem),
        (Source::Gpu, All) => Kind::Checked(BackendKind::Cuda),
        (Source::Gpu, Case(case)) => Kind::Case(BackendKind::Cuda, case),
        (Source::Gpu, Problem(problem)) => Kind::Latency(problem),
        (Source::Draw, Problem(problem)) => Kind::RandomTime(problem),
        (Source::Draw, Named(item)) if item == REGRET => Kind::Regret,
        (Source::Peers, All) => Kind::PeerSession,
        (Source::Peers, Case(case)) => Kind::CandidateCase(case),
        (Source::Peers, Problem(problem)) => Kind::PeerTime(problem),
        (Source::Ncu, Problem(problem)) => Kind::Profile(problem),
        (Source::ComputeSanitizer, All) => Kind::Sanitized,
        (Source::SelfTest, Named(item)) if !subject.name().is_empty() => Kind::Site(item),
        (Source::SelfTest, Named(item)) if Kind::is_timer(&item) => Kind::Timer(item),
        (Source::SelfTest, Named(item)) => Kind::Fault(item),
        (Source::Claim, Named(item)) => Kind::Claim(item),
        (Source::Input, Named(item)) => Kind::GivenOutput(item),
        _ => {
            return Err(ColumnError::NoKind {
                source_name: source,
            });
        }
    };
    Ok(kind)
}

fn read_figures(columns: &Columns, row: &mut Row) -> Result<(), ColumnError> {
    for &metric in Metric::ALL {
        let name = metric.name();
        let Some(value) = columns.number(&name)? else {
            continue;
        };
        let low_name = format!("{name}{LOW}");
        let high_name = format!("{name}{HIGH}");
        let interval = match (columns.number(&low_name)?, columns.number(&high_name)?) {
            (None, None) => None,
            (Some(low), Some(high)) => Some((low, high)),
            (Some(_), None) | (None, Some(_)) => {
                return Err(ColumnError::OneEnd {
                    low: low_name,
                    high: high_name,
                });
            }
        };
        row.figures.insert(metric, Figure { value, interval });
    }
    Ok(())
}

fn read_verdicts(columns: &Columns, row: &mut Row) -> Result<(), ColumnError> {
    for gate in GateId::ALL {
        let Some(verdict) = columns.read(gate.name())? else {
            continue;
        };
        let reason = columns.read(&format!("{gate}{REASON}"))?;
        let judged = Judged {
            verdict,
            passed: columns.read(&format!("{gate}{PASSED}"))?,
            of: columns.read(&format!("{gate}{CASES}"))?,
            reason: reason.unwrap_or_default(),
        };
        row.verdicts.insert(gate, judged);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario::each;
    use common::problem::{Dtype, Mask};
    use common::verdict::GateResult;

    fn read(line: &str) -> Result<Row, serde_json::Error> {
        serde_json::from_str(line)
    }

    #[test]
    fn a_row_is_one_line_of_flat_columns_that_reads_back() {
        let mut row = Row::new(
            "stage5-swizzle/swizzle-32x256-k4",
            Kind::Latency(ProblemPlace::claims(Dtype::F16)),
        )
        .conditions("warm L2")
        .figure(Metric::P50, (5.2741, 5.2722, 5.2758))
        .figure(Metric::Samples, 500_usize)
        .verdict(&GateResult::judge(GateId::C1, false, "NaN left"))
        .rounded();
        row.session = "20261125T070721Z-nvidia-h200".into();
        (row.identity, row.code) = (Some("4fa9be5bc56bd684".into()), Some("0123".into()));
        let line = serde_json::to_string(&row).unwrap();
        insta::assert_snapshot!(line, @r#"{"subject":"stage5-swizzle/swizzle-32x256-k4","shape":"mission","dtype":"f16","mask":"full","by":"gpu","under":"warm L2","session":"20261125T070721Z-nvidia-h200","identity":"4fa9be5bc56bd684","code":"0123","p50":5.274,"p50_low":5.272,"p50_high":5.276,"samples":500,"C1":"fail","C1_reason":"NaN left"}"#);
        assert_eq!(read(&line).unwrap(), row);
        let unknown = line.replace("\"under\"", "\"until\"");
        assert_eq!(
            read(&unknown).unwrap(),
            Row {
                conditions: None,
                ..row
            }
        );
    }

    fn problem() -> ProblemPlace {
        ProblemPlace::new("1x2:1x113:203x64", Dtype::F16, Mask::Causal)
    }

    fn case() -> CasePlace {
        CasePlace {
            problem: problem(),
            input: "a b.safetensors".into(),
        }
    }

    /// Returns one row of each kind, in the order of the kinds.
    fn row_of_each_kind() -> Vec<Row> {
        use BackendKind::{Cuda, Emulated};
        let instance = Instance {
            dtype: Dtype::E4m3,
            head_dim: 128,
        };
        let cold = ProblemPlace {
            cold: true,
            ..problem()
        };
        let site = "kernel.cu:166 __syncthreads: \"tile read\"";
        let kinds = [
            ("s/v", Kind::Declared(instance)),
            (
                "s/v",
                Kind::Compiled {
                    instance,
                    arch: "sm_90a".into(),
                },
            ),
            ("s/v", Kind::Checked(Emulated)),
            ("s/v", Kind::Checked(Cuda)),
            ("s/v", Kind::Case(Emulated, case())),
            ("s/v", Kind::Case(Cuda, case())),
            ("s/v", Kind::Counters(problem())),
            ("s/v", Kind::Latency(cold)),
            (
                "s/v",
                Kind::Pair {
                    problem: problem(),
                    base: "s/w".into(),
                },
            ),
            ("s/v", Kind::RandomTime(problem())),
            ("attention-ladder", Kind::Regret),
            ("ceiling", Kind::PeerSession),
            ("torch-flash", Kind::PeerTime(problem())),
            (
                "s/v",
                Kind::PeerPair {
                    problem: problem(),
                    base: "torch-flash".into(),
                },
            ),
            ("mine.py:attention", Kind::CandidateCase(case())),
            ("s/v", Kind::Profile(problem())),
            ("s/v", Kind::Sanitized),
            ("self-test", Kind::Fault("timers".into())),
            ("s/v", Kind::Site(site.into())),
            ("self-test", Kind::whole_timer()),
            ("self-test", Kind::timer("injected delay")),
            ("s/f", Kind::Claim("f p50 over x on mission".into())),
            ("a.safetensors", Kind::GivenOutput("out, full mask".into())),
        ];
        kinds.map(|(subject, kind)| Row::new(subject, kind)).into()
    }

    #[test]
    fn a_row_of_each_kind_reads_back() {
        for row in row_of_each_kind() {
            let read = read(&serde_json::to_string(&row).unwrap()).unwrap();
            assert_eq!(read, row);
            // Two kinds with the same columns are equal, and still two.
            let (kind, before) = (format!("{:?}", read.kind), format!("{:?}", row.kind));
            assert_eq!(kind, before);
        }
    }

    #[test]
    fn no_kind_comes_before_the_first() {
        for row in row_of_each_kind() {
            assert!(Kind::FIRST <= row.kind, "{:?}", row.kind);
        }
    }

    #[test]
    fn what_is_no_row_or_cannot_be_is_refused_by_its_column() {
        let answers = each(
            r#"[]
            {"by":"gpu"}
            {"subject":"s/v"}
            {"subject":"s/v","by":"nobody"}
            {"subject":"s/v","by":"gpu","shape":"mission","dtype":"f16"}
            {"subject":"s/v","by":"gpu","shape":"mission","mask":"full"}
            {"subject":"s/v","by":"gpu","dtype":"f16"}
            {"subject":"s/v","by":"gpu","p50":"fast"}
            {"subject":"s/v","by":"gpu","C1":"perhaps"}
            {"subject":"s/v","by":"gpu","p50":0}
            {"subject":"s/v","by":"gpu","p50":-5.2}
            {"subject":"s/v","by":"gpu","p50":null}
            {"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.3,"p50_high":5.4}
            {"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.0,"p50_high":5.1}
            {"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.1,"p50_high":null}
            {"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.1}
            {"subject":"s/v","by":"gpu","p50":5.2,"p50":3.1}
            {"subject":"s/v","dtype":"f16","head_dim":64,"arch":"sm_90a","by":"ptxas","spill_bytes":-8}
            {"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"ncu","profiled_ns":0}
            {"subject":"s/v","by":"gpu","speedup_p50":0.0}
            {"subject":"s/v","by":"ptxas"}
            {"subject":"s/v","dtype":"f16","head_dim":64,"by":"ptxas"}
            {"subject":"s/v","dtype":"f16","head_dim":64,"arch":"sm_90a","by":"kernel"}
            {"subject":"s/v","by":"gpu","against":"s/w"}
            {"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"emulator","against":"s/w"}
            {"subject":"s/v","item":"x","by":"draw"}"#,
            |line| read(line).unwrap_err().to_string(),
        );
        insta::assert_snapshot!(answers, @r#"
    []
        invalid type: sequence, expected columns at line 1 column 0
    {"by":"gpu"}
        missing field `subject`
    {"subject":"s/v"}
        missing field `by`
    {"subject":"s/v","by":"nobody"}
        column `by`: unknown variant `nobody`, expected one of `kernel`, `ptxas`, `emulator`, `gpu`, `draw`, `peers`, `ncu`, `compute-sanitizer`, `self-test`, `claim`, `input`
    {"subject":"s/v","by":"gpu","shape":"mission","dtype":"f16"}
        missing field `mask`
    {"subject":"s/v","by":"gpu","shape":"mission","mask":"full"}
        missing field `dtype`
    {"subject":"s/v","by":"gpu","dtype":"f16"}
        missing field `head_dim`
    {"subject":"s/v","by":"gpu","p50":"fast"}
        column `p50`: invalid type: string "fast", expected f64
    {"subject":"s/v","by":"gpu","C1":"perhaps"}
        column `C1`: unknown variant `perhaps`, expected one of `pass`, `fail`, `no_data`, `ambiguous`
    {"subject":"s/v","by":"gpu","p50":0}
        s/v on all by gpu: p50 is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"gpu","p50":-5.2}
        s/v on all by gpu: p50 is -5.2, which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"gpu","p50":null}
        s/v on all by gpu: p50 is NaN, which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.3,"p50_high":5.4}
        s/v on all by gpu: p50 is 5.2 [5.3, 5.4], which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.0,"p50_high":5.1}
        s/v on all by gpu: p50 is 5.2 [5, 5.1], which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.1,"p50_high":null}
        s/v on all by gpu: p50 is 5.2 [5.1, NaN], which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.1}
        an interval has two ends: `p50_low` and `p50_high`
    {"subject":"s/v","by":"gpu","p50":5.2,"p50":3.1}
        duplicate field `p50` at line 1 column 48
    {"subject":"s/v","dtype":"f16","head_dim":64,"arch":"sm_90a","by":"ptxas","spill_bytes":-8}
        s/v on f16 d64 sm_90a by ptxas: spilled bytes is -8, which cannot be measured: it must be 0 or a positive number; measure it again
    {"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"ncu","profiled_ns":0}
        s/v on mission f16 full by ncu: time under ncu is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"gpu","speedup_p50":0.0}
        s/v on all by gpu: speedup p50 is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"ptxas"}
        no row by ptxas has these columns of a place and of another arm
    {"subject":"s/v","dtype":"f16","head_dim":64,"by":"ptxas"}
        no row by ptxas has these columns of a place and of another arm
    {"subject":"s/v","dtype":"f16","head_dim":64,"arch":"sm_90a","by":"kernel"}
        no row by kernel has these columns of a place and of another arm
    {"subject":"s/v","by":"gpu","against":"s/w"}
        no row by gpu has these columns of a place and of another arm
    {"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"emulator","against":"s/w"}
        no row by emulator has these columns of a place and of another arm
    {"subject":"s/v","item":"x","by":"draw"}
        no row by draw has these columns of a place and of another arm
    "#);
        // An error that is no number is a finding.
        let row = read(r#"{"subject":"s/v","by":"gpu","max_error":null}"#).unwrap();
        assert!(row.value(Metric::MaxError).unwrap().is_nan());
    }
}
