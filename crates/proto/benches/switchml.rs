//! What one packet costs the machines of SwitchML, beside the arithmetic alone.

mod switchml_setup;

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tributary_numeric::{BlockExponent, ReduceOp, Scale, codec, lanes};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{ChildId, GroupId, PortId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::seal;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::switchml::wire::{HEADER_LEN, Kind, put_wid};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use self::switchml_setup::{KEY, SLOTS, WORLD_SIZE, drain, integers, job, pipeline, readdress};

/// A run of packets of one rank for adjacent blocks, as a driver hands them over.
const RUN: usize = 32;

/// Rank 0 in a collective of this many elements.
fn host(job: &JobConfig, elements: usize) -> Box<dyn Host> {
    let mut host = switchml_setup::host(job);
    submit(&mut host, elements);
    host
}

fn submit(host: &mut Box<dyn Host>, elements: usize) {
    let tensor = ElementTensor::new(InPlaceStorage::new(vec![1.0f32; elements]), ReduceOp::Sum);
    host.submit(Time::ZERO, Collective { tensor: Box::new(tensor), deadline: None }).unwrap();
}

/// A run of each rank through the pipeline: of 8 packets for a slot, 7 are contributions and one completes it.
fn switch(c: &mut Criterion) {
    for k in [64, 256, 360] {
        let job = job(k, "fixed");
        let mut pipeline = pipeline(&job);
        let mut packets = integers(&job);
        let mut group = c.benchmark_group(format!("switchml/switch/{k}"));
        group.throughput(Throughput::Elements(RUN as u64 * u64::from(WORLD_SIZE)));
        let (mut first, mut phase) = (0, 0);
        group.bench_function("runs of 8 ranks", |b| {
            // Packets come fresh from the kernel; here a copy stands for that.
            let mut scratch = packets[..RUN].to_vec();
            b.iter(|| {
                for rank in 0..WORLD_SIZE {
                    for (scratch, packet) in scratch.iter_mut().zip(&packets[first..]) {
                        scratch.copy_from_slice(packet);
                        put_wid(scratch, ChildId(rank));
                    }
                    for bytes in &mut scratch {
                        let mut packet = PacketMut::new(bytes, Ecn::NotCapable);
                        let verdict = pipeline.process(Time::ZERO, PortId(rank), &mut packet, &NoQueues);
                        let last = rank + 1 == WORLD_SIZE;
                        assert_eq!(verdict, if last { Verdict::Group(GroupId(0)) } else { Verdict::Consume });
                    }
                }
                first += RUN;
                if first == packets.len() {
                    (first, phase) = (0, phase + 1);
                    packets.iter_mut().for_each(|packet| readdress(packet, 0, phase));
                }
            });
        });
        let mut pool = vec![vec![0u32; usize::from(k)]; 2 * usize::from(SLOTS)];
        let (mut first, mut version) = (0, 0);
        group.bench_function("arithmetic alone", |b| {
            let mut scratch = packets[..RUN].to_vec();
            b.iter(|| {
                for rank in 0..WORLD_SIZE {
                    for (scratch, packet) in scratch.iter_mut().zip(&packets[first..]) {
                        scratch.copy_from_slice(packet);
                    }
                    for (bytes, slot) in scratch.iter_mut().zip(first..) {
                        let lanes = &mut pool[2 * slot + version];
                        match rank {
                            0 => lanes::store_be(lanes, &bytes[HEADER_LEN..]),
                            _ => lanes::add_be(lanes, &bytes[HEADER_LEN..]),
                        }
                        if rank + 1 == WORLD_SIZE {
                            lanes::load_be(lanes, &mut bytes[HEADER_LEN..]);
                        }
                    }
                }
                first += RUN;
                if first == packets.len() {
                    (first, version) = (0, version ^ 1);
                }
            });
        });
        group.finish();
    }
}

/// What `integrity=crc32c` adds for each packet that is received, and for each that is sent.
fn checksum(c: &mut Criterion) {
    for k in [64, 256, 360] {
        let mut packet = vec![7; HEADER_LEN + 4 * k];
        let mut group = c.benchmark_group(format!("switchml/checksum/{k}"));
        group.throughput(Throughput::Bytes(packet.len() as u64));
        group.bench_function("seal", |b| b.iter(|| seal::seal(black_box(&mut packet), KEY)));
        group.bench_function("check", |b| b.iter(|| seal::check(black_box(&packet), KEY).unwrap()));
        group.finish();
    }
}

/// A result comes in, the next update goes out.
fn worker(c: &mut Criterion) {
    for k in [64, 256, 360] {
        let job = job(k, "fixed");
        let mut group = c.benchmark_group(format!("switchml/host/{k}"));
        group.throughput(Throughput::Bytes(4 * u64::from(k)));
        let elements = 16 * usize::from(SLOTS) * usize::from(k);
        group.bench_function("result and update", |b| {
            let (mut machine, mut answers) = (host(&job, elements), VecDeque::<Vec<u8>>::new());
            let mut buf = vec![0; machine.max_packet_len()];
            b.iter(|| {
                // The answer to a packet is the packet itself: all ranks have the same data, or none.
                while answers.is_empty() {
                    while machine.poll_event().is_some() {
                        submit(&mut machine, elements);
                    }
                    answers.extend(drain(&mut machine));
                }
                let mut answer = answers.pop_front().unwrap();
                Kind::Result.put(&mut answer);
                let packet = Packet { bytes: &answer, wire_len: answer.len(), ecn: Ecn::NotCapable };
                machine.handle_packet(Time::ZERO, Addr::Switch(TreeId(0)), packet).unwrap();
                if let Some(transmit) = machine.poll_transmit(Time::ZERO, &mut buf) {
                    answer.clear();
                    answer.extend_from_slice(&buf[..transmit.len]);
                    answers.push_back(answer);
                }
            });
        });
        group.bench_function("arithmetic alone", |b| {
            let mut data = vec![1.0f32; elements];
            let scale = Scale::new(BlockExponent { exponent: 1, non_finite: false }, WORLD_SIZE);
            let (mut vector, k) = (vec![0; 4 * usize::from(k)], usize::from(k));
            let (mut at, pool) = (0, usize::from(SLOTS) * k);
            b.iter(|| {
                codec::decode(&vector, scale, ReduceOp::Sum, &mut data[at..at + k]);
                at = (at + k) % (elements - 2 * pool);
                let next = at + pool - k;
                black_box(codec::exponent(&data[next + pool..next + pool + k]));
                codec::encode(&data[next..next + k], scale, &mut vector);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, switch, checksum, worker);
criterion_main!(benches);
