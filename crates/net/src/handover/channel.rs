//! The channel between two programs of one switch: a pair of Unix sockets, one of which the next program inherits. It has
//! no path, so no other process can open it.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::{HandoverError, Message};
use crate::os;

/// The longest message.
const MAX_BYTES: usize = 16 << 10;
/// How long a message may wait for the other program to read the ones before.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// One end of the channel.
#[derive(Debug)]
pub struct Channel(Socket);

impl Channel {
    /// Both ends: the running program's, and the one that the next program inherits.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (own, inherited) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        own.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok((Channel(own), inherited.into()))
    }

    /// The inherited end. An error if it is anything else.
    pub fn inherited(descriptor: OwnedFd) -> io::Result<Channel> {
        let socket = Socket::from(descriptor);
        if !socket.local_addr()?.is_unix() || socket.r#type()? != Type::SEQPACKET {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Channel(socket))
    }

    /// Limits how long a message is waited for.
    pub(super) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(patience)
    }

    /// Sends a message, and descriptors with it.
    pub(super) fn send(&self, message: &Message, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        os::send_with_descriptors(self.0.as_fd(), &bytes, with)
    }

    /// Waits for a message; `None` if the other program has ended.
    pub(super) fn receive(&self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_BYTES];
        loop {
            match os::receive_with_descriptors(self.0.as_fd(), &mut bytes) {
                Ok((0, _)) => return Ok(None),
                Ok((length, with)) => return Ok(Some((serde_json::from_slice(&bytes[..length])?, with))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// The same while the other program must still be there.
    pub(super) fn expect(&self) -> Result<(Message, Vec<OwnedFd>), HandoverError> {
        self.receive()?.ok_or(HandoverError::NotTaken)
    }

    /// Says that no more messages follow: the other program receives those before, and then the end.
    pub(super) fn end_sending(&self) {
        // The call fails only if the other program has gone.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Ends the channel for both programs.
    pub(super) fn close(&self) {
        // The call fails only if the other program has gone.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_bring_descriptors_and_an_end_is_not_a_message() {
        let (own, inherited) = Channel::pair().unwrap();
        let other = Channel::inherited(inherited).unwrap();
        let mut file = tempfile();
        file.write_all(b"shared").unwrap();
        own.send(&Message::Ended { id: 7 }, &[]).unwrap();
        own.send(&Message::Connection { listener: 1 }, &[file.as_fd(), file.as_fd()]).unwrap();
        let (message, with) = other.receive().unwrap().unwrap();
        assert!(message == Message::Ended { id: 7 } && with.is_empty());
        let (message, with) = other.receive().unwrap().unwrap();
        assert!(message == Message::Connection { listener: 1 } && with.len() == 2);
        let (mut file, mut text) = (File::from(with.into_iter().next().unwrap()), String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "shared");
        drop(own);
        assert!(other.receive().unwrap().is_none());
    }

    /// A file without a name.
    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!("tributary-channel-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn something_else_is_not_a_channel() {
        assert!(Channel::inherited(File::open("/dev/null").unwrap().into()).is_err());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(Channel::inherited(socket.into()).is_err());
    }
}
