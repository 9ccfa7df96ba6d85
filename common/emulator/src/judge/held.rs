use crate::site::Places;

/// Registers of a product in flight, or of a complete one that no wait has named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) is_fragment: bool,
    pub(crate) issued: u32,
    pub(crate) why: Why,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    NotCommitted,
    NotWaited,
    /// The last wait left the newest groups in flight.
    LeftInFlight {
        wait: u32,
        newest: u32,
    },
    NotNamed,
}

impl Held {
    pub(super) fn memory(&self) -> &'static str {
        if self.is_fragment {
            "registers of A"
        } else {
            "accumulators"
        }
    }

    pub(super) fn missing(&self, places: &mut Places) -> String {
        match self.why {
            Why::NotCommitted => "The product is in no group, so no wait covers it: wgmma_commit \
                                  is missing behind it, and a wgmma_wait before this access"
                .to_owned(),
            Why::NotWaited => "The product is in flight: a wgmma_wait that covers its group is \
                               missing before this access"
                .to_owned(),
            Why::LeftInFlight { wait, newest } => format!(
                "The wgmma_wait<{newest}> at {} leaves the newest {newest} group(s) in flight, \
                 and the product is in one of them: it must leave fewer",
                places.name(wait)
            ),
            Why::NotNamed => "The product is complete, but the compiler has not been told: the \
                              wgmma_wait that covers it must name these accumulators"
                .to_owned(),
        }
    }
}
