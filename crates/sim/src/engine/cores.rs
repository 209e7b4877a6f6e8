//! A switch's processor, and the packets that it has. `steps::cores` runs it.

use std::collections::BTreeMap;

use tributary_proto::contract::drive::switch::Passed;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::switch::{Emission, Verdict};
use tributary_proto::contract::time::Time;

use crate::cores::counters::Counters;
use crate::cores::prices::Prices;
use crate::cores::{Processor, Shape};
use crate::net::Packet;
use crate::topology::LinkId;

/// The common properties of all switches' processors. Times are picoseconds.
#[derive(Clone, Debug)]
pub struct CoresSpec {
    /// Its clusters, cores and memories.
    pub shape: Shape,
    /// How long a cycle is.
    pub cycle: u64,
    /// Packets are marked that arrive while the packet memory holds more.
    pub mark_above: Option<u64>,
    /// Packets are charged to the ports at which they came in.
    pub pauses: bool,
    /// The costs of each job's handlers.
    pub prices: BTreeMap<JobId, Prices>,
}

/// A switch's processor, and the packets that it has.
pub struct SwitchCores {
    pub(super) spec: CoresSpec,
    pub(super) processor: Processor,
    pub(super) packets: Vec<Option<InProcessor>>,
    pub(super) free: Vec<u32>,
}

/// A packet in the processor, and the packets that follow from it.
pub(super) struct InProcessor {
    pub(super) from: LinkId,
    pub(super) packet: Packet,
    pub(super) verdict: Option<(Verdict, Passed)>,
    pub(super) made: Vec<(Emission, Vec<u8>)>,
}

impl SwitchCores {
    /// A processor without packets.
    pub fn new(spec: CoresSpec) -> SwitchCores {
        SwitchCores { processor: Processor::new(spec.shape), spec, packets: Vec::new(), free: Vec::new() }
    }

    /// The next time at which something happens.
    pub fn next_time(&self) -> Option<Time> {
        self.processor.next_time().map(Time)
    }

    /// The counts, in picoseconds.
    pub fn counters(&self) -> &Counters {
        self.processor.counters()
    }

    /// The processor.
    pub fn processor(&self) -> &Processor {
        &self.processor
    }

    /// The common properties of all switches' processors.
    pub fn spec(&self) -> &CoresSpec {
        &self.spec
    }

    pub(super) fn keep(&mut self, packet: InProcessor) -> u32 {
        match self.free.pop() {
            Some(tag) => {
                self.packets[tag as usize] = Some(packet);
                tag
            }
            None => {
                self.packets.push(Some(packet));
                self.packets.len() as u32 - 1
            }
        }
    }

    pub(super) fn take(&mut self, tag: u32) -> Option<InProcessor> {
        self.free.push(tag);
<<<<<<< HEAD
        self.held[tag as usize].take()
    }
}

impl SwitchNode {
    /// A packet arrives at the processor.
    pub(super) fn arrive(
        &mut self,
        fabric: &mut Fabric,
        table: &Table,
        from: LinkId,
        mut packet: Packet,
        scratch: &mut Scratch,
    ) {
        self.run_cores(fabric, table, scratch);
        let Some(mut cores) = self.cores.take() else { return };
        let now = fabric.now.0;
        let ingress = PortId(fabric.link(from).to_port);
        let lane = usize::from(packet.lane);
        let (bytes, _) = fabric.payloads.get(packet.payload);
        let job = Common::parse(bytes).map_or(JobId(0), |common| common.job);
        let (owner, claim) = self.pipelines[lane].claim(ingress, bytes);
        let cycle = cores.spec.cycle as f64;
        let start = cores.spec.prices.get(&job).map_or(0.0, |prices| prices.begin(claim.needs));
        if cores.spec.mark_above.is_some_and(|most| cores.counters().input_bytes.value() > most) {
            cores.processor.count_mark(packet.flags.mark());
        }
        let room = !cores.spec.pauses || fabric.enter_switch(from, packet.bytes);
        let tag = cores.keep(Held { from, packet, verdict: None, made: Vec::new() });
        let arrival = cores::Packet {
            owner: u32::from(packet.lane) << 16 | u32::from(owner.0),
            needs: claim.needs,
            start: (start * cycle).round() as u64,
            tag,
            ..cores::Packet::new(claim.block, ingress.0.into(), packet.bytes.into())
        };
        let SwitchCores { spec, processor, held, .. } = &mut *cores;
        let node = self.forwarding.node;
        let mut caller = Caller { pipelines: &mut self.pipelines, node, fabric, scratch, spec, held };
        if !room || processor.arrive(now, arrival, &mut caller).is_err() {
            cores.take(tag);
            fabric.lose_in_switch(from, &packet);
        }
        self.cores = Some(cores);
    }

