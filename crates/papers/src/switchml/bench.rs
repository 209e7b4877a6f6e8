//! One switch and its workers in lockstep, without a network between them: real numbers pass through the machines that
//! real switches and hosts run.

use std::collections::VecDeque;

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, SwitchConfig, TimerConfig};
use tributary_proto::contract::drive::record::{HostRecorder, Made, SwitchRecorder};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::switchml::PROTOCOL;
use tributary_proto::switchml::wire::HEADER_LEN;
use tributary_proto::tensors::{ElementTensor, VecStorage};

use crate::ReproduceError;

/// The time of a step. No packet is lost, so timers do not matter.
const STEP: Span = Span::from_nanos(1);
const JOB: JobId = JobId(1);
const KEY: JobKey = JobKey(0x5eed);

/// A worker.
struct Worker {
    machine: Box<dyn Host>,
    recorder: HostRecorder,
    /// Its packets that have not reached the switch.
    sent: VecDeque<Made<Addr>>,
}

/// A switch and its workers.
pub struct Bench {
    workers: Vec<Worker>,
    pipeline: Pipeline,
    switch: SwitchRecorder,
    now: Time,
    /// The vector of the last sum that the switch sent to all workers, as the packet's words.
    pub last_sum: Vec<i32>,
}

/// The effect of an update at the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// The update was added, or dropped.
    Kept(Verdict),
    /// Packets left, each with its receivers.
    Left(Vec<(Vec<usize>, Vec<u8>)>),
}

impl Bench {
    /// All workers of a job around a switch with `slots` slots; `numbers` says how floats are summed.
    pub fn new(
        world_size: u16,
        slots: u16,
        elements_per_packet: u16,
        numbers: &str,
        timers: TimerConfig,
    ) -> Result<Bench, ReproduceError> {
        let chosen = [("numbers".to_owned(), numbers.to_owned())].into();
        let options = PROTOCOL
            .options
            .read_with(&chosen, Defaults::Simulated)
            .map_err(|error| ReproduceError::Bad(error.to_string()))?;
        let job = JobConfig {
            job: JOB,
            key: KEY,
            protocol: PROTOCOL.code,
            world_size,
            slots,
            elements_per_packet,
            trees: 1,
            levels: false,
            options,
        };
        let worker = |rank: u16| {
            let config = HostConfig { timers, ..HostConfig::worker(job.clone(), Rank(rank)) };
            let machine = PROTOCOL.host(Values::Elements, &config);
            Worker { machine, recorder: HostRecorder::default(), sent: VecDeque::new() }
        };
        let members: Vec<PortId> = (0..world_size).map(PortId).collect();
        let (tree, below, group) = (TreeId(0), Below::workers(world_size), GroupId(0));
        let config = SwitchConfig { job: job.clone(), tree, members: members.clone(), below, group, parent: None };
        let machine = PROTOCOL.switch(Values::Elements, &config);
        let mut pipeline = Pipeline::default();
        let (protocol, others) = (PROTOCOL.code, Vec::new());
        pipeline.install(JOB, InstalledJob { protocol, key: KEY, members, others, machine });
        let workers = (0..world_size).map(worker).collect();
        Ok(Bench { workers, pipeline, switch: SwitchRecorder::default(), now: Time::ZERO, last_sum: Vec::new() })
    }

    /// Gives a worker its tensor for the next allreduce.
    pub fn submit<T: Element>(&mut self, worker: usize, input: Vec<T>, op: ReduceOp) -> Result<(), ReproduceError> {
        let Worker { machine, recorder, sent } = &mut self.workers[worker];
        let tensor = Box::new(ElementTensor::new(VecStorage::new(input), op));
        machine
            .submit(self.now, Collective { tensor, deadline: None })
            .map_err(|error| wrong(format!("worker {worker}: {error}")))?;
        recorder.drain(machine.as_mut(), self.now);
        sent.extend(recorder.sent.drain(..));
        Ok(())
    }

    /// The next packet of a worker.
    pub fn sends(&mut self, worker: usize) -> Option<Vec<u8>> {
        self.workers[worker].sent.pop_front().map(|made| made.bytes)
    }

