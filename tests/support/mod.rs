//! What the tests share: a scripted upstream, a proxy, certificates, and the client side put together.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]
#![allow(unreachable_pub, reason = "a module of each test file")]

pub mod agent;
pub mod answer;
pub mod attendant;
pub mod client;
pub mod cut;
pub mod cuts;
pub mod cutter;
pub mod device;
pub mod dice;
pub mod door;
pub mod feed;
pub mod files;
pub mod gleaner;
pub mod hooks;
pub mod kinto;
pub mod mount;
pub mod naive;
pub mod parts;
pub mod pki;
pub mod proxy;
pub mod quakes;
pub mod replay;
pub mod season;
pub mod trace;
pub mod upstream;
pub mod wire;
pub mod world;
