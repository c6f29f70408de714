//! Times in a form of an API's own: a pattern as `strftime` takes it, and the zone that its local times are in.

use std::fmt;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::{Offset, TimeZone};

/// A pattern, and the zone of the times that it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    zone: Option<Zone>,
}

/// A zone as the config names it, with its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Zone {
    name: String,
    rules: TimeZone,
}

/// Why a pattern is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadPattern {
    /// It cannot be written or read back, in the formatter's words.
    Unusable(String),
    /// What it writes does not say which instant it is, to the day at least.
    Vague,
    /// It has neither an offset nor a zone.
    NoZone,
    /// There is no such zone.
    UnknownZone,
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(why) => write!(f, "is no pattern that can be written and read: {why}"),
            Self::Vague => f.write_str(
                "does not say which instant it is: it lacks the year in four digits, the day, or `%p` beside a clock of twelve hours",
            ),
            Self::NoZone => f.write_str("has no offset (`%z`), and there is no `zone`"),
            Self::UnknownZone => f.write_str("is no zone that this machine knows"),
        }
    }
}

impl std::error::Error for BadPattern {}

impl Pattern {
    /// A pattern of `strftime`'s directives, and the zone of its times: `UTC`, an offset such as `+01:00`, a name of the
    /// machine's time zone database such as `Europe/Berlin`, or rules as POSIX writes them, which need no database
    /// (`CET-1CEST,M3.5.0,M10.5.0/3`). With `%z` in the pattern times are read as it says, and `zone` (UTC, if there is
    /// none) is only for writing.
    ///
    /// # Errors
    /// [`BadPattern`]: what it writes could not be read back as the same instant, to the day at least.
    pub fn new(text: &str, zone: Option<&str>) -> Result<Self, BadPattern> {
        let zone = zone
            .map(|name| {
                let rules = rules(name).ok_or(BadPattern::UnknownZone)?;
                let name = name.to_owned();
                Ok(Zone { name, rules })
            })
            .transpose()?;
        let pattern = Self {
            text: text.to_owned(),
            zone,
        };
        for sample in SAMPLES {
            pattern.try_out(Timestamp::constant(sample, 500_000_000))?;
        }
        Ok(pattern)
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The zone as it was given.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_ref().map(|zone| zone.name.as_str())
    }

    fn rules(&self) -> &TimeZone {
        const UTC: &TimeZone = &TimeZone::UTC;
        self.zone.as_ref().map_or(UTC, |zone| &zone.rules)
    }

    /// Whether an instant survives, to the day at least.
    fn try_out(&self, time: Timestamp) -> Result<(), BadPattern> {
        let unusable = |error: jiff::Error| BadPattern::Unusable(error.to_string());
        let text = self.format(time).map_err(unusable)?;
        let read = strtime::parse(&self.text, &text).map_err(unusable)?;
        if read.to_timestamp().is_err() && self.zone.is_none() {
            return Err(match read.to_datetime() {
                Ok(_) => BadPattern::NoZone,
                Err(_) => BadPattern::Vague,
            });
        }
        let back = self.earliest(&text).ok_or(BadPattern::Vague)?;
        let cut = time.duration_since(back).as_secs();
        // Half a day earlier the text has to be another one, unless it is no more than a day.
        let before = time.saturating_sub(HALF_A_DAY).unwrap_or(time);
        let only_a_day = self.rules().to_datetime(back).time() == jiff::civil::Time::midnight();
        let same = self.format(before).map_err(unusable)? == text;
        if (0..DAY).contains(&cut) && (!same || only_a_day) {
            Ok(())
        } else {
            Err(BadPattern::Vague)
        }
    }

    fn format(&self, time: Timestamp) -> Result<String, jiff::Error> {
        strtime::format(&self.text, &time.to_zoned_datetime(self.rules().clone()))
    }

    /// Writes `time`, or the latest moment before it that the pattern can write without a doubt: see
    /// [`super::TimeFormat::write`]. `None`: it cannot be written at all, which no instant was found for that [`Pattern::new`]
    /// lets through.
    pub(super) fn write(&self, time: Timestamp) -> Option<String> {
        let text = self.format(time).ok()?;
        if self.latest(&text).is_none_or(|latest| latest <= time) {
            return Some(text);
        }
        // The hour that is repeated when summer time ends, for the first time: whoever reads this text may take it for the
        // second time, an hour later. The last moment before the repeated hour is the same to everybody.
        let end = self.rules().following(time).next()?;
        let back = self.rules().to_offset(time).duration_since(end.offset());
        let start = end.timestamp().saturating_sub(back).ok()?;
        let before = start.saturating_sub(std::time::Duration::from_nanos(1));
        self.format(before.ok()?).ok()
    }

    /// The earliest instant that `text` can mean. A local time that is there twice, or is left out, when clocks are put
    /// back or forth, is taken for the earlier of its two: what starts there is asked for rather too early.
    pub(super) fn earliest(&self, text: &str) -> Option<Timestamp> {
        self.read(text, |local| local.earlier())
    }

    fn latest(&self, text: &str) -> Option<Timestamp> {
        self.read(text, |local| local.later())
    }

    fn read(
        &self,
        text: &str,
        settle: impl Fn(jiff::tz::AmbiguousTimestamp) -> Result<Timestamp, jiff::Error>,
    ) -> Option<Timestamp> {
        let read = strtime::parse(&self.text, text).ok()?;
        if let Ok(time) = read.to_timestamp() {
            return Some(time);
        }
        let zone = self.zone.as_ref()?;
        let local = read.to_datetime().ok()?;
        settle(zone.rules.to_ambiguous_timestamp(local)).ok()
    }
}

const DAY: i64 = 24 * 3600 + 3600;
const HALF_A_DAY: std::time::Duration = std::time::Duration::from_secs(12 * 3600);

/// Seconds: 1970, a summer's evening of 2026, and beyond what two digits of a year can say.
const SAMPLES: [i64; 3] = [200_000, 1_784_151_119, 4_133_980_799];

fn rules(name: &str) -> Option<TimeZone> {
    match name {
        "UTC" | "Z" => return Some(TimeZone::UTC),
        "" => return None,
        _ => {}
    }
    fixed(name)
        .map(TimeZone::fixed)
        .or_else(|| TimeZone::get(name).ok())
        .or_else(|| TimeZone::posix(name).ok())
}

/// `±hh:mm` or `±hhmm`.
fn fixed(name: &str) -> Option<Offset> {
    let (sign, rest) = match name.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let digits: Vec<i32> = rest
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(10).and_then(|digit| i32::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    match digits.as_slice() {
        [h, hh, m, mm] if h * 10 + hh < 24 && m * 10 + mm < 60 => {
            Offset::from_seconds(sign * ((h * 10 + hh) * 3600 + (m * 10 + mm) * 60)).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
