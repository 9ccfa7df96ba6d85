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
    let source = columns.required("by")?;
    let kind = match columns.read("against")? {
        Some(base) => kind_of_pair(source, place, base),
        None => kind_of_arm(source, place, subject),
    };
    kind.ok_or(ColumnError::NoKind {
        source_name: source,
    })
}

fn kind_of_pair(source: Source, place: PlaceColumns, base: Subject) -> Option<Kind> {
    let PlaceColumns::Problem(problem) = place else {
        return None;
    };
    match source {
        Source::Gpu => Some(Kind::Pair { problem, base }),
        Source::Peers => Some(Kind::PeerPair { problem, base }),
        _ => None,
    }
}

fn kind_of_arm(source: Source, place: PlaceColumns, subject: &Subject) -> Option<Kind> {
    use PlaceColumns::{All, Case, Named, Problem};
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
        _ => return None,
    };
    Some(kind)
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
mod tests;
