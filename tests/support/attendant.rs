//! An attendant that answers each byte it is sent, and does meanwhile what a test says.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gleaner::clock::Mono;
use gleaner::wait::{Attendant, Interest, Interests, Ready, Wait};

/// What an [`Echo`] does before it answers.
type Deed = dyn FnMut(u8, &Wait) + Send;

/// The attendant's side.
pub struct Echo {
    socket: UnixStream,
    deed: Box<Deed>,
}

/// The asking side; usually in another thread, where it blocks until it is answered.
pub struct Asker(UnixStream);

impl Echo {
    pub fn new(deed: impl FnMut(u8, &Wait) + Send + 'static) -> (Box<Self>, Asker) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (
            Box::new(Self {
                socket: ours,
                deed: Box::new(deed),
            }),
            Asker(theirs),
        )
    }
}

impl Attendant for Echo {
    fn interests<'a>(&'a self, into: &mut Interests<'a>) {
        into.add(self.socket.as_fd(), 7, Interest::Read);
    }

    fn attend(&mut self, ready: &[Ready], _: Mono, wait: &Wait) -> Option<Mono> {
        for ready in ready {
            assert_eq!((ready.token, ready.readable), (7, true));
            let mut byte = [0];
            if self.socket.read(&mut byte).unwrap() == 1 {
                (self.deed)(byte[0], wait);
                let _asker_gone = self.socket.write(&byte);
            }
        }
        None
    }
}

impl Asker {
    /// Asks and waits for the answer.
    pub fn ask(&mut self, byte: u8) {
        self.tell(byte);
        let mut answer = [0];
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [byte]);
    }

    /// Asks and goes on.
    pub fn tell(&mut self, byte: u8) {
        self.0.write_all(&[byte]).unwrap();
    }
}
