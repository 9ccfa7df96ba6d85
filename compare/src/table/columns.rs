//! A row as one JSON object of flat columns, and back.

use super::row::{Figure, Judged, Place, ProblemPlace, Row, Subject};
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
        match &self.place {
            Place::All => {}
            Place::Problem(place) => problem(&mut map, place)?,
            Place::Case(place, input) => {
                problem(&mut map, place)?;
                map.serialize_entry("input", input)?;
            }
            Place::Instance {
                dtype,
                head_dim,
                arch,
            } => {
                map.serialize_entry("dtype", dtype)?;
                map.serialize_entry("head_dim", head_dim)?;
                optional(&mut map, "arch", arch)?;
            }
            Place::Named(item) => map.serialize_entry("item", item)?,
        }
        map.serialize_entry("by", &self.source)?;
        optional(&mut map, "against", &self.paired_with)?;
        optional(&mut map, "under", &self.conditions)?;
        if !self.session.is_empty() {
            map.serialize_entry("session", &self.session)?;
        }
        optional(&mut map, "identity", &self.identity)?;
        optional(&mut map, "code", &self.code)?;
        for (metric, figure) in &self.figures {
            let name = metric.name();
            map.serialize_entry(&name, &number(figure.value))?;
            if let Some((low, high)) = figure.interval {
                map.serialize_entry(&format!("{name}{LOW}"), &number(low))?;
                map.serialize_entry(&format!("{name}{HIGH}"), &number(high))?;
            }
        }
        for (gate, judged) in &self.verdicts {
            map.serialize_entry(&gate.to_string(), &judged.verdict)?;
            optional(&mut map, &format!("{gate}{PASSED}"), &judged.passed)?;
            optional(&mut map, &format!("{gate}{CASES}"), &judged.of)?;
            let reason = Some(&judged.reason).filter(|reason| !reason.is_empty());
            optional(&mut map, &format!("{gate}{REASON}"), &reason)?;
        }
        optional(&mut map, "note", &self.note)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let columns = deserializer.deserialize_map(Once)?;
        row(&columns).map_err(D::Error::custom)
    }
}

fn problem<M: SerializeMap>(map: &mut M, place: &ProblemPlace) -> Result<(), M::Error> {
    map.serialize_entry("shape", &place.shape)?;
    map.serialize_entry("dtype", &place.dtype)?;
    map.serialize_entry("mask", &place.mask)?;
    optional(map, "cold", &place.cold.then_some(true))
}

fn optional<M: SerializeMap>(
    map: &mut M,
    column: &str,
    value: &Option<impl Serialize>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(column, value),
        None => Ok(()),
    }
}

/// A whole number is written as one: 216, not 216.0. JSON has no NaN, so null stands for it.
fn number(value: f64) -> Value {
    match value {
        whole if whole.fract() == 0.0 && whole.abs() < 9e15 => (whole as i64).into(),
        other => other.into(),
    }
}

/// What a line has, each column once: JSON would take the last of two.
struct Columns(Map<String, Value>);

struct Once;

impl<'de> Visitor<'de> for Once {
    type Value = Columns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("columns")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut columns: A) -> Result<Self::Value, A::Error> {
        let mut all = Map::new();
        while let Some((column, value)) = columns.next_entry::<String, _>()? {
            if all.insert(column.clone(), value).is_some() {
                return Err(A::Error::custom(format!("duplicate field `{column}`")));
            }
        }
        Ok(Columns(all))
    }
}

impl Columns {
    fn read<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, String> {
        let value = self.0.get(column).map(T::deserialize).transpose();
        value.map_err(|error| format!("column `{column}`: {error}"))
    }

    fn required<T: DeserializeOwned>(&self, column: &str) -> Result<T, String> {
        let value = self.read(column)?;
        value.ok_or_else(|| format!("missing field `{column}`"))
    }

    fn number(&self, column: &str) -> Result<Option<f64>, String> {
        let value: Option<Option<f64>> = self.read(column)?;
        Ok(value.map(|value| value.unwrap_or(f64::NAN)))
    }
}

