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

/// The picture of a graph.
pub fn draw(graph: &Graph) -> String {
    let nodes = || (0..graph.nodes() as u32).map(NodeId);
    let highest = nodes().map(|node| graph.level(node)).max().unwrap_or(0);
    let rows: Vec<Vec<NodeId>> =
        (0..=highest).map(|level| nodes().filter(|node| graph.level(*node) == level).collect()).collect();
    let at = |node: NodeId| {
        let level = usize::from(graph.level(node));
        let row = &rows[level];
        let index = row.iter().position(|other| *other == node).unwrap_or(0);
        let x = MARGIN + (WIDTH - 2.0 * MARGIN) * (index as f64 + 0.5) / row.len() as f64;
        (x, MARGIN + ROW * f64::from(highest) - ROW * level as f64)
    };
    let on_circle = highest == 1 && rows[1].len() > 2;
    let positions: Vec<(f64, f64)> = if on_circle { circle(graph) } else { nodes().map(at).collect() };
    let height = if on_circle { WIDTH } else { 2.0 * MARGIN + ROW * f64::from(highest) };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\" text-anchor=\"middle\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let fastest = graph.edges().iter().map(|edge| edge.a_to_b.rate.0).max().unwrap_or(1);
    for edge in graph.edges() {
        let ((x1, y1), (x2, y2)) = (positions[edge.a.index()], positions[edge.b.index()]);
        let width = 0.5 + 2.5 * edge.a_to_b.rate.0 as f64 / fastest as f64;
        // Cables within a row are bent, so that they do not run through its nodes.
        let bend = if y1 == y2 && !on_circle { (x1 - x2).abs() / 4.0 + 20.0 } else { 0.0 };
        let (x, y) = ((x1 + x2) / 2.0, (y1 + y2) / 2.0 - bend);
        let title = format!("{} - {}: {}", graph.name(edge.a), graph.name(edge.b), DataRate(edge.a_to_b.rate));
        let _ = writeln!(
            svg,
            "<path d=\"M{x1:.1} {y1:.1}Q{x:.1} {y:.1} {x2:.1} {y2:.1}\" fill=\"none\" stroke=\"#667\" \
             stroke-width=\"{width:.2}\" stroke-opacity=\"0.6\"><title>{title}</title></path>"
        );
    }
    for node in nodes() {
        let ((x, y), name) = (positions[node.index()], graph.name(node));
        let colour = if graph.switch_index(node).is_some() { "#1f77b4" } else { "#2ca02c" };
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"><title>{name}</title></circle>"
        );
        if rows[usize::from(graph.level(node))].len() <= NAMED {
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
