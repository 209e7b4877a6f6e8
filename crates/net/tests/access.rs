//! Who may use a switch, and that nobody takes all of it.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tributary_control::tokens::Tokens;
use tributary_net::challenge;
use tributary_net::client::{self, HttpRendezvous};
use tributary_net::rendezvous::{JoinAnswer, JoinError, JoinRequest, Rendezvous};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_net::token::Token;
use tributary_proto::protocols;

const OURS: &str = "0123456789abcdef-ours";
const THEIRS: &str = "0123456789abcdef-theirs";

fn start(tokens: bool) -> RunningSwitch {
    let file = format!(
        "[[tenant]]\nname = \"ours\"\ntoken = \"{OURS}\"\nmax_jobs = 1\n[[tenant]]\nname = \"theirs\"\ntoken = \"{THEIRS}\"\n"
    );
    let tokens = tokens.then(|| Tokens::parse(&file).unwrap());
    RunningSwitch::start(&SwitchOptions { tokens, ..SwitchOptions::new("127.0.0.1:0".parse().unwrap()) }).unwrap()
}

fn join(switch: SocketAddr, job: &str, token: Option<&str>, slots: Option<u16>) -> Result<JoinAnswer, JoinError> {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let token = token.map(|token| Token::new(token).unwrap());
    let rendezvous = HttpRendezvous::with_token(switch, token).unwrap();
    let protocol = protocols::named("switchml").unwrap();
    let request = JoinRequest {
        job: job.to_string(),
        rank: 0,
        world: 1,
        protocol,
        options: protocol.options.defaults(),
        udp: udp.local_addr().unwrap(),
        elements_per_packet: None,
        max_elements_per_packet: 360,
        slots,
        suggested_slots: 64,
        timeout: Duration::from_secs(20),
    };
    let incarnation = rendezvous.incarnation().unwrap();
    challenge::answering(&udp, incarnation, || rendezvous.join(&request)).unwrap()
}

#[test]
fn with_tokens_only_tenants_have_jobs_and_each_its_own() {
    let switch = start(true);
    let addr = switch.listen_addr();
    let refusal = |job, token| join(addr, job, token, None).unwrap_err().to_string();
    assert!(refusal("a", None).contains("set TRIBUTARY_TOKEN"));
    assert!(refusal("a", Some("0123456789abcdef-nobodys")).contains("is none of this switch's"));
    assert!(client::status(addr).unwrap().jobs.is_empty());
    join(addr, "a", Some(OURS), None).unwrap();
    let taken = refusal("a", Some(THEIRS));
    assert!(taken.contains("another tenant"), "{taken}");
    let second = refusal("b", Some(OURS));
    assert!(second.contains("tenant 'ours'") && second.contains("1 jobs at a time"), "{second}");
    join(addr, "b", Some(THEIRS), None).unwrap();
}

#[test]
fn a_job_that_asks_for_everything_leaves_half_of_the_memory() {
    let switch = start(false);
    let addr = switch.listen_addr();
    join(addr, "greedy", None, Some(16_384)).unwrap();
    join(addr, "greedier", None, Some(16_384)).unwrap();
    let status = client::status(addr).unwrap().switch;
    assert!(status.memory_used_bytes <= status.memory_bytes / 2, "{status:?}");
}
