//! Ranks that come: what they are told, and why some are refused.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::slice;
use std::thread;
use std::time::Duration;

use tributary_net::rendezvous::{JoinAnswer, LargeSums, Rendezvous, Standing, SumShare, SwitchRanks};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_net::{challenge, client};
use tributary_proto::contract::ids::{ChildId, JobKey, Rank};

use crate::control_api::setup::{Worker, any_port, eventually, join_all, join_body, post, refused, switch};
use crate::support::last_ended;

#[test]
fn ranks_that_join_get_the_same_answer_and_the_addresses_of_the_others() {
    let switch = RunningSwitch::start(&SwitchOptions { shards: 2, ..SwitchOptions::new(any_port()) }).unwrap();
    let workers: Vec<Worker> = (0..3).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    let answers: Vec<JoinAnswer> = join_all(&workers).into_iter().map(Result::unwrap).collect();
    let peers: Vec<SocketAddr> = workers.iter().map(|worker| worker.udp.local_addr().unwrap()).collect();
    for (rank, answer) in (0..).map(Rank).zip(&answers) {
        assert_eq!(answer, &JoinAnswer { wid: ChildId::of_rank(rank), ..answers[0].clone() });
        assert_eq!(answer.switches, [SwitchRanks { addr: switch.listen_addr(), ranks: vec![0, 1, 2] }]);
        assert_eq!(answer.peers, peers);
        assert_eq!(answer.shards, switch.shard_addrs());
        assert_eq!((answer.slots, answer.elements_per_packet), (64, 360));
    }
    let status = client::status(switch.listen_addr()).unwrap();
    assert_eq!(status.jobs[0].state, "running");
    assert!(status.switch.memory_used_bytes > 0);
    for worker in &workers {
        let (id, key) = (answers[0].job_id, answers[0].key);
        assert_eq!(worker.rendezvous.standing(id, key), Standing::Installed);
        worker.rendezvous.leave(id, key, worker.request.rank, Some(0));
    }
    let after = client::status(switch.listen_addr()).unwrap();
    assert_eq!((after.jobs.len(), after.switch.memory_used_bytes), (0, 0));
    let job = last_ended(&switch);
    assert_eq!((job.name.as_str(), job.end.as_str(), job.client.as_str()), ("a", "left", "127.0.0.1"));
    assert_eq!(workers[0].rendezvous.standing(answers[0].job_id, answers[0].key), Standing::Unknown);
    switch.stop();
}

#[test]
fn ranks_learn_who_did_not_come() {
    let switch = switch();
    let mut workers: Vec<Worker> = (0..2).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    for worker in &mut workers {
        worker.request.timeout = Duration::from_millis(300);
    }
    for answer in join_all(&workers) {
        let sentence = refused(answer);
        assert!(sentence.starts_with("rank 2 of 3 did not come within 0.3 s (job 'a')"), "{sentence}");
    }
    assert_eq!(client::status(switch.listen_addr()).unwrap().jobs, []);
}

#[test]
fn every_rank_learns_who_differs() {
    let switch = switch();
    let workers = [Worker::new(&switch, "a", 0, 3), Worker::new(&switch, "a", 1, 3), Worker::new(&switch, "a", 2, 4)];
    for answer in join_all(&workers) {
        let sentence = refused(answer);
        assert!(sentence.contains("disagree on the world size"), "{sentence}");
    }
}

#[test]
fn a_second_process_for_a_live_rank_is_refused_while_pings_keep_the_first_alive() {
    let switch = switch();
    let first = Worker::new(&switch, "a", 0, 1);
    let answer = first.join().unwrap();
    let second = Worker::new(&switch, "a", 0, 1);
    let sentence = thread::scope(|scope| {
        let second = scope.spawn(|| refused(second.join()));
        while !second.is_finished() {
            first.ping(&answer);
            thread::sleep(Duration::from_millis(50));
        }
        second.join().unwrap()
    });
    let holder = first.udp.local_addr().unwrap();
    assert!(sentence.contains(&format!("rank 0 of job 'a' is taken by a live process at {holder}")), "{sentence}");
    assert_eq!(first.rendezvous.standing(answer.job_id, answer.key), Standing::Installed);
}

