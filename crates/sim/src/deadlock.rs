//! Whether ports of lossless switches can wait for each other in a circle: the graph of Dally and Seitz (1987), whose nodes are
//! links, and in which a link leads to another if packets that came over the first leave over the second. No deadlock is
//! possible if this graph has no cycle.
//!
//! Packets that switches' programs make add no edges: they never wait from a link between equal levels to another
//! (`net::lossless`), and hosts' links begin or end every path.

use std::collections::BTreeSet;

use tributary_proto::contract::ids::NodeId;

use crate::routing::{Balancing, Table};
use crate::topology::{Graph, LinkId};

/// For each link, the links that packets take after it.
struct Waits(Vec<Vec<u32>>);

/// Links that can wait for each other, in the order in which they do, for packets that choose in one of these ways; `None` if
/// none can.
pub fn cycle(graph: &Graph, table: &Table, balancing: &[Balancing]) -> Option<Vec<LinkId>> {
    find_cycle(&Waits::new(graph, table, balancing))
}

impl Waits {
    fn new(graph: &Graph, table: &Table, balancing: &[Balancing]) -> Waits {
        let (first, links) = graph.ports();
        let of_port = |switch: u32, port: u16| links[first[graph.switch(switch).index()] as usize + usize::from(port)];
        let mut waits = Waits(vec![Vec::new(); links.len()]);
        let in_order = balancing.iter().all(|one| *one == Balancing::DimensionOrder);
        let hops = |switch: u32, to: NodeId| {
            let ports = table.next_hops(switch, to).0;
            let taken = if in_order { ports.len().min(1) } else { ports.len() };
            ports[..taken].iter().map(move |&port| of_port(switch, port))
        };
        let detours = balancing.contains(&Balancing::Valiant);
        // Packets that wait on the way are for hosts, or for a switch with hosts by which they take a detour. A host with one
        // cable is reached as its switch is.
        let with_hosts = graph.edges().iter().filter(|edge| edge.a.0.min(edge.b.0) < graph.hosts());
        let mut targets: BTreeSet<NodeId> = with_hosts.map(|edge| edge.a.max(edge.b)).collect();
        targets.extend((0..graph.hosts()).map(NodeId).filter(|&host| table.has_several_cables(host)));
        for &target in &targets {
            for switch in 0..graph.switches() {
                for link in hops(switch, target) {
                    let Some(next) = graph.switch_index(graph.ends(link).1) else { continue };
                    let after = &mut waits.0[link.index()];
                    after.extend(hops(next, target).map(|link| link.0));
                    // At its intermediate switch a packet turns to anywhere.
                    if detours && graph.switch(next) == target {
                        let others = targets.iter();
                        after.extend(others.flat_map(|&other| hops(next, other)).map(|link| link.0));
                    }
                    after.sort_unstable();
                    after.dedup();
                }
            }
        }
        waits
    }
}

/// A cycle, found by a search in depth: a link that leads back to one on the way closes it.
fn find_cycle(Waits(waits): &Waits) -> Option<Vec<LinkId>> {
    const FRESH: u8 = 0;
    const ON_THE_WAY: u8 = 1;
    const DONE: u8 = 2;
    let mut state = vec![FRESH; waits.len()];
    for start in 0..waits.len() {
        if state[start] != FRESH {
            continue;
        }
        let mut way: Vec<(usize, usize)> = vec![(start, 0)];
        state[start] = ON_THE_WAY;
        while let Some((link, tried)) = way.last_mut() {
            let Some(&next) = waits[*link].get(*tried) else {
                state[*link] = DONE;
                way.pop();
                continue;
            };
            *tried += 1;
            match state[next as usize] {
                FRESH => {
                    state[next as usize] = ON_THE_WAY;
                    way.push((next as usize, 0));
                }
                ON_THE_WAY => {
                    let circle = way.iter().map(|&(link, _)| LinkId(link as u32)).skip_while(|link| link.0 != next);
                    return Some(circle.collect());
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Clos, Dragonfly, Grid, LinkSpec, Rate, Specs};
    use tributary_proto::contract::time::Span;

    const SPEC: LinkSpec =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span(1_000_000), queue_bytes: 1 << 20, mark_bytes: None };
    const SPECS: Specs = Specs { host: SPEC, core: SPEC, switch_latency: Span::ZERO };

    fn cycle_of(graph: &Graph, balancing: Balancing) -> Option<Vec<LinkId>> {
        let found = cycle(graph, &Table::new(graph, |_| true), &[balancing]);
        // Each link of a cycle begins where the one before it ends.
        if let Some(links) = &found {
            let next = links.iter().cycle().skip(1);
            assert!(links.iter().zip(next).all(|(link, next)| graph.ends(*link).1 == graph.ends(*next).0), "{links:?}");
        }
        found
    }

    #[test]
    fn dimension_order_has_no_cycles_where_rows_do_not_close() {
        let (mesh, torus) = (Grid(&[4, 3]).torus(1, false, &SPECS), Grid(&[5, 3]).torus(1, true, &SPECS));
        let hyperx = Grid(&[3, 3, 2]).hyperx(1, &SPECS);
        for graph in [&mesh, &hyperx] {
            assert_eq!(cycle_of(graph, Balancing::DimensionOrder), None);
            assert!(cycle_of(graph, Balancing::Ecmp).is_some(), "turns in any order");
            assert!(cycle_of(graph, Balancing::Valiant).is_some());
        }
        let circle = cycle_of(&torus, Balancing::DimensionOrder).expect("five in a row that closes");
        assert_eq!(circle.len(), 5);
        assert_eq!(
            cycle_of(&Grid(&[3, 3]).torus(1, true, &SPECS), Balancing::DimensionOrder),
            None,
            "one hop a dimension"
        );
    }

    #[test]
    fn a_fat_tree_has_no_cycles_and_a_dragonfly_has() {
        let clos = Clos::fat_tree(4).graph(SPEC, SPEC, SPEC, Span::ZERO);
        assert_eq!(cycle_of(&clos, Balancing::Random), None);
        let dragonfly = Dragonfly { groups: 3, switches: 2, global: 1, hosts_per_switch: 1 }.graph(&SPECS);
        assert!(cycle_of(&dragonfly, Balancing::Ecmp).is_some(), "local, global, and local again in the next group");
    }

    #[test]
    fn mixed_choices_are_as_free_as_the_freest() {
        let mesh = Grid(&[3, 3]).torus(1, false, &SPECS);
        let table = Table::new(&mesh, |_| true);
        assert_eq!(cycle(&mesh, &table, &[Balancing::DimensionOrder; 2]), None);
        assert!(cycle(&mesh, &table, &[Balancing::DimensionOrder, Balancing::Random]).is_some());
    }
}
