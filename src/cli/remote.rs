//! Asking the running agent over its control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::desk::{Event, Status, Wish};

/// The most bytes of an answer's head.
const MAX_HEAD: usize = 16 * 1024;
/// The most bytes of a line or of a whole status.
const MAX_BODY: u64 = 16 * 1024 * 1024;

/// Asks how things stand.
///
/// # Errors
/// Nobody listens there, or what comes is no status.
pub(super) fn status(socket: &Path) -> io::Result<Status> {
    let (_, body) = ask(
        socket,
        "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n".as_bytes(),
    )?;
    let mut text = String::new();
    body.take(MAX_BODY).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Leaves a wish and hands on what is told, until it is done.
///
/// # Errors
/// Nobody listens there, or the answer ends before the wish is done.
pub(super) fn wish(socket: &Path, wish: &Wish, mut each: impl FnMut(Event)) -> io::Result<()> {
    let body = serde_json::to_string(wish).map_err(io::Error::other)?;
    let request = format!(
        "POST /wish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, mut stream) = ask(socket, request.as_bytes())?;
    if status != 200 {
        return Err(io::Error::other(format!("the agent answers {status}")));
    }
    loop {
        // Each event is one chunk: its length, one line, an empty line.
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the agent went away before it was done",
            ));
        }
        if line.starts_with('{') || line.starts_with('"') {
            match serde_json::from_str(&line) {
                Ok(Event::Done) => return Ok(()),
                Ok(event) => each(event),
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }
}

fn ask(socket: &Path, request: &[u8]) -> io::Result<(u16, BufReader<UnixStream>)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(request)?;
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream
            .by_ref()
            .take(MAX_HEAD as u64)
            .read_until(b'\n', &mut head)?
            == 0
            || head.len() > MAX_HEAD
        {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no answer"));
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut answer = httparse::Response::new(&mut fields);
    answer.parse(&head).map_err(io::Error::other)?;
    Ok((answer.code.unwrap_or(0), stream))
}
