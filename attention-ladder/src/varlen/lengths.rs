//! Starts, lengths and tables of a call on sequences, copied to the host and judged there. Only
//! where the variable [`CHECK_VARIABLE`] requests it does a launch look at them.

use crate::call::invalid;
use crate::failure::Failure;

/// The environment variable that, set to anything but 0, has each launch judge its arrays.
pub(crate) const CHECK_VARIABLE: &str = "ATTENTION_LADDER_CHECK";

/// What arrays of a call may hold: the number of sequences, and the bounds that the call names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) batch: usize,
    pub(crate) max_seqlen_q: usize,
    pub(crate) max_seqlen_k: usize,
    /// The rows of q and o, where sequences of queries are packed.
    pub(crate) total_q: usize,
    /// The rows of k and v, where sequences of keys are packed.
    pub(crate) total_k: usize,
    pub(crate) pages: usize,
    pub(crate) page_rows: usize,
    pub(crate) table_entries: usize,
}

/// The arrays that tell lengths, as they lie on the host; `None` where a call has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    pub(crate) q_starts: Option<Vec<i32>>,
    pub(crate) kv_starts: Option<Vec<i32>>,
    pub(crate) kv_used: Option<Vec<i32>>,
}

impl Lengths {
    /// Refuses the first start or length that is not what the call's documentation asks for.
    pub(crate) fn check(&self, bounds: &Bounds) -> Result<(), Failure> {
        if let Some(starts) = &self.q_starts {
            Starts {
                array: "cu_seqlens_q",
                tensor: "q",
                rows: bounds.total_q,
                maximum: "max_seqlen_q",
                longest: bounds.max_seqlen_q,
            }
            .check(starts)?;
        }
        if let Some(starts) = &self.kv_starts {
            Starts {
                array: "cu_seqlens_k",
                tensor: "k",
                rows: bounds.total_k,
                maximum: "max_seqlen_k",
                longest: bounds.max_seqlen_k,
            }
            .check(starts)?;
        }
        for sequence in 0..bounds.batch {
            self.check_used(bounds, sequence)?;
        }
        Ok(())
    }

    /// Refuses a number of used keys that is negative, or more than the sequence has.
    fn check_used(&self, bounds: &Bounds, sequence: usize) -> Result<(), Failure> {
        let Some(used) = self.kv_used.as_ref().map(|counts| counts[sequence]) else {
            return Ok(());
        };
        if used < 0 {
            return Err(invalid(format!("seqused_k[{sequence}] is {used}")));
        }
        let (present, holder) = match &self.kv_starts {
            Some(starts) => (
                (starts[sequence + 1] - starts[sequence]) as usize,
                "cu_seqlens_k",
            ),
            None => (bounds.max_seqlen_k, "max_seqlen_k"),
        };
        if used as usize > present {
            return Err(invalid(format!(
                "seqused_k[{sequence}] is {used}: by {holder} the sequence has {present} keys"
            )));
        }
        let in_table = bounds.table_entries * bounds.page_rows;
        if bounds.page_rows > 0 && used as usize > in_table {
            return Err(invalid(format!(
                "seqused_k[{sequence}] is {used}: block_table has {} pages of {} rows a sequence",
                bounds.table_entries, bounds.page_rows
            )));
        }
        Ok(())
    }

    /// Returns the number of pages that a sequence reads: entries behind them may hold anything.
    pub(crate) fn pages_of(&self, bounds: &Bounds, sequence: usize) -> usize {
        let keys = match &self.kv_used {
            Some(counts) => counts[sequence] as usize,
            None => bounds.max_seqlen_k,
        };
        keys.div_ceil(bounds.page_rows)
    }
}

/// Refuses the first page of a sequence that is not one of k and v.
pub(crate) fn check_pages(
    bounds: &Bounds,
    sequence: usize,
    entries: &[i32],
) -> Result<(), Failure> {
    for (index, &page) in entries.iter().enumerate() {
        if usize::try_from(page).is_ok_and(|number| number < bounds.pages) {
            continue;
        }
        return Err(invalid(format!(
            "block_table[{sequence}][{index}] is {page}: k has {} pages",
            bounds.pages
        )));
    }
    Ok(())
}

/// The rules of an array of starts.
struct Starts {
    array: &'static str,
    tensor: &'static str,
    rows: usize,
    maximum: &'static str,
    longest: usize,
}

