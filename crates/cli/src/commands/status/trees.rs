//! The trees of a job through a fabric, drawn with lines.

use tributary_net::status::{JobStatus, TreeStatus};

use crate::output::list;

/// A few lines for each tree.
pub fn draw(job: &JobStatus) -> Vec<String> {
    let tree = |(number, tree): (usize, &TreeStatus)| {
        let mut lines = vec![String::new(), format!("{}, tree {number}:", job.name), tree.root.clone()];
        below(tree, &tree.root, "", tree.switches.len(), &mut lines);
        lines
    };
    job.trees.iter().enumerate().flat_map(tree).collect()
}

/// What hangs below a switch; at most `deep` levels, whatever the switch has sent.
fn below(tree: &TreeStatus, node: &str, indent: &str, deep: usize, lines: &mut Vec<String>) {
    let Some(switch) = tree.switches.iter().find(|switch| switch.node == node).filter(|_| deep > 0) else { return };
    for (number, child) in switch.children.iter().enumerate() {
        let is_last = number + 1 == switch.children.len();
        let (branch, stem) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let is_switch = tree.switches.iter().any(|switch| switch.node == child.node);
        let ranks = format!("{} {}", if child.ranks.len() == 1 { "rank" } else { "ranks" }, list(&child.ranks));
        lines.push(format!("{indent}{branch}{}: {ranks}", child.node));
        if is_switch {
            below(tree, &child.node, &format!("{indent}{stem}"), deep - 1, lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_net::status::{TreeChildStatus, TreeSwitchStatus};

    use super::*;

    #[test]
    fn a_tree_is_drawn_from_its_root_with_children_in_their_order() {
        let child = |node: &str, ranks: &[u16]| TreeChildStatus { node: node.into(), ranks: ranks.to_vec() };
        let switch = |node: &str, children| TreeSwitchStatus { node: node.into(), children };
        let tree = TreeStatus {
            root: "spine1".into(),
            switches: vec![
                switch("leaf0", vec![child("host0", &[1]), child("host1", &[2])]),
                switch("leaf1", vec![child("host4", &[0])]),
                switch("spine1", vec![child("leaf1", &[0]), child("leaf0", &[1, 2])]),
            ],
        };
        let mut lines = Vec::new();
        below(&tree, "spine1", "", 3, &mut lines);
        let wanted =
            "├─ leaf1: rank 0\n│  └─ host4: rank 0\n└─ leaf0: ranks 1, 2\n   ├─ host0: rank 1\n   └─ host1: rank 2";
        assert_eq!(lines.join("\n"), wanted);
    }
}
