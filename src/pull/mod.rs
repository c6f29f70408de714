//! One pass over a source: reading its records out of a body, telling which of them changed, and delivering those.
//!
//! - [`collection`] walks the pages and keeps the order that makes it safe; `page` asks for one, `records` reads its
//!   records, `deliver` brings changes to the sinks and then to the store, [`follow`] to those who follow a source, `keep` remembers pages and the position,
//!   `course` what is asked for and how far that brought the source, `finish` ends it, `adopt` says what a changed config
//!   undoes;
//! - [`plan`] says which pass is due and why, [`window`] which span of update times it asks for, [`cursor`] which of two
//!   is further, [`pages`] what comes after a page, [`absence`] what a missing record means, [`repair`] what to do when
//!   store and sink disagree: these decide, and do nothing;
//! - [`memo`], [`marks`], [`graves`], [`position`] and [`progress`] are what is kept of a page, of a pass and between passes;
//! - [`select`] streams records out of a body, one at a time, however large the body is;
//! - [`reading`] reads one as the config says, with [`key`];
//! - [`digest`] gives equal digests to equal values, however they are written;
//! - [`audit`] reads the sink's rows back, to see whether they are what was written;
//! - [`carry`] takes records that come outside of a pass;
//! - [`kept`] reads back what is kept of a source, for a person, or has it forgotten; [`standing`] concludes how one record
//!   stands, [`spelling`] which one a person means;
//! - [`volatile`] finds the field that moves when everything seems to change with each pass;
//! - [`report`] is what a pass did, in numbers and in one word; [`replay`] delivers again without asking.

pub mod absence;
mod adopt;
pub mod advice;
pub mod audit;
pub mod carry;
pub(crate) mod codec;
pub mod collection;
mod course;
pub mod cursor;
mod deliver;
pub mod digest;
mod finish;
pub mod follow;
pub mod graves;
mod keep;
pub mod kept;
pub mod key;
pub mod marks;
pub mod memo;
mod page;
pub mod pages;
pub mod plan;
pub mod position;
pub mod progress;
pub mod reading;
mod records;
pub mod repair;
pub mod replay;
pub mod report;
pub mod select;
pub mod spelling;
pub mod standing;
pub mod volatile;
pub mod window;
