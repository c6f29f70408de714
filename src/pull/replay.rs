//! Delivers everything known again, without asking upstream: for new columns, or a follower that lost its copy.

use super::deliver::{Delivery, Pending};
use super::report::{Outcome, Report, Tally};
use crate::config::Source;
use crate::pull::repair::RepairError;
use crate::record::Known;
use crate::sink::sqlite::SqliteSink;
use crate::store::{Batch, Store};
use crate::upstream::outcome::{Failure, Kind};
use crate::wait::Wait;

/// Bodies that are held at a time.
const CHUNK: usize = 100;

/// Delivers every living row of `data.db` again, in batches, as new generations.
pub fn replay(source: &Source, store: &mut Store, sink: &mut SqliteSink, wait: &Wait) -> Report {
    let started = wait.now();
    let mut tally = Tally::default();
    let outcome = match deliver_all(source, store, sink, wait, &mut tally) {
        Ok(()) => Outcome::Changed,
        Err(failure) => Outcome::Failed(failure),
    };
    let elapsed = wait.now().since(started);
    Report {
        tally,
        elapsed,
        ..Report::new(&source.name, outcome)
    }
}

fn deliver_all(
    source: &Source,
    store: &mut Store,
    sink: &mut SqliteSink,
    wait: &Wait,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let local = |error: RepairError| Failure::new(Kind::Local, error.to_string());
    let id = store
        .source(&source.name)
        .map_err(|error| local(error.into()))?;
    Delivery { store, sink, wait }.settle(source, id)?;
    let mut after = None;
    loop {
        let rows = sink
            .bodies(source, after.as_ref(), CHUNK)
            .map_err(|error| local(error.into()))?;
        let Some((last, _)) = rows.last() else {
            return Ok(());
        };
        after = Some(last.key.clone());
        let mut pending = Pending::default();
        for (row, body) in rows {
            let stored = store
                .find(id, &row.key)
                .map_err(|error| local(error.into()))?;
            // A row that the store does not know is the next pass's matter, not ours.
            let Some(known) = stored else { continue };
            let updated = row
                .updated_ms
                .and_then(|ms| crate::clock::Timestamp::from_millisecond(ms).ok());
            pending.upsert(
                row.key,
                &body,
                updated,
                Known {
                    digest: row.digest,
                    ..known
                },
            );
            tally.changed += 1;
        }
        let mut delivery = Delivery { store, sink, wait };
        let now = wait.clock().wall();
        delivery.flush(source, id, &mut pending, now, Batch::new())?;
        wait.breathe()
            .map_err(|error| crate::upstream::client::failure_of_io(&error))?;
    }
}
