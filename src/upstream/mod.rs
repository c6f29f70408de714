//! Talking to an upstream: how bytes get there and back.
//!
//! ureq speaks HTTP; what it speaks it over is ours, so that a blocking pull waits in the one [wait](crate::wait).
//!
//! | module | what it does |
//! |---|---|
//! | [`client`] | asks: builds a request, follows redirects by our rules, turns an answer into what it means |
//! | [`outcome`] | what an answer means (pure) |
//! | [`conditional`] | validators, freshness, `Vary`, `Retry-After` (pure) |
//! | [`range`] | the rest of what is held in part (pure) |
//! | [`manners`] | how often an upstream lets itself be asked (pure) |
//! | [`turn`] | when an upstream may be asked next, and the waiting for it |
//! | [`date`](mod@date) | what time it is upstream (pure) |
//! | [`headers`] | header fields as the pure rooms read them |
//! | `auth` | what authorises a request |
//! | `request` | builds a request and sends it |
//! | `redirect` | where a redirect leads (pure) |
//! | `token` | asks a token endpoint |
//! | `exchange` | what the log says of one request |
//! | [`limit`] | limits on a body as an adapter |
//! | [`plain`] | one exchange without policy: any status is an answer |
//! | [`connect`] | from an upstream's config to a client |
//! | [`agent`] | one ureq agent per upstream, put together from the others |
//! | [`line`](mod@line) | what an upstream's connections share: deadlines, byte counts, the state of the last one |
//! | [`dns`] | names into addresses, in a helper thread that the wait watches |
//! | [`transport`] | TCP: connect, read and write through the wait |
//! | [`tls`] | the rustls client config: roots, client certificate, time |
//! | `verify` | certificates, checked at an instant that a wrong clock does not spoil |
//! | [`secure`] | TLS over a transport |
//! | [`proxy`] | which proxy, if any |
//! | [`cause`] | why a transport failed, as a type that survives ureq |
//!
//! Only this room names ureq and rustls' client.

pub mod agent;
mod auth;
pub mod cause;
pub mod client;
pub mod conditional;
pub mod connect;
pub mod date;
pub mod dns;
mod exchange;
mod failure;
pub mod headers;
pub mod limit;
pub mod line;
pub mod manners;
pub mod outcome;
pub mod plain;
pub mod proxy;
pub mod range;
mod redirect;
mod request;
pub mod search;
pub mod secure;
pub mod tls;
mod token;
pub mod transport;
pub mod turn;
mod verify;
