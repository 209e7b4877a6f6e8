//! Ranks that bring something else, come late, leave or are not of the group.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use tributary_local::meet::{MeetError, Ranks, meet};
use tributary_local::{Description, Group, Kind, LocalError, Operands, Pending};
use tributary_numeric::{DType, ReduceOp};

use crate::ranks::{PATIENCE, join, lent, name, together};

const BARRIER: Description = Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements: 0 };

fn submit(group: &Group, memory: &mut [u8], description: Description, timeout: Duration) -> Pending {
    let lent = lent(memory);
    let operands = Operands { input: lent, output: lent, kept: 0..description.elements };
    group.submit(description, operands, timeout).unwrap()
}

fn barrier(group: &Group, timeout: Duration) -> Result<(), LocalError> {
    submit(group, &mut [], BARRIER, timeout).wait(PATIENCE).expect("it ends")
}

#[test]
fn ranks_that_disagree_all_learn_who_brings_what_and_nothing_goes_on() {
    for (first, other) in [(5, 6), (5, 500_000), (700_000, 700_001)] {
        together(4, move |group| {
            barrier(group, PATIENCE).unwrap();
            let elements = [first, 7, other, first][group.rank()];
            let mut memory = vec![1; 4 * elements];
            let description = Description { elements, ..BARRIER };
            let error = submit(group, &mut memory, description, PATIENCE).wait(PATIENCE).unwrap().unwrap_err();
            let LocalError::Mismatch { sentence, .. } = &error else { panic!("{error}") };
            let alike = format!("ranks 0, 3 bring sum of {first} i32 elements");
            let all =
                format!("{alike}; rank 1 brings sum of 7 i32 elements; rank 2 brings sum of {other} i32 elements");
            assert!(sentence.ends_with(&all), "{sentence}");
            let later = barrier(group, PATIENCE).unwrap_err();
            assert!(later.to_string().contains("an earlier collective failed (ranks disagree"), "{later}");
        });
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_and_learns_it_when_it_comes() {
    let gate = std::sync::Barrier::new(3);
    together(3, |group| {
        barrier(group, PATIENCE).unwrap();
        let error = if group.rank() == 1 {
            gate.wait();
            // The others had brought theirs before they gave up.
            barrier(group, PATIENCE).unwrap();
            barrier(group, PATIENCE).unwrap_err()
        } else {
            let error = barrier(group, Duration::from_millis(100)).unwrap_err();
            gate.wait();
            error
        };
        let LocalError::TimedOut { sentence, missing } = error else { panic!("{error}") };
        assert_eq!(missing, [1], "{sentence}");
    });
}

#[test]
fn a_rank_that_leaves_is_named_and_what_it_has_brought_before_counts() {
    let name = name();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let group = join(&name, 1, 2);
            barrier(&group, PATIENCE).unwrap();
        });
        let group = join(&name, 0, 2);
        barrier(&group, PATIENCE).unwrap();
        let error = barrier(&group, PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "rank 1 has left the job");
    });
}

#[test]
fn a_wait_that_is_shorter_than_the_collective_leaves_it_under_way() {
    let gate = std::sync::Barrier::new(2);
    together(2, |group| {
        if group.rank() == 1 {
            gate.wait();
            return barrier(group, PATIENCE).unwrap();
        }
        let pending = submit(group, &mut [], BARRIER, PATIENCE);
        assert_eq!(pending.wait(Duration::from_millis(10)), None);
        gate.wait();
        assert_eq!(pending.wait(PATIENCE), Some(Ok(())));
    });
}

#[test]
fn closing_ends_what_is_under_way() {
    together(2, |group| {
        barrier(group, PATIENCE).unwrap();
        if group.rank() == 1 {
            return;
        }
        let pending = submit(group, &mut [], BARRIER, PATIENCE);
        group.go_on().unwrap();
        group.close();
        assert!(pending.wait(PATIENCE).unwrap().is_err());
        assert!(barrier(group, PATIENCE).is_err());
    });
}

#[test]
fn a_visitor_that_is_not_of_the_group_gets_nothing_and_disturbs_nobody() {
    let name = name();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| join(&name, 0, 2));
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let visitor = loop {
            match UnixStream::connect_addr(&address) {
                Ok(stream) => break stream,
                Err(_) => std::thread::yield_now(),
            }
        };
        std::io::Write::write_all(&mut &visitor, b"let me in!!!").unwrap();
        let mut answer = [0; 12];
        // The end of the stream, or a reset: no byte.
        assert_eq!(std::io::Read::read(&mut &visitor, &mut answer).unwrap_or(0), 0);
        let other = join(&name, 1, 2);
        let host = host.join().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| barrier(&other, PATIENCE).unwrap());
            barrier(&host, PATIENCE).unwrap();
        });
    });
}

#[test]
fn a_visitor_of_another_group_hands_its_descriptors_over_in_vain() {
    let name = name();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| join(&name, 0, 2));
        // It knows the socket's name, and brings a descriptor of its process, for a group of another size.
        let other = Ranks { name: &name, rank: 1, ranks: 3, timeout: PATIENCE };
        let error = meet::<()>(&other, &mut || Ok(())).unwrap_err();
        assert!(error.to_string().starts_with("the memory of rank 0 did not arrive"), "{error}");
        let rank = join(&name, 1, 2);
        let host = host.join().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| barrier(&rank, PATIENCE).unwrap());
            barrier(&host, PATIENCE).unwrap();
        });
    });
}

#[test]
fn a_meeting_names_who_does_not_come_and_ends_when_its_caller_says_so() {
    let name = name();
    let all = Ranks { name: &name, rank: 0, ranks: 3, timeout: Duration::from_millis(50) };
    let error = meet::<()>(&all, &mut || Ok(())).unwrap_err();
    assert_eq!(error.to_string(), "ranks 1, 2 have not come to share memory");
    let all = Ranks { timeout: PATIENCE, ..all };
    assert!(matches!(meet(&all, &mut || Err("enough")), Err(MeetError::Ended("enough"))));
}
