//! A spell in which payloads cannot be saved: said when it begins, then hourly with a count, and when it is over. Senders try
//! again for days, so a line for each refusal would fill a log and tell nothing more.

use std::time::Duration;

use crate::clock::Mono;
use crate::inbox::{Inbox, InboxError};

/// How often it is said that it lasts.
const REMIND: Duration = Duration::from_secs(3600);

/// Whether payloads cannot be saved, and what was said about that.
#[derive(Debug, Default)]
pub(super) struct Spell(Option<Trouble>);

#[derive(Debug)]
struct Trouble {
    word: &'static str,
    reason: String,
    /// Whether it is over can be told by looking: room is what is missing. Else only the next payload tells.
    is_full: bool,
    /// The bytes that found no room last.
    need: u64,
    began: Mono,
    said: Mono,
    refused: u64,
}

impl Spell {
    /// One more payload could not be saved.
    pub(super) fn met(&mut self, error: &InboxError, need: u64, now: Mono) {
        if let Some(line) = self.note(error, need, now) {
            log::error!("{line}");
        }
    }

    /// What there is to say of it.
    fn note(&mut self, error: &InboxError, need: u64, now: Mono) -> Option<String> {
        let (word, reason) = (error.word(), error.to_string());
        let same = self.0.take().filter(|trouble| trouble.word == word);
        let is_new = same.is_none();
        let mut trouble = same.unwrap_or(Trouble {
            word,
            reason: String::new(),
            is_full: error.is_full(),
            need,
            began: now,
            said: now,
            refused: 0,
        });
        trouble.refused += 1;
        (trouble.reason, trouble.need) = (reason, need);
        let line = if is_new {
            Some(format!(
                "events cannot be saved and are answered with 503: {}",
                trouble.reason
            ))
        } else if now.since(trouble.said) >= REMIND {
            trouble.said = now;
            Some(format!(
                "events still cannot be saved, {} were refused in {} min: {}",
                trouble.refused,
                now.since(trouble.began).as_secs() / 60,
                trouble.reason
            ))
        } else {
            None
        };
        self.0 = Some(trouble);
        line
    }

    /// A payload was saved.
    pub(super) fn over(&mut self, now: Mono) {
        if let Some(line) = self.end(now) {
            log::info!("{line}");
        }
    }

    fn end(&mut self, now: Mono) -> Option<String> {
        let trouble = self.0.take()?;
        Some(format!(
            "events can be saved again: {} were refused in {} s, and their senders try again",
            trouble.refused,
            now.since(trouble.began).as_secs()
        ))
    }

    /// Whether it lasts, as far as is known.
    pub(super) fn lasts(&self) -> bool {
        self.0.is_some()
    }

    /// Looks whether there is room; why payloads cannot be saved, for people.
    pub(super) fn look(&mut self, inbox: &Inbox, now: Mono) -> Option<String> {
        let need = self.0.as_ref().map_or(0, |trouble| trouble.need);
        let reason = match (inbox.has_room(need), &self.0) {
            (Err(error), _) => error.to_string(),
            (Ok(()), Some(trouble)) if !trouble.is_full => trouble.reason.clone(),
            (Ok(()), _) => {
                self.over(now);
                return None;
            }
        };
        Some(format!(
            "events cannot be saved and are answered with 503: {reason}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Full;

    fn low(free: u64) -> InboxError {
        InboxError::Full(Full::LowWater {
            path: "/var/lib/gleaner/inbox".into(),
            free,
            low_water: 16 << 20,
        })
    }

    #[test]
    fn a_spell_is_said_once_then_hourly_and_when_it_is_over() {
        let mut spell = Spell::default();
        let start = Mono::default();
        let at = |seconds| start.after(Duration::from_secs(seconds));
        assert_eq!(
            spell.note(&low(3 << 19), 0, at(0)).as_deref(),
            Some(
                "events cannot be saved and are answered with 503: only 1.5 MiB are free on the file system of /var/lib/gleaner/inbox, and 16 MiB are to be left; make room"
            )
        );
        // What is free changes all the time: that is nothing new.
        let said = (1..3600).filter_map(|second| spell.note(&low(second), 0, at(second)));
        assert_eq!(said.count(), 0);
        assert_eq!(
            spell.note(&low(9), 0, at(3600)).as_deref(),
            Some(
                "events still cannot be saved, 3601 were refused in 60 min: only 9 B are free on the file system of /var/lib/gleaner/inbox, and 16 MiB are to be left; make room"
            )
        );
        assert_eq!(spell.note(&low(9), 0, at(7199)), None);
        let full = InboxError::Full(Full::Backlog { outstanding: 7 });
        assert!(spell.note(&full, 0, at(7200)).is_some(), "another trouble");
        assert!(spell.lasts());
        assert_eq!(
            spell.end(at(7260)).as_deref(),
            Some("events can be saved again: 1 were refused in 60 s, and their senders try again")
        );
        assert_eq!(spell.end(at(7260)), None);
        assert!(spell.note(&full, 0, at(7300)).is_some(), "a new one");
    }
}
