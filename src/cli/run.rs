//! `gleaner run`: stay and pull on schedule.

use std::path::Path;

use super::exit::Exit;
use super::output;
use crate::agent::Agent;
use crate::config::Config;
use crate::desk::Desk;
use crate::door::ControlDoor;
use crate::state::StateError;
use crate::wait::Wait;

pub(super) fn run(config: Config, path: &Path, wait: &Wait) -> Exit {
    let desk = Desk::default();
    let mut agent = Agent::new(config, wait.clone(), desk.clone());
    match agent.open() {
        Ok(()) => {}
        Err(error @ (StateError::Taken { .. } | StateError::Foreign { .. })) => {
            output::error(&error.to_string());
            return Exit::from(&error);
        }
        // It may come back: a full disk, a mount that is late.
        Err(error) => agent.cannot_open(&error),
    }
    match ControlDoor::open(&agent.control(), agent.control_mode(), desk) {
        Ok(door) => wait.attend(Box::new(door)),
        Err(error) => {
            // Data comes first: without the socket the agent still pulls.
            log::error!(
                "control socket {}: {error}; `status` and `sync` cannot ask this agent",
                agent.control().display()
            );
        }
    }
    agent.listen(&|name| std::env::var_os(name));
    log::info!(
        "gleaner {} started with {} sources, control socket {}",
        env!("CARGO_PKG_VERSION"),
        agent.sources().count(),
        agent.control().display()
    );
    match agent.run(path) {
        Ok(()) => {
            log::info!("stopped");
            Exit::Ok
        }
        Err(error) => {
            output::error(&format!("waiting failed: {error}"));
            Exit::Device
        }
    }
}
