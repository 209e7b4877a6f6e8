//! The trees of a job through a fabric, drawn with lines.

use tributary_net::status::{JobStatus, OrderStatus, TreeStatus, TreeSwitchStatus};

use crate::output::list;

/// The lines of each tree; a tree of a single switch is drawn only if the switch waits for a child.
pub fn draw(job: &JobStatus) -> Vec<String> {
    let waits = |switch: &TreeSwitchStatus| switch.order.as_ref().is_none_or(|order| !order.waits_for.is_empty());
    let is_drawn = |tree: &TreeStatus| tree.switches.len() != 1 || tree.switches.iter().any(waits);
    let tree = |(number, tree)| [vec![String::new()], whole(&job.name, number, tree)].concat();
    job.trees.iter().enumerate().filter(|(_, tree)| is_drawn(tree)).flat_map(tree).collect()
}

/// One tree of a job, with a title.
pub fn whole(job: &str, number: usize, tree: &TreeStatus) -> Vec<String> {
    let around = tree.around.iter().filter(|_| number == 0).map(|why| format!("{job}, around: {why}"));
    let mut lines: Vec<String> = around.collect();
    lines.extend([format!("{job}, tree {number}:"), named(tree, &tree.root)]);
    below(tree, &tree.root, "", tree.switches.len(), &mut lines);
    lines
}

/// A node and, for a switch that reports its order, the packets that it holds.
fn named(tree: &TreeStatus, node: &str) -> String {
    let switch = tree.switches.iter().find(|switch| switch.node == node);
    let Some(order) = switch.and_then(|switch| switch.order.as_ref()) else { return node.to_string() };
    let OrderStatus { expected_vid, epoch, wnd_cap, queued, waits_for, waits_for_ranks } = order;
    let queued: Vec<String> = queued.iter().map(u16::to_string).collect();
    let waits = match waits_for.as_slice() {
        [] => String::new(),
        ports => format!(", WAITS FOR {} (rank {})", ports.join(", "), list(waits_for_ranks)),
    };
    let queued = queued.join(", ");
    format!("{node}: VID {expected_vid} is next, epoch {epoch}, holds {queued} of {wnd_cap} at its ports{waits}")
}

/// The nodes below a switch; at most `deep` levels, whatever the switch has sent.
fn below(tree: &TreeStatus, node: &str, indent: &str, deep: usize, lines: &mut Vec<String>) {
    let Some(switch) = tree.switches.iter().find(|switch| switch.node == node).filter(|_| deep > 0) else { return };
    for (number, child) in switch.children.iter().enumerate() {
        let is_last = number + 1 == switch.children.len();
        let (branch, stem) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let is_switch = tree.switches.iter().any(|switch| switch.node == child.node);
        let ranks = format!("{} {}", if child.ranks.len() == 1 { "rank" } else { "ranks" }, list(&child.ranks));
        lines.push(format!("{indent}{branch}{}: {ranks}", named(tree, &child.node)));
        if is_switch {
            below(tree, &child.node, &format!("{indent}{stem}"), deep - 1, lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_net::status::TreeChildStatus;

    use super::*;

    #[test]
    fn a_tree_is_drawn_from_its_root_with_children_in_their_order() {
        let child = |node: &str, ranks: &[u16]| TreeChildStatus { node: node.into(), ranks: ranks.to_vec() };
        let switch = |node: &str, children| TreeSwitchStatus { node: node.into(), children, order: None };
        let tree = TreeStatus {
            root: "spine1".into(),
            switches: vec![
                switch("leaf0", vec![child("host0", &[1]), child("host1", &[2])]),
                switch("leaf1", vec![child("host4", &[0])]),
                switch("spine1", vec![child("leaf1", &[0]), child("leaf0", &[1, 2])]),
            ],
            around: vec!["spine0 is dead".into()],
        };
        let mut lines = Vec::new();
        below(&tree, "spine1", "", 3, &mut lines);
        let wanted =
            "├─ leaf1: rank 0\n│  └─ host4: rank 0\n└─ leaf0: ranks 1, 2\n   ├─ host0: rank 1\n   └─ host1: rank 2";
        assert_eq!(lines.join("\n"), wanted);
        let whole = |number| whole("sum", number, &tree).join("\n");
        assert_eq!(whole(0), format!("sum, around: spine0 is dead\nsum, tree 0:\nspine1\n{wanted}"));
        assert_eq!(whole(1), format!("sum, tree 1:\nspine1\n{wanted}"), "it is said once");
    }

    #[test]
    fn a_switch_says_what_it_holds_and_which_port_its_next_packet_waits_for() {
        let child = |node: &str, rank| TreeChildStatus { node: node.into(), ranks: vec![rank] };
        let order = |waits_for: &[&str], ranks: &[u16]| OrderStatus {
            expected_vid: 7,
            epoch: 1,
            wnd_cap: 64,
            queued: vec![3, 0],
            waits_for: waits_for.iter().map(ToString::to_string).collect(),
            waits_for_ranks: ranks.to_vec(),
        };
        let star = |order| TreeStatus {
            root: "switch".into(),
            switches: vec![TreeSwitchStatus {
                node: "switch".into(),
                children: vec![child("a", 0), child("b", 1)],
                order: Some(order),
            }],
            around: Vec::new(),
        };
        let says = named(&star(order(&["b"], &[1])), "switch");
        assert_eq!(says, "switch: VID 7 is next, epoch 1, holds 3, 0 of 64 at its ports, WAITS FOR b (rank 1)");
        assert_eq!(named(&star(order(&[], &[])), "switch").find("WAITS"), None);
        assert_eq!(named(&star(order(&[], &[])), "a"), "a");
    }
}
