//! Gives fresh machines what recorded ones were given, and compares what they make.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::drive;
use tributary_proto::contract::drive::record::{HostRecorder, SwitchRecorder};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::packet::{Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::NoQueues;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::recorded::tape::{
    At, HostInput, HostTape, HostTurn, Passage, SwitchInput, SwitchMade, SwitchTape, outcome_of,
};

/// A fresh host makes what the recorded one has made, turn by turn.
pub fn host(protocol: &Protocol, tape: &HostTape) {
    if let Some(difference) = difference(protocol, tape) {
        panic!("{protocol}, rank {}: {difference}", tape.config.rank);
    }
}

/// Where a fresh host goes another way than the recorded one, if it does.
pub fn difference(protocol: &Protocol, tape: &HostTape) -> Option<String> {
    let mut host = protocol.host(Values::Elements, &tape.config);
    let mut recorder = HostRecorder::default();
    for (number, turn) in tape.turns.iter().enumerate() {
        give(&mut *host, &mut recorder, turn);
        let due = recorder.drain(&mut *host, turn.drained_at);
        let (sent, events) = (std::mem::take(&mut recorder.sent), std::mem::take(&mut recorder.events));
        let outcomes: Vec<_> = events.iter().map(outcome_of).collect();
        let differs =
            [(sent != turn.sent, "packets"), (outcomes != turn.outcomes, "results"), (due != turn.due, "a timer")];
        if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
            let (count, real) = (sent.len(), turn.sent.len());
            return Some(format!("other {what} in turn {number}: {count} packets, and {real} in the record"));
        }
    }
    None
}

/// The inputs of a turn. Packets of one time were one batch, or are as good as one.
fn give(host: &mut dyn Host, recorder: &mut HostRecorder, turn: &HostTurn) {
    for inputs in turn.inputs.chunk_by(|a, b| a.now == b.now && is_packet(a) && is_packet(b)) {
        let now = inputs[0].now;
        match &inputs[0].what {
            HostInput::Packet { .. } => {
                let packet = |at: &'_ At| match &at.what {
                    HostInput::Packet { from, bytes, ecn } => Some((*from, bytes.clone(), *ecn)),
                    _ => None,
                };
                let packets: Vec<_> = inputs.iter().filter_map(packet).collect();
                let mut burst = packets
                    .iter()
                    .map(|(from, bytes, ecn)| (*from, Packet { bytes, wire_len: bytes.len(), ecn: *ecn }));
                recorder.burst(host, now, &mut burst);
            }
            HostInput::Submission { input, dtype, op, deadline } => {
                let tensor = tensor(input, *dtype, *op);
                // If it fails, the events differ.
                let _ = host.submit(now, Collective { tensor, deadline: *deadline });
            }
            // One that is not due is another timer than the recorded one, and that turn has told so.
            HostInput::Timeout => {
                drive::host::handle_timeout(host, now);
            }
            HostInput::Abortion => host.abort(now),
            HostInput::End => host.finish(now),
            HostInput::Nothing => {}
        }
    }
}

fn is_packet(at: &At) -> bool {
    matches!(at.what, HostInput::Packet { .. })
}

/// The tensor with these bytes.
fn tensor(bytes: &[u8], dtype: DType, op: ReduceOp) -> Box<dyn Tensor> {
    let words = bytes.chunks_exact(4).map(|word| -> [u8; 4] { word.try_into().expect("four bytes") });
    match dtype {
        DType::I32 => Box::new(ElementTensor::new(InPlaceStorage::new(words.map(i32::from_be_bytes).collect()), op)),
        DType::F32 => {
            Box::new(ElementTensor::new(InPlaceStorage::new(words.map(f32::from_be_bytes).collect::<Vec<f32>>()), op))
        }
        other => panic!("nobody has summed {other}"),
    }
}

/// A fresh switch passes the same packets, and makes the same of its own, turn by turn.
pub fn switch(protocol: &'static Protocol, tape: &SwitchTape) {
    let mut pipeline = pipeline(protocol, tape);
    let mut recorder = SwitchRecorder::default();
    for (number, turn) in tape.turns.iter().enumerate() {
        match &turn.input {
            SwitchInput::Added(plan) => {
                pipeline.install_shared(plan, plan.ports.iter().copied().flatten().collect());
                continue;
            }
            SwitchInput::Removed(job) => {
                pipeline.remove(*job);
                continue;
            }
            SwitchInput::Burst(packets) => pass(protocol, &mut pipeline, &mut recorder, turn.now, packets),
            SwitchInput::Timeout => recorder.timeout(&mut pipeline, turn.now),
            SwitchInput::Nothing => recorder.transmit(&mut pipeline, turn.now),
        }
        assert!(recorder.take() == turn.made, "{protocol}: the switch makes other packets of its own in turn {number}");
        assert_eq!(pipeline.poll_timeout(), turn.due, "{protocol}: the switch's timer after turn {number}");
    }
}

fn pipeline(protocol: &'static Protocol, tape: &SwitchTape) -> Pipeline {
    let mut pipeline = Pipeline::default();
    match &tape.made {
        SwitchMade::Shared(config) => {
            let machine = protocol.shared_switch(Values::Elements, config).expect("the record has one");
            pipeline.share(protocol.code, machine);
        }
        SwitchMade::Own(config) => {
            let machine = protocol.switch(Values::Elements, config);
            let (key, members, others) = (config.job.key, config.members.clone(), Vec::new());
            let job = InstalledJob { protocol: protocol.code, key, members, others, machine };
            pipeline.install(config.job.job, job);
        }
    }
    pipeline
}

/// The packets of one batch: each gets the verdict that it got then, and leaves as it left then.
fn pass(protocol: &Protocol, pipeline: &mut Pipeline, recorder: &mut SwitchRecorder, now: Time, packets: &[Passage]) {
    let mut bytes: Vec<Vec<u8>> = packets.iter().map(|passage| passage.came.clone()).collect();
    let marks = packets.iter().map(|passage| passage.came_with);
    let mut passing: Vec<PacketMut<'_>> =
        bytes.iter_mut().zip(marks).map(|(bytes, ecn): (_, Ecn)| PacketMut::new(bytes, ecn)).collect();
    let mut burst = packets.iter().map(|passage| passage.ingress).zip(&mut passing);
    let mut verdicts = Vec::new();
    recorder.burst(pipeline, now, &mut burst, &NoQueues, &mut |verdict| verdicts.push(verdict));
    for ((passage, verdict), packet) in packets.iter().zip(verdicts).zip(&passing) {
        assert_eq!(verdict, passage.verdict, "{protocol}: the switch decides otherwise");
        let left = (&packet.bytes[..packet.len], packet.ecn);
        assert!(left == (&passage.left[..], passage.left_with), "{protocol}: a packet leaves with other bytes");
    }
}
