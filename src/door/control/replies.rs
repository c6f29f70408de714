//! What the control socket answers.

use super::super::http::{Head, Response};
use crate::clock::Mono;
use crate::desk::{Desk, Wish, WishId};

/// What a request gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// This, and then the connection closes.
    Whole(Vec<u8>),
    /// What is told about a wish, line by line, until it is done.
    Follow(WishId),
}

/// Routes one request. `may_follow`: whether one more wish can be followed now.
pub(super) fn reply(head: &Head, body: &[u8], desk: &Desk, now: Mono, may_follow: bool) -> Reply {
    match (head.method.as_str(), head.path.as_str()) {
        ("GET", "/status") => match serde_json::to_vec(&desk.status(now)) {
            Ok(status) => Reply::Whole(Response::json(200, status).to_bytes(false, false)),
            Err(error) => text(503, &error.to_string()),
        },
        ("POST", "/wish") if !may_follow => text(503, "too many wishes are followed already"),
        ("POST", "/wish") => {
            let body = if body.is_empty() { b"{}" } else { body };
            match serde_json::from_slice::<Wish>(body) {
                Ok(wish) => match desk.wish(wish) {
                    Some(id) => Reply::Follow(id),
                    None => text(503, "too many wishes wait already"),
                },
                Err(error) => text(400, &format!("this is no wish: {error}")),
            }
        }
        ("GET", path) if path.starts_with("/requests/") => {
            match desk.request(path.trim_start_matches("/requests/")) {
                Some(json) => Reply::Whole(Response::json(200, json).to_bytes(false, false)),
                None => text(404, "there is no such request, or it is no longer kept"),
            }
        }
        (_, "/status" | "/wish") => text(405, "GET /status, POST /wish"),
        _ => text(404, "there are /status, /wish and /requests/ID here"),
    }
}

/// A short answer in words.
pub(super) fn text(status: u16, words: &str) -> Reply {
    Reply::Whole(Response::text(status, words).to_bytes(false, false))
}
