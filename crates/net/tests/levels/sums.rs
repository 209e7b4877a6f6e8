//! Sums through racks of any size, and what each switch then says of its ranks.

use tributary_net::client;
use tributary_net::group::ConnectOptions;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_proto::contract::seal;
use tributary_proto::protocols;

use crate::levels::setup::{check_sums, integer, jobs, on_ranks, options, reduce, switch, until_empty};
use crate::support::PATIENCE;

#[test]
fn racks_of_any_size_sum_the_same_bits_on_every_rank() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let (a, b) = (&racks[0], &racks[1]);
    check_sums(&[a, b], "one-each");
    check_sums(&[b, a, a, b, a], "mixed");
    check_sums(&[a, a, a], "one-rack-only");
    check_sums(&[&root, a, &root, b], "workers-at-the-root-too");
    until_empty(&[&root, a, b]);
}

#[test]
fn three_levels_and_several_shards_sum_exactly() {
    let with_shards =
        |parent: Option<&RunningSwitch>| RunningSwitch::start(&SwitchOptions { shards: 2, ..options(parent) }).unwrap();
    let root = with_shards(None);
    let (middle, other) = (with_shards(Some(&root)), with_shards(Some(&root)));
    let (a, b) = (with_shards(Some(&middle)), with_shards(Some(&middle)));
    check_sums(&[&a, &b, &other, &a, &b, &middle], "deep");
    until_empty(&[&root, &middle, &other, &a, &b]);
}

/// The switches check each packet and write the checksums of their own; a switch that did not would drop all of them.
#[test]
fn packets_with_a_checksum_of_their_own_pass_one_switch_and_every_level() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let able: Vec<_> = protocols::ALL.iter().filter(|own| own.options.specs.contains(&seal::OPTION)).collect();
    assert!(able.len() > 1);
    for protocol in able {
        for switches in [[Some(&root); 3], [Some(&racks[0]), Some(&racks[1]), Some(&racks[0])]] {
            let sealed = |options: &mut ConnectOptions| {
                let given = [("integrity".to_owned(), "crc32c".to_owned())].into();
                (options.protocol, options.options) = (protocol, protocol.options.read(&given).unwrap());
            };
            let sums = on_ranks(&switches, "sealed", PATIENCE, sealed, |group, rank| {
                reduce(&group.unwrap(), 50_003, |i| integer(usize::from(rank), i))
            });
            let sum = |i| (0..3).fold(0i32, |sum, rank| sum.wrapping_add(integer(rank, i)));
            assert!(sums.iter().all(|sums| sums.iter().copied().eq((0..50_003).map(sum))), "{protocol}");
        }
    }
}

#[test]
fn hosts_that_sum_by_themselves_find_each_other_across_racks() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let switches = [Some(&racks[0]), Some(&racks[1]), Some(&racks[0])];
    let ring = |options: &mut ConnectOptions| {
        options.protocol = protocols::named("ring").unwrap();
        options.options = options.protocol.options.defaults();
    };
    let sums = on_ranks(&switches, "ring", PATIENCE, ring, |group, rank| {
        reduce(&group.unwrap(), 10_000, |i| integer(usize::from(rank), i))
    });
    assert!(sums.iter().all(|sum| sum == &sums[0]));
    assert_eq!(sums[0][7], (0..3).fold(0i32, |sum, rank| sum.wrapping_add(integer(rank, 7))));
}

#[test]
fn a_name_is_used_again_after_its_job_at_once() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    for _ in 0..5 {
        check_sums(&[&racks[0], &racks[1], &racks[1]], "again");
    }
}

#[test]
fn each_switch_reports_the_ranks_below_each() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let switches = [Some(&racks[0]), Some(&racks[1]), Some(&racks[0])];
    let groups = on_ranks(&switches, "shown", PATIENCE, |_| (), |group, _| group.unwrap());
    let status = client::status(racks[0].listen_addr()).unwrap();
    assert_eq!(status.switch.parent, Some(root.listen_addr()));
    assert_eq!(status.jobs[0].members.iter().map(|member| member.rank).collect::<Vec<_>>(), [0, 2]);
    let at_root = jobs(&root).remove(0);
    assert_eq!((at_root.world_size, at_root.members.len()), (3, 0));
    let below: Vec<_> = at_root.switches.iter().map(|switch| (switch.addr, switch.ranks.clone())).collect();
    assert_eq!(below, [(Some(racks[0].listen_addr()), vec![0, 2]), (Some(racks[1].listen_addr()), vec![1])]);
    assert_eq!(at_root.id, status.jobs[0].id, "one id at all levels");
    drop(groups);
}
