//! Trees over networks: what holds for every network that can be drawn, and which switches are chosen in those that the
//! papers use.

use std::collections::{BTreeMap, BTreeSet};

use crate::networks::{Drawn, fat_tree, leaf_spine, network, nodes};
use proptest::prelude::*;
use tributary_control::trees::{Tree, TreeError, TreePlanner, TreeRequest};
use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::{NodeId, Rank};

fn wish<'a>(members: &'a [NodeId], trees: u16) -> TreeRequest<'a> {
    TreeRequest { members, trees, rate: 8, need: &|_| 1 }
}

fn chosen(network: &TreePlanner, members: &[NodeId], trees: u16) -> Vec<Tree> {
    let wish = wish(members, trees);
    network.choose(&wish, &network.candidates(&wish).unwrap()).unwrap()
}

fn roots(trees: &[Tree]) -> Vec<u32> {
    trees.iter().map(|tree| tree.root().0).collect()
}

/// Goes down from the root and says what is wrong with a tree, if anything is.
fn check(drawn: &Drawn, members: &[NodeId], tree: &Tree) -> Result<(), String> {
    let ports = drawn.cabling.ports();
    let mut seen = BTreeSet::new();
    let mut by_rank = BTreeMap::new();
    let mut open = vec![tree.root()];
    while let Some(node) = open.pop() {
        if !seen.insert(node) {
            return Err(format!("node {node} has two parents, or is its own ancestor"));
        }
        let switch = tree.switch(node).ok_or(format!("node {node} is a child and no switch of the tree"))?;
        if drawn.dead_switches.contains(&node) {
            return Err(format!("node {node} is dead"));
        }
        let lowest: Vec<Rank> = switch.children.iter().map(|child| child.below.ranks()[0]).collect();
        if !lowest.is_sorted() {
            return Err(format!("the children of node {node} begin with {lowest:?}"));
        }
        for (number, child) in switch.children.iter().enumerate() {
            let port = ports[node.index()][child.port.index()];
            if port.to != child.node || drawn.dead_cables.contains(&port.cable) {
                return Err(format!("no live cable leads from node {node} to its child {}", child.node));
            }
            if let Below::Worker(rank) = child.below {
                let position = tree.positions[rank.index()];
                if members[rank.index()] != child.node || (position.switch, position.child.index()) != (node, number) {
                    return Err(format!("rank {rank} is elsewhere"));
                }
                if by_rank.insert(rank, node).is_some() {
                    return Err(format!("rank {rank} is in the tree twice"));
                }
                continue;
            }
            let below = tree.switch(child.node).ok_or("a child is missing")?;
            let ranks: BTreeSet<&Rank> = below.children.iter().flat_map(|child| child.below.ranks()).collect();
            if !child.below.ranks().iter().eq(ranks) {
                return Err(format!("node {node} does not know who is below {}", child.node));
            }
            let parent = below.parent.ok_or("a second root")?;
            if (parent.node, parent.child.index()) != (node, number) {
                return Err(format!("node {} looks for its parent elsewhere", child.node));
            }
            if ports[child.node.index()][parent.port.index()].cable != port.cable {
                return Err("up and down are different cables".into());
            }
            open.push(child.node);
        }
    }
    match (by_rank.len() == members.len(), seen.len() == tree.switches.len()) {
        (true, true) => Ok(()),
        (false, _) => Err("a rank is missing".into()),
        (_, false) => Err("a switch is not below the root".into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_rank_is_in_each_tree_once_and_children_stand_by_their_lowest_rank(
        drawn in crate::networks::drawn(), trees in 1..5u16,
    ) {
        let network = drawn.network();
        let wish = wish(&drawn.members, trees);
        let planned = network.candidates(&wish).and_then(|roots| network.choose(&wish, &roots));
        let again = network.candidates(&wish).and_then(|roots| network.choose(&wish, &roots));
        prop_assert_eq!(&planned, &again, "the same question, the same answer");
        match planned {
            Ok(planned) => {
                prop_assert!((1..=usize::from(trees)).contains(&planned.len()));
                for (number, tree) in planned.iter().enumerate() {
                    prop_assert_eq!(check(&drawn, &drawn.members, tree), Ok(()));
                    prop_assert!(!planned[..number].contains(tree), "the same tree counts once");
                }
            }
            Err(error) => prop_assert!(drawn.is_cut(), "{error}, but nothing is in the way"),
        }
    }

    #[test]
    fn a_tree_may_end_in_any_switch_that_reaches_all(drawn in crate::networks::drawn(), root in any::<prop::sample::Index>()) {
        let root = NodeId(drawn.cabling.hosts + root.index(drawn.cabling.switches as usize) as u32);
        match drawn.network().tree(&drawn.members, root) {
            Ok(tree) => prop_assert_eq!(check(&drawn, &drawn.members, &tree), Ok(())),
            Err(error) => prop_assert!(!drawn.reaches_all(root), "{error}, but {root} reaches all members"),
        }
    }

    #[test]
    fn no_switch_holds_more_than_it_has_memory_for(
        drawn in crate::networks::drawn(), trees in 1..5u16, free in prop::collection::vec(0..6u64, 12),
    ) {
        let mut network = drawn.network();
        let switches = || (0..drawn.cabling.switches).map(|switch| drawn.cabling.switch(switch)).zip(&free);
        switches().for_each(|(switch, &free)| network.set_free(switch, free));
        let wish = TreeRequest { need: &|children| children as u64, ..wish(&drawn.members, trees) };
        let Ok(planned) = network.candidates(&wish).and_then(|roots| network.choose(&wish, &roots)) else {
            return Ok(());
        };
        for (switch, &free) in switches() {
            let used = planned.iter().filter_map(|tree| tree.switch(switch)).map(|switch| switch.children.len() as u64);
            prop_assert!(used.sum::<u64>() <= free);
        }
        for tree in &planned {
            prop_assert_eq!(check(&drawn, &drawn.members, tree), Ok(()));
        }
    }
}

#[test]
fn the_order_of_children_does_not_depend_on_ports() {
    let members = nodes(&[7, 3, 0, 4, 1]);
    let cabling = leaf_spine(4, 2, 2);
    let order = |cabling| {
        let tree = network(&cabling).tree(&members, cabling.switch(5)).unwrap();
        let children = |node: NodeId| -> Vec<u32> {
            tree.switch(node).unwrap().children.iter().map(|child| child.node.0).collect()
        };
        (children(cabling.switch(5)), children(cabling.switch(0)))
    };
    let mut turned = cabling.clone();
    turned.cables.reverse();
    // Host 7 (rank 0) is on leaf 11, host 3 (rank 1) on leaf 9, hosts 0 and 1 on leaf 8, host 4 on leaf 10.
    assert_eq!(order(cabling), (vec![11, 9, 8, 10], vec![0, 1]));
    assert_eq!(order(turned), (vec![11, 9, 8, 10], vec![0, 1]));
}

/// Hosts 0 to 3 are on both leaves, 4 and 5 (switches 0 and 1), and the spine is 6.
#[test]
fn trees_take_turns_at_the_cables_of_hosts_that_have_several() {
    let mut cabling = leaf_spine(2, 1, 2);
    cabling.cables.extend([(0, 5), (1, 5), (2, 4), (3, 4)].map(|(host, leaf)| (NodeId(host), NodeId(leaf))));
    let (planner, members) = (network(&cabling), nodes(&[0, 1, 2, 3]));
    let leaves = [4, 5].map(NodeId);
    assert_eq!(planner.candidates(&wish(&members, 2)).unwrap(), leaves, "either leaf has all of them");
    let mut planned = roots(&chosen(&planner, &members, 2));
    planned.sort_unstable();
    assert_eq!(planned, [4, 5]);
    let by_turn = |turn| planner.tree_in_turn(&members[..2], NodeId(6), turn).unwrap().root();
    assert_eq!([by_turn(0), by_turn(1), by_turn(2)], [leaves[0], leaves[1], leaves[0]], "the spine has a single child");
    let first = planner.by_first_cables().tree(&members, NodeId(6)).unwrap();
    assert_eq!(first.positions.iter().map(|at| at.switch.0).collect::<Vec<_>>(), [4, 4, 5, 5]);
    let mut broken = planner.clone();
    broken.set_cable(0, false);
    assert_eq!(broken.tree(&members, NodeId(4)).unwrap().positions[0].switch, NodeId(5), "by its other cable");
    broken.set_switch(NodeId(5), false);
    let cut_off = broken.tree(&members, NodeId(4)).unwrap_err().to_string();
    assert_eq!(cut_off, "rank 0 on host 0 is cut off: its cable to switch 0 is dead");
}

#[test]
fn trees_end_as_low_as_all_members_meet() {
    let cabling = fat_tree(4);
    let network = network(&cabling);
    let candidates = |members: &[u32]| -> Vec<u32> {
        let candidates = network.candidates(&wish(&nodes(members), 1)).unwrap();
        candidates.iter().map(|&node| cabling.switch_index(node).unwrap()).collect()
    };
    assert_eq!(candidates(&[0, 1]), [0], "one rack: its switch");
    assert_eq!(candidates(&[0, 3]), [8, 9], "one pod: its aggregation switches");
    assert_eq!(candidates(&[0, 3, 12]), [16, 17, 18, 19], "several pods: the core");
    assert_eq!(chosen(&network, &nodes(&[0, 1]), 4).len(), 1, "a rack has one tree");
}

#[test]
fn trees_of_one_job_share_no_cable_where_they_need_not() {
    let cabling = fat_tree(4);
    let network = network(&cabling);
    // Cores 16 and 17 connect aggregation switches 8, 10, ..., cores 18 and 19 above 9, 11, ...
    let trees = chosen(&network, &nodes(&(0..16).collect::<Vec<_>>()), 2);
    assert_eq!(roots(&trees), [cabling.switch(16).0, cabling.switch(18).0]);
    let all = chosen(&network, &nodes(&(0..16).collect::<Vec<_>>()), 4);
    assert_eq!(roots(&all), [16, 18, 17, 19].map(|core| cabling.switch(core).0));
}

#[test]
fn a_job_takes_the_switches_that_others_use_least() {
    let cabling = leaf_spine(4, 3, 2);
    let mut network = network(&cabling);
    let spines = [4, 5, 6].map(|spine| cabling.switch(spine).0);
    let all = nodes(&(0..8).collect::<Vec<_>>());
    let first = chosen(&network, &all, 1);
    assert_eq!(roots(&first), [spines[0]]);
    network.add_load(&first, 80);
    let second = chosen(&network, &all, 2);
    assert_eq!(roots(&second), [spines[1], spines[2]]);
    network.add_load(&second, 80);
    // Of the others each carries a half.
    assert_eq!(roots(&chosen(&network, &all, 1)), [spines[1]]);
    network.take_load(&first, 80);
    assert_eq!(roots(&chosen(&network, &all, 1)), [spines[0]]);
}

#[test]
fn among_equals_the_first_that_is_offered_is_taken() {
    let cabling = leaf_spine(2, 3, 2);
    let network = network(&cabling);
    let members = nodes(&[0, 3]);
    let offered = [4, 2, 3].map(|spine| cabling.switch(spine));
    let trees = network.choose(&wish(&members, 2), &offered).unwrap();
    assert_eq!(roots(&trees), [offered[0].0, offered[1].0]);
}

#[test]
fn what_is_dead_or_full_is_planned_around() {
    let cabling = leaf_spine(2, 2, 2);
    let members = nodes(&[0, 1, 2, 3]);
    let mut network = network(&cabling);
    network.set_switch(cabling.switch(3), false);
    assert_eq!(roots(&chosen(&network, &members, 2)), [cabling.switch(2).0], "one spine is dead");
    network.set_switch(cabling.switch(3), true);
    network.set_free(cabling.switch(2), 0);
    assert_eq!(roots(&chosen(&network, &members, 2)), [cabling.switch(3).0], "the other one is full");
    network.set_free(cabling.switch(2), 9);
    // Cable 4 joins leaf 0 and spine 2.
    network.set_cable(4, false);
    assert_eq!(roots(&chosen(&network, &members, 2)), [cabling.switch(3).0], "a cable is dead");
}

#[test]
fn a_refusal_names_what_is_missing() {
    let cabling = leaf_spine(2, 2, 2);
    let plan = |change: &dyn Fn(&mut TreePlanner), members: &[u32]| {
        let mut network = network(&cabling);
        change(&mut network);
        let members = nodes(members);
        let wish = TreeRequest { need: &|children| 100 * children as u64, ..wish(&members, 2) };
        let planned = network.candidates(&wish).and_then(|roots| network.choose(&wish, &roots));
        planned.unwrap_err().to_string()
    };
    assert_eq!(plan(&|_| {}, &[]), "a tree needs at least one member");
    assert_eq!(plan(&|_| {}, &[0, 6]), "rank 1 is on node 6, which is not a host of the network");
    assert_eq!(plan(&|_| {}, &[1, 0, 1]), "ranks 0 and 2 are both on host 1: a tree takes one rank from a host");
    assert_eq!(
        plan(&|network| network.set_switch(cabling.switch(1), false), &[0, 2]),
        "rank 1 on host 2 is cut off: switch 1 is dead"
    );
    assert_eq!(
        plan(&|network| network.set_cable(2, false), &[0, 2]),
        "rank 1 on host 2 is cut off: its cable to switch 1 is dead"
    );
    assert_eq!(
        plan(&|network| network.set_free(cabling.switch(0), 150), &[0, 1]),
        "switch 0 is full: a tree needs 200 bytes there for 2 children, and 150 are free"
    );
    let lose_spines = |network: &mut TreePlanner| {
        network.set_switch(cabling.switch(2), false);
        network.set_free(cabling.switch(3), 99);
    };
    assert_eq!(plan(&lose_spines, &[0, 2]), "no switch connects all ranks: switch 2, switch 3 are dead or full");
    let members = nodes(&[0, 2]);
    assert_eq!(network(&cabling).choose(&wish(&members, 0), &[cabling.switch(2)]), Err(TreeError::NoTrees),);
    assert_eq!(
        network(&cabling).tree(&members, NodeId(3)).unwrap_err().to_string(),
        "host 3 is not a switch that is alive, so no tree can end in it"
    );
}
