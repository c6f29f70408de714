//! One page: asked for, read or vouched for by a 304, and where it goes on.

use url::Url;

use super::collection::{Pass, broken};
use super::memo::{Memo, Ordinals, page_id};
use super::pages::{Next, PageFacts, PageFault};
use super::records::PageRead;
use crate::clock::Timestamp;
use crate::config::{Cursor, CursorFrom, Pages, Pull};
use crate::pointer::Pointer;
use crate::upstream::client::{Answer, Ask, Full, Head, Held, shown};
use crate::upstream::conditional::{Validators, fresh_for};
use crate::upstream::headers::Headers;
use crate::upstream::outcome::{Expect, Failure, Kind};

/// A page with the records of the one before, so often in a row, is a circle.
const MOST_REPEATS: u8 = 2;

impl Pass<'_, '_> {
    /// One page: its records delivered, its memo kept; what comes next.
    pub(super) fn page(&mut self, url: &Url, number: u32) -> Result<Option<Url>, Failure> {
        let mut stored = self.memo(url)?;
        // What a search by POST gave is not revalidated (RFC 9110 13.1).
        let asks = self.source.search.is_none();
        let usable = stored.as_ref().filter(|memo| asks && self.is_usable(memo));
        let held = usable.map(|memo| Held {
            validators: &memo.validators,
            url: &memo.url,
        });
        let ask = Ask {
            url,
            held,
            expect: Expect::Json,
            allow_empty: self.source.allow_empty,
            search: self.source.search.as_ref(),
        };
        let before = self.wire();
        let now = self.tools.wait.clock().wall();
        let sent = self.tools.wait.now();
        let mut answer = match self.ask(&ask, now) {
            Ok(answer) => answer,
            Err(mut failure) => {
                if number > 1 && failure.kind == Kind::Gone && self.source.pages.is_counted() {
                    failure.reason.push_str("; an API that answers so behind its last page has a `next` link or a flag: see `pages` in docs/config.md");
                }
                return Err(failure);
            }
        };
        let elapsed = self.tools.wait.now().since(sent);
        let mut next = None;
        if let (Answer::NotModified(head), Some(memo)) = (&answer, &stored) {
            next = self.way_on(url, memo, head)?;
            if next.is_none() {
                answer = self.ask(&Ask { held: None, ..ask }, now)?;
            }
        }
        self.tally.pages += 1;
        self.note_time(&answer.head().headers, elapsed);
        if self.misdated {
            // What was asked for is not what is wanted.
            return Ok(None);
        }
        let (memo, head) = match answer {
            Answer::NotModified(head) => {
                // Only a request with a memo's validators is answered so.
                let (Some(mut memo), Some(next)) = (stored.clone(), next) else {
                    return Err(
                        Failure::new(Kind::Failing, "304 although nothing was held").at(shown(url))
                    );
                };
                memo.validators = memo.validators.refreshed_by(&head.headers);
                memo.next = next;
                if let Some(cursor) = self.page_cursor(&head.headers, |_| None, None) {
                    memo.cursor = Some(cursor);
                }
                self.vouched(&memo, before);
                (memo, *head)
            }
            Answer::Empty(head) => (
                self.fetched(url, &head, PageRead::default(), before, now)?,
                *head,
            ),
            Answer::Full(full) => {
                let Full {
                    head,
                    body,
                    proven_end,
                } = *full;
                self.reading = stored.is_some().then(|| page_id(url));
                let read = self.read_body(url, body, proven_end);
                if stored.is_some() && self.reading.take().is_none() {
                    stored = None;
                }
                self.spooled(&read)?;
                let read = read?;
                (self.fetched(url, &head, read, before, now)?, head)
            }
        };
        self.take_cursor(memo.cursor.as_deref());
        self.met.insert(page_id(url));
        self.widest = self.widest.max(memo.records);
        self.notice_circle(url, &memo)?;
        let fresh = fresh_for(&head.headers, now);
        self.fresh = Some(self.fresh.map_or(fresh, |known| known.min(fresh)));
        if head.moved {
            self.note(format!(
                "{} has moved for good to {}: the config should say so",
                shown(url),
                shown(&head.url)
            ));
        }
        // What was delivered has taken the memos with it that vouched for what was there before.
        let stored = if self.tally.delivered() > self.delivered {
            self.memo(url)?
        } else {
            stored
        };
        self.close_page(url, &memo, &head, stored.as_ref(), number)?;
        (self.tools.progress)(&self.tally);
        Ok(memo.next)
    }

    /// Asks for a page: straight, or by way of the disk.
    fn ask(&mut self, ask: &Ask<'_>, now: Timestamp) -> Result<Answer, Failure> {
        let tools = &mut *self.tools;
        if self.source.spool && !self.mode.dry_run {
            tools.spool.ask(tools.client, tools.store, ask)
        } else {
            tools.client.ask(ask, now)
        }
    }

    /// What was downloaded of a page is kept where reading it was cut, so that it is read again from disk; it goes when it was
    /// read, and when it is not what the config says: then it may have been damaged.
    fn spooled(&mut self, read: &Result<PageRead, Failure>) -> Result<(), Failure> {
        let is_over = match read {
            Ok(_) => true,
            Err(failure) => matches!(failure.kind, Kind::BadData | Kind::NotOurs),
        };
        if self.source.spool && !self.mode.dry_run && is_over {
            self.tools.spool.over(self.tools.store)?;
        }
        Ok(())
    }

