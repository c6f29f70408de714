//! Asks a token endpoint for an OAuth 2.0 access token.

use ureq::http::HeaderValue;
use url::Url;

use super::exchange::shown;
use super::failure::failure_of;
use super::line::Line;
use super::outcome::{Failure, Kind};

/// Asks a token endpoint (RFC 6749 4.4.2).
pub(super) fn fetch_token(
    agent: &ureq::Agent,
    line: &Line,
    url: &Url,
    credential: &HeaderValue,
    form: String,
) -> Result<Vec<u8>, Failure> {
    let place = format!("token endpoint {}", shown(url));
    line.begin_request();
    let sent = agent
        .post(url.as_str())
        .header("authorization", credential)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json")
        .send(form);
    let mut response = sent.map_err(|error| failure_of(&error).at(&place))?;
    let status = response.status().as_u16();
    match status {
        200 => response
            .body_mut()
            .with_config()
            .limit(64 * 1024)
            .read_to_vec()
            .map_err(|error| failure_of(&error).at(&place)),
        400 | 401 | 403 => Err(Failure::new(
            Kind::Denied,
            format!("{status}: client id or secret are not accepted"),
        )
        .at(place)),
        429 | 500..=599 => Err(Failure::new(Kind::Failing, format!("{status}")).at(place)),
        _ => Err(Failure::new(Kind::Refused, format!("{status}")).at(place)),
    }
}
