//! A request's body, taken out of the bytes behind its head (RFC 9112 6, 7).

use super::{Framing, Refusal};

/// The most hexadecimal digits of a chunk's size, leading zeros included.
const MAX_SIZE_DIGITS: u8 = 8;
/// The most bytes of chunk extensions in one body. They mean nothing here and are dropped.
const MAX_EXTENSIONS: usize = 256;
/// The most bytes of trailer fields. They are checked and dropped.
const MAX_TRAILERS: usize = 1024;
/// The most trailer fields.
const MAX_TRAILER_FIELDS: usize = 16;

/// Where a body stands.
#[derive(Debug)]
pub struct Frame {
    /// The most bytes that the body may have.
    cap: u64,
    /// Bytes of the body so far.
    taken: u64,
    state: State,
    extensions: usize,
    trailers: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes are still to come.
    Length(u64),
    Size {
        value: u64,
        digits: u8,
    },
    Extension(u64),
    /// The line feed behind a size is due.
    SizeEnd(u64),
    Data(u64),
    /// The carriage return behind a chunk's data is due.
    DataReturn,
    DataEnd,
    Trailers,
    Done,
}

/// How far [`Frame::take`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the input that are used up.
    pub used: usize,
    /// The body is complete; what follows is another request's.
    pub done: bool,
}

impl Frame {
    /// The body of a head that is framed like this, of at most `cap` bytes.
    ///
    /// # Errors
    /// [`Refusal::BodyTooLarge`] when the length is known to be more.
    pub fn new(framing: Framing, cap: u64) -> Result<Self, Refusal> {
        let state = match framing {
            Framing::Length(length) if length > cap => return Err(Refusal::BodyTooLarge),
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size {
                value: 0,
                digits: 0,
            },
        };
        Ok(Self {
            cap,
            taken: 0,
            state,
            extensions: 0,
            trailers: Vec::new(),
        })
    }

    /// The most bytes that the body may still have.
    #[must_use]
    pub fn at_most(&self) -> u64 {
        match self.state {
            State::Length(left) => left,
            State::Done | State::Trailers => 0,
            _ => self.cap - self.taken,
        }
    }

    /// Takes the body's next bytes out of `input`, at most `room` of them. Stops at the end of the input, of the room or
    /// of the body.
    ///
    /// # Errors
    /// [`Refusal`]: too large, or a chunk that can be read in more than one way. What was taken counts for nothing then.
    pub fn take(
        &mut self,
        input: &[u8],
        body: &mut Vec<u8>,
        room: usize,
    ) -> Result<Taken, Refusal> {
        let mut used = 0;
        let mut room = room;
        while self.state != State::Done {
            let Some(rest) = input.get(used..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            if let State::Length(left) | State::Data(left) = self.state {
                let step = rest
                    .len()
                    .min(room)
                    .min(usize::try_from(left).unwrap_or(usize::MAX));
                if step == 0 {
                    break;
                }
                body.extend_from_slice(&rest[..step]);
                used += step;
                room -= step;
                self.taken += step as u64;
                self.state = self.behind(left - step as u64);
            } else {
                self.state = self.step(rest[0])?;
                used += 1;
            }
        }
        Ok(Taken {
            used,
            done: self.state == State::Done,
        })
    }

    fn behind(&self, left: u64) -> State {
        match (self.state, left) {
            (State::Length(_), 0) => State::Done,
            (State::Length(_), left) => State::Length(left),
            (_, 0) => State::DataReturn,
            (_, left) => State::Data(left),
        }
    }

    /// One byte that is no data.
    fn step(&mut self, byte: u8) -> Result<State, Refusal> {
        let malformed = |what| Err(Refusal::Malformed(what));
        match (self.state, byte) {
            (State::Size { value, digits }, byte) if byte.is_ascii_hexdigit() => {
                if digits == MAX_SIZE_DIGITS {
                    return malformed("a chunk's size has too many digits");
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                Ok(State::Size {
                    value: value * 16 + u64::from(digit),
                    digits: digits + 1,
                })
            }
            (State::Size { digits: 0, .. }, _) => malformed("a chunk's size is no number"),
            (State::Size { value, .. }, b';') => Ok(State::Extension(value)),
            (State::Size { value, .. } | State::Extension(value), b'\r') => {
                Ok(State::SizeEnd(value))
            }
            (State::Size { .. }, _) => malformed("a chunk's size is no number"),
            // Never a line feed: some take it for the line's end, and some do not.
            (State::Extension(value), b'\t' | b' '..=b'~') => {
                self.extensions += 1;
                if self.extensions > MAX_EXTENSIONS {
                    return malformed("the chunk extensions are too long");
                }
                Ok(State::Extension(value))
            }
            (State::SizeEnd(0), b'\n') => Ok(State::Trailers),
            (State::SizeEnd(size), b'\n') if size > self.cap - self.taken => {
                Err(Refusal::BodyTooLarge)
            }
            (State::SizeEnd(size), b'\n') => Ok(State::Data(size)),
            (State::DataReturn, b'\r') => Ok(State::DataEnd),
            (State::DataEnd, b'\n') => Ok(State::Size {
                value: 0,
                digits: 0,
            }),
            (State::Trailers, byte) => self.trailer(byte),
            _ => malformed("a chunk does not end where it should"),
        }
    }

    fn trailer(&mut self, byte: u8) -> Result<State, Refusal> {
        if self.trailers.len() == MAX_TRAILERS {
            return Err(Refusal::HeadTooLarge);
        }
        let ends_right = self.trailers.last() == Some(&b'\r');
        if byte == b'\n' && !ends_right {
            return Err(Refusal::Malformed("a line ends without a carriage return"));
        }
        self.trailers.push(byte);
        if self.trailers != b"\r\n" && !self.trailers.ends_with(b"\r\n\r\n") {
            return Ok(State::Trailers);
        }
        let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
        match httparse::parse_headers(&self.trailers, &mut fields) {
            Ok(httparse::Status::Complete(_)) => {
                self.trailers = Vec::new();
                Ok(State::Done)
            }
            Err(httparse::Error::TooManyHeaders) => Err(Refusal::HeadTooLarge),
            _ => Err(Refusal::Malformed("the trailer is no header fields")),
        }
    }
}
