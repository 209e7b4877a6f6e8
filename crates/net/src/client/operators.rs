//! What operators read at a switch, and what they do there. Each call shows the token of this process, if it has one.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tributary_control::JobName;
use ureq::BodyReader;

use super::{Client, ClientError, PROMPT, Token};
use crate::api::Done;
use crate::history::{History, Overview};
use crate::status::{Ended, SwitchStatus};

/// `POST /jobs/{name}/evict`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvictBody {
    /// The rank of the member that is lost from now on.
    pub rank: u16,
}

/// `POST /clients/ban` and `POST /clients/unban`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BanBody {
    /// A tenant, or an address.
    pub client: String,
}

/// The state of a switch and its jobs.
pub fn status(switch: SocketAddr) -> Result<SwitchStatus, ClientError> {
    let token = Token::of_this_process().map_err(ClientError::Unreachable)?;
    Client::new(switch, token).get("/status", PROMPT)
}

/// The jobs that ended at a switch in the last hour.
pub fn ended(switch: SocketAddr) -> Result<Ended, ClientError> {
    let token = Token::of_this_process().map_err(ClientError::Unreachable)?;
    Client::new(switch, token).get("/ended", PROMPT)
}

/// What a switch did in the last minutes.
pub fn history(switch: SocketAddr) -> Result<History, ClientError> {
    let token = Token::of_this_process().map_err(ClientError::Unreachable)?;
    Client::new(switch, token).get("/history", PROMPT)
}

/// What operators see at a switch: now, and then after each of its samples.
pub fn events(switch: SocketAddr) -> Result<Events, ClientError> {
    let token = Token::of_this_process().map_err(ClientError::Unreachable)?;
    let client = Client::new(switch, token);
    let request = client.with_headers(client.agent.get(client.url("/events")));
    let request = request.config().timeout_recv_response(Some(PROMPT)).timeout_per_read(Some(PROMPT)).build();
    let answer = client.checked(request.call())?;
    Ok(Events { lines: BufReader::new(answer.into_body().into_reader()).lines(), client })
}

/// The events of a switch, until it stops.
pub struct Events {
    client: Client,
    lines: Lines<BufReader<BodyReader<'static>>>,
}

impl Iterator for Events {
    type Item = Result<Overview, ClientError>;

    fn next(&mut self) -> Option<Result<Overview, ClientError>> {
        loop {
            match self.lines.next()? {
                Err(error) => return Some(Err(self.client.unreachable(error.into()))),
                Ok(line) => {
                    if let Some(event) = line.strip_prefix("data: ") {
                        return Some(serde_json::from_str(event).map_err(|_| self.client.not_a_switch()));
                    }
                }
            }
        }
    }
}

fn act(switch: SocketAddr, path: &str, body: &impl Serialize) -> Result<(), ClientError> {
    let token = Token::of_this_process().map_err(ClientError::Unreachable)?;
    Client::new(switch, token).post::<Done>(path, body, PROMPT).map(|Done {}| ())
}

/// Ends all jobs of a name: their members are told who has ended them.
pub fn end_job(switch: SocketAddr, job: &JobName) -> Result<(), ClientError> {
    act(switch, &format!("/jobs/{job}/end"), &Done {})
}

/// Counts a member of a job as lost from now on.
pub fn evict(switch: SocketAddr, job: &JobName, rank: u16) -> Result<(), ClientError> {
    act(switch, &format!("/jobs/{job}/evict"), &EvictBody { rank })
}

/// Refuses joins of a client, a tenant or an address; or takes them again.
pub fn set_banned(switch: SocketAddr, client: &str, banned: bool) -> Result<(), ClientError> {
    act(switch, if banned { "/clients/ban" } else { "/clients/unban" }, &BanBody { client: client.to_owned() })
}

/// Lets no new job begin, or lets jobs begin again.
pub fn set_cordoned(switch: SocketAddr, cordoned: bool) -> Result<(), ClientError> {
    act(switch, if cordoned { "/cordon" } else { "/uncordon" }, &Done {})
}
