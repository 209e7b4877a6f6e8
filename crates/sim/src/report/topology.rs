//! A network as a picture (SVG): a row for each level, hosts at the bottom, and cables that are the wider the faster they
//! are.

use std::fmt::Write as _;

use tributary_proto::contract::ids::NodeId;

use crate::config::DataRate;
use crate::topology::Graph;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 140.0;
const MARGIN: f64 = 50.0;
/// With more nodes than this in a row, names are only shown when the pointer is on them.
const NAMED: usize = 24;

/// Where each node of a picture is.
pub(super) struct Layout {
    /// The picture's size.
    pub width: f64,
    pub height: f64,
    /// By node.
    pub positions: Vec<(f64, f64)>,
    on_circle: bool,
    /// How many nodes each level has.
    in_row: Vec<usize>,
}

impl Layout {
    /// Levels in rows; or the switches on a circle, if all of them have hosts.
    pub fn of(graph: &Graph) -> Layout {
        let nodes = || (0..graph.nodes() as u32).map(NodeId);
        let highest = nodes().map(|node| graph.level(node)).max().unwrap_or(0);
        let mut in_row = vec![0; usize::from(highest) + 1];
        nodes().for_each(|node| in_row[usize::from(graph.level(node))] += 1);
        if highest == 1 && in_row[1] > 2 {
            return Layout { width: WIDTH, height: WIDTH, positions: circle(graph), on_circle: true, in_row };
        }
        let mut before = vec![0u32; in_row.len()];
        let positions = nodes().map(|node| {
            let level = usize::from(graph.level(node));
            let index = before[level];
            before[level] += 1;
            let x = MARGIN + (WIDTH - 2.0 * MARGIN) * (f64::from(index) + 0.5) / in_row[level] as f64;
            (x, MARGIN + ROW * f64::from(highest) - ROW * level as f64)
        });
        let positions = positions.collect();
        let height = 2.0 * MARGIN + ROW * f64::from(highest);
        Layout { width: WIDTH, height, positions, on_circle: false, in_row }
    }

    /// How far a cable is bent: within a row, so that it does not run through nodes.
    pub fn bend(&self, a: NodeId, b: NodeId) -> f64 {
        let ((x1, y1), (x2, y2)) = (self.positions[a.index()], self.positions[b.index()]);
        if y1 == y2 && !self.on_circle { (x1 - x2).abs() / 4.0 + 20.0 } else { 0.0 }
    }

    /// True if the names of the node's row fit beside each other.
    pub fn is_named(&self, graph: &Graph, node: NodeId) -> bool {
        self.in_row[usize::from(graph.level(node))] <= NAMED
    }
}

/// The picture of a graph.
pub fn draw(graph: &Graph) -> String {
    let layout = Layout::of(graph);
    let Layout { width, height, ref positions, .. } = layout;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\" text-anchor=\"middle\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let fastest = graph.edges().iter().map(|edge| edge.a_to_b.rate.0).max().unwrap_or(1);
    for edge in graph.edges() {
        let ((x1, y1), (x2, y2)) = (positions[edge.a.index()], positions[edge.b.index()]);
        let width = 0.5 + 2.5 * edge.a_to_b.rate.0 as f64 / fastest as f64;
        let (x, y) = ((x1 + x2) / 2.0, (y1 + y2) / 2.0 - layout.bend(edge.a, edge.b));
        let title = format!("{} - {}: {}", graph.name(edge.a), graph.name(edge.b), DataRate(edge.a_to_b.rate));
        let _ = writeln!(
            svg,
            "<path d=\"M{x1:.1} {y1:.1}Q{x:.1} {y:.1} {x2:.1} {y2:.1}\" fill=\"none\" stroke=\"#667\" \
             stroke-width=\"{width:.2}\" stroke-opacity=\"0.6\"><title>{title}</title></path>"
        );
    }
    for node in (0..graph.nodes() as u32).map(NodeId) {
        let ((x, y), name) = (positions[node.index()], graph.name(node));
        let colour = if graph.switch_index(node).is_some() { "#1f77b4" } else { "#2ca02c" };
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"><title>{name}</title></circle>"
        );
        if layout.is_named(graph, node) {
            let below = if graph.switch_index(node).is_some() { -10.0 } else { 18.0 };
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\">{name}</text>", y + below);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Switches on a circle, where all of them have hosts; hosts outside, beside their switch.
fn circle(graph: &Graph) -> Vec<(f64, f64)> {
    let at = |radius: f64, turn: f64| {
        let angle = std::f64::consts::TAU * turn / f64::from(graph.switches());
        (WIDTH / 2.0 + radius * angle.sin(), WIDTH / 2.0 - radius * angle.cos())
    };
    let (inner, outer) = (WIDTH / 2.0 - 3.5 * MARGIN, WIDTH / 2.0 - MARGIN);
    let mut of_switch = vec![Vec::new(); graph.switches() as usize];
    let ends = graph.edges().iter().map(|edge| (edge.a.min(edge.b), edge.a.max(edge.b)));
    for (host, switch) in ends.filter(|(host, _)| host.0 < graph.hosts()) {
        of_switch[(switch.0 - graph.hosts()) as usize].push(host);
    }
    let mut positions = vec![(0.0, 0.0); graph.nodes()];
    for (switch, hosts) in of_switch.iter().enumerate() {
        positions[graph.switch(switch as u32).index()] = at(inner, switch as f64);
        for (index, host) in hosts.iter().enumerate() {
            let aside = (index as f64 + 0.5) / hosts.len() as f64 - 0.5;
            positions[host.index()] = at(outer, switch as f64 + 0.8 * aside);
        }
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_node_and_cable_is_in_the_picture() {
        let text = "[network]\nleaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 3 }\n";
        let graph = Config::parse(text).unwrap().network.build().unwrap();
        let svg = draw(&graph);
        assert_eq!((svg.matches("<circle").count(), svg.matches("<path").count()), (10, 10));
        assert!(svg.contains("<title>host 5 - leaf 1: 100 Gbit/s</title>"), "{svg}");
        assert!(svg.contains(">spine 1</text>"), "{svg}");
    }

    /// Switches of one level would lie on one line, and their cables on each other.
    #[test]
    fn switches_that_all_have_hosts_are_on_a_circle() {
        let graph_of = |shape: &str| Config::parse(&format!("[network]\n{shape}\n")).unwrap().network.build().unwrap();
        for shape in
            ["torus = { size = [3, 3], hosts_per_switch = 2 }", "hyperx = { size = [6], hosts_per_switch = 1 }"]
        {
            let graph = graph_of(shape);
            let svg = draw(&graph);
            let count = (svg.matches("<circle").count(), svg.matches("<path").count());
            assert_eq!(count, (graph.nodes(), graph.edges().len()));
            let positions: std::collections::BTreeSet<&str> = svg
                .lines()
                .filter(|line| line.starts_with("<circle"))
                .filter_map(|line| line.split(" r=").next())
                .collect();
            assert_eq!(positions.len(), graph.nodes(), "each node has a position of its own");
        }
    }
}
