//! Builds one request and sends it. Credentials and custom headers go to the upstream's own origin alone.

use ureq::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use url::Url;

use super::auth::{resolve, sensitive};
use super::client::{Ask, Client};
use super::conditional::{Sent, Validators};
use super::exchange::shown;
use super::failure::failure_of;
use super::outcome::{Expect, Failure, Kind};
use super::range::Rest;
use super::search::fill;
use super::token::fetch_token;
use crate::config::Secret;

/// What a request is conditional on: what is held in full, and what is held in part.
pub(super) type Conditions<'a> = (Option<&'a Validators>, Option<&'a Rest<'a>>);

impl Client {
    /// The request fields that a `Vary` may name, as a variant may know them.
    pub(super) fn sent(&self) -> Vec<(String, Sent)> {
        let mut sent: Vec<(String, Sent)> = self
            .headers
            .iter()
            .map(|(name, value)| {
                let value = match value {
                    Secret::Literal(text) => Sent::Plain(text.clone()),
                    _ => Sent::Secret,
                };
                (name.clone(), value)
            })
            .collect();
        sent.push(("accept-encoding".into(), Sent::Plain("gzip".into())));
        sent
    }

    /// Sends one request; on a kept connection that turns out dead, once more on a new one.
    pub(super) fn send(
        &mut self,
        url: &Url,
        conditions: Conditions<'_>,
        ask: &Ask<'_>,
    ) -> Result<Response<ureq::Body>, Failure> {
        let search = ask.search.map(|template| fill(url, template));
        let url = search.as_ref().map_or(url, |search| &search.url);
        let mut request = self.request(url, conditions, ask.expect)?;
        if search.is_some() {
            *request.method_mut() = Method::POST;
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert("content-type", json);
        }
        for second in [false, true] {
            self.requests += 1;
            self.line.begin_request();
            let answered = match &search {
                None => self.agent.run(request.clone()),
                Some(search) => self
                    .agent
                    .run(request.clone().map(|()| search.body.clone())),
            };
            match answered {
                Ok(response) => return Ok(response),
                Err(error) => {
                    let state = self.line.conn_state();
                    let died =
                        state.reused && state.answered == 0 && !super::cause::is_stop(&error);
                    if second || !died {
                        return Err(failure_of(&error).at(shown(url)));
                    }
                    log::debug!(
                        "{}: the kept connection had died, once more on a new one",
                        shown(url)
                    );
                }
            }
        }
        Err(Failure::new(Kind::Failing, "the connection died twice").at(shown(url)))
    }

    pub(super) fn request(
        &mut self,
        url: &Url,
        (validators, rest): Conditions<'_>,
        expect: Expect,
    ) -> Result<Request<()>, Failure> {
        let wrong =
            |_| Failure::new(Kind::Refused, "this is no URL that can be asked").at(shown(url));
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(url.as_str())
            .body(())
            .map_err(wrong)?;
        let fields = request.headers_mut();
        // A part of a file is worth something only behind the bytes that are there, so these are asked for as they are.
        let coding = match expect {
            Expect::File | Expect::JsonFile => "identity",
            Expect::Json | Expect::Any => "gzip",
        };
        fields.insert("accept-encoding", HeaderValue::from_static(coding));
        if matches!(expect, Expect::Json | Expect::JsonFile) {
            fields.insert("accept", HeaderValue::from_static("application/json"));
        }
        if let Some(validators) = validators {
            insert(fields, "if-none-match", validators.etag.as_deref());
            insert(
                fields,
                "if-modified-since",
                validators.last_modified.as_deref(),
            );
        }
        if let Some(rest) = rest {
            let range = format!("bytes={}-", rest.from);
            insert(fields, "range", Some(range.as_bytes()));
            insert(fields, "if-range", Some(rest.validator));
        }
        if url.origin() == self.home.origin() {
            for (name, secret) in &self.headers {
                let value = resolve(secret)?;
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                    Failure::new(Kind::Local, format!("{name} is no header field name"))
                })?;
                fields.insert(name, sensitive(value.expose())?);
            }
            let (agent, line) = (&self.agent, &self.line);
            let requests = &mut self.requests;
            let fetch = |url: &Url, credential: &HeaderValue, form: String| {
                *requests += 1;
                fetch_token(agent, line, url, credential, form)
            };
            if let Some((name, value)) = self.credential.field(self.line.wait().now(), fetch)? {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                    Failure::new(Kind::Local, format!("{name} is no header field name"))
                })?;
                fields.insert(name, value);
            }
        }
        Ok(request)
    }
}

fn insert(fields: &mut HeaderMap, name: &'static str, value: Option<&[u8]>) {
    if let Some(value) = value.and_then(|value| HeaderValue::from_bytes(value).ok()) {
        fields.insert(name, value);
    }
}
