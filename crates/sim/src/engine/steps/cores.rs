//! A switch whose handlers run on cores: packets wait, are handled for as long as their work takes, and leave when the
//! work is done.
//!
//! A machine's call is atomic, as everywhere. It is made when the packet's handler has what it needs of its block, and
//! the packets that follow from it leave when the handler has spent the time that they cost. Packets that a timer sends
//! cost nothing.

use tributary_proto::contract::drive;
use tributary_proto::contract::drive::switch::{Arrival, Passed, SwitchIo};
use tributary_proto::contract::ids::{JobId, NodeId, PortId};
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{Emission, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;

use crate::cores;
use crate::cores::steps::{Called, Machine};
use crate::engine::cores::{CoresSpec, InProcessor, SwitchCores};
use crate::engine::records::Scratch;
use crate::engine::simulation::Simulation;
use crate::engine::switch::SwitchNode;
use crate::net::{Fabric, Packet, Queues};
use crate::routing::Table;
use crate::topology::LinkId;

impl Simulation {
    /// Makes the machines of all switches run on cores, once all jobs are installed. An error is half a sentence about
    /// a job.
    pub fn set_cores(&mut self, spec: &CoresSpec) -> Result<(), (JobId, String)> {
        for switch in &mut self.switches {
            switch.cores = Some(Box::new(SwitchCores::new(spec.clone())));
        }
        for program in &self.programs.trees {
            let switch = &mut self.switches[program.switch as usize];
            check_counts(switch, JobId(program.job().0 + 1))?;
        }
        let shared = self.traffic.jobs.all().iter().filter(|job| job.plan.protocol.shared.is_some());
        for job in shared.map(|job| JobId(job.index.0 + 1)) {
            self.switches.iter_mut().try_for_each(|switch| check_counts(switch, job))?;
        }
        Ok(())
    }

    /// The processors of switches, with the switches' numbers.
    pub fn cores(&self) -> impl Iterator<Item = (u32, &SwitchCores)> + '_ {
        self.switches.iter().filter_map(|switch| Some((switch.forwarding.index, switch.cores()?)))
    }
}

/// Refuses machines that do not count their work, because they cannot be given time for it.
fn check_counts(switch: &mut SwitchNode, job: JobId) -> Result<(), (JobId, String)> {
    let counts = |pipeline: &mut Pipeline| pipeline.report(job).is_none() || pipeline.take_work(job).is_some();
    match switch.pipelines.iter_mut().all(counts) {
        true => Ok(()),
        false => {
            Err((job, "its machines do not count what they do, so that it cannot be known how long it takes".into()))
        }
    }
}

impl SwitchNode {
    /// A packet arrives at the processor.
    pub(in crate::engine) fn arrive(
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
        let fits = !cores.spec.pauses || fabric.enter_switch(from, packet.bytes);
        let tag = cores.keep(InProcessor { from, packet, verdict: None, made: Vec::new() });
        let arrival = cores::Packet {
            owner: u32::from(packet.lane) << 16 | u32::from(owner.0),
            needs: claim.needs,
            start: (start * cycle).round() as u64,
            tag,
            ..cores::Packet::new(claim.block, ingress.0.into(), packet.bytes.into())
        };
        let SwitchCores { spec, processor, packets, .. } = &mut *cores;
        let node = self.forwarding.node;
        let mut caller = Caller { pipelines: &mut self.pipelines, node, fabric, scratch, spec, packets };
        if !fits || processor.arrive(now, arrival, &mut caller).is_err() {
            cores.take(tag);
            fabric.lose_in_switch(from, &packet);
        }
        self.cores = Some(cores);
    }

    /// Ends the steps that end by now, and sends the packets that follow.
    pub(in crate::engine) fn run_cores(&mut self, fabric: &mut Fabric, table: &Table, scratch: &mut Scratch) {
        let Some(mut cores) = self.cores.take() else { return };
        let now = fabric.now.0;
        while cores.processor.next_time().is_some_and(|next| next <= now) {
            let SwitchCores { spec, processor, packets, .. } = &mut *cores;
            let node = self.forwarding.node;
            let mut caller = Caller { pipelines: &mut self.pipelines, node, fabric, scratch, spec, packets };
            for finished in processor.advance(now, &mut caller) {
                let tag = finished.packet.tag;
                if cores.spec.pauses
                    && let Some(waiting) = &cores.packets[tag as usize]
                {
                    fabric.leave_switch(waiting.from, waiting.packet.bytes);
                }
                if !finished.completes {
                    let waiting = cores.take(tag);
                    self.leave(fabric, table, waiting);
                }
                if let Some(tag) = finished.sent {
                    let waiting = cores.take(tag);
                    self.leave(fabric, table, waiting);
                }
            }
        }
        self.cores = Some(cores);
    }

    fn leave(&mut self, fabric: &mut Fabric, table: &Table, waiting: Option<InProcessor>) {
        let Some(InProcessor { from, packet, verdict, made }) = waiting else { return };
        match verdict {
            Some((verdict, passed)) => self.carry_out(fabric, table, (from, packet), verdict, passed),
            None => fabric.payloads.release(packet.payload),
        }
        for (emission, bytes) in made {
            self.emit(fabric, table, packet.lane, &emission, &bytes);
        }
    }

    /// The switch dies: its processor loses all packets.
    pub(in crate::engine) fn clear_cores(&mut self, fabric: &mut Fabric) {
        if let Some(cores) = &mut self.cores {
            for waiting in cores.packets.iter().flatten() {
                if cores.spec.pauses {
                    fabric.leave_switch(waiting.from, waiting.packet.bytes);
                }
                fabric.payloads.release(waiting.packet.payload);
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
    packets: &'a mut [Option<InProcessor>],
}

impl Machine for Caller<'_> {
    fn call(&mut self, _now: u64, packet: &cores::Packet, buffer: u32) -> Called {
        let Caller { pipelines, node, fabric, scratch, spec, packets } = self;
        let Some(waiting) = packets[packet.tag as usize].as_mut() else { return Called::default() };
        let pipeline = &mut pipelines[usize::from(waiting.packet.lane)];
        let (bytes, _) = fabric.payloads.get(waiting.packet.payload);
        let job = Common::parse(bytes).map_or(JobId(0), |common| common.job);
        let mut call = Call { node: *node, fabric, scratch, waiting, fresh: true };
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
    waiting: &'a mut InProcessor,
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
        let packet = &mut self.waiting.packet;
        packet.payload = self.fabric.payloads.make_unique(packet.payload);
        let ingress = PortId(self.fabric.link(self.waiting.from).to_port);
        let (payloads, ports) = self.fabric.payloads_and_queues(self.node);
        let (bytes, wire_len) = payloads.get_mut(packet.payload);
        let len = bytes.len();
        Some(Arrival { ingress, packet: PacketMut { bytes, len, wire_len, ecn: packet.flags.ecn() }, ports })
    }

    fn carry_out(&mut self, verdict: Verdict, passed: Passed) {
        self.waiting.verdict = Some((verdict, passed));
    }

    fn transmit_buf(&mut self) -> &mut [u8] {
        self.scratch
    }

    fn send(&mut self, emission: Emission) {
        let bytes = self.scratch[..emission.len].to_vec();
        self.waiting.made.push((emission, bytes));
    }
}