/// Without columns that this version does not know.
fn row(columns: &Columns) -> Result<Row, String> {
    let (item, shape) = (columns.read("item")?, columns.read("shape")?);
    let place = match (item, shape, columns.read("dtype")?) {
        (Some(item), ..) => Place::Named(item),
        (None, Some(shape), _) => {
            let place = ProblemPlace {
                shape,
                dtype: columns.required("dtype")?,
                mask: columns.required("mask")?,
                cold: columns.read("cold")?.unwrap_or_default(),
            };
            match columns.read("input")? {
                Some(input) => Place::Case(place, input),
                None => Place::Problem(place),
            }
        }
        (None, None, Some(dtype)) => Place::Instance {
            dtype,
            head_dim: columns.required("head_dim")?,
            arch: columns.read("arch")?,
        },
        (None, None, None) => Place::All,
    };
    let subject: Subject = columns.required("subject")?;
    let mut row = Row {
        paired_with: columns.read("against")?,
        conditions: columns.read("under")?,
        session: columns.read("session")?.unwrap_or_default(),
        identity: columns.read("identity")?,
        code: columns.read("code")?,
        note: columns.read("note")?,
        ..Row::new(subject, place, columns.required("by")?)
    };
    for &metric in Metric::ALL {
        let name = metric.name();
        let Some(value) = columns.number(&name)? else {
            continue;
        };
        let ends = [LOW, HIGH].map(|end| format!("{name}{end}"));
        let interval = match (columns.number(&ends[0])?, columns.number(&ends[1])?) {
            (None, None) => None,
            (Some(low), Some(high)) => Some((low, high)),
            _ => {
                let ends = ends.join("` and `");
                return Err(format!("an interval has two ends: `{ends}`"));
            }
        };
        row.figures.insert(metric, Figure { value, interval });
    }
    for gate in GateId::ALL {
        let Some(verdict) = columns.read(gate.name())? else {
            continue;
        };
        let judged = Judged {
            verdict,
            passed: columns.read(&format!("{gate}{PASSED}"))?,
            of: columns.read(&format!("{gate}{CASES}"))?,
            reason: columns
                .read(&format!("{gate}{REASON}"))?
                .unwrap_or_default(),
        };
        row.verdicts.insert(gate, judged);
    }
    row.impossible().map_or(Ok(row), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Source;
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
            Place::Problem(ProblemPlace::claims(Dtype::F16)),
            Source::Gpu,
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

    #[test]
    fn every_place_reads_back() {
        let place = || ProblemPlace::new("1x2:1x113:203x64", Dtype::F16, Mask::Causal);
        let instance = |arch: Option<&str>| Place::Instance {
            dtype: Dtype::E4m3,
            head_dim: 128,
            arch: arch.map(String::from),
        };
        for place in [
            Place::All,
            Place::Problem(place()),
            Place::Problem(ProblemPlace {
                cold: true,
                ..place()
            }),
            Place::Case(place(), "a b.safetensors".into()),
            instance(None),
            instance(Some("sm_90a")),
            Place::Named("kernel.cu:166 __syncthreads: \"tile read\"".into()),
        ] {
            let row = Row::new("s/v", place, Source::Emulator).paired_with("s/w");
            assert_eq!(read(&serde_json::to_string(&row).unwrap()).unwrap(), row);
        }
    }

    #[test]
    fn what_is_no_row_or_cannot_be_is_refused_by_its_column() {
        let found = each(
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
            {"subject":"s/v","by":"ptxas","spill_bytes":-8}
            {"subject":"s/v","by":"ncu","profiled_ns":0}
            {"subject":"s/v","by":"gpu","speedup_p50":0.0}"#,
            |line| read(line).unwrap_err().to_string(),
        );
        insta::assert_snapshot!(found, @r#"
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
    {"subject":"s/v","by":"ptxas","spill_bytes":-8}
        s/v on all by ptxas: spilled bytes is -8, which cannot be measured: it must be 0 or a positive number; measure it again
    {"subject":"s/v","by":"ncu","profiled_ns":0}
        s/v on all by ncu: time under ncu is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    {"subject":"s/v","by":"gpu","speedup_p50":0.0}
        s/v on all by gpu: speedup p50 is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    "#);
        // An error that is no number is a finding.
        let row = read(r#"{"subject":"s/v","by":"gpu","max_error":null}"#).unwrap();
        assert!(row.value(Metric::MaxError).unwrap().is_nan());
    }
}