    /// Ends the steps that end by now, and sends the packets that follow.
    pub(super) fn run_cores(&mut self, fabric: &mut Fabric, table: &Table, scratch: &mut Scratch) {
        let Some(mut cores) = self.cores.take() else { return };
        let now = fabric.now.0;
        while cores.processor.next_time().is_some_and(|next| next <= now) {
            let SwitchCores { spec, processor, held, .. } = &mut *cores;
            let node = self.forwarding.node;
            let mut caller = Caller { pipelines: &mut self.pipelines, node, fabric, scratch, spec, held };
            for finished in processor.advance(now, &mut caller) {
                let tag = finished.packet.tag;
                if cores.spec.pauses
                    && let Some(held) = &cores.held[tag as usize]
                {
                    fabric.leave_switch(held.from, held.packet.bytes);
                }
                if !finished.completes {
                    let held = cores.take(tag);
                    self.leave(fabric, table, held);
                }
                if let Some(tag) = finished.sent {
                    let held = cores.take(tag);
                    self.leave(fabric, table, held);
                }
            }
        }
        self.cores = Some(cores);
    }

    fn leave(&mut self, fabric: &mut Fabric, table: &Table, held: Option<Held>) {
        let Some(Held { from, packet, verdict, made }) = held else { return };
        match verdict {
            Some((verdict, passed)) => self.carry_out(fabric, table, (from, packet), verdict, passed),
            None => fabric.payloads.release(packet.payload),
        }
        for (emission, bytes) in made {
            self.emit(fabric, table, packet.lane, &emission, &bytes);
        }
    }

    /// The switch dies: its processor loses all packets.
    pub(super) fn clear_cores(&mut self, fabric: &mut Fabric) {
        if let Some(cores) = &mut self.cores {
            for held in cores.held.iter().flatten() {
                if cores.spec.pauses {
                    fabric.leave_switch(held.from, held.packet.bytes);
                }
                fabric.payloads.release(held.packet.payload);
            }
            **cores = SwitchCores::new(cores.spec.clone());
        }
    }
}

/// Calls the switch's machines for handlers.
struct Caller<'a> {
    pipelines: &'a mut [Pipeline],
    node: NodeId,
    fabric: &'a mut Fabric,
    scratch: &'a mut Scratch,
    spec: &'a CoresSpec,
    held: &'a mut [Option<Held>],
}

impl Machine for Caller<'_> {
    fn call(&mut self, _now: u64, packet: &cores::Packet, buffer: u32) -> Called {
        let Caller { pipelines, node, fabric, scratch, spec, held } = self;
        let Some(held) = held[packet.tag as usize].as_mut() else { return Called::default() };
        let pipeline = &mut pipelines[usize::from(held.packet.lane)];
        let (bytes, _) = fabric.payloads.get(held.packet.payload);
        let job = Common::parse(bytes).map_or(JobId(0), |common| common.job);
        let mut call = Call { node: *node, fabric, scratch, held, fresh: true };
        drive::switch::receive(pipeline, &mut call);
        let work = pipeline.take_work(job).unwrap_or_default();
        let prices = spec.prices.get(&job);
        prices.map_or_else(Called::default, |prices| prices.called(packet.needs, buffer, &work, spec.cycle))
    }
}

/// The surroundings of one packet while the machine has it; the packets that follow are kept here.
struct Call<'a> {
    node: NodeId,
    fabric: &'a mut Fabric,
    scratch: &'a mut Scratch,
    held: &'a mut Held,
    fresh: bool,
}

impl SwitchIo for Call<'_> {
    type Ports<'a>
        = Queues<'a>
    where
        Self: 'a;

    fn now(&self) -> Time {
        self.fabric.now
    }

    fn receive(&mut self) -> Option<Arrival<'_, Queues<'_>>> {
        if !std::mem::take(&mut self.fresh) {
            return None;
        }
        let packet = &mut self.held.packet;
        packet.payload = self.fabric.payloads.make_unique(packet.payload);
        let ingress = PortId(self.fabric.link(self.held.from).to_port);
        let (payloads, ports) = self.fabric.payloads_and_queues(self.node);
        let (bytes, wire_len) = payloads.get_mut(packet.payload);
        let len = bytes.len();
        Some(Arrival { ingress, packet: PacketMut { bytes, len, wire_len, ecn: packet.flags.ecn() }, ports })
    }

    fn carry_out(&mut self, verdict: Verdict, passed: Passed) {
        self.held.verdict = Some((verdict, passed));
    }

    fn transmit_buf(&mut self) -> &mut [u8] {
        self.scratch
    }

    fn send(&mut self, emission: Emission) {
        let bytes = self.scratch[..emission.len].to_vec();
        self.held.made.push((emission, bytes));
=======
        self.packets[tag as usize].take()
>>>>>>> main
    }
}
