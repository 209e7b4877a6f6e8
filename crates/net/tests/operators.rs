//! Jobs' own operators over real sockets on the loopback interface: on one switch and in levels, agreed on when a job is joined,
//! and alone in their failure.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tributary_net::group::{ConnectError, ConnectOptions, Group, GroupError};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_operators::{Allowed, Sandbox, reduce, source};
use tributary_proto::contract::custom_op::CustomOp;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::protocols;

/// No test waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
const OWN: ReduceOp = ReduceOp::Custom(0);

fn protocol() -> &'static Protocol {
    protocols::ALL.iter().copied().find(|protocol| protocol.options.custom_ops.is_some()).expect("one takes operators")
}

fn options() -> SwitchOptions {
    SwitchOptions { shards: 2, ..SwitchOptions::new("127.0.0.1:0".parse().unwrap()) }
}

fn switch(parent: Option<&RunningSwitch>) -> RunningSwitch {
    RunningSwitch::start(&SwitchOptions { parent: parent.map(RunningSwitch::listen_addr), ..options() }).unwrap()
}

fn operator(source_name: &str) -> Arc<dyn CustomOp> {
    Arc::new(source::operator(&Sandbox::new(), source_name, None).unwrap())
}

/// The operator that this WAT is, whose elements are words of 32 bits; `$a` and `$b` are in, and `$a` comes out.
fn words(body: &str) -> Arc<dyn CustomOp> {
    let module = source::from_wat(&format!(
        "(module (memory (export \"memory\") 1)
         (global (export \"tributary_abi\") i32 (i32.const 1)) (global (export \"element_size\") i32 (i32.const 4))
         (func (export \"combine\") (param $acc i32) (param $with i32) (param $n i32) (local $a i32) (local $b i32)
           (block $end (loop $each (br_if $end (i32.eqz (local.get $n)))
             (local.set $a (i32.load (local.get $acc))) (local.set $b (i32.load (local.get $with)))
             {body}
             (i32.store (local.get $acc) (local.get $a))
             (local.set $acc (i32.add (local.get $acc) (i32.const 4)))
             (local.set $with (i32.add (local.get $with) (i32.const 4)))
             (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $each)))))"
    ));
    Arc::new(Sandbox::new().load(&module.unwrap()).unwrap())
}

fn join(
    switch: SocketAddr,
    job: &str,
    rank: u16,
    world_size: u16,
    operator: &Arc<dyn CustomOp>,
) -> Result<Group, ConnectError> {
    let operators = [Arc::clone(operator)];
    let given = protocol().options.with_custom_ops(&BTreeMap::new(), &operators).expect("it takes operators");
    let options = protocol().options.read(&given).unwrap().provided(&operators);
    Group::connect(&ConnectOptions {
        switch: switch.to_string(),
        job: job.to_owned(),
        rank,
        world_size,
        timeout: Duration::from_secs(10),
        protocol: protocol(),
        options,
        elements_per_packet: None,
        slots: None,
        trees: None,
        cores: None,
    })
}

/// Runs every rank on a thread; `switches[rank]` is the switch that it names.
fn on_ranks<T: Send>(
    switches: &[&RunningSwitch],
    job: &str,
    operator: impl Fn(u16) -> Arc<dyn CustomOp> + Sync,
    work: impl Fn(Result<Group, ConnectError>, u16) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let rank = |(rank, switch): (usize, &&RunningSwitch)| {
            let (address, operator, work) = (switch.listen_addr(), &operator, &work);
            let (rank, world_size) = (rank as u16, switches.len() as u16);
            scope.spawn(move || work(join(address, job, rank, world_size, &operator(rank)), rank))
        };
        let threads: Vec<_> = switches.iter().enumerate().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    })
}

/// Elements of a rank: special floats among them.
fn input(rank: u16, bytes: usize) -> Vec<u8> {
    let value = |i: usize| {
        let value = ((i * 7 + usize::from(rank) * 31) % 97) as f32 / 8.0 - 5.0;
        if i.is_multiple_of(41) { f32::NAN } else { value }
    };
    (0..bytes / 4).flat_map(|i| value(i).to_le_bytes()).collect()
}

fn reduced(group: &Group, mut data: Vec<u8>) -> Result<Vec<u8>, GroupError> {
    group.allreduce_in_place(&mut data, OWN, PATIENCE).map(|()| data)
}

