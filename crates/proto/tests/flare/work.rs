//! The operations that a switch's machine counts, and what a packet's handler claims of its block: for simulators of a
//! switch's cores.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::switch::Switch;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::work::{Claim, Instrumented, Needs, Work};
use tributary_proto::flare::PROTOCOL;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::golden::{self, processed, sent};

/// The first packets of two hosts, and their switch.
fn scenario() -> (Vec<Vec<u8>>, Box<dyn Switch>) {
    let updates = (0..2).map(|rank| {
        let mut host: Box<dyn Host> = golden::host(&PROTOCOL, rank, Default::default());
        let tensor = ElementTensor::new(InPlaceStorage::new(vec![1.0f64, 2.0, 3.0]), ReduceOp::Sum);
        host.submit(Time::ZERO, Collective { tensor: Box::new(tensor), deadline: None }).unwrap();
        sent(&mut host, Time::ZERO)
    });
    (updates.collect(), golden::switch(&PROTOCOL, 2, None))
}

fn counted(switch: &mut Box<dyn Switch>) -> &mut dyn Instrumented {
    switch.instrumented().expect("the machine counts its work")
}

#[test]
fn a_block_is_copied_combined_and_sent_and_a_packet_that_comes_again_costs_what_its_answer_costs() {
    let (updates, mut switch) = scenario();
    let mut work = |rank: u16| {
        processed(&mut switch, rank, &updates[usize::from(rank)], Ecn::NotCapable);
        counted(&mut switch).take_work()
    };
    assert_eq!(work(0), Work { copied: 2, ..Work::default() });
    assert_eq!(work(0), Work::default(), "it is there already");
    assert_eq!(work(1), Work { combined: 2, emitted: 1, completed: 1, ..Work::default() });
    assert_eq!(work(1).combined, 0);
}

#[test]
fn who_asks_never_and_who_asks_late_gets_all_of_it() {
    let (updates, mut switch) = scenario();
    for (rank, update) in (0..).zip(&updates) {
        processed(&mut switch, rank, update, Ecn::NotCapable);
    }
    let switch = counted(&mut switch);
    assert_eq!(switch.take_work(), Work { copied: 2, combined: 2, emitted: 1, completed: 1, ..Work::default() });
    assert_eq!(switch.take_work(), Work::default());
}

#[test]
fn a_contribution_needs_its_leaf_of_the_tree_and_other_packets_need_nothing() {
    // Small tensors are summed along the tree.
    let (updates, mut switch) = scenario();
    let switch = counted(&mut switch);
    for (rank, update) in (0..).zip(&updates) {
        assert_eq!(switch.claim(PortId(rank), update), Claim { block: 0, needs: Needs::Leaf(rank, 2) });
    }
    assert_eq!(switch.claim(PortId(0), &updates[0][..20]), Claim::nothing(0));
}
