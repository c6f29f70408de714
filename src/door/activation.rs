//! Sockets that systemd opened and passed on (`sd_listen_fds(3)`).

use std::os::fd::OwnedFd;
use std::{fmt, io};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The first file descriptor that is passed.
const FIRST: i32 = 3;

/// One socket that was passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Its number.
    pub fd: i32,
    /// Its name: `FileDescriptorName=` of the socket unit, or the unit's own.
    pub name: String,
}

/// What was passed cannot be used.
#[derive(Debug)]
pub enum ActivationError {
    /// A variable holds no number, or none that can be.
    NoNumber {
        /// Which.
        variable: &'static str,
        /// What it holds.
        value: String,
    },
    /// There are not as many names as sockets.
    Names {
        /// Sockets.
        sockets: usize,
        /// Names.
        names: usize,
    },
    /// A socket cannot be taken over.
    Taking {
        /// Its name.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// What was passed is no listening stream socket.
    NoListener {
        /// Its name.
        name: String,
    },
    /// No socket of this name was passed.
    Missing {
        /// The name.
        name: String,
    },
}

impl fmt::Display for ActivationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber { variable, value } => {
                write!(
                    f,
                    "{variable} is {value:?}, expected a number as systemd sets it"
                )
            }
            Self::Names { sockets, names } => write!(
                f,
                "LISTEN_FDNAMES has {names} names for the {sockets} sockets of LISTEN_FDS"
            ),
            Self::Taking { name, error } => write!(
                f,
                "cannot take the socket {name:?} over from systemd: {error}; this needs Linux 5.6, and a SystemCallFilter= has to let pidfd_open and pidfd_getfd pass"
            ),
            Self::NoListener { name } => write!(
                f,
                "the socket {name:?} passed by systemd does not listen; it needs ListenStream= and Accept=no"
            ),
            Self::Missing { name } => write!(
                f,
                "systemd passed no socket named {name:?}: is a socket unit with FileDescriptorName={name} running?"
            ),
        }
    }
}

impl std::error::Error for ActivationError {}

/// What this process was passed.
///
/// # Errors
/// The variables contradict each other.
pub(super) fn passed_here() -> Result<Vec<Passed>, ActivationError> {
    passed(
        |name| std::env::var(name).ok(),
        getpid().as_raw_nonzero().get(),
    )
}

/// What the process `pid` was passed, by its variables `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`: nothing if they are
/// not there or are meant for another process.
///
/// # Errors
/// They contradict each other.
pub fn passed(
    variable: impl Fn(&str) -> Option<String>,
    pid: i32,
) -> Result<Vec<Passed>, ActivationError> {
    let (Some(meant_for), Some(count)) = (variable("LISTEN_PID"), variable("LISTEN_FDS")) else {
        return Ok(Vec::new());
    };
    if number("LISTEN_PID", &meant_for)? != pid {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS", &count)?;
    let fds: Vec<i32> = (FIRST..FIRST.saturating_add(count)).collect();
    let names: Vec<String> = match variable("LISTEN_FDNAMES") {
        Some(names) if !fds.is_empty() => names.split(':').map(str::to_owned).collect(),
        _ => vec!["unknown".to_owned(); fds.len()],
    };
    if names.len() != fds.len() {
        return Err(ActivationError::Names {
            sockets: fds.len(),
            names: names.len(),
        });
    }
    let both = fds.into_iter().zip(names);
    Ok(both.map(|(fd, name)| Passed { fd, name }).collect())
}

fn number(variable: &'static str, value: &str) -> Result<i32, ActivationError> {
    value
        .parse()
        .ok()
        // More than this no process has open; a mistake must not cost memory.
        .filter(|number| variable == "LISTEN_PID" || (0..=1024).contains(number))
        .ok_or_else(|| ActivationError::NoNumber {
            variable,
            value: value.to_owned(),
        })
}

/// A handle of our own on what was passed. A bare number becomes a handle only through `unsafe`, or by asking the kernel
/// for a copy of one's own descriptor. The passed one stays open beside it, until the process ends.
pub(super) fn take(passed: &Passed) -> Result<OwnedFd, ActivationError> {
    pidfd_open(getpid(), PidfdFlags::empty())
        .and_then(|here| pidfd_getfd(here, passed.fd, PidfdGetfdFlags::empty()))
        .map_err(|error| ActivationError::Taking {
            name: passed.name.clone(),
            error: error.into(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_variables_say() {
        let all = [
            // LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES → what is passed to process 42
            (None, None, None, Ok(vec![])),
            (Some("42"), None, None, Ok(vec![])),
            (None, Some("1"), None, Ok(vec![])),
            (Some("43"), Some("1"), None, Ok(vec![])),
            (Some("42"), Some("0"), Some(""), Ok(vec![])),
            (Some("42"), Some("1"), None, Ok(vec![(3, "unknown")])),
            (Some("42"), Some("1"), Some("hooks"), Ok(vec![(3, "hooks")])),
            (
                Some("42"),
                Some("2"),
                Some("a:b"),
                Ok(vec![(3, "a"), (4, "b")]),
            ),
            (
                Some("42"),
                Some("2"),
                Some(":b"),
                Ok(vec![(3, ""), (4, "b")]),
            ),
            (
                Some("42"),
                Some("2"),
                Some("a"),
                Err("LISTEN_FDNAMES has 1 names for the 2 sockets of LISTEN_FDS"),
            ),
            (
                Some("42"),
                Some("1"),
                Some("a:b"),
                Err("LISTEN_FDNAMES has 2 names for the 1 sockets of LISTEN_FDS"),
            ),
            (
                Some("me"),
                Some("1"),
                None,
                Err("LISTEN_PID is \"me\", expected a number as systemd sets it"),
            ),
            (
                Some("42"),
                Some("-1"),
                None,
                Err("LISTEN_FDS is \"-1\", expected a number as systemd sets it"),
            ),
            (
                Some("42"),
                Some("2000000000"),
                None,
                Err("LISTEN_FDS is \"2000000000\", expected a number as systemd sets it"),
            ),
        ];
        for (pid, fds, names, expected) in all {
            let read = passed(
                |variable| {
                    let value = match variable {
                        "LISTEN_PID" => pid,
                        "LISTEN_FDS" => fds,
                        _ => names,
                    };
                    value.map(str::to_owned)
                },
                42,
            );
            let read = read.map_err(|error| error.to_string());
            let expected = expected
                .map(|all| {
                    let passed = all.into_iter().map(|(fd, name): (i32, &str)| Passed {
                        fd,
                        name: name.to_owned(),
                    });
                    passed.collect::<Vec<_>>()
                })
                .map_err(str::to_owned);
            assert_eq!(read, expected, "{pid:?} {fds:?} {names:?}");
        }
    }
}
