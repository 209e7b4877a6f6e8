//! Unsafe code is for a few leaves, which offer safe functions to everyone else.

use crate::{Offences, Source};

/// The leaves: kernels, system calls, memory that Python or a kernel lends. Add to it only what cannot be done without.
const LEAVES: [&str; 23] = [
    "crates/cli/src/cluster/cpu.rs",
    "crates/cli/src/cluster/process.rs",
    "crates/local/src/memory.rs",
    "crates/local/src/os.rs",
    "crates/local/tests/ranks.rs",
    "crates/net/src/group/submit.rs",
    "crates/net/src/memory.rs",
    "crates/net/src/memory/words.rs",
    "crates/net/src/os.rs",
    "crates/net/src/udp/sys.rs",
    "crates/net/tests/footprint.rs",
    "crates/net/tests/support/in_flight.rs",
    "crates/numeric/src/kernels/",
    "crates/numeric/src/prefetch.rs",
    "crates/proto/tests/memory.rs",
    "crates/python/src/buffer.rs",
    "crates/python/src/group.rs",
    "crates/python/src/local.rs",
    "crates/testbed/src/bpf.rs",
    "crates/testbed/src/namespace.rs",
    "crates/testbed/src/offload.rs",
    "crates/testbed/src/star.rs",
    "tests/tidy/",
];

/// Notes uses of `unsafe` outside the leaves.
pub fn check(source: &Source, offences: &mut Offences) {
    if !source.is_rust() || LEAVES.iter().any(|leaf| source.path.starts_with(leaf)) {
        return;
    }
    let words = source.code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let uses = words.filter(|&word| word == "unsafe").count();
    if uses > 0 {
        offences.insert(format!("unsafe {}", source.path), uses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_count_and_talk_does_not() {
        let mut offences = Offences::new();
        let text = "#![forbid(unsafe_code)]\n// unsafe\nlet a = \"unsafe\"; unsafe { f() }";
        check(&Source::new("crates/a/src/a.rs", text.into()), &mut offences);
        assert_eq!(offences, Offences::from([("unsafe crates/a/src/a.rs".to_string(), 1)]));
        check(&Source::new("crates/net/src/os.rs", text.into()), &mut offences);
        assert_eq!(offences.len(), 1);
    }
}
