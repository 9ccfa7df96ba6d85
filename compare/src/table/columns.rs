//! A row as one JSON object of flat columns, and back.

use super::row::{Figure, Judged, On, Place, Row, RowError, Source, Subject};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::verdict::{GateId, Verdict};
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

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
        match &self.on {
            On::All => {}
            On::Problem(place) => problem(&mut map, place)?,
            On::Case(place, input) => {
                problem(&mut map, place)?;
                map.serialize_entry("input", input)?;
            }
            On::Instance {
                dtype,
                head_dim,
                arch,
            } => {
                map.serialize_entry("dtype", dtype)?;
                map.serialize_entry("head_dim", head_dim)?;
                optional(&mut map, "arch", arch)?;
            }
            On::Named(item) => map.serialize_entry("item", item)?,
        }
        map.serialize_entry("by", &self.by)?;
        optional(&mut map, "against", &self.against)?;
        optional(&mut map, "under", &self.under)?;
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

fn problem<M: SerializeMap>(map: &mut M, place: &Place) -> Result<(), M::Error> {
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

struct Columns(Map<String, Value>);

impl Columns {
    fn take<T: DeserializeOwned>(
        &mut self,
        column: &str,
        expected: &'static str,
    ) -> Result<Option<T>, RowError> {
        let Some(value) = self.0.remove(column) else {
            return Ok(None);
        };
        let read = serde_json::from_value(value).map(Some);
        read.map_err(|_| wrong(column, expected))
    }

    fn required<T: DeserializeOwned>(
        &mut self,
        column: &str,
        expected: &'static str,
    ) -> Result<T, RowError> {
        let value = self.take(column, expected)?;
        value.ok_or_else(|| wrong(column, expected))
    }

    fn text(&mut self, column: &str) -> Result<Option<String>, RowError> {
        self.take(column, "text")
    }

    fn number(&mut self, column: &str) -> Result<Option<f64>, RowError> {
        let value: Option<Option<f64>> = match self.0.get(column) {
            Some(Value::Null) => self.0.remove(column).map(|_| None),
            _ => self.take(column, "a number")?,
        };
        Ok(value.map(|value| value.unwrap_or(f64::NAN)))
    }

    fn on(&mut self) -> Result<On, RowError> {
        if let Some(item) = self.text("item")? {
            return Ok(On::Named(item));
        }
        let dtype: Option<Dtype> = self.take("dtype", "f16, bf16 or e4m3")?;
        if let Some(shape) = self.text("shape")? {
            let dtype = dtype.ok_or_else(|| wrong("dtype", "f16, bf16 or e4m3"))?;
            let mask: Mask = self.required("mask", "full or causal")?;
            let place = Place {
                shape,
                dtype,
                mask,
                cold: self.take("cold", "true or false")?.unwrap_or(false),
            };
            return Ok(match self.text("input")? {
                Some(input) => On::Case(place, input),
                None => On::Problem(place),
            });
        }
        let Some(dtype) = dtype else {
            return Ok(On::All);
        };
        Ok(On::Instance {
            dtype,
            head_dim: self.required("head_dim", "64 or 128, of an instance")?,
            arch: self.text("arch")?,
        })
    }
}

fn wrong(column: &str, expected: &'static str) -> RowError {
    RowError::Column {
        column: column.to_string(),
        expected,
    }
}

impl Row {
    pub fn parse(line: &[u8]) -> Result<Self, RowError> {
        serde_json::from_slice::<Map<String, Value>>(line)?.try_into()
    }
}

impl TryFrom<Map<String, Value>> for Row {
    type Error = RowError;

    /// Without columns that this version does not know.
    fn try_from(columns: Map<String, Value>) -> Result<Self, RowError> {
        let mut columns = Columns(columns);
        let subject: Subject = columns.required("subject", "the name of what was measured")?;
        let by: Source = columns.required("by", "a source such as gpu, ptxas or emulator")?;
        let on = columns.on()?;
        let mut row = Row {
            against: columns.take("against", "the name of the other arm")?,
            under: columns.text("under")?,
            session: columns.text("session")?.unwrap_or_default(),
            identity: columns.text("identity")?,
            code: columns.text("code")?,
            note: columns.text("note")?,
            ..Row::new(subject, on, by)
        };
        for &metric in Metric::ALL {
            let name = metric.name();
            let Some(value) = columns.number(&name)? else {
                continue;
            };
            let low = columns.number(&format!("{name}{LOW}"))?;
            let high = columns.number(&format!("{name}{HIGH}"))?;
            let interval = low.zip(high);
            row.figures.insert(metric, Figure { value, interval });
        }
        for gate in GateId::ALL {
            let verdict: Option<Verdict> =
                columns.take(&gate.to_string(), "pass, fail, ambiguous or no_data")?;
            let Some(verdict) = verdict else { continue };
            let judged = Judged {
                verdict,
                passed: columns.take(&format!("{gate}{PASSED}"), "a count")?,
                of: columns.take(&format!("{gate}{CASES}"), "a count")?,
                reason: columns
                    .text(&format!("{gate}{REASON}"))?
                    .unwrap_or_default(),
            };
            row.verdicts.insert(gate, judged);
        }
        row.impossible().map_or(Ok(row), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::verdict::GateResult;

    fn read(line: &str) -> Result<Row, RowError> {
        Row::parse(line.as_bytes())
    }

    #[test]
    fn a_row_is_one_line_of_flat_columns_that_reads_back() {
        let mut row = Row::new(
            "stage5-swizzle/swizzle-32x256-k4",
            On::Problem(Place::claims(Dtype::F16)),
            Source::Gpu,
        )
        .under("warm L2")
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
        assert_eq!(read(&unknown).unwrap(), Row { under: None, ..row });
    }

    #[test]
    fn every_place_reads_back() {
        let place = || Place::new("1x2:1x113:203x64", Dtype::F16, Mask::Causal);
        let instance = |arch: Option<&str>| On::Instance {
            dtype: Dtype::E4m3,
            head_dim: 128,
            arch: arch.map(String::from),
        };
        for on in [
            On::All,
            On::Problem(place()),
            On::Problem(Place {
                cold: true,
                ..place()
            }),
            On::Case(place(), "a b.safetensors".into()),
            instance(None),
            instance(Some("sm_90a")),
            On::Named("kernel.cu:166 __syncthreads: \"tile read\"".into()),
        ] {
            let row = Row::new("s/v", on, Source::Emulator).against("s/w");
            assert_eq!(read(&serde_json::to_string(&row).unwrap()).unwrap(), row);
        }
    }

    #[test]
    fn a_line_that_is_no_row_is_refused_by_its_column() {
        for (line, column) in [
            (r#"{"by":"gpu"}"#, "subject"),
            (r#"{"subject":"s/v"}"#, "by"),
            (r#"{"subject":"s/v","by":"nobody"}"#, "by"),
            (
                r#"{"subject":"s/v","by":"gpu","shape":"mission","dtype":"f16"}"#,
                "mask",
            ),
            (r#"{"subject":"s/v","by":"gpu","dtype":"f16"}"#, "head_dim"),
            (r#"{"subject":"s/v","by":"gpu","p50":"fast"}"#, "p50"),
            (r#"{"subject":"s/v","by":"gpu","C1":"perhaps"}"#, "C1"),
        ] {
            match read(line) {
                Err(RowError::Column { column: named, .. }) => assert_eq!(named, column),
                other => panic!("{line}: {other:?}"),
            }
        }
        assert!(matches!(read("[]"), Err(RowError::Json(_))));
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        for figure in [
            r#""p50":0"#,
            r#""p50":-5.2"#,
            r#""p50":null"#,
            r#""p50":5.2,"p50_low":5.3,"p50_high":5.4"#,
            r#""p50":5.2,"p50_low":5.1,"p50_high":null"#,
            r#""speedup_p50":0.0"#,
        ] {
            let line = format!(r#"{{"subject":"s/v","by":"gpu",{figure}}}"#);
            let error = read(&line).unwrap_err();
            assert!(
                matches!(error, RowError::Impossible { .. }),
                "{line}: {error}"
            );
            assert!(error.to_string().contains("s/v on all by GPU"), "{error}");
        }
        // An error that is no number is a finding.
        let row = read(r#"{"subject":"s/v","by":"gpu","max_error":null}"#).unwrap();
        assert!(row.value(Metric::MaxError).unwrap().is_nan());
    }
}
