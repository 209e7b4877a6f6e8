//! What a file most likely does not mean: it runs, and its report says so.

use tributary_proto::congestion::dctcp;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use super::plan::switch_options;
use crate::config::{Config, ConfigError, JobSection, Pattern, Routing, Transport};
use crate::routing::Table;
use crate::topology::Graph;

/// The warnings about a file, each a sentence.
pub(super) fn warnings(config: &Config, graph: &Graph) -> Result<Vec<String>, ConfigError> {
    Ok(paths(config, graph)?.into_iter().chain(marks(config, graph)).collect())
}

/// Switches of some protocols wait for packets of one block to meet, and they only meet if they go one way.
fn paths(config: &Config, graph: &Graph) -> Result<Vec<String>, ConfigError> {
    if config.network.routing != Routing::Ecmp || !has_equal_paths(graph) {
        return Ok(Vec::new());
    }
    let options = switch_options(config)?;
    let waits = config.jobs.iter().enumerate().filter(|(_, job)| {
        options.derive(job.protocol, |shared| shared.longest_wait).is_some_and(|longest| longest > Span::ZERO)
    });
    let warning = |(index, job): (usize, &JobSection)| {
        let name = job.name.clone().unwrap_or_else(|| format!("job {index}"));
        format!(
            "{name}: under routing = \"ecmp\" the ranks' packets of a block take different paths, and few of them are \
             summed on their way: {} needs a rule that goes by the destination, as routing = \
             \"default_unless_half_full\"; background_routing = \"ecmp\" keeps it for the other traffic",
            job.protocol.name
        )
    };
    Ok(waits.map(warning).collect())
}

/// True if a packet has a choice somewhere.
fn has_equal_paths(graph: &Graph) -> bool {
    let table = Table::new(graph, |_| true);
    graph.hosts() > 0 && (0..graph.switches()).any(|switch| table.next_hops(switch, NodeId(0)).0.len() > 1)
}

/// DCTCP without marks is a sender that only losses slow down.
fn marks(config: &Config, graph: &Graph) -> Option<String> {
    let of_marks = config.transport.congestion_control.as_deref().is_none_or(|name| name == dctcp::ALGORITHM.name);
    let uses_it = config.traffic.iter().any(|section| {
        let is_reliable = matches!(section.pattern, Pattern::Poisson | Pattern::List);
        section.load.0 > 0.0 && (is_reliable || section.transport == Some(Transport::Dctcp))
    });
    let is_marked = graph.edges().iter().any(|edge| edge.a_to_b.mark_bytes.or(edge.b_to_a.mark_bytes).is_some());
    (of_marks && uses_it && !is_marked).then(|| {
        "flows run under DCTCP and no queue marks packets, so that only losses slow them down: set mark_above in \
         [network], as in \"100 kB\" at 10 Gbit/s"
            .to_string()
    })
}
