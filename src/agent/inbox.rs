//! What a person wants to become of payloads in the inbox.

use super::Agent;
use crate::desk::{Event, InboxWish};
use crate::inbox::{self, Inbox, InboxError, Limits};

impl Agent {
    /// Retries or gives up payloads, and says how that went.
    pub(super) fn change_inbox(&mut self, wish: &InboxWish) -> Event {
        if let Err(error) = self.open() {
            return Event::Refused {
                usage: false,
                reason: error.to_string(),
            };
        }
        match self.try_change(wish) {
            Ok(changed) => Event::Inbox { changed },
            Err(error) => Event::Refused {
                usage: error.is_usage(),
                reason: error.to_string(),
            },
        }
    }

    fn try_change(&self, wish: &InboxWish) -> Result<usize, InboxError> {
        if let Some(changed) = self
            .ear
            .reception
            .with_inbox(|inbox| self.change(inbox, wish))
        {
            return changed;
        }
        let dir = self.config.agent.state.join(inbox::NAME);
        // Looking for what is not there yet must not make it.
        if !dir.exists() {
            return match wish {
                InboxWish::Retry(ids) | InboxWish::Drop(ids) => ids
                    .first()
                    .map_or(Ok(0), |id| Err(InboxError::Unknown { id: *id })),
                InboxWish::RetryDead => Ok(0),
            };
        }
        let (mut inbox, opening) = Inbox::open(&dir, Limits::default())?;
        for finding in opening.findings {
            log::warn!("{finding}");
        }
        self.change(&mut inbox, wish)
    }

    fn change(&self, inbox: &mut Inbox, wish: &InboxWish) -> Result<usize, InboxError> {
        let now = self.wait.clock().wall();
        match wish {
            InboxWish::Retry(ids) => inbox.retry(ids, now),
            InboxWish::RetryDead => inbox.retry(&inbox.dead(), now),
            InboxWish::Drop(ids) => inbox.give_up(ids, now),
        }
    }
}
