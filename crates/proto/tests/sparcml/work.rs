//! How much a rank does at once: a rank that works on a whole tensor at one packet is silent to all others meanwhile,
//! who then take what it does not acknowledge for lost.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::HostConfig;
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::sparcml::SparcmlHost;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage, Operands, Storage};

use crate::harness::hosts::{input, output, sum};
use crate::setup::dense_job;

const WORLD_SIZE: u16 = 4;
const ELEMENTS: usize = 50_000;
const BLOCK: usize = 64;

/// Counts the elements that are read and written.
struct Counting {
    storage: InPlaceStorage<i32>,
    touched: Arc<AtomicUsize>,
}

impl Counting {
    fn touch(&self, block: &Range<usize>) {
        self.touched.fetch_add(block.len(), Ordering::Relaxed);
    }
}

impl Storage for Counting {
    type Element = i32;

    fn len(&self) -> usize {
        self.storage.len()
    }
    fn is_separate(&self) -> bool {
        self.storage.is_separate()
    }
    fn input(&self, block: Range<usize>) -> &[i32] {
        self.touch(&block);
        self.storage.input(block)
    }
    fn output(&self, block: Range<usize>) -> &[i32] {
        self.storage.output(block)
    }
    fn output_mut(&mut self, block: Range<usize>) -> &mut [i32] {
        self.touch(&block);
        self.storage.output_mut(block)
    }
    fn operands(&mut self, block: Range<usize>) -> Operands<'_, i32> {
        self.touch(&block);
        self.storage.operands(block)
    }
}

#[test]
fn a_rank_reads_and_writes_a_block_or_two_at_a_time() {
    let job = dense_job(WORLD_SIZE, BLOCK as u16, "ssar_split_allgather");
    let touched = Arc::new(AtomicUsize::new(0));
    let most = |what: &str| {
        let elements = touched.swap(0, Ordering::Relaxed);
        assert!(elements <= 2 * BLOCK, "{elements} elements of {ELEMENTS} were read and written when {what}");
    };
    let mut hosts: Vec<SparcmlHost> = (0..WORLD_SIZE)
        .map(|rank| SparcmlHost::new(Values::Elements, &HostConfig::worker(job.clone(), Rank(rank))))
        .collect();
    let mut on_the_way = VecDeque::new();
    for (rank, host) in hosts.iter_mut().enumerate() {
        let storage = InPlaceStorage::new(input(rank as u16, 0, ELEMENTS));
        let storage = Counting { storage, touched: Arc::clone(&touched) };
        let tensor = Box::new(ElementTensor::new(storage, ReduceOp::Sum));
        host.submit(Time::ZERO, Collective { tensor, deadline: None }).unwrap();
        most("it was submitted");
    }
    let mut buf = vec![0; 4_096];
    loop {
        for (rank, host) in hosts.iter_mut().enumerate() {
            while let Some(sent) = host.poll_transmit(Time::ZERO, &mut buf) {
                most("a packet was written");
                on_the_way.push_back((Rank(rank as u16), sent, buf[..sent.len].to_vec()));
            }
        }
        let Some((from, sent, bytes)) = on_the_way.pop_front() else { break };
        let Addr::Worker(to) = sent.to else { panic!("ranks speak to ranks") };
        let packet = Packet { bytes: &bytes, wire_len: sent.wire_len, ecn: Ecn::NotCapable };
        hosts[to.index()].handle_packet(Time::ZERO, Addr::Worker(from), packet).unwrap();
        most("a packet came");
    }
    let expected: Vec<u8> = sum(WORLD_SIZE, 0, ELEMENTS).iter().flat_map(|value| value.to_be_bytes()).collect();
    for host in &mut hosts {
        let Some(HostEvent::Done { tensor, .. }) = host.poll_event() else { panic!("it is not complete") };
        assert!(output::<i32>(&*tensor) == expected);
    }
}