#[test]
fn ranks_that_died_without_a_word_are_succeeded_by_those_that_start_again() {
    let switch = switch();
    let old: Vec<Worker> = (0..2).map(|rank| Worker::new(&switch, "a", rank, 2)).collect();
    let dead = join_all(&old).remove(0).unwrap();
    let new: Vec<Worker> = (0..2).map(|rank| Worker::new(&switch, "a", rank, 2)).collect();
    let alive = join_all(&new).remove(1).unwrap();
    assert_ne!(alive.job_id, dead.job_id);
    assert_eq!(old[0].rendezvous.standing(dead.job_id, dead.key), Standing::Unknown);
    assert_eq!(new[0].rendezvous.standing(alive.job_id, alive.key), Standing::Installed);
}

#[test]
fn a_protocol_that_a_switch_does_not_know_is_refused_with_a_sentence_also_from_a_switch_below() {
    let switch = switch();
    let rank = join_body(0, 2).replace("\"ring\"", "\"carrier-pigeon\"");
    let below = format!(
        r#"{{"wire_version":2,"incarnation":"0000000000000009","question":1,"shards":["127.0.0.1:9000"],"most_slots":64,
        "ranks":[{{"join":{rank},"udp":"127.0.0.1:9001","waited_s":0}}],"switches":[]}}"#
    );
    for (path, body) in [("/jobs/a/join", rank), ("/jobs/a/switches/join", below)] {
        let answer = post(switch.listen_addr(), path, &body);
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
        assert!(answer.contains("this switch knows no protocol 'carrier-pigeon'; it knows switchml, ring"), "{answer}");
    }
    assert!(client::status(switch.listen_addr()).unwrap().jobs.is_empty());
}

#[test]
fn a_process_that_goes_away_while_it_waits_is_not_a_member_any_more() {
    let switch = switch();
    let addr = switch.listen_addr();
    let mut stream = TcpStream::connect(addr).unwrap();
    let udp = UdpSocket::bind(any_port()).unwrap();
    let body = join_body(0, 2).replace("9000", &udp.local_addr().unwrap().port().to_string());
    write!(stream, "POST /jobs/a/join HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let waits = || eventually("the rank waits", || client::status(addr).unwrap().jobs.len() == 1);
    challenge::answering(slice::from_ref(&udp), 0, waits).unwrap();
    let waiting = client::status(addr).unwrap().jobs.remove(0);
    assert_eq!((waiting.state.as_str(), waiting.missing), ("forming", vec![1]));
    drop(stream);
    eventually("the rank is gone", || client::status(addr).unwrap().jobs.is_empty());
}

#[test]
fn a_member_reports_where_its_jobs_large_sums_are_made_and_nobody_else_does() {
    let switch = switch();
    let workers: Vec<Worker> = (0..2).map(|rank| Worker::new(&switch, "a", rank, 2)).collect();
    let answer = join_all(&workers).remove(0).unwrap();
    let shown = || client::status(switch.listen_addr()).unwrap().jobs.remove(0).large_sums;
    assert_eq!(shown(), None);
    let way = SumShare { at: Some(switch.listen_addr().to_string()), share: 1.0, alone_gbps: 0.5, busy: 1.0 };
    let sums = LargeSums { expected_gbps: 0.5, host_link_gbps: 1.0, ways: vec![way] };
    let rendezvous = &workers[0].rendezvous;
    rendezvous.report_sums(answer.job_id, answer.key, &sums);
    assert_eq!(shown(), Some(sums.clone()));

    rendezvous.report_sums(answer.job_id, JobKey(!answer.key.0), &LargeSums { expected_gbps: 9.0, ..sums.clone() });
    // A name that moves the cursor of whoever reads the table.
    let mut wrong = sums.clone();
    wrong.ways[0].at = Some("\x1b[2J".to_owned());
    rendezvous.report_sums(answer.job_id, answer.key, &wrong);
    rendezvous.report_sums(
        answer.job_id,
        answer.key,
        &LargeSums { ways: vec![sums.ways[0].clone(); 1_000], ..sums.clone() },
    );
    assert_eq!(shown(), Some(sums));
    switch.stop();
}
