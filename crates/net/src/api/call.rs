//! Calls of switches, workers and servers that block no thread: HTTP/1.1, with one request for each connection. A caller
//! that drops the future closes the connection, and the switch then drops the request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api::version::{API_VERSION, HEADER, refuse_answer};

/// The time in which the other switch must accept the connection of a call that must fail soon: a worker counts the watches
/// that its switch could not forward.
pub const CONNECT: Duration = Duration::from_secs(1);
/// The same where a loss means nothing: the kernel asks again after a second, and once more after two.
pub const CONNECT_AMID_LOSS: Duration = Duration::from_secs(5);
/// The answer to a join of a thousand ranks takes 50 kB.
const MAX_ANSWER: u64 = 4 << 20;

/// An answer as it was received.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The JSON text.
    pub body: Vec<u8>,
}

/// A request that was sent and whose answer is outstanding.
pub struct Call(TcpStream);

/// Posts a body to another switch, which accepts the connection within `connect`; `headers` are names and values without
/// line breaks.
pub async fn post(
    connect: Duration,
    to: SocketAddr,
    path: &str,
    body: &[u8],
    headers: &[(&str, &str)],
) -> io::Result<Call> {
    send(connect, "POST", to, path, body, headers).await
}

/// Asks another switch for something.
pub async fn get(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> io::Result<Call> {
    send(CONNECT, "GET", to, path, &[], headers).await
}

async fn send(
    connect: Duration,
    method: &str,
    to: SocketAddr,
    path: &str,
    body: &[u8],
    headers: &[(&str, &str)],
) -> io::Result<Call> {
    let connected = tokio::time::timeout(connect, TcpStream::connect(to)).await;
    let mut stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {HEADER}: {API_VERSION}\r\n{headers}Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    Ok(Call(stream))
}

/// Calls that follow each other. The connection of one stands until the next call is under way, however long it takes to
/// connect: it shows that the caller is there also between two calls.
pub struct Calls {
    to: SocketAddr,
    last: Option<Call>,
}

impl Calls {
    /// Calls of a switch, of which none was made.
    pub fn new(to: SocketAddr) -> Calls {
        Calls { to, last: None }
    }

    /// Posts a body. The connection of the call before ends then, also if its answer is outstanding.
    pub async fn begin(&mut self, path: &str, body: &[u8], headers: &[(&str, &str)]) -> io::Result<&mut Call> {
        let call = post(CONNECT_AMID_LOSS, self.to, path, body, headers).await?;
        Ok(self.last.insert(call))
    }

    /// Posts a body, and waits for the answer without a limit. A caller that drops the future closes the connection.
    pub async fn post(&mut self, path: &str, body: &[u8], headers: &[(&str, &str)]) -> io::Result<Answer> {
        self.begin(path, body, headers).await?;
        let mut call = self.last.take().expect("it has begun");
        let answer = call.answer().await?;
        self.last = Some(call);
        Ok(answer)
    }
}

/// The answer of the switch at this address. One of another version is [unsupported](io::ErrorKind::Unsupported), with a
/// sentence; what is not a switch's is [invalid](io::ErrorKind::InvalidData).
fn checked(bytes: &[u8], from: SocketAddr) -> io::Result<Answer> {
    if bytes.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match refuse_answer(header(bytes, HEADER), &format!("the switch at {from}")) {
        Some(why) => Err(io::Error::new(io::ErrorKind::Unsupported, why)),
        None => parse(bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not answer as a switch does")),
    }
}

/// Bytes before the body, once they are all there.
fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|end| end + 4)
}

impl Call {
    /// Waits for the answer without a limit. Our end of the connection stays open until the call is dropped.
    pub async fn answer(&mut self) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        (&mut self.0).take(MAX_ANSWER).read_to_end(&mut bytes).await?;
        checked(&bytes, self.0.peer_addr()?)
    }
}

/// The value of a header of an answer; `None` if the answer does not have the header.
fn header<'a>(bytes: &'a [u8], wanted: &str) -> Option<&'a str> {
    let lines = std::str::from_utf8(&bytes[..head_len(bytes)?]).ok()?.split("\r\n");
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
}

/// Splits an answer into its status and its body, which is the rest.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = head_len(bytes)?;
    let status = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = header(bytes, "content-length").and_then(|length| length.parse::<usize>().ok());
    let body = bytes[end..].to_vec();
    // If the body is shorter, the connection broke in the middle of the answer.
    length.is_some_and(|length| length == body.len()).then_some(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_is_its_status_and_its_whole_body() {
        let answer = parse(b"HTTP/1.1 409 Conflict\r\ncontent-type: x\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((answer.status, answer.body), (409, b"{}".to_vec()));
        for broken in [
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 2",
            "SSH-2.0",
        ] {
            assert!(parse(broken.as_bytes()).is_none(), "{broken}");
        }
    }

    /// Takes a call and answers it, as a switch does: it ends its half of the connection.
    async fn answer(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"{}") {
            stream.read_buf(&mut bytes).await.unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").await.unwrap();
        stream.shutdown().await.unwrap();
        stream
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_connection_of_a_call_stands_until_the_next_call_is_under_way_although_the_switch_has_ended_its_half() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut calls = Calls::new(listener.local_addr().unwrap());
        let (posted, mut first) = tokio::join!(calls.post("/", b"{}", &[]), answer(&listener));
        assert_eq!(posted.unwrap().body, b"[]");
        let silent = tokio::time::timeout(Duration::from_millis(50), first.read_u8()).await;
        assert!(silent.is_err(), "the caller has closed it");
        let (posted, second) = tokio::join!(calls.post("/", b"{}", &[]), answer(&listener));
        assert_eq!(posted.unwrap().status, 200);
        assert_eq!(first.read_u8().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        drop((listener, second));
        let refused = calls.post("/", b"{}", &[]).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
