//! Calls between switches that block no thread: HTTP/1.1, with one request for each connection. A caller that drops the
//! future closes the connection, and the other switch then drops the request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api::version::{API_VERSION, HEADER, refuse_answer};

/// The time in which the other switch must accept the connection.
const CONNECT: Duration = Duration::from_secs(1);
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

/// Posts a body to another switch; `headers` are names and values without line breaks.
pub async fn post(to: SocketAddr, path: &str, body: &[u8], headers: &[(&str, &str)]) -> io::Result<Call> {
    send("POST", to, path, body, headers).await
}

/// Asks another switch for something.
pub async fn get(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> io::Result<Call> {
    send("GET", to, path, &[], headers).await
}

async fn send(method: &str, to: SocketAddr, path: &str, body: &[u8], headers: &[(&str, &str)]) -> io::Result<Call> {
    let connected = tokio::time::timeout(CONNECT, TcpStream::connect(to)).await;
    let mut stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {HEADER}: {API_VERSION}\r\n{headers}Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    Ok(Call(stream))
}

impl Call {
    /// Waits for the answer without a limit.
    pub async fn answer(self) -> io::Result<Answer> {
        self.answer_and_stay().await.map(|(answer, _)| answer)
    }

    /// Waits for the answer; our end of the connection stays open until the returned stream is dropped.
    pub async fn answer_and_stay(mut self) -> io::Result<(Answer, TcpStream)> {
        let mut bytes = Vec::new();
        (&mut self.0).take(MAX_ANSWER).read_to_end(&mut bytes).await?;
        if let Some(why) = refuse_answer(header(&bytes, HEADER), "that switch") {
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let answer = parse(&bytes);
        let answer =
            answer.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not answer as a switch does"))?;
        Ok((answer, self.0))
    }
}

/// The value of a header of an answer; `None` if the answer does not have the header.
fn header<'a>(bytes: &'a [u8], wanted: &str) -> Option<&'a str> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let lines = std::str::from_utf8(&bytes[..end]).ok()?.split("\r\n");
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
}

/// Splits an answer into its status and its body. The body ends with the connection.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let status = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = header(bytes, "content-length").and_then(|length| length.parse::<usize>().ok());
    let body = bytes[end + 4..].to_vec();
    // If the body is shorter, the connection broke in the middle of the answer.
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
