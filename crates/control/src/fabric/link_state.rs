//! What a switch knows of dead cables anywhere in the fabric.
//!
//! Every switch reports which of its own ports are down. Neighbours pass on all reports that they have received, and newer
//! reports replace older ones. So a leaf learns that a spine has lost another leaf, and sends no packets for that leaf
//! to the spine.

use tributary_proto::contract::ids::{NodeId, PortId, PortSet};

use crate::routes::{Cabling, Routes};

/// What one switch reports of its own ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advert {
    /// The switch, by its index.
    pub switch: u16,
    /// Newer reports have higher numbers, modulo 2^64, so no number is so high that none could be newer. 0: no report.
    pub seq: u64,
    /// The switch's ports over which no neighbour sends anything.
    pub down: PortSet,
}

/// The newest advert of every switch.
#[derive(Clone, Debug)]
pub struct LinkState {
    cabling: Cabling,
    /// For each cable, the port at its first and at its second end.
    ends: Vec<[PortId; 2]>,
    own: u16,
    adverts: Vec<Advert>,
}

impl LinkState {
    /// A switch that has received no report.
    pub fn new(cabling: &Cabling, own: NodeId) -> LinkState {
        let own = cabling.switch_index(own).unwrap_or(0) as u16;
        let ends = cabling.port_numbers();
        let blank = |switch| Advert { switch, ..Advert::default() };
        let mut adverts: Vec<Advert> = (0..cabling.switches as u16).map(blank).collect();
        adverts[usize::from(own)].seq = 1;
        LinkState { cabling: cabling.clone(), ends, own, adverts }
    }

    /// Sets our own ports that are down; true if that is new.
    pub fn set_own(&mut self, down: PortSet) -> bool {
        let own = &mut self.adverts[usize::from(self.own)];
        let changed = own.down != down;
        if changed {
            (own.down, own.seq) = (down, after(own.seq));
        }
        changed
    }

    /// Takes a report that a neighbour passed on; true if it changes a way.
    pub fn receive(&mut self, advert: Advert) -> bool {
        let Some(known) = self.adverts.get_mut(usize::from(advert.switch)) else { return false };
        if !is_newer(advert.seq, known.seq) {
            return false;
        }
        if advert.switch == self.own {
            // This is a report of our own former process: our present report must be newer.
            known.seq = after(advert.seq);
            return false;
        }
        let changed = known.down != advert.down;
        *known = advert;
        changed
    }

    /// All reports, for the neighbours.
    pub fn adverts(&self) -> impl Iterator<Item = &Advert> {
        self.adverts.iter().filter(|advert| advert.seq > 0)
    }

    /// The ways over cables that both ends call alive.
    pub fn routes(&self) -> Routes {
        Routes::new(&self.cabling, |cable, _| self.is_up(cable))
    }

    /// True if both ends call a cable alive.
    pub fn is_up(&self, cable: usize) -> bool {
        let (a, b) = self.cabling.cables[cable];
        let [at_a, at_b] = self.ends[cable];
        !self.says_down(a, at_a) && !self.says_down(b, at_b)
    }

    /// The cables that at least one end calls dead.
    pub fn dead_cables(&self) -> Vec<usize> {
        (0..self.cabling.cables.len()).filter(|&cable| !self.is_up(cable)).collect()
    }

    /// True if no cable between a switch and the others is alive: as far as other switches can tell, the switch is
    /// dead.
    pub fn is_cut_off(&self, switch: NodeId) -> bool {
        let ends_at = |&(a, b): &(NodeId, NodeId)| {
            let other = if a == switch { b } else { a };
            (a == switch || b == switch) && self.cabling.switch_index(other).is_some()
        };
        let cables = self.cabling.cables.iter().enumerate();
        cables.filter(|(_, ends)| ends_at(ends)).all(|(cable, _)| !self.is_up(cable))
    }

    fn says_down(&self, node: NodeId, port: PortId) -> bool {
        let switch = self.cabling.switch_index(node);
        switch.is_some_and(|switch| self.adverts[switch as usize].down.contains(port))
    }
}

/// Compares serial numbers: a number that is less than 2^63 ahead is newer.
fn is_newer(seq: u64, than: u64) -> bool {
    seq.wrapping_sub(than) as i64 > 0
}

/// The number of the next report.
fn after(seq: u64) -> u64 {
    seq.wrapping_add(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts 0 and 1 on switches 0 and 1 (nodes 2, 3); spines 2 and 3 (nodes 4, 5).
    fn cabling() -> Cabling {
        let cables = [(0, 2), (1, 3), (2, 4), (2, 5), (3, 4), (3, 5)];
        Cabling { hosts: 2, switches: 4, cables: cables.map(|(a, b)| (NodeId(a), NodeId(b))).to_vec() }
    }

    fn ports(numbers: &[u16]) -> PortSet {
        let mut set = PortSet::EMPTY;
        numbers.iter().for_each(|&port| assert!(set.insert(PortId(port))));
        set
    }

    #[test]
    fn a_leaf_avoids_the_spine_that_has_lost_the_other_leaf() {
        let mut state = LinkState::new(&cabling(), NodeId(2));
        assert_eq!(state.routes().next_hops(0, NodeId(1)).0, [1, 2]);
        // Spine 2's port 1 leads to leaf 1.
        assert!(state.receive(Advert { switch: 2, seq: 5, down: ports(&[1]) }));
        assert_eq!(state.routes().next_hops(0, NodeId(1)).0, [2]);
        assert!(!state.receive(Advert { switch: 2, seq: 4, down: PortSet::EMPTY }), "an old report");
        assert!(state.receive(Advert { switch: 2, seq: 6, down: PortSet::EMPTY }));
        assert_eq!(state.routes().next_hops(0, NodeId(1)).0, [1, 2]);
    }

    #[test]
    fn nobody_else_speaks_for_our_own_ports() {
        let mut state = LinkState::new(&cabling(), NodeId(2));
        assert!(!state.receive(Advert { switch: 40, seq: 1, down: PortSet::EMPTY }), "no such switch");
        // The report that we sent before we were restarted still goes round: our new report must count as newer.
        assert!(!state.receive(Advert { switch: 0, seq: 99, down: ports(&[1]) }));
        assert!(state.set_own(ports(&[2])) && !state.set_own(ports(&[2])));
        assert_eq!(state.adverts().map(|advert| (advert.switch, advert.seq)).collect::<Vec<_>>(), [(0, 101)]);
        assert_eq!(state.routes().next_hops(0, NodeId(1)).0, [1]);
    }

    #[test]
    fn no_damaged_number_is_so_high_that_nobody_can_be_newer() {
        let mut state = LinkState::new(&cabling(), NodeId(2));
        for seq in [1 << 62, u64::MAX >> 1, 3 << 62, u64::MAX - 1, u64::MAX] {
            state.receive(Advert { switch: 0, seq, down: PortSet::EMPTY });
        }
        let own = |state: &LinkState| state.adverts().next().map(|advert| advert.seq).unwrap();
        let before = own(&state);
        assert_eq!(before, u64::MAX);
        assert!(state.set_own(ports(&[1])));
        assert_eq!(own(&state), 1, "0 is none at all");
        assert!(is_newer(1, u64::MAX));
        let mut neighbour = LinkState::new(&cabling(), NodeId(4));
        assert!(neighbour.receive(Advert { switch: 0, seq: (1 << 63) - 1, down: ports(&[1]) }));
        assert!(neighbour.receive(Advert { switch: 0, seq: 1 << 63, down: PortSet::EMPTY }));
    }
}
