//! Switches with an accelerator: packets for programs wait, others do not, and the sums are right. How long they wait is
//! compared with the hardware design in the tests of its protocol.

use std::ops::ControlFlow::Continue;

use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::experiment::build;
use tributary_sim::report::Report;
use tributary_sim::{run, run_on_threads};

fn report(text: &str) -> Report {
    let report = run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}\n{text}");
    report
}

#[test]
fn packets_that_pass_are_not_delayed() {
    let flow = |rest: &str| {
        let text = format!(
            "[network]\nstar = {{ hosts = 4 }}\nrate = \"10 Gbit/s\"\nmark_above = \"100 kB\"\n[[traffic]]\npattern = \"list\"\n\
             flows = [{{ from = \"host 0\", to = \"host 1\", bytes = \"1 MB\", at = \"1 us\" }}]\n{rest}"
        );
        report(&text).trace_hash
    };
    assert_eq!(flow(""), flow("[switches.accelerator]\nlatency = \"10 us\"\n"));
}

#[test]
fn every_protocol_sums_through_it_and_with_any_number_of_threads() {
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.sums_in_network()) {
        let file = |rest: &str| {
            format!(
                "[network]\nleaf_spine = {{ leaves = 2, spines = 2, hosts_per_leaf = 4 }}\nrouting = \"least_queued\"\n\
                 [[job]]\nprotocol = \"{protocol}\"\nhosts = \"all\"\ntensor = \"256 KiB\"\n{rest}"
            )
        };
        let with = file("[switches.accelerator]\nlatency = \"1 us\"\n");
        let on_threads = |count| run_on_threads(&Config::parse(&with).unwrap(), count, &mut |_| Continue(())).unwrap();
        assert_eq!(report(&with).trace_hash, on_threads(2).trace_hash, "{protocol}");
        let seconds = |text: &str| report(text).jobs[0].seconds.unwrap();
        assert!(seconds(&with) > seconds(&file("")), "{protocol}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_sentence() {
    let star = |hosts: u32, rate: &str, rest: &str| {
        format!("[network]\nstar = {{ hosts = {hosts} }}\nrate = \"{rate} Gbit/s\"\n[switches.accelerator]\n{rest}\n")
    };
    let either = "switches.accelerator needs either latency, or bus_bits for our hardware design: only one of the two";
    let cores = "bus_bits = 64\n[switches.cores]\n";
    for (text, sentence) in [
        (star(4, "10", ""), either),
        (star(4, "10", "bus_bits = 64\nlatency = \"1 us\""), either),
        (star(4, "10", "bus_bits = 96"), "switches.accelerator: bus_bits = 96: it is 64, 128, 256 or 512"),
        (star(4, "10", "bus_bits = 64\nclock_mhz = 0"), "switches.accelerator: clock_mhz = 0: it is 1 to 10,000"),
        (
            star(4, "25", "bus_bits = 64"),
            "switches.accelerator: a bus of 64 bits at 200 MHz carries 12.8 Gbit/s, and a link 25 Gbit/s",
        ),
        (
            star(17, "10", "bus_bits = 64"),
            "switches.accelerator: switch 0 has 17 ports, and the design was measured with 2 to 16: write latency in \
             place of bus_bits",
        ),
        (star(4, "10", cores), "switches have either cores or an accelerator: leave one of the two tables out"),
    ] {
        let error = Config::parse(&text).map(|config| build(&config).map(drop).unwrap_err()).unwrap();
        assert_eq!(error.to_string(), sentence, "{text}");
    }
}
