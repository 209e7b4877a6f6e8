//! Traffic from some hosts to others, and links whose rate changes: what is refused, and what they carry.

use tributary_sim::config::Config;
use tributary_sim::run;

/// The sentence that a file is refused with.
fn refusal(text: &str) -> String {
    match Config::parse(text) {
        Err(error) => error.to_string(),
        Ok(config) => run(&config).map(|_| "no error".to_string()).unwrap_or_else(|error| error.to_string()),
    }
}

#[test]
fn traffic_from_some_hosts_to_others_that_cannot_be_is_refused_with_a_sentence() {
    let of = |traffic: &str| refusal(&format!("[network]\nstar = {{ hosts = 4 }}\n[[traffic]]\n{traffic}\n"));
    let stream = "pattern = \"stream\"\nfrom = [0]\nto = [1]";
    for (traffic, sentence) in [
        (stream.to_string(), "a stream needs a rate"),
        (format!("{stream}\nrate = \"1 Gbit/s\"\nload = \"10 %\""), "neither load nor message"),
        (format!("{stream}\nrate = \"1 Gbit/s\"\nhosts = [2]"), "both name the senders"),
        ("pattern = \"stream\"\nfrom = [0, 1]\nto = [2]\nrate = \"1 Gbit/s\"".into(), "lists of equal length"),
        ("pattern = \"stream\"\nfrom = [0, 1]\nto = [2, 1]\nrate = \"1 Gbit/s\"".into(), "differ pair by pair"),
        ("pattern = \"poisson\"\nfrom = [0]\nsizes = \"hadoop\"\nload = 0.1".into(), "from and to go together"),
        (
            "pattern = \"poisson\"\nfrom = [0]\nto = [0]\nsizes = \"hadoop\"\nload = 0.1".into(),
            "has no peer to send to",
        ),
        ("pattern = \"uniform\"\nfrom = [0]\nto = [1]\nmessage = 9999".into(), "from and to are for"),
        ("pattern = \"uniform\"\nrate = \"1 Gbit/s\"\nmessage = 9999".into(), "rate is for pattern"),
    ] {
        let refused = of(&traffic);
        assert!(refused.contains(sentence), "{traffic}: {refused}");
    }
    let lossless =
        "[network]\nstar = { hosts = 4 }\nlossless = {}\n[[traffic]]\npattern = \"permutation\"\nmessage = \"9 kB\"\n";
    let slow = refusal(&format!("{lossless}[[fault]]\nlinks = \"all\"\nrate = \"1 Gbit/s\""));
    assert!(slow.contains("rate is for links that may lose packets"), "{slow}");
}

/// A link's use is a share of the time that it spent sending, whatever its rate was before.
#[test]
fn links_that_change_their_rate_are_as_busy_as_before_and_carry_less() {
    let text = |rate: &str| {
        format!(
            "end = \"1 s\"\n[network]\nstar = {{ hosts = 4 }}\nrate = \"10 Gbit/s\"\nqueue = \"20 kB\"\n\
             [[traffic]]\npattern = \"stream\"\nfrom = [0]\nto = [1]\nrate = \"9 Gbit/s\"\npacket = 1000\n\
             [[traffic]]\npattern = \"permutation\"\nhosts = [2, 3]\nmessage = \"625 kB\"\npacket = 1000\n\
             [[fault]]\nlinks = [[\"host 1\", \"switch 0\"]]\nat = \"100 us\"\nuntil = \"300 us\"\n{rate}\n\
             [report]\nsample = \"100 us\"\nlinks = [[\"host 1\", \"switch 0\"]]"
        )
    };
    let uses = |rate: &str| -> Vec<f64> {
        let report = run(&Config::parse(&text(rate)).unwrap()).unwrap();
        let down = report.samples.as_ref().unwrap().links[1];
        let samples = report.samples.as_ref().unwrap();
        samples.link_samples().filter(|sample| sample.link == down).map(|sample| sample.utilisation).collect()
    };
    let near = |value: f64, expected: f64| (value - expected).abs() < 0.05;
    let plain = uses("");
    assert!(plain[1..4].iter().all(|&used| near(used, 0.9)), "{plain:?}");
    let slow = uses("rate = \"3 Gbit/s\"");
    assert!(slow[1..3].iter().all(|&used| near(used, 1.0)), "slower than the stream: {slow:?}");
    assert!(near(slow[3], 0.9 + 0.16 / 3.0) || near(slow[3], 0.95), "what waited leaves as it would have: {slow:?}");
    let fast = uses("rate = \"90 Gbit/s\"");
    assert!(fast[1..3].iter().all(|&used| near(used, 0.1)), "{fast:?}");
    assert!(near(fast[3], 0.9), "{fast:?}");
}

/// A host bounds what it hands to its NIC, so the queue there neither drops nor marks. A change of rate changes nothing of that.
#[test]
fn a_nic_whose_rate_changes_neither_drops_nor_marks_what_its_host_hands_it() {
    let text = "end = \"1 s\"\n[network]\nstar = { hosts = 2 }\nrate = \"10 Gbit/s\"\nqueue = \"9 kB\"\nmark_above = \"4 kB\"\n\
                nic_queue = \"32 kB\"\n[[traffic]]\npattern = \"poisson\"\nfrom = [0]\nto = [1]\nsizes = \"web_search\"\n\
                load = \"50 %\"\nuntil = \"5 ms\"\n[[fault]]\nlinks = [[\"host 0\", \"switch 0\"]]\nat = \"1 ms\"\n\
                until = \"2 ms\"\nrate = \"5 Gbit/s\"";
    let report = run(&Config::parse(text).unwrap()).unwrap();
    let counters = report.link_rows.iter().find(|row| row.from == "host 0").unwrap().counters;
    assert!(counters.max_queue_bytes > 9_000, "more waits there than a switch's queue holds: {counters:?}");
    assert_eq!((counters.marks, counters.losses.iter().sum::<u64>()), (0, 0), "{counters:?}");
}
