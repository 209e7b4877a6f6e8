//! Ranks as threads of the test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tributary_local::Group;
use tributary_local::meet::{Ranks, meet};

/// Nobody waits so long in a test that passes.
pub const PATIENCE: Duration = Duration::from_secs(100);

/// A name that no other group has.
pub fn name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("tributary-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Meets as one rank.
pub fn join(name: &str, rank: usize, ranks: usize) -> Group {
    let all = Ranks { name, rank, ranks, timeout: PATIENCE };
    let (layout, processes) = meet::<()>(&all, &mut || Ok(())).unwrap();
    Group::new(rank, ranks, layout, processes)
}

/// Calls the function in each rank of a group.
pub fn together(ranks: usize, function: impl Fn(&Group) + Sync) {
    let name = name();
    thread::scope(|scope| {
        for rank in 0..ranks {
            let (name, function) = (&name, &function);
            scope.spawn(move || function(&join(name, rank, ranks)));
        }
    });
}
