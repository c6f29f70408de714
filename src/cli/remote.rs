//! Asking the running agent over its control socket.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::clock::Mono;
use crate::desk::{Event, Status, Wish};
use crate::state::StateError;
use crate::wait::{Interest, Readiness, Wait};

/// The most bytes of an answer's head.
const MAX_HEAD: u64 = 16 * 1024;
/// The most bytes of a line or of a whole status.
const MAX_BODY: u64 = 16 * 1024 * 1024;
/// An agent answers between two steps, whatever it is doing; a slow card can make a step last seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks how things stand.
///
/// # Errors
/// Nobody listens there, or what comes is no status.
pub(super) fn status(socket: &Path, wait: &Wait) -> io::Result<Status> {
    let (_, body) = ask(
        socket,
        wait,
        b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )?;
    let mut text = String::new();
    body.take(MAX_BODY).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Leaves a wish and hands on what is told, until it is done.
///
/// # Errors
/// Nobody listens there, or the answer ends before the wish is done.
pub(super) fn wish(
    socket: &Path,
    wait: &Wait,
    wish: &Wish,
    mut each: impl FnMut(Event),
) -> io::Result<()> {
    let body = serde_json::to_string(wish).map_err(io::Error::other)?;
    let request = format!(
        "POST /wish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, mut stream) = ask(socket, wait, request.as_bytes())?;
    if status != 200 {
        let mut why = String::new();
        stream.take(MAX_HEAD).read_to_string(&mut why)?;
        return Err(io::Error::other(format!("{status}: {}", why.trim())));
    }
    // A pull may take hours and tell nothing for a while.
    stream.get_mut().deadline = None;
    loop {
        // Each event is one chunk: its length, one line, an empty line.
        let mut line = String::new();
        if stream.by_ref().take(MAX_BODY).read_line(&mut line)? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "went away before it was done",
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

/// Why somebody who holds the state directory could not be asked, and what to do.
pub(super) fn unreachable(taken: &StateError, socket: &Path, cause: &io::Error) -> String {
    let socket = socket.display();
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
            "{taken}, and no agent listens at {socket}: it is another command that will be done soon, or an agent with another `[agent] control`; try again"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("{taken}; to ask it at {socket} takes its user or group: {cause}")
        }
        io::ErrorKind::UnexpectedEof => {
            format!("the running agent, asked at {socket}, {cause}; try again")
        }
        _ => format!("{taken}; asked at {socket}: {cause}"),
    }
}

/// A socket that is read through the wait, so that a signal ends it.
struct Polled<'a> {
    stream: UnixStream,
    wait: &'a Wait,
    deadline: Option<Mono>,
}

impl Read for Polled<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let fd = self.stream.as_fd();
            match self.wait.fd_ready(fd, Interest::Read, self.deadline)? {
                Readiness::Ready => {}
                Readiness::DeadlinePassed => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("no answer within {} s", PATIENCE.as_secs()),
                    ));
                }
            }
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

fn ask<'a>(
    socket: &Path,
    wait: &'a Wait,
    request: &[u8],
) -> io::Result<(u16, BufReader<Polled<'a>>)> {
    let mut stream = UnixStream::connect(socket)?;
    // A few hundred bytes: they fit into the socket's buffer.
    stream.write_all(request)?;
    stream.set_nonblocking(true)?;
    let mut stream = BufReader::new(Polled {
        stream,
        wait,
        deadline: Some(wait.now().after(PATIENCE)),
    });
    let mut head = Vec::new();
    let mut limited = stream.by_ref().take(MAX_HEAD);
    while !head.ends_with(b"\r\n\r\n") {
        if limited.read_until(b'\n', &mut head)? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "gave no answer",
            ));
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut answer = httparse::Response::new(&mut fields);
    answer.parse(&head).map_err(io::Error::other)?;
    Ok((answer.code.unwrap_or(0), stream))
}
