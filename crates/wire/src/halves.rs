//! The two directions of a connection, in plain TCP or in TLS. An enum: plain TCP costs one branch.
//!
//! With TLS both directions share the session behind a lock that is held for a single poll, never
//! while one of them waits: reading does not wait for writing here either.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::FutureExt;
use std::io;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tokio_rustls::TlsStream;

/// Both directions of a connected socket.
#[derive(Debug)]
pub(crate) struct Halves {
    pub(crate) read: ReadHalf,
    pub(crate) write: WriteHalf,
}

/// Where a connection's bytes come from.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    Plain(OwnedReadHalf),
    Tls {
        stream: tokio::io::ReadHalf<TlsStream<TcpStream>>,
        /// A byte that was read to find out that there is one.
        peeked: Option<u8>,
    },
}

/// Where a connection's bytes go.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    Plain(OwnedWriteHalf),
    Tls(tokio::io::WriteHalf<TlsStream<TcpStream>>),
}

impl From<TcpStream> for Halves {
    fn from(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self { read: ReadHalf::Plain(read), write: WriteHalf::Plain(write) }
    }
}

impl From<TlsStream<TcpStream>> for Halves {
    fn from(stream: TlsStream<TcpStream>) -> Self {
        let (stream, write) = tokio::io::split(stream);
        Self { read: ReadHalf::Tls { stream, peeked: None }, write: WriteHalf::Tls(write) }
    }
}

impl ReadHalf {
    /// Waits until [`Self::try_read_buf`] has something to say. No buffer is needed meanwhile, and
    /// dropping the future loses nothing.
    pub(crate) async fn readable(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.readable().await,
            Self::Tls { peeked: Some(_), .. } => Ok(()),
            Self::Tls { stream, peeked } => {
                // A socket that is readable may hold no whole record: only the session knows.
                let mut byte = [0];
                if stream.read(&mut byte).await? > 0 {
                    *peeked = Some(byte[0]);
                }
                Ok(())
            }
        }
    }

    /// Reads what is there; `WouldBlock` when that is nothing, 0 at the end.
    pub(crate) fn try_read_buf(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read_buf(buffer),
            Self::Tls { stream, peeked } => {
                let first = peeked.take();
                if let Some(byte) = first {
                    buffer.put_u8(byte);
                }
                // `readable` waits with the task's own waker afterwards, so that none is lost here.
                match (stream.read_buf(buffer).now_or_never(), first) {
                    (Some(Ok(count)), None) => Ok(count),
                    (Some(Ok(count)), Some(_)) => Ok(count + 1),
                    // A broken session says so again.
                    (None | Some(Err(_)), Some(_)) => Ok(1),
                    (Some(Err(error)), None) => Err(error),
                    (None, None) => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }
}

impl WriteHalf {
    /// Writes a part of `chunk` and takes it off. Bytes that are counted were handed to the socket.
    pub(crate) async fn write_buf(&mut self, chunk: &mut Bytes) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_buf(chunk).await,
            Self::Tls(stream) => {
                let count = stream.write(chunk).await?;
                // The session may still hold records.
                stream.flush().await?;
                chunk.advance(count);
                Ok(count)
            }
        }
    }

    /// Says that no more comes.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
        }
    }
}
