//! The limits by which the seat of a fabric admits jobs: those of one switch. [`memory`](super::memory) has the switches
//! that have less or more.

use super::FabricLayout;
use crate::admission::Limits;
use crate::shared_memory::TooMuchToShare;

impl FabricLayout {
    /// The limits of each switch.
    pub fn limits(&self) -> Limits {
        Limits {
            planned_trees: Some(self.roots().len() as u16),
            memory_at: self.memory_at.clone(),
            shared: self.shared.clone(),
            ..Limits::new(self.memory_bytes, 1)
        }
    }

    /// An error if the file chooses more for jobs to share than the smallest switch has.
    pub(super) fn check_shared(&self) -> Result<(), TooMuchToShare> {
        let least = self.switches().map(|switch| self.memory_of(switch)).min().unwrap_or(self.memory_bytes);
        self.shared.check(&self.switch_options, least)
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::protocols;

    use crate::fabric::FabricFile;

    const FABRIC: &str = "[leaf_spine]\nleaves = 1\nspines = 2\nhosts_per_leaf = 2\n";

    #[test]
    fn a_file_that_chooses_more_for_jobs_to_share_than_there_is_memory_is_refused_with_a_sentence() {
        for protocol in protocols::ALL {
            let Some(shared) = &protocol.shared else { continue };
            let chosen = format!("[switches.{}]\n{} = 65536\n", protocol.name, shared.options.specs[0].name);
            let parse =
                |keys: &str| FabricFile::parse(&format!("secret = \"0123456789abcdef\"\n{keys}{FABRIC}{chosen}"));
            let error = parse("memory = \"64 MiB\"\n").unwrap_err().to_string();
            assert!(error.contains(&format!("the jobs of {protocol} would share")), "{error}");
            let limits = parse("").unwrap().limits();
            assert!(limits.shared.bytes(protocol) > 64 << 20 && limits.planned_trees == Some(2));
        }
    }
}
