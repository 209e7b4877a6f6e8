//! The seat's own account of jobs: which there are, which switch has had which, and which can never go on.

use std::collections::{BTreeMap, BTreeSet};

use tributary_control::fabric::FabricLayout;
use tributary_proto::contract::ids::{JobId, NodeId};

use super::job::FabricJob;

/// What there is to install.
#[derive(Default)]
pub struct Jobs {
    /// All of them.
    pub all: BTreeMap<JobId, FabricJob>,
    /// Which switches have had which jobs with trees. One that lacks such a job was started again, without the sums.
    pub taken: BTreeSet<(NodeId, JobId)>,
    /// Why jobs can never go on that cannot.
    pub broken: BTreeMap<JobId, String>,
}

impl Jobs {
    /// Forgets a job; false if there was none.
    pub fn remove(&mut self, id: JobId) -> bool {
        self.taken.retain(|&(_, taken)| taken != id);
        self.broken.remove(&id);
        self.all.remove(&id).is_some()
    }

    /// A switch that jobs were installed on before has lost these; true if that ends one.
    pub fn lost(&mut self, fabric: &FabricLayout, node: NodeId, lacking: &[u16]) -> bool {
        let mut news = false;
        for id in lacking.iter().copied().map(JobId) {
            let Some(job) = self.all.get(&id).filter(|_| self.taken.contains(&(node, id))) else { continue };
            let Some(tree) = job.trees.iter().position(|tree| tree.switch(node).is_some()) else { continue };
            let what = format!("through {}", fabric.name(node));
            let why = job.broken_by(tree, &what, "which was started again without its sums", "connect again");
            news |= self.broken.insert(id, why).is_none();
        }
        news
    }
}
