//! HTTP to one switch: requests with this process's token and the version, and answers, of which errors are one sentence.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tributary_control::printable;
use ureq::{Agent, RequestBuilder};

use super::{ClientError, Token};
use crate::api::call::{Answer, Calls};
use crate::api::{ErrorBody, version};

/// Time for an answer that does not wait for other ranks.
pub(super) const PROMPT: Duration = Duration::from_secs(5);

type HttpAnswer = ureq::http::Response<ureq::Body>;

/// HTTP to one switch.
pub struct Client {
    pub(super) switch: SocketAddr,
    pub(super) agent: Agent,
    pub(super) token: Option<Token>,
}

impl Client {
    pub(super) fn new(switch: SocketAddr, token: Option<Token>) -> Client {
        Client::connecting_within(PROMPT, switch, token)
    }

    pub(super) fn connecting_within(connect: Duration, switch: SocketAddr, token: Option<Token>) -> Client {
        // A switch is in the same network. Proxies that the environment names are meant for other addresses.
        let config = Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(connect))
            .build();
        Client { switch, agent: config.new_agent(), token }
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str, timeout: Duration) -> Result<T, ClientError> {
        let request = self.with_headers(self.agent.get(self.url(path)));
        let request = request.config().timeout_global(Some(timeout)).build();
        self.read(request.call())
    }

    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        let request = self.with_headers(self.agent.post(self.url(path)));
        let request = request.config().timeout_global(Some(timeout)).build();
        self.read(request.send_json(body))
    }

    pub(super) fn with_headers<Body>(&self, request: RequestBuilder<Body>) -> RequestBuilder<Body> {
        let request = request.header(version::HEADER, version::API_VERSION.to_string());
        match &self.token {
            Some(token) => request.header("Authorization", token.header()),
            None => request,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.switch)
    }

    fn read<T: DeserializeOwned>(&self, answer: Result<HttpAnswer, ureq::Error>) -> Result<T, ClientError> {
        let bytes = self.whole(&mut self.checked(answer)?)?;
        serde_json::from_slice(&bytes).map_err(|_| self.not_a_switch())
    }

    /// Posts, and blocks no thread.
    pub(super) async fn post_on<T: DeserializeOwned>(
        &self,
        calls: &mut Calls,
        path: &str,
        body: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|_| self.not_a_switch())?;
        let token: Vec<_> = self.token.iter().map(|token| ("Authorization", token.header())).collect();
        let answer = tokio::time::timeout(timeout, calls.post(path, &body, &token)).await;
        let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let Answer { status, body } = answer.map_err(|error| self.unreachable_for(&error))?;
        match (200..300).contains(&status) {
            true => serde_json::from_slice(&body).map_err(|_| self.not_a_switch()),
            false => Err(self.refusal(&body)),
        }
    }

    /// An answer, unless it is an error.
    pub(super) fn checked(&self, answer: Result<HttpAnswer, ureq::Error>) -> Result<HttpAnswer, ClientError> {
        let mut answer = answer.map_err(|error| self.unreachable(error))?;
        // The version is checked first, because another version may encode the rest differently.
        let theirs = answer.headers().get(version::HEADER).map(|header| header.to_str().unwrap_or_default());
        if let Some(why) = version::refuse_answer(theirs, &format!("the switch at {}", self.switch)) {
            return Err(ClientError::Unreachable(why));
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(self.refusal(&self.whole(&mut answer)?))
    }

    fn refusal(&self, body: &[u8]) -> ClientError {
        match serde_json::from_slice(body) {
            Ok(ErrorBody { error, code, rank }) => ClientError::Refused { error: printable(&error), code, rank },
            Err(_) => self.not_a_switch(),
        }
    }

    fn whole(&self, answer: &mut HttpAnswer) -> Result<Vec<u8>, ClientError> {
        /// The status of a thousand jobs of a thousand ranks is shorter.
        const MAX_ANSWER: u64 = 256 << 20;
        let bytes = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        bytes.map_err(|error| self.unreachable(error))
    }

    pub(super) fn not_a_switch(&self) -> ClientError {
        ClientError::Unreachable(format!(
            "what answers at {} is not a Tributary switch of this version: check the address, and install the same version \
             on both",
            self.switch
        ))
    }

    pub(super) fn unreachable(&self, error: ureq::Error) -> ClientError {
        match error {
            ureq::Error::Io(error) => self.unreachable_for(&error),
            ureq::Error::Timeout(ureq::Timeout::Connect) => ClientError::Interrupted(self.does_not_answer()),
            ureq::Error::Timeout(_) => self.unreachable_for(&io::ErrorKind::TimedOut.into()),
            ureq::Error::Protocol(_) => self.not_a_switch(),
            other => ClientError::Unreachable(format!("the switch at {} cannot be asked: {other}", self.switch)),
        }
    }

    fn does_not_answer(&self) -> String {
        let switch = self.switch;
        format!("the switch at {switch} does not answer: check the address, and that TCP to it is let through")
    }

    fn unreachable_for(&self, error: &io::Error) -> ClientError {
        let switch = self.switch;
        ClientError::Unreachable(match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                return ClientError::Interrupted(format!(
                    "the switch at {switch} closed the connection without an answer"
                ));
            }
            io::ErrorKind::InvalidData => return self.not_a_switch(),
            // It speaks another version.
            io::ErrorKind::Unsupported => error.to_string(),
            io::ErrorKind::ConnectionRefused => format!(
                "nothing listens at {switch}: does a switch run there (`tributary switch`), at this address and port?"
            ),
            io::ErrorKind::TimedOut => self.does_not_answer(),
            _ => format!("the switch at {switch} cannot be reached: {error}"),
        })
    }
}
