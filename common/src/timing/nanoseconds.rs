//! Samples in a record: microseconds in memory, whole nanoseconds in the file, a third of the size. That is 0.1 % of the
//! shortest launch there can be; the summaries are of samples that are not rounded.

use serde::{Deserialize, Deserializer, Serializer};

pub fn serialize<S: Serializer>(us: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(us.iter().map(|us| (us * 1000.0).round() as u64))
}

/// Older records hold microseconds, with a fraction or `.0`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Sample {
    Nanoseconds(u64),
    Microseconds(f64),
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let samples = Vec::<Sample>::deserialize(deserializer)?;
    let us = |sample| match sample {
        Sample::Nanoseconds(ns) => ns as f64 / 1000.0,
        Sample::Microseconds(us) => us,
    };
    Ok(samples.into_iter().map(us).collect())
}

#[cfg(test)]
mod tests {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Samples {
        #[serde(rename = "ns", alias = "us", with = "super")]
        us: Vec<f64>,
    }

    #[test]
    fn whole_nanoseconds_are_written_and_microseconds_of_older_records_read() {
        let samples = Samples { us: vec![28.860000893473625, 0.0004, 7.0] };
        let text = serde_json::to_string(&samples).unwrap();
        assert_eq!(text, r#"{"ns":[28860,0,7000]}"#);
        for (text, us) in
            [(text.as_str(), [28.86, 0.0, 7.0]), (r#"{"us":[28.86000089,0.0,7.0]}"#, [28.86000089, 0.0, 7.0])]
        {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::from_value::<Samples>(value).unwrap().us, us, "{text}");
        }
    }
}