#[test]
fn every_operator_gives_what_the_same_module_gives_at_home_on_one_switch_and_in_levels() {
    let (root, alone) = (switch(None), switch(None));
    let (left, right) = (switch(Some(&root)), switch(Some(&root)));
    for name in ["maxloc", "matrix-2x2", "xor", "int4x2"] {
        let operator = operator(name);
        // More than a packet, and no whole number of packets.
        let bytes = operator.element_size() * 5_003 / 4 * 4;
        let inputs: Vec<Vec<u8>> = (0..4).map(|rank| input(rank, bytes)).collect();
        let vectors: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let expected = reduce(&*operator, &vectors, &SumTree::star(4)).unwrap().unwrap();
        for (job, switches) in [("one", [&alone; 4]), ("levels", [&left, &right, &left, &right])] {
            let job = format!("{name}-{job}");
            let results = on_ranks(
                &switches,
                &job,
                |_| Arc::clone(&operator),
                |group, rank| reduced(&group.unwrap(), inputs[usize::from(rank)].clone()).unwrap(),
            );
            assert!(results.iter().all(|result| *result == expected), "{job}");
        }
    }
}

#[test]
fn ranks_with_different_operators_learn_who_differs() {
    let switch = switch(None);
    let (xor, maxloc) = (operator("xor"), operator("int4x2"));
    let choose = |rank| if rank == 1 { Arc::clone(&maxloc) } else { Arc::clone(&xor) };
    let errors = on_ranks(&[&switch; 3], "differ", choose, |group, _| group.err().map(|error| error.to_string()));
    let [one, other] = [&xor, &maxloc].map(|operator| operator.hash().to_string());
    let named = errors.iter().flatten().filter(|error| error.contains(&one) && error.contains(&other)).count();
    assert!(named >= 2, "{errors:?}");
}

#[test]
fn an_operator_that_fails_ends_its_own_job_with_a_sentence_and_no_other() {
    let root = switch(None);
    let (left, right) = (switch(Some(&root)), switch(Some(&root)));
    let trap = words("(if (i32.eq (local.get $a) (i32.const 77777)) (then unreachable))");
    let endless = words("(loop $again (br_if $again (i32.eq (local.get $a) (i32.const 77777))))");
    let xor = operator("xor");
    let expected = {
        let inputs: Vec<Vec<u8>> = (0..2).map(|rank| input(rank, 80_000)).collect();
        let vectors: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        reduce(&*xor, &vectors, &SumTree::star(2)).unwrap().unwrap()
    };
    thread::scope(|scope| {
        let (left, right, xor, expected) = (&left, &right, &xor, &expected);
        // Another job sums on the same switches meanwhile.
        let others = scope.spawn(move || {
            on_ranks(
                &[left, right],
                "others",
                |_| Arc::clone(xor),
                |group, rank| {
                    let group = group.unwrap();
                    (0..60).all(|_| reduced(&group, input(rank, 80_000)).unwrap() == *expected)
                },
            )
        });
        for (name, operator, what) in [("trap", &trap, "has trapped"), ("endless", &endless, "did not end within")] {
            // Ranks of both racks are told, though only the left one's switch sees the words that it cannot bear.
            let errors = on_ranks(
                &[left, left, right],
                name,
                |_| Arc::clone(operator),
                |group, rank| {
                    let group = group.unwrap();
                    let fine = reduced(&group, vec![0; 4_000]);
                    assert!(fine.is_ok(), "{fine:?}");
                    let word = if rank == 0 { 77_777i32 } else { 1 };
                    reduced(&group, word.to_le_bytes().repeat(1_000)).unwrap_err().to_string()
                },
            );
            for error in &errors {
                let named = error.contains("the operator operator (SHA-256 ") && error.contains(what);
                assert!(named && error.contains("at the switch 127.0.0.1:"), "{name}: {error}");
            }
        }
        assert_eq!(others.join().unwrap(), [true, true]);
    });
}

#[test]
fn a_switch_that_serves_no_operators_says_so() {
    let none = RunningSwitch::start(&SwitchOptions { operators: Allowed::None, ..options() }).unwrap();
    let error = join(none.listen_addr(), "none", 0, 1, &operator("xor")).err().unwrap().to_string();
    assert!(error.contains("serves no operators of jobs' own"), "{error}");
    let xor = operator("xor");
    let listed = SwitchOptions { operators: Allowed::Listed(vec![xor.hash()]), ..options() };
    let listed = RunningSwitch::start(&listed).unwrap();
    assert!(join(listed.listen_addr(), "listed", 0, 1, &xor).is_ok());
    let error = join(listed.listen_addr(), "other", 0, 1, &operator("maxloc")).err().unwrap().to_string();
    assert!(error.contains("serves listed operators"), "{error}");
}

#[test]
fn the_switchs_status_names_a_jobs_operators() {
    let switch = RunningSwitch::start(&options()).unwrap();
    let xor = operator("xor");
    let group = join(switch.listen_addr(), "named", 0, 1, &xor).unwrap();
    let status = tributary_net::client::status(switch.listen_addr()).unwrap();
    let named: Vec<(&str, String)> =
        status.jobs[0].operators.iter().map(|operator| (operator.name.as_str(), operator.sha256.clone())).collect();
    assert_eq!(named, [("xor", xor.hash().to_string())]);
    group.close();
}
