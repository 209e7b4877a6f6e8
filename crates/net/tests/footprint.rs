//! What a switch holds after thousands of jobs: no byte and no thread more than after the first hundred. Its own
//! process, because it counts every allocation.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::protocols;

/// The system's allocator, and how many bytes are out.
struct Counting;

static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came; the defaults of the others call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// No test waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
const SHARDS: usize = 2;
/// Jobs until every table has its size.
const WARM_UP: u32 = 200;
const JOBS: u32 = 2_000;
/// Four bytes for each job: less than any structure has that could be left behind.
const SLACK_BYTES: isize = 8 * 1024;

fn connected(switch: SocketAddr, number: u32) -> Group {
    let options = ConnectOptions {
        switch: switch.to_string(),
        job: format!("job-{number}"),
        rank: 0,
        world_size: 1,
        timeout: PATIENCE,
        protocol: protocols::named("switchml").unwrap(),
        options: protocols::named("switchml").unwrap().options.defaults(),
        elements_per_packet: Some(64),
        slots: Some(16),
        trees: None,
        cores: None,
    };
    Group::connect(&options).unwrap()
}

/// A job from its join to its end: sums, what an operator reads meanwhile, and packets that are nobody's.
fn job(switch: SocketAddr, number: u32, unauthorised: &UdpSocket) {
    let group = connected(switch, number);
    let mut data = vec![number as i32; 1 + number as usize * 37 % 2_000];
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    unauthorised.send_to(&number.to_be_bytes().repeat(1 + number as usize % 20), switch).unwrap();
    if number.is_multiple_of(10) {
        assert_eq!(client::status(switch).unwrap().jobs.len(), 1);
        assert!(job_metrics(switch).contains(&format!("job-{number}")));
    }
    group.close();
}

fn job_metrics(switch: SocketAddr) -> String {
    let mut stream = TcpStream::connect(switch).unwrap();
    stream.write_all(b"GET /metrics/jobs HTTP/1.1\r\nHost: switch\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until no job and no worker's thread is left, and no more than `most` bytes are out; how many are.
fn live_at_rest(switch: SocketAddr, most: isize) -> isize {
    let start = Instant::now();
    loop {
        let empty = client::status(switch).unwrap().jobs.is_empty();
        // The connection that brought the status takes a moment to go.
        sleep(Duration::from_millis(20));
        let live = LIVE_BYTES.load(Ordering::Relaxed);
        if empty && live <= most && worker_threads() == 0 || start.elapsed() > PATIENCE {
            return live;
        }
    }
}

/// Threads that a group has left behind for a moment after it was closed.
fn worker_threads() -> usize {
    let is_workers = |name: &&String| name.ends_with("-0") && !name.starts_with("shard");
    names().iter().filter(|name| is_workers(name) || ["watches", "idle-groups"].contains(&name.as_str())).count()
}

fn names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread that ends meanwhile has no name any more.
    tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The fewest at several looks: what is being closed at one is not there at another.
fn descriptors_at_rest() -> usize {
    let sample = |_| {
        sleep(Duration::from_millis(20));
        descriptors()
    };
    (0..20).map(sample).min().unwrap()
}

fn threads() -> usize {
    names().len()
}

/// Groups that have summed and are idle have three descriptors each (the switch, which is in this process, has one), no
/// thread, and members that count as present.
fn check_idle_groups(switch: SocketAddr) {
    const GROUPS: u32 = 50;
    let sum = |group: &Group| group.allreduce_in_place(&mut [1i32; 100], ReduceOp::Sum, PATIENCE).unwrap();
    let until = |expected: (usize, usize)| {
        let start = Instant::now();
        while (descriptors(), threads()) != expected && start.elapsed() < PATIENCE {
            sleep(Duration::from_millis(20));
        }
        assert_eq!((descriptors(), threads()), expected);
    };
    let nothing = (descriptors_at_rest(), threads());
    let first = connected(switch, 0);
    // The threads that all groups share.
    let (shared, one) = (nothing.1 + 2, descriptors_at_rest());
    let groups: Vec<Group> = (1..=GROUPS).map(|number| connected(switch, number)).collect();
    groups.iter().for_each(sum);
    until((one + 4 * GROUPS as usize, shared));
    groups.iter().for_each(sum);
    drop((first, groups));
    until(nothing);
}

#[test]
fn after_thousands_of_jobs_a_switch_holds_as_much_memory_and_as_many_threads_as_after_the_first() {
    let before = threads();
    let switch =
        RunningSwitch::start(&SwitchOptions { shards: SHARDS, ..SwitchOptions::new("127.0.0.1:0".parse().unwrap()) })
            .unwrap();
    let addr = switch.listen_addr();
    let unauthorised = UdpSocket::bind("127.0.0.1:0").unwrap();
    (0..WARM_UP).for_each(|number| job(addr, number, &unauthorised));
    // The smallest of several looks: what is under way at one is not at another.
    let warm = (0..5).map(|_| live_at_rest(addr, isize::MAX)).min().unwrap();
    let warm_descriptors = descriptors_at_rest();
    (WARM_UP..WARM_UP + JOBS).for_each(|number| job(addr, number, &unauthorised));
    let live = live_at_rest(addr, warm + SLACK_BYTES);
    assert!(live <= warm + SLACK_BYTES, "{} bytes more after {JOBS} jobs", live - warm);
    assert_eq!(threads(), before + SHARDS + 1, "a thread for each shard and one for the control plane");
    assert_eq!(descriptors_at_rest(), warm_descriptors, "after {JOBS} jobs");
    check_idle_groups(addr);
    switch.stop();
}
