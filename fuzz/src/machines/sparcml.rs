//! SparCML's part: the header of a piece, and a worker that gets anything from anyone, of sparse tensors or of a dense one.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::FabricPlan;
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{COMMON_LEN, Common};
use tributary_proto::sparcml::PROTOCOL;
use tributary_proto::sparcml::wire::{DATA_LEN, Data};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage, SparseElements};

use super::{Subject, Timers, drive_host};

/// What is read can be written back, and reads the same then.
pub fn wire(bytes: &[u8]) {
    if let Ok(data) = Data::parse(bytes) {
        let mut again = [0; DATA_LEN];
        data.emit(&mut again);
        assert_eq!(again[COMMON_LEN..], bytes[COMMON_LEN..DATA_LEN]);
    }
}

/// A worker in the middle of a collective gets any packets from anywhere; then its time runs out. The length says which algorithm,
/// and what tensor.
pub fn host(bytes: &[u8]) {
    const ALGORITHMS: [&str; 3] = ["ssar_recursive_double", "ssar_split_allgather", "dsar_split_allgather"];
    let is_sparse = bytes.len() % 2 == 1;
    let chosen = [("sparse", if is_sparse { "true" } else { "false" }), ("algorithm", ALGORITHMS[bytes.len() / 2 % 3])];
    let chosen = chosen.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let options = PROTOCOL.options.read(&chosen).expect("they are right");
    let mut subject = Subject::of(&PROTOCOL);
    subject.job.options = options;
    let deadline = Some(Time::ZERO + Span::from_millis(50));
    let tensor: Box<dyn Tensor> = match is_sparse {
        true => Box::new(SparseElements::new(&[0, 7, 31], vec![1i32, -2, 3], 50, ReduceOp::Sum).expect("it is sorted")),
        false => Box::new(ElementTensor::new(InPlaceStorage::new(vec![-3i32; 50]), ReduceOp::Sum)),
    };
    let from = |sender: u8| Addr::Worker(Rank(u16::from(sender % 4)));
    let readable = |packet: &[u8]| Common::parse(packet).is_ok();
    let collectives = vec![Collective { tensor, deadline }];
    drive_host(&subject, FabricPlan::default(), collectives, bytes, Timers::GoOn, from, readable);
}
