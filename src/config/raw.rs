//! The file as written: which keys exist where.

/// Which keys a table takes.
#[derive(Debug)]
pub(super) struct Keys {
    /// What this version takes.
    pub(super) known: &'static [&'static str],
    /// What is planned: not a typing error, but not built yet.
    pub(super) later: &'static [&'static str],
    /// What belongs to `[upstream.NAME]`.
    pub(super) upstream: &'static [&'static str],
}

const fn keys(known: &'static [&'static str]) -> Keys {
    Keys {
        known,
        later: &[],
        upstream: &[],
    }
}

pub(super) const TOP: Keys = Keys {
    known: &["agent", "upstream", "source", "document", "door", "hook"],
    later: &["remote"],
    upstream: &[],
};
pub(super) const AGENT: Keys = keys(&[
    "id",
    "state",
    "control",
    "control_mode",
    "checkpoint",
    "time_sync",
    "documents_quota",
]);
pub(super) const UPSTREAM: Keys = Keys {
    known: &[
        "base",
        "auth",
        "scope",
        "headers",
        "extra_ca",
        "roots",
        "client_cert",
        "proxy",
        "insecure_http",
        "min_interval",
        "limits",
    ],
    later: &["budget"],
    upstream: &[],
};
pub(super) const LIMITS: Keys = keys(&[
    "connect", "stall", "total", "body", "head", "record", "pages",
]);
pub(super) const CLIENT_CERT: Keys = keys(&["cert", "key"]);
pub(super) const SOURCE: Keys = Keys {
    known: &[
        "upstream",
        "path",
        "url",
        "params",
        "method",
        "body",
        "every",
        "jitter",
        "stale_after",
        "format",
        "records",
        "key",
        "ignore",
        "deleted",
        "updated",
        "require",
        "schema",
        "schema_version",
        "pull",
        "pages",
        "on_bad_record",
        "reconcile",
        "keep_upstream",
        "columns",
        "deletes",
        "journal",
        "on_change",
        "allow_empty",
        "ignore_no_store",
        "max_skip",
        "recheck",
        "spool",
        "auth",
        "headers",
        "scope",
        "extra_ca",
        "proxy",
    ],
    later: &["on_denied", "on_stale"],
    upstream: &[
        "base",
        "roots",
        "client_cert",
        "insecure_http",
        "min_interval",
        "limits",
    ],
};
pub(super) const DOCUMENT: Keys = Keys {
    known: &[
        "upstream",
        "path",
        "url",
        "params",
        "file",
        "every",
        "jitter",
        "stale_after",
        "sha256",
        "sha256_url",
        "max_size",
        "allow_empty",
        "content_type",
        "on_change",
        "ignore_no_store",
        "max_skip",
        "recheck",
        "auth",
        "headers",
        "scope",
        "extra_ca",
        "proxy",
    ],
    later: &[],
    upstream: SOURCE.upstream,
};
/// Keys of a source that describe its own upstream, beside `url` only.
pub(super) const SOURCE_UPSTREAM: [&str; 5] = ["auth", "headers", "scope", "extra_ca", "proxy"];
pub(super) const AUTH: Keys = keys(&["bearer", "basic", "header", "oauth2"]);
pub(super) const BASIC: Keys = keys(&["user", "password"]);
pub(super) const AUTH_HEADER: Keys = keys(&["name", "value"]);
pub(super) const OAUTH2: Keys = keys(&["token_url", "client_id", "client_secret", "scopes"]);
pub(super) const SECRET: Keys = keys(&["credential", "file", "env"]);
pub(super) const JOURNAL: Keys = keys(&["file", "rotate", "keep"]);
pub(super) const PROGRAM: Keys = keys(&["run", "timeout"]);
pub(super) const DELETED: Keys = keys(&["pointer", "equals", "null"]);
pub(super) const UPDATED: Keys = keys(&["field", "format"]);
pub(super) const TIME_PATTERN: Keys = keys(&["pattern", "zone"]);
pub(super) const RECONCILE: Keys = keys(&["every", "at", "max_loss"]);
pub(super) const PULL: Keys = keys(&["window", "cursor"]);
pub(super) const WINDOW: Keys = keys(&[
    "field", "format", "since", "until", "lateness", "first", "step",
]);
pub(super) const TIME_PARAM: Keys = keys(&["param", "template", "format"]);
pub(super) const CURSOR: Keys = keys(&["header", "pointer", "field", "param", "template", "first"]);
pub(super) const PAGES: Keys = keys(&[
    "next",
    "links",
    "next_header",
    "token",
    "token_header",
    "page",
    "offset",
    "last_key",
    "param",
    "first",
    "size",
    "more",
    "end",
]);
pub(super) const PAGE_SIZE: Keys = keys(&["param", "value"]);
pub(super) const DOOR: Keys = keys(&["listen", "tls", "limits"]);
pub(super) const DOOR_TLS: Keys = keys(&["cert", "key"]);
pub(super) const DOOR_LIMITS: Keys = keys(&[
    "connections",
    "per_peer",
    "head",
    "body",
    "memory",
    "head_time",
    "body_time",
    "idle",
]);
pub(super) const HOOK: Keys = keys(&[
    "path",
    "scheme",
    "secret",
    "tolerance",
    "id",
    "event_type",
    "ack_status",
    "max_body",
    "wakes",
    "fetch",
    "records",
    "events",
    "challenge",
    "keep",
    "keep_ids",
    "every",
    "quota",
]);
pub(super) const HOOK_SECRET: Keys = keys(&["credential", "file", "env", "not_after"]);
pub(super) const HOOK_TOLERANCE: Keys = keys(&["past", "future"]);
pub(super) const HOOK_PLACE: Keys = keys(&["header"]);
pub(super) const HOOK_FETCH: Keys = keys(&["source", "url", "at", "key"]);
pub(super) const HOOK_RECORDS: Keys = keys(&["source", "at"]);
pub(super) const HOOK_CHALLENGE: Keys = keys(&["meta"]);
pub(super) const HOOK_META: Keys = keys(&["verify_token"]);
pub(super) const SCHEME: Keys = keys(&["hmac-sha256"]);
pub(super) const HMAC: Keys = keys(&[
    "header",
    "prefix",
    "pair",
    "encoding",
    "signed",
    "id",
    "time",
    "secret_as",
]);
pub(super) const HMAC_TIME: Keys = keys(&["header", "pair", "format"]);