impl Starts {
    fn check(&self, starts: &[i32]) -> Result<(), Failure> {
        let Self { array, tensor, .. } = self;
        if starts[0] != 0 {
            return Err(invalid(format!(
                "{array}[0] is {}: starts begin with 0",
                starts[0]
            )));
        }
        for (sequence, pair) in starts.windows(2).enumerate() {
            let [start, end] = [pair[0], pair[1]];
            let next = sequence + 1;
            if end < start {
                return Err(invalid(format!(
                    "{array}[{next}] is {end}, less than {array}[{sequence}] = {start}: \
                     starts ascend"
                )));
            }
            if end as usize > self.rows {
                return Err(invalid(format!(
                    "{array}[{next}] is {end}: {tensor} has {} rows",
                    self.rows
                )));
            }
            let length = (end - start) as usize;
            if length > self.longest {
                return Err(invalid(format!(
                    "sequence {sequence} has {length} rows of {tensor} by {array}, \
                     more than {} = {}",
                    self.maximum, self.longest
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        batch: 3,
        max_seqlen_q: 200,
        max_seqlen_k: 300,
        total_q: 350,
        total_k: 700,
        pages: 0,
        page_rows: 0,
        table_entries: 0,
    };

    const PAGED: Bounds = Bounds {
        pages: 40,
        page_rows: 16,
        table_entries: 18,
        ..BOUNDS
    };

    fn packed() -> Lengths {
        Lengths {
            q_starts: Some(vec![0, 200, 200, 350]),
            kv_starts: Some(vec![0, 300, 400, 700]),
            kv_used: Some(vec![300, 0, 299]),
        }
    }

    fn expect_refusal(change: impl FnOnce(&mut Lengths), message: &str) {
        let mut lengths = packed();
        change(&mut lengths);
        assert_eq!(lengths.check(&BOUNDS).unwrap_err(), invalid(message.into()));
    }

    #[test]
    fn starts_and_lengths_within_their_tensors_are_right() {
        packed().check(&BOUNDS).unwrap();
        Lengths::default().check(&BOUNDS).unwrap();
        let rows_of_no_sequence = Lengths {
            q_starts: Some(vec![0, 1, 2, 3]),
            ..Lengths::default()
        };
        rows_of_no_sequence.check(&BOUNDS).unwrap();
    }

    #[test]
    fn the_first_start_that_is_wrong_is_named() {
        expect_refusal(
            |l| l.q_starts = Some(vec![1, 200, 200, 350]),
            "cu_seqlens_q[0] is 1: starts begin with 0",
        );
        expect_refusal(
            |l| l.q_starts = Some(vec![0, 200, 199, 100]),
            "cu_seqlens_q[2] is 199, less than cu_seqlens_q[1] = 200: starts ascend",
        );
        expect_refusal(
            |l| l.q_starts = Some(vec![0, 200, 250, 351]),
            "cu_seqlens_q[3] is 351: q has 350 rows",
        );
        expect_refusal(
            |l| l.q_starts = Some(vec![0, 201, 250, 350]),
            "sequence 0 has 201 rows of q by cu_seqlens_q, more than max_seqlen_q = 200",
        );
        expect_refusal(
            |l| l.kv_starts = Some(vec![0, 300, 299, 700]),
            "cu_seqlens_k[2] is 299, less than cu_seqlens_k[1] = 300: starts ascend",
        );
        expect_refusal(
            |l| l.kv_starts = Some(vec![0, 300, 600, 701]),
            "cu_seqlens_k[3] is 701: k has 700 rows",
        );
        expect_refusal(
            |l| l.kv_starts = Some(vec![0, 300, 601, 700]),
            "sequence 1 has 301 rows of k by cu_seqlens_k, more than max_seqlen_k = 300",
        );
    }

    #[test]
    fn a_length_is_not_negative_and_not_beyond_the_sequence() {
        expect_refusal(
            |l| l.kv_used = Some(vec![300, -1, 299]),
            "seqused_k[1] is -1",
        );
        expect_refusal(
            |l| l.kv_used = Some(vec![300, 101, 299]),
            "seqused_k[1] is 101: by cu_seqlens_k the sequence has 100 keys",
        );
        expect_refusal(
            |l| {
                l.kv_starts = None;
                l.kv_used = Some(vec![300, 300, 301]);
            },
            "seqused_k[2] is 301: by max_seqlen_k the sequence has 300 keys",
        );
    }

    #[test]
    fn a_length_is_within_its_table() {
        let mut lengths = Lengths {
            kv_used: Some(vec![288, 0, 1]),
            ..Lengths::default()
        };
        lengths.check(&PAGED).unwrap();
        lengths.kv_used = Some(vec![288, 289, 1]);
        assert_eq!(
            lengths.check(&PAGED).unwrap_err().message,
            "seqused_k[1] is 289: block_table has 18 pages of 16 rows a sequence"
        );
    }

    #[test]
    fn pages_that_are_read_are_within_the_pool() {
        let lengths = Lengths {
            kv_used: Some(vec![0, 16, 17]),
            ..Lengths::default()
        };
        let pages: Vec<_> = (0..3)
            .map(|sequence| lengths.pages_of(&PAGED, sequence))
            .collect();
        assert_eq!(pages, [0, 1, 2]);
        assert_eq!(
            Lengths::default().pages_of(&PAGED, 0),
            300_usize.div_ceil(16)
        );
        check_pages(&PAGED, 0, &[]).unwrap();
        check_pages(&PAGED, 1, &[39, 0]).unwrap();
        for (page, words) in [(40, "is 40"), (-1, "is -1"), (i32::MAX, "is 2147483647")] {
            let failure = check_pages(&PAGED, 1, &[3, page]).unwrap_err();
            assert_eq!(
                failure,
                invalid(format!("block_table[1][1] {words}: k has 40 pages"))
            );
        }
    }
}
