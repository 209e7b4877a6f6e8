//! Ranks as threads of the test, what they bring, and what they must get.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tributary_local::meet::{Ranks, meet};
use tributary_local::{Group, Lent};
use tributary_numeric::{Combine, DType, ReduceOp, native};

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

/// A rank's elements: any bits, but few infinities.
pub fn bits(rank: usize, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(rank as u64 + 1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// The reference: the vectors of all ranks in a balanced tree, as a switch combines them.
pub fn expected(dtype: DType, op: ReduceOp, inputs: &[Vec<u8>]) -> Vec<u8> {
    expected_over(dtype, op, inputs, inputs.len())
}

/// The same, where averages are over this many ranks.
pub fn expected_over(dtype: DType, op: ReduceOp, inputs: &[Vec<u8>], ranks: usize) -> Vec<u8> {
    let combine = native(dtype, op).unwrap();
    let swapped = |bytes: &[u8]| -> Vec<u8> {
        bytes.chunks(dtype.size()).flat_map(|element| element.iter().rev().copied()).collect()
    };
    fn tree(combine: &Combine, vectors: &[Vec<u8>]) -> Vec<u8> {
        if let [vector] = vectors {
            let mut lanes = vec![0; vector.len() / combine.wire_size * combine.lane_size];
            (combine.store)(&mut lanes, vector);
            return lanes;
        }
        let (left, right) = vectors.split_at(vectors.len().next_power_of_two() / 2);
        let mut lanes = tree(combine, left);
        (combine.merge)(&mut lanes, &tree(combine, right));
        lanes
    }
    let vectors: Vec<Vec<u8>> = inputs.iter().map(|input| swapped(input)).collect();
    let mut lanes = tree(combine, &vectors);
    (combine.finish)(&mut lanes, ranks as u16);
    let mut result = vec![0; inputs[0].len()];
    (combine.load)(&lanes, &mut result);
    swapped(&result)
}

/// Lends memory, which each test keeps until it has waited for what uses it.
pub fn lent(bytes: &mut [u8]) -> Lent {
    // SAFETY: as it says.
    #[allow(unsafe_code)]
    unsafe {
        Lent::new(bytes.as_mut_ptr(), bytes.len())
    }
}

/// Copies what is lent, as a network does; both are as long.
pub fn copy(from: Lent, to: Lent) {
    assert_eq!(from.len(), to.len());
    // SAFETY: both are lent for as long as the network uses them, and they are memory of their own.
    #[allow(unsafe_code)]
    unsafe {
        std::ptr::copy_nonoverlapping(from.address(), to.address(), from.len());
    }
}

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Memory of ones, of which no byte of one page can be used: whoever touches it is killed. It lives as long as the process.
pub fn with_trap(bytes: usize, trap: Option<usize>) -> Lent {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new pages, of which nothing else knows; the trap lies within them.
    #[allow(unsafe_code)]
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes.next_multiple_of(PAGE), protection, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(start.cast::<u8>(), bytes).chunks_mut(4).for_each(|word| word[0] = 1);
        if let Some(page) = trap {
            assert_eq!(libc::mprotect(start.add(page * PAGE), PAGE, libc::PROT_NONE), 0);
        }
        Lent::new(start.cast(), bytes)
    }
}

/// Nobody needs the memory of a process that dies on purpose.
pub fn leave_no_core() {
    // SAFETY: the call has no pointers.
    #[allow(unsafe_code)]
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
}
