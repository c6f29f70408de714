//! `gleaner check`: is the config right, and do the sources answer as it says?

use super::exit::Exit;
use super::output;
use super::sync::{Shape, grant};
use crate::config::{self, Config};
use crate::desk::Wish;
use crate::wait::Wait;

pub(super) fn check(config: Config, wait: &Wait, live: bool) -> Exit {
    if !live {
        output::line(config::print(&config).trim_end());
        return Exit::Ok;
    }
    let wish = Wish {
        sources: (config.sources.keys().chain(config.documents.keys()))
            .cloned()
            .collect(),
        probe: true,
        ..Wish::default()
    };
    grant(config, wait, &wish, Shape::Probe)
}
