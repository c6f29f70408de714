//! `gleaner check`: is the config right, and do the sources answer as it says?

use super::exit::Exit;
use super::output;
use super::sync::{Shape, grant};
use crate::config::{self, Config};
use crate::desk::Wish;
use crate::inbox;
use crate::wait::Wait;

pub(super) fn check(config: Config, wait: &Wait, live: bool) -> Exit {
    if !live {
        if !config.hooks.is_empty() {
            let dir = config.agent.state.join(inbox::NAME);
            if let Err(error) = inbox::on_disk(&dir, inbox::Limits::default().low_water, 0) {
                log::warn!("events will not be saved: {error}");
            }
        }
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
