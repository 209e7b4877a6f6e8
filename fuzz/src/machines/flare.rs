//! Flare: its header, a switch with or without a parent, and a worker; of dense tensors and of sparse ones.

use tributary_proto::contract::config::FabricPlan;
use tributary_proto::contract::ids::{Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn};
use tributary_proto::contract::wire::COMMON_LEN;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::wire::{HEADER_LEN, Header};

use super::{Subject, Timers, drive_host, drive_switch, two_collectives};

/// What is read can be written back, to the same bytes. The bodies are other protocols' too, and tried there.
pub fn wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    again[COMMON_LEN..HEADER_LEN].fill(0xAA);
    header.emit(&mut again);
    // Reserved, and not read.
    again[34..36].copy_from_slice(&bytes[34..36]);
    assert_eq!(again, bytes);
}

/// A switch with a job and a parent gets any packets from anywhere.
pub fn pipeline(bytes: &[u8]) {
    drive_switch(&Subject::of(&PROTOCOL), Ecn::NotCapable, bytes, |packet| Header::parse(packet).is_ok());
}

/// A worker in the middle of two collectives gets any packets from anywhere.
pub fn host(bytes: &[u8]) {
    let from = |sender| if sender == 127 { Addr::Worker(Rank(1)) } else { Addr::Switch(TreeId(0)) };
    let readable = |packet: &[u8]| Header::parse(packet).is_ok();
    drive_host(&Subject::of(&PROTOCOL), FabricPlan::default(), two_collectives(), bytes, Timers::End, from, readable);
}

/// Sparse tensors: packets of other kinds, and other machines.
pub mod sparse {
    use tributary_numeric::ReduceOp;
    use tributary_proto::contract::config::JobConfig;
    use tributary_proto::contract::host::Collective;
    use tributary_proto::contract::time::{Span, Time};
    use tributary_proto::flare::sparse::wire::{HEADER_LEN, Header, Kind};
    use tributary_proto::tensors::SparseElements;

    use super::super::job;
    use super::{Addr, COMMON_LEN, Ecn, FabricPlan, PROTOCOL, Rank, Subject, Timers, TreeId, drive_host, drive_switch};

    /// Blocks of several packets, in tables that spill.
    fn subject(storage: &str) -> Subject {
        let chosen = [("sparse", storage), ("span", "20"), ("hash_slots", "4"), ("spill", "2")];
        let chosen = chosen.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        let options = PROTOCOL.options.read(&chosen).expect("they are options");
        Subject { protocol: &PROTOCOL, job: JobConfig { options, ..job(&PROTOCOL) }, first_kind: Kind::ALL[0] as u8 }
    }

    fn readable(packet: &[u8]) -> bool {
        Kind::of(packet).is_ok() && Header::parse(packet).is_ok()
    }

    /// What is read can be written back, to the same bytes.
    pub fn wire(bytes: &[u8]) {
        let Ok(header) = Header::parse(bytes) else { return };
        let mut again = bytes.to_vec();
        again[COMMON_LEN..HEADER_LEN].fill(0xAA);
        header.emit(&mut again);
        assert_eq!(again, bytes);
    }

    /// A switch with a job and a parent gets any packets from anywhere, with hash tables and with arrays.
    pub fn pipeline(bytes: &[u8]) {
        for storage in ["hash", "array"] {
            drive_switch(&subject(storage), Ecn::NotCapable, bytes, readable);
        }
    }

    /// A worker in the middle of two collectives gets any packets from anywhere.
    pub fn host(bytes: &[u8]) {
        let from = |sender| if sender == 127 { Addr::Worker(Rank(1)) } else { Addr::Switch(TreeId(0)) };
        let deadline = Some(Time::ZERO + Span::from_millis(50));
        let indices: Vec<i64> = (0..25).map(|index| index * 2).collect();
        let floats = SparseElements::new(&indices, vec![1.5f32; 25], 50, ReduceOp::Avg).expect("they ascend");
        let integers = SparseElements::new(&[3], vec![-3i32], 9, ReduceOp::Sum).expect("it is there");
        let collectives = vec![
            Collective { tensor: Box::new(floats), deadline },
            Collective { tensor: Box::new(integers), deadline },
        ];
        drive_host(&subject("auto"), FabricPlan::default(), collectives, bytes, Timers::End, from, readable);
    }
}