    /// A worker's timer runs out.
    pub fn times_out(&mut self, worker: usize) {
        let Worker { machine, recorder, sent } = &mut self.workers[worker];
        let Some(due) = machine.poll_timeout() else { return };
        self.now = due.max(self.now);
        recorder.timeout(machine.as_mut(), self.now);
        sent.extend(recorder.sent.drain(..));
    }

    /// An update reaches the switch.
    pub fn reaches_switch(&mut self, worker: usize, mut bytes: Vec<u8>) -> Came {
        self.now += STEP;
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let ingress = PortId(worker as u16);
        let verdict = self.switch.packet(&mut self.pipeline, self.now, ingress, &mut packet, &NoQueues);
        let len = packet.len;
        bytes.truncate(len);
        let own = [(verdict, bytes)].into_iter();
        let made = self.switch.take().into_iter().map(|made| (made.to, made.bytes));
        let left: Vec<_> = own.chain(made).filter_map(|(to, bytes)| Some((self.receivers(to)?, bytes))).collect();
        if let Some((_, sum)) = left.iter().rev().find(|(to, sum)| to.len() > 1 && sum.len() > HEADER_LEN) {
            let words = sum[HEADER_LEN..].chunks_exact(4);
            self.last_sum = words.map(|word| i32::from_be_bytes(word.try_into().expect("four bytes"))).collect();
        }
        if left.is_empty() { Came::Kept(verdict) } else { Came::Left(left) }
    }

    /// The workers that get a packet of the switch.
    fn receivers(&self, to: Verdict) -> Option<Vec<usize>> {
        match to {
            Verdict::Group(_) => Some((0..self.workers.len()).collect()),
            Verdict::Port(port) => Some(vec![port.index()]),
            _ => None,
        }
    }

    /// A packet of the switch reaches a worker.
    pub fn reaches_worker(&mut self, worker: usize, bytes: &[u8]) {
        let Worker { machine, recorder, sent } = &mut self.workers[worker];
        let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
        recorder.packet(machine.as_mut(), self.now, Addr::Switch(TreeId(0)), packet);
        sent.extend(recorder.sent.drain(..));
    }

    /// The results, in bytes, of a worker's allreduces that have completed since the last call.
    pub fn results(&mut self, worker: usize) -> Result<Vec<Vec<u8>>, ReproduceError> {
        let events = std::mem::take(&mut self.workers[worker].recorder.events);
        let result = |event| match event {
            HostEvent::Done { tensor, .. } => {
                let elements = tensor.spec().elements as usize;
                let mut bytes = vec![0; elements * tensor.spec().dtype.size()];
                tensor.read_output(0..elements, &mut bytes);
                Ok(bytes)
            }
            HostEvent::Failed { error, .. } => Err(wrong(error.to_string())),
        };
        events.into_iter().map(result).collect()
    }

    /// A whole allreduce of floats: returns the result, which has the same bits on all workers.
    pub fn allreduce(&mut self, inputs: Vec<Vec<f32>>, op: ReduceOp) -> Result<Vec<f32>, ReproduceError> {
        for (worker, input) in inputs.into_iter().enumerate() {
            self.submit(worker, input, op)?;
        }
        while self.step() {}
        let all = (0..self.workers.len()).map(|worker| self.results(worker)).collect::<Result<Vec<_>, _>>()?;
        match all.iter().find(|results| **results != all[0]) {
            None if all[0].len() == 1 => {}
            None => return Err(wrong("an allreduce stands still".into())),
            Some(_) => return Err(wrong("workers got different results".into())),
        }
        let words = all[0][0].chunks_exact(4);
        Ok(words.map(|word| f32::from_be_bytes(word.try_into().expect("four bytes"))).collect())
    }

    /// Sends every worker's next packet to the switch, and the switch's packets to their receivers; false if there was
    /// none.
    fn step(&mut self) -> bool {
        let mut any = false;
        for worker in 0..self.workers.len() {
            let Some(packet) = self.sends(worker) else { continue };
            any = true;
            if let Came::Left(packets) = self.reaches_switch(worker, packet) {
                for (receivers, bytes) in packets {
                    receivers.into_iter().for_each(|worker| self.reaches_worker(worker, &bytes));
                }
            }
        }
        any
    }
}

fn wrong(why: String) -> ReproduceError {
    ReproduceError::Wrong { what: "SwitchML without a network".into(), why }
}
