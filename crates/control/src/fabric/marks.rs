//! Which packets the queues of a fabric's ports mark: `mark_above` and `mark_all_above` in the fabric's file.

use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::marking::Marking;

use super::file::FabricFile;

/// Which packets a queue marks, by the bytes that they find waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// No packet that finds no more than this.
    pub above: u64,
    /// Every packet that finds more than this; of those between a share that rises with the queue.
    pub all_above: u64,
}

impl Marks {
    /// What the file says. An error is one sentence.
    pub fn of(file: &FabricFile) -> Result<Option<Marks>, String> {
        match (file.mark_above, file.mark_all_above) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("mark_all_above is for fabrics with mark_above".into()),
            (Some(above), Some(all)) if all < above => {
                Err(format!("mark_all_above = {all}: it is at least mark_above, which is {above}"))
            }
            (Some(above), all) => Ok(Some(Marks { above: above.0, all_above: all.unwrap_or(above).0 })),
        }
    }

    /// The rule of the queue at one port of one switch. Each queue draws other packets.
    pub fn at(self, node: NodeId, port: PortId) -> Marking {
        Marking::new(self.above, self.all_above, u64::from(node.0) << 16 | u64::from(port.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::FabricLayout;

    fn marks(text: &str) -> Result<Option<Marks>, String> {
        let shape = "[leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n";
        let file = format!("secret = \"0123456789abcdef\"\n{text}\n{shape}");
        FabricFile::parse(&file).map(|fabric: FabricLayout| fabric.marks).map_err(|error| error.to_string())
    }

    #[test]
    fn a_fabric_marks_nothing_unless_told_and_beyond_one_length_unless_told_of_two() {
        assert_eq!(marks(""), Ok(None));
        assert_eq!(marks("mark_above = \"64 KiB\""), Ok(Some(Marks { above: 64 << 10, all_above: 64 << 10 })));
        let both = marks("mark_above = \"64 KiB\"\nmark_all_above = \"512 KiB\"");
        assert_eq!(both, Ok(Some(Marks { above: 64 << 10, all_above: 512 << 10 })));
    }

    #[test]
    fn lengths_that_make_no_sense_are_refused_in_a_sentence() {
        let error = |text| marks(text).unwrap_err();
        assert!(error("mark_all_above = \"64 KiB\"").contains("is for fabrics with mark_above"));
        let sentence = error("mark_above = \"64 KiB\"\nmark_all_above = \"63 KiB\"");
        assert!(sentence.contains("mark_all_above = 63 KiB: it is at least mark_above, which is 64 KiB"), "{sentence}");
    }
}
