//! Calls of switches and workers that block no thread: HTTP/1.1, with one request for each connection, or with requests
//! that follow each other. A caller that drops the future closes the connection, and the switch then drops the request.

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
    let mut stream = connect(to).await?;
    let last = [headers, &[("Connection", "close")]].concat();
    stream.write_all(&request(method, to, path, body, &last)).await?;
    Ok(Call(stream))
}

async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(CONNECT, TcpStream::connect(to)).await;
    connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn request(method: &str, to: SocketAddr, path: &str, body: &[u8], headers: &[(&str, &str)]) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {HEADER}: {API_VERSION}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A connection on which calls follow each other: it shows that the caller is there also between two calls.
pub struct Connection {
    to: SocketAddr,
    /// Closed before the first call, and after one that failed.
    open: Option<TcpStream>,
}

impl Connection {
    /// A connection to a switch, which the first call opens.
    pub fn new(to: SocketAddr) -> Connection {
        Connection { to, open: None }
    }

    /// Posts a body, and waits for the answer without a limit.
    pub async fn post(&mut self, path: &str, body: &[u8], headers: &[(&str, &str)]) -> io::Result<Answer> {
        let request = request("POST", self.to, path, body, headers);
        if let Some(stream) = self.open.take() {
            // If the other end has closed the connection since the last call, a new one says what is the matter there.
            if let Ok(answer) = self.exchange(stream, &request).await {
                return Ok(answer);
            }
        }
        let stream = connect(self.to).await?;
        self.exchange(stream, &request).await
    }

    async fn exchange(&mut self, mut stream: TcpStream, request: &[u8]) -> io::Result<Answer> {
        stream.write_all(request).await?;
        let mut bytes = Vec::new();
        while !is_whole(&bytes) {
            if bytes.len() as u64 > MAX_ANSWER || (&mut stream).take(64 << 10).read_buf(&mut bytes).await? == 0 {
                break;
            }
        }
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = checked(&bytes)?;
        self.open = Some(stream);
        Ok(answer)
    }
}

/// True once the bytes have an answer with all of its body.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(head) = head_len(bytes) else { return false };
    let length = header(bytes, "content-length").and_then(|length| length.parse::<usize>().ok());
    length.is_some_and(|length| bytes.len() - head >= length)
}

/// The answer of the same version.
fn checked(bytes: &[u8]) -> io::Result<Answer> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    match refuse_answer(header(bytes, HEADER), "that switch") {
        Some(why) => Err(wrong(&why)),
        None => parse(bytes).ok_or_else(|| wrong("it does not answer as a switch does")),
    }
}

/// Bytes before the body, once they are all there.
fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|end| end + 4)
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
        Ok((checked(&bytes)?, self.0))
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

    /// Answers calls on one connection after the other, each of which it closes after this many.
    async fn serve(listener: TcpListener, calls_of_each: &[usize]) -> usize {
        let mut connections = 0;
        for &calls in calls_of_each {
            let (mut stream, _) = listener.accept().await.unwrap();
            connections += 1;
            for call in 0..calls {
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"{}") {
                    stream.read_buf(&mut bytes).await.unwrap();
                }
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{call}");
                // In two fragments.
                stream.write_all(&answer.as_bytes()[..20]).await.unwrap();
                stream.write_all(&answer.as_bytes()[20..]).await.unwrap();
            }
        }
        connections
    }

    #[tokio::test(flavor = "current_thread")]
    async fn calls_follow_each_other_on_a_connection_and_go_on_on_a_new_one_when_it_was_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut connection = Connection::new(listener.local_addr().unwrap());
        let calls = async {
            let mut answers = Vec::new();
            for _ in 0..5 {
                answers.extend(connection.post("/", b"{}", &[]).await.unwrap().body);
            }
            answers
        };
        let (answers, connections) = tokio::join!(calls, serve(listener, &[3, 2]));
        assert_eq!((answers.as_slice(), connections), (&b"01201"[..], 2));
        let refused = connection.post("/", b"{}", &[]).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
