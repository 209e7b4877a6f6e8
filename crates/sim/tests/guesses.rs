//! Floats of protocols that guess a block's scale: here every block has another magnitude, so that nearly every guess is wrong and
//! nearly every block is sent twice. Nothing is lost, so nothing else may be sent again.

use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::run;

/// The protocols of which one rank may serve all blocks, or every rank its share.
fn guessing() -> impl Iterator<Item = &'static str> {
    let chooses = |protocol: &&&Protocol| protocol.options.specs.iter().any(|spec| spec.name == "served_by");
    protocols::ALL.iter().filter(chooses).map(|protocol| protocol.name)
}

#[test]
fn blocks_that_are_sent_again_for_their_scale_make_nobody_take_others_for_lost() {
    assert!(guessing().next().is_some());
    for protocol in guessing() {
        for served_by in ["last_rank", "every_rank"] {
            let text = format!(
                "end = '10 s'
                network = {{ star = {{ hosts = 5 }}, rate = '1 Gbit/s', delay = '5 us', queue = '4 MiB' }}
                [[job]]
                protocol = '{protocol}'
                hosts = 'all'
                options = {{ served_by = '{served_by}' }}
                tensor = '4 MB'
                magnitudes = 'random'
                elements_per_packet = 350
                slots = 512
                rto = {{ initial = '20 ms', min = '1 ms', max = '200 ms' }}"
            );
            let report = run(&Config::parse(&text).unwrap()).unwrap();
            let job = &report.jobs[0];
            assert!(job.complete, "{protocol}, {served_by}: {:?}", job.errors);
            let what = format!(
                "{protocol}, {served_by}: {} again, {} of them for their scale, {:.3} Gbit/s",
                job.retransmissions,
                job.reissued,
                job.goodput_gbps.unwrap()
            );
            assert_eq!(job.retransmissions, job.reissued, "{what}");
            // Four ranks send each block to the fifth, nearly always twice.
            let blocks = 4_000_000_u64.div_ceil(4 * 350);
            assert!(job.reissued > 3 * blocks, "{what}");
            assert!(job.goodput_gbps.unwrap() > 0.6, "{what}");
        }
    }
}