    /// Counted pages whose parameter the upstream does not know are the same page for ever. Twice the same may be records that
    /// were touched meanwhile and moved on to the next page; and behind an offset a page may come again where the upstream
    /// drops rows that it has counted, for as long as a whole page of rows may lie between.
    fn notice_circle(&mut self, url: &Url, memo: &Memo) -> Result<(), Failure> {
        if !self.source.pages.is_counted() || self.mode.dry_run {
            return Ok(());
        }
        let before = self.before.replace(memo.ordinals.clone());
        if memo.ordinals.is_empty() || before.as_ref() != Some(&memo.ordinals) {
            (self.repeats, self.repeated) = (0, 0);
            return Ok(());
        }
        self.repeats = self.repeats.saturating_add(1);
        self.repeated = self.repeated.saturating_add(memo.records);
        let may_be_rows_left_out = match &self.source.pages {
            Pages::Offset { size, .. } => self.repeated < size.value,
            _ => false,
        };
        if self.repeats < MOST_REPEATS || may_be_rows_left_out {
            return Ok(());
        }
        Err(broken(url, &PageFault::SamePage))
    }

    /// Where it goes on behind a page that answered 304. The validator vouches for the body alone, so a way on that stands
    /// in a header is taken from the 304's own header. If it has none: the way that the memo knows; and where the memo
    /// says that this is the last page, though it may be full, the fields are asked for, since a listing that grows by a
    /// page leaves the body of its last one as it was. The outer `None`: not to be known without the body.
    fn way_on(
        &mut self,
        url: &Url,
        memo: &Memo,
        head: &Head,
    ) -> Result<Option<Option<Url>>, Failure> {
        let Some(field) = self.source.pages.header() else {
            return Ok(Some(memo.next.clone()));
        };
        if head.headers.bytes(field).is_some() {
            let next = self.next_by(url, &head.headers)?;
            // A way on that is gone would end the listing here: that is believed of a body, not of a 304.
            return Ok((next.is_some() || memo.next.is_none()).then_some(next));
        }
        let is_short = memo.records < self.widest;
        if memo.next.is_some() || is_short {
            return Ok(Some(memo.next.clone()));
        }
        match self.tools.client.peek(&memo.url)? {
            Some(headers) => self.next_by(url, &headers).map(Some),
            None => Ok(None),
        }
    }

    /// The next page by the fields of an answer alone.
    fn next_by(&self, url: &Url, headers: &Headers) -> Result<Option<Url>, Failure> {
        let facts = PageFacts {
            asked: url,
            headers,
            found: &|_| None,
            records: 0,
            last_key: None,
        };
        match self.source.pages.next(&facts) {
            Next::Page(next) => Ok(Some(next)),
            Next::End(_) => Ok(None),
            Next::Broken(fault) => Err(broken(url, &fault)),
        }
    }

    /// Places in the envelope that the way on and the cursor want to know.
    pub(super) fn wanted(&self) -> Vec<Pointer> {
        let mut wanted = self.source.pages.wanted();
        if let Pull::Cursor(Cursor {
            from: CursorFrom::Pointer(pointer),
            ..
        }) = &self.source.pull
        {
            if !wanted.contains(pointer) {
                wanted.push(pointer.clone());
            }
        }
        wanted
    }

    fn wire(&self) -> u64 {
        let (up, down) = self.tools.client.traffic();
        up + down
    }

    /// A 304 vouches for the records that the page had.
    fn vouched(&mut self, memo: &Memo, before: u64) {
        self.tally.not_modified += 1;
        self.tally.bad += memo.bad;
        self.bad_vouched += memo.bad;
        let mut met = 0;
        for ordinal in memo.ordinals.iter() {
            met += u64::from(self.marks.mark(ordinal));
        }
        self.tally.unchanged += met;
        self.tally.bytes_saved += memo.wire.saturating_sub(self.wire() - before);
        self.listed += memo.records;
        self.blind |= memo.blind;
    }

    /// The memo of a page that was read in full.
    fn fetched(
        &mut self,
        url: &Url,
        head: &Head,
        read: PageRead,
        before: u64,
        now: Timestamp,
    ) -> Result<Memo, Failure> {
        self.all_304 = false;
        self.listed += read.records;
        self.blind |= read.blind;
        let wanted = self.wanted();
        let found = |pointer: &Pointer| {
            let at = wanted.iter().position(|known| known == pointer)?;
            read.found.get(at).cloned().flatten()
        };
        let facts = PageFacts {
            asked: url,
            headers: &head.headers,
            found: &found,
            records: read.records,
            last_key: read.last_key.as_deref(),
        };
        let next = match self.source.pages.next(&facts) {
            Next::Page(next) => Some(next),
            Next::End(_) => None,
            Next::Broken(fault) => return Err(broken(url, &fault)),
        };
        let cursor = self.page_cursor(&head.headers, found, read.greatest.as_deref());
        Ok(Memo {
            config: self.mode.config,
            url: head.url.clone(),
            validators: if read.unproven {
                Validators::default()
            } else {
                Validators::reliable(&head.headers)
            },
            variant: head.variant.clone(),
            next,
            records: read.records,
            bad: read.bad,
            blind: read.blind,
            wire: self.wire() - before,
            fetched: now.as_second(),
            cursor,
            ordinals: Ordinals::collect(read.met.iter()),
        })
    }
}
