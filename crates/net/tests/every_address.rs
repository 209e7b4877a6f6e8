//! A switch that listens at every address of a machine with several.

use std::thread;
use std::time::Duration;

use tributary_net::group::{ConnectOptions, Group};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::protocols;

#[test]
fn a_switch_at_every_address_answers_each_worker_from_the_one_that_it_called() {
    let options = SwitchOptions { shards: 2, ..SwitchOptions::new("0.0.0.0:0".parse().unwrap()) };
    let switch = RunningSwitch::start(&options).unwrap();
    let port = switch.listen_addr().port();
    // All of 127.0.0.0/8 is this machine, and routes to it name 127.0.0.1.
    let sums = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].into_iter().enumerate().map(|(rank, ip)| {
        let options = ConnectOptions {
            switch: format!("{ip}:{port}"),
            job: "everywhere".into(),
            rank: rank as u16,
            world_size: 3,
            timeout: Duration::from_secs(20),
            protocol: protocols::named("switchml").unwrap(),
            options: protocols::named("switchml").unwrap().options.defaults(),
            elements_per_packet: Some(256),
            slots: None,
            trees: None,
            cores: None,
        };
        thread::spawn(move || {
            let mut data = vec![1 << rank; 100_000];
            let group = Group::connect(&options).unwrap();
            group.allreduce_in_place(&mut data, ReduceOp::Sum, options.timeout).unwrap();
            assert!(data.iter().all(|&sum| sum == 0b111));
        })
    });
    let sums: Vec<_> = sums.collect();
    sums.into_iter().for_each(|sum| sum.join().unwrap());
}
