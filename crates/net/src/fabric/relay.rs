//! How switches of a fabric ask each other: HTTP/1.1, one request a connection. Workers' requests go on so from the switch
//! that they reach to the seat; a worker that closes its connection drops the future, which closes ours: its join is
//! taken back at the seat.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::api::{HOST_HEADER, SECRET_HEADER};

/// Time for the other switch to take the connection.
const CONNECT: Duration = Duration::from_secs(1);
/// The answer to a join of a thousand ranks has 50 kB.
const MAX_ANSWER: u64 = 4 << 20;

/// An answer as it came.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
}

/// Posts a body to another switch of the fabric, and waits for the answer as long as it takes. `host` is in whose name.
pub async fn post(to: SocketAddr, path: &str, body: &[u8], secret: &str, host: Option<IpAddr>) -> io::Result<Answer> {
    let connected = tokio::time::timeout(CONNECT, TcpStream::connect(to)).await;
    let mut stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let host = host.map(|host| format!("{HOST_HEADER}: {host}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {SECRET_HEADER}: {secret}\r\n{host}Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut bytes = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut bytes).await?;
    parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not answer as a switch does"))
}

/// Cuts an answer into its status and its body, which ends with the connection.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let body = bytes[end + 4..].to_vec();
    // A shorter body is an answer that broke off.
    length.is_some_and(|length| length == body.len()).then_some(Answer { status, body })
}

#[cfg(test)]
mod tests {
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
}
