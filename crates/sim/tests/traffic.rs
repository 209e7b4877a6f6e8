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
        (format!("{stream}\nrate = \"1 Gbit/s\"\nbursts = {{ on = 0, off = \"1 us\" }}"), "on and off are above 0"),
        (format!("{stream}\nrate = \"1 Gbit/s\"\nclass = \"0\""), "class is for flows of a file"),
    ] {
        let refused = of(&traffic);
        assert!(refused.contains(sentence), "{traffic}: {refused}");
    }
    let lossless =
        "[network]\nstar = { hosts = 4 }\nlossless = {}\n[[traffic]]\npattern = \"permutation\"\nmessage = \"9 kB\"\n";
    let slow = refusal(&format!("{lossless}[[fault]]\nlinks = \"all\"\nrate = \"1 Gbit/s\""));
    assert!(slow.contains("rate is for links that may lose packets"), "{slow}");
}

#[test]
fn keys_that_do_not_go_together_are_refused_with_a_sentence() {
    for (traffic, sentence) in [
        ("pattern = 'uniform'\nmessage = '2 kB'\nhosts = 1", "has no peer to send to"),
        ("pattern = 'uniform'\nmessage = 10", "less than one packet"),
        ("pattern = 'uniform'\nmessage = 100\npacket = 20", "is not a packet size"),
        ("pattern = 'uniform'", "message is missing"),
        ("pattern = 'uniform'\nmessage = 2000\nbursts = { on = '1 us', off = '1 us' }", "is for pattern = \"stream\""),
        ("pattern = 'permutation'\nmessage = 2000\nload = 0.5", "leave load out"),
        ("pattern = 'permutation'\nmessage = 2000\nuntil = '1 ms'", "ends by itself"),
        ("pattern = 'uniform'\nmessage = 2000\nsizes = 'hadoop'", "is for pattern = \"poisson\""),
        ("pattern = 'uniform'\nmessage = 2000\ntransport = 'dctcp'", "has no transport"),
        ("pattern = 'incast'\nmessage = 9", "an incast needs fan_in"),
        ("pattern = 'incast'\nmessage = 9\nfan_in = 4", "1 to 3 senders can answer"),
        ("pattern = 'incast'\nmessage = 9\nfan_in = 2\nevery = '9 us'", "need every, above 0"),
        ("pattern = 'uniform'\nmessage = 2000\nfan_in = 2", "for pattern = \"incast\""),
        ("pattern = 'all_to_all'\nmessage = 9\nload = 0.5", "leave load out"),
        ("pattern = 'all_to_all'\nmessage = 9\nuntil = '1 ms'", "ends by itself"),
        ("pattern = 'poisson'\nload = 0.5", "sizes, as in"),
        ("pattern = 'poisson'\nsizes = 'hadoop'", "a load below 100 %"),
        ("pattern = 'poisson'\nsizes = 'web'\nload = 0.5", "neither \"web_search\""),
        ("pattern = 'poisson'\nsizes = 'hadoop'\nload = 0.5\ntransport = 'none'", "need transport"),
        ("pattern = 'poisson'\nmessage = 9\nload = 0.5\nstart = '1 s'\nuntil = '1 s'", "until is not after start"),
    ] {
        let refused = refusal(&format!("[network]\nstar = {{ hosts = 4 }}\n[[traffic]]\n{traffic}\n"));
        assert!(refused.contains(sentence), "{traffic}: {refused}");
    }
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

/// A burst of 10 us at 10 Gbit/s is 12.5 packets of 1,000 bytes; one begins every 40 us.
#[test]
fn a_stream_in_bursts_sends_its_share_of_the_rate() {
    let text = "end = \"4 ms\"\n[network]\nstar = { hosts = 4 }\nrate = \"10 Gbit/s\"\n\
                [[traffic]]\npattern = \"stream\"\nfrom = [0, 1]\nto = [2, 3]\nrate = \"10 Gbit/s\"\npacket = 1000\n\
                bursts = { on = \"10 us\", off = \"30 us\", times = \"fixed\" }\nuntil = \"4 ms\"\n\
                [[traffic]]\npattern = \"list\"\nflows = [{ from = \"host 2\", to = \"host 3\", bytes = 1, at = \"3990 us\" }]\n";
    let report = run(&Config::parse(text).unwrap()).unwrap();
    let packets = report.link_rows.iter().find(|row| row.from == "host 0").unwrap().counters.packets;
    assert!((1200..=1320).contains(&packets), "100 bursts of 12 or 13 packets: {packets}");
}

/// Eight answers that begin together leave one link, one after the other: a query takes as long as its bytes on that link, and
/// two queries that are far apart do not meet.
#[test]
fn a_query_takes_as_long_as_its_answers_take_on_the_link_of_the_host_that_asks() {
    let text = "[network]\nstar = { hosts = 9 }\nrate = \"10 Gbit/s\"\nmark_above = \"100 kB\"\n\
                [[traffic]]\npattern = \"incast\"\nhosts = \"all\"\nmessage = \"146 kB\"\nfan_in = 8\nevery = \"10 ms\"\n\
                until = \"20 ms\"\n";
    let report = run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    let queries = [0.0, 0.010];
    for at in queries {
        let answers: Vec<_> = report.flow_rows.iter().filter(|row| row.start == at).collect();
        assert_eq!(answers.len(), 8);
        assert!(answers.iter().all(|row| row.dst == answers[0].dst && row.src != row.dst && row.bytes == 146_000));
        let last = answers.iter().map(|row| row.seconds).fold(0.0, f64::max);
        let least = 8.0 * 146_000.0 * 8.0 / 10e9;
        assert!((least..1.15 * least).contains(&last), "{last} s, and the link takes {least} s for the data alone");
    }
    assert_eq!(report.flow_rows.len(), 8 * queries.len());
}

#[test]
fn in_an_all_to_all_every_host_gets_a_message_from_every_other() {
    let text = "[network]\nstar = { hosts = 5 }\nmark_above = \"100 kB\"\n\
                [[traffic]]\npattern = \"all_to_all\"\nhosts = \"all\"\nmessage = \"20 kB\"\nstart = \"1 ms\"\n";
    let report = run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    let mut pairs: Vec<_> = report.flow_rows.iter().map(|row| (row.src, row.dst)).collect();
    pairs.sort_unstable();
    let expected: Vec<_> = (0..5).flat_map(|src| (0..5).map(move |dst| (src, dst))).filter(|(a, b)| a != b).collect();
    assert_eq!(pairs, expected);
}
