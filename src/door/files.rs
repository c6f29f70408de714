//! File descriptors: as many as the door needs, as far as the system lets it have them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What everything else in the process may need: the store, `data.db`, upstreams, the control socket, name lookups.
const OTHERS: u64 = 64;
/// A door with fewer connections than this is none.
const FEWEST: u64 = 8;

/// What there is to do about the limit of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    /// It suffices.
    Enough,
    /// The soft limit can be raised to this.
    Raise(u64),
    /// The hard limit is this, and lets no more than so many connections be open.
    Short { hard: u64, connections: u64 },
}

/// Decides what `connections` beside `extra` descriptors of the door need.
fn decide(limit: Rlimit, connections: u64, extra: u64) -> Files {
    let needed = connections + extra + OTHERS;
    let suffices = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    match limit.maximum {
        _ if suffices(limit.current) => Files::Enough,
        Some(hard) if hard < needed => Files::Short {
            hard,
            connections: hard.saturating_sub(extra + OTHERS).max(FEWEST),
        },
        _ => Files::Raise(needed),
    }
}

/// Raises the soft limit to fit, and answers how many connections there can be. Says so when these are fewer.
pub(super) fn make_room(connections: usize, extra: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let (soft, granted) = match decide(limit, connections as u64, extra as u64) {
        Files::Enough => return connections,
        Files::Raise(soft) => (soft, connections),
        Files::Short {
            hard,
            connections: fewer,
        } => {
            let fewer = usize::try_from(fewer)
                .unwrap_or(connections)
                .min(connections);
            log::warn!(
                "door: at most {hard} files may be open (LimitNOFILE=), which is enough for {fewer} connections instead of {connections}"
            );
            (hard, fewer)
        }
    };
    let raised = Rlimit {
        current: Some(soft),
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::warn!("door: the limit of open files cannot be raised to {soft}: {error}");
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_rises_as_far_as_the_hard_one() {
        let table = [
            (Some(1024), Some(4096), Files::Enough),
            (None, None, Files::Enough),
            (Some(374), Some(374), Files::Enough),
            (Some(256), Some(4096), Files::Raise(374)),
            (Some(256), None, Files::Raise(374)),
            (
                Some(256),
                Some(256),
                Files::Short {
                    hard: 256,
                    connections: 182,
                },
            ),
            (
                Some(32),
                Some(64),
                Files::Short {
                    hard: 64,
                    connections: 8,
                },
            ),
        ];
        for (current, maximum, expected) in table {
            assert_eq!(
                decide(Rlimit { current, maximum }, 300, 10),
                expected,
                "{current:?} {maximum:?}"
            );
        }
    }
}
