//! Secrets by reference: where a secret is, read when it is used.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Secret;

/// Looks up an environment variable; a value so that tests can say what the environment is.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The longest secret file in bytes. Chains and keys fit; a wrong path to something large does not.
pub const MAX_LEN: u64 = 64 * 1024;

/// A secret that was read. `Debug` prints `…`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// A secret that came from elsewhere: a token that was granted.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The secret itself, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A secret that can't be used: which one, why, and what to do.
#[derive(Debug)]
pub struct SecretError {
    /// The reference.
    pub secret: Secret,
    /// Why.
    pub reason: SecretReason,
}

/// Why a secret can't be used.
#[derive(Debug)]
pub enum SecretReason {
    /// `$CREDENTIALS_DIRECTORY` is not set, so nobody passed credentials.
    NoCredentials,
    /// There is no such environment variable.
    NoVariable,
    /// The file at this path can't be read.
    Unreadable(PathBuf, io::Error),
    /// The path is a directory, a pipe or a device.
    NotAFile(PathBuf),
    /// Longer than [`MAX_LEN`].
    TooLong,
    /// Nothing in it, or a newline alone.
    Empty,
    /// It is not UTF-8.
    NotText,
    /// It has a line break or another control character.
    ControlCharacter,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "secret {}: ", self.secret)?;
        match (&self.reason, &self.secret) {
            (SecretReason::NoCredentials, Secret::Credential(name)) => write!(
                f,
                "$CREDENTIALS_DIRECTORY is not set: start under systemd with LoadCredential={name}:/path/to/the/secret"
            ),
            (SecretReason::NoCredentials, _) => f.write_str("$CREDENTIALS_DIRECTORY is not set"),
            (SecretReason::NoVariable, _) => {
                f.write_str("the environment variable is not set: set it where the agent is started")
            }
            (SecretReason::Unreadable(path, error), Secret::Credential(name))
                if error.kind() == io::ErrorKind::NotFound =>
            {
                write!(f, "{} does not exist: add LoadCredential={name}:/path/to/the/secret to the unit", path.display())
            }
            (SecretReason::Unreadable(path, error), _) => {
                write!(f, "{} can't be read: {error}", path.display())?;
                if error.kind() == io::ErrorKind::PermissionDenied {
                    f.write_str(": give it to the agent's user, mode 0400")?;
                }
                Ok(())
            }
            (SecretReason::NotAFile(path), _) => write!(f, "{} is not a regular file", path.display()),
            (SecretReason::TooLong, _) => write!(f, "it is longer than {MAX_LEN} bytes: is this the right file?"),
            (SecretReason::Empty, _) => f.write_str("it is empty: an empty secret would be sent as no secret"),
            (SecretReason::NotText, _) => f.write_str("it is not UTF-8 text"),
            (SecretReason::ControlCharacter, _) => f.write_str(
                "it has a line break or another control character inside: a secret is one line of text, and its file \
                 holds nothing else",
            ),
        }
    }
}

impl std::error::Error for SecretError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            SecretReason::Unreadable(_, error) => Some(error),
            _ => None,
        }
    }
}

impl Secret {
    /// Reads a secret that goes into a header or a form: one line of UTF-8. One trailing line break is dropped.
    ///
    /// # Errors
    /// [`SecretError`]: the reference leads nowhere, or to something that is empty, too long, or no single line of text.
    pub fn resolve(&self, env: Env<'_>) -> Result<SecretValue, SecretError> {
        let value = self.resolve_pem(env)?;
        if value.0.chars().any(char::is_control) {
            return Err(self.error(SecretReason::ControlCharacter));
        }
        Ok(value)
    }

    /// As [`Secret::resolve`], for text of several lines: a private key in PEM.
    ///
    /// # Errors
    /// [`SecretError`], line breaks and control characters excepted.
    pub fn resolve_pem(&self, env: Env<'_>) -> Result<SecretValue, SecretError> {
        let bytes = self.read(env).map_err(|reason| self.error(reason))?;
        let mut text = String::from_utf8(bytes).map_err(|_| self.error(SecretReason::NotText))?;
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        if text.is_empty() {
            return Err(self.error(SecretReason::Empty));
        }
        Ok(SecretValue(text))
    }

    /// Whether it is written out, so no secret at all.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        matches!(self, Self::Literal(_))
    }

    /// Whether every account of this machine may read the file, as far as that can be seen now. Credentials and
    /// variables are guarded by whoever starts the agent.
    #[must_use]
    pub fn is_world_readable(&self) -> bool {
        match self {
            Self::File(path) => {
                std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o004 != 0)
            }
            Self::Credential(_) | Self::Env(_) | Self::Literal(_) => false,
        }
    }

    fn read(&self, env: Env<'_>) -> Result<Vec<u8>, SecretReason> {
        match self {
            Self::Credential(name) => {
                let directory =
                    env("CREDENTIALS_DIRECTORY").filter(|directory| !directory.is_empty());
                read_file(&PathBuf::from(directory.ok_or(SecretReason::NoCredentials)?).join(name))
            }
            Self::File(path) => read_file(path),
            Self::Env(name) => {
                let value = env(name).ok_or(SecretReason::NoVariable)?;
                value
                    .into_string()
                    .map(String::into_bytes)
                    .map_err(|_| SecretReason::NotText)
            }
            Self::Literal(text) => Ok(text.clone().into_bytes()),
        }
    }

    fn error(&self, reason: SecretReason) -> SecretError {
        SecretError {
            secret: self.clone(),
            reason,
        }
    }
}

/// The file's bytes, if it is a regular file (opening a pipe would wait for its writer) of a secret's size.
fn read_file(path: &Path) -> Result<Vec<u8>, SecretReason> {
    let unreadable = |error| SecretReason::Unreadable(path.to_owned(), error);
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(SecretReason::NotAFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_LEN + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_LEN {
        return Err(SecretReason::TooLong);
    }
    Ok(bytes)
}

/// The reference as the config file writes it; a literal as `…`.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credential(name) => write!(f, "{{ credential = {name:?} }}"),
            Self::File(path) => write!(f, "{{ file = {path:?} }}"),
            Self::Env(name) => write!(f, "{{ env = {name:?} }}"),
            Self::Literal(_) => f.write_str("…"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn none(_: &str) -> Option<OsString> {
        None
    }

    fn file(bytes: &[u8]) -> (tempfile::TempDir, Secret) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        std::fs::write(&path, bytes).unwrap();
        (dir, Secret::File(path))
    }

    fn why(secret: &Secret) -> String {
        let error = secret.resolve(&none).unwrap_err().to_string();
        error.split_once("}: ").unwrap().1.to_owned()
    }

    #[test]
    fn one_trailing_line_break_is_dropped() {
        for (bytes, value) in [
            ("tok", "tok"),
            ("tok\n", "tok"),
            ("tok\r\n", "tok"),
            (" t k ", " t k "),
        ] {
            let (_dir, secret) = file(bytes.as_bytes());
            assert_eq!(secret.resolve(&none).unwrap().expose(), value);
        }
    }

    #[test]
    fn what_no_header_can_carry_is_refused() {
        for (bytes, reason) in [
            (&b""[..], "it is empty"),
            (b"\n", "it is empty"),
            (b"a\n\n", "it has a line break"),
            (b"a\nb", "it has a line break"),
            (b"a\0b", "it has a line break"),
            (b"\xff\xfe", "it is not UTF-8"),
            (&[b'a'; 65_537], "it is longer than 65536 bytes"),
        ] {
            let (_dir, secret) = file(bytes);
            assert!(why(&secret).starts_with(reason), "{}", why(&secret));
        }
        let (_dir, pem) = file(b"-----BEGIN-----\nabc\n-----END-----\n");
        assert_eq!(
            pem.resolve_pem(&none).unwrap().expose(),
            "-----BEGIN-----\nabc\n-----END-----"
        );
        let (_dir, longest) = file(&[b'a'; 65_536]);
        assert_eq!(longest.resolve(&none).unwrap().expose().len(), 65_536);
    }

    #[test]
    fn a_credential_is_a_file_in_the_directory_that_systemd_names() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("erp-token"), "t0k\n").unwrap();
        let path = dir.path().to_owned();
        let env = move |name: &str| {
            (name == "CREDENTIALS_DIRECTORY").then(|| path.clone().into_os_string())
        };
        let secret = Secret::Credential("erp-token".to_owned());
        assert_eq!(secret.resolve(&env).unwrap().expose(), "t0k");
        assert_eq!(
            secret.resolve(&none).unwrap_err().to_string(),
            "secret { credential = \"erp-token\" }: $CREDENTIALS_DIRECTORY is not set: \
             start under systemd with LoadCredential=erp-token:/path/to/the/secret"
        );
        let other = Secret::Credential("other".to_owned())
            .resolve(&env)
            .unwrap_err()
            .to_string();
        assert!(
            other.ends_with(
                "does not exist: add LoadCredential=other:/path/to/the/secret to the unit"
            ),
            "{other}"
        );
    }

    #[test]
    fn a_variable_is_read_when_it_is_used() {
        let secret = Secret::Env("TOKEN".to_owned());
        assert_eq!(secret.resolve(&|_| Some("t".into())).unwrap().expose(), "t");
        assert!(why(&secret).starts_with("the environment variable is not set"));
        let odd = secret
            .resolve(&|_| Some(OsString::from_vec(vec![0xff])))
            .unwrap_err();
        assert!(matches!(odd.reason, SecretReason::NotText));
    }

    #[test]
    fn a_directory_or_a_pipe_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        assert!(why(&Secret::File(dir.path().to_owned())).ends_with("is not a regular file"));
        assert!(why(&Secret::File(dir.path().join("none"))).contains("can't be read"));
    }

    #[test]
    fn nothing_prints_a_value() {
        let (_dir, secret) = file(b"hunter2");
        let value = secret.resolve(&none).unwrap();
        assert_eq!(format!("{value:?}"), "…");
        assert_eq!(
            format!("{0:?} {0}", Secret::Literal("hunter2".to_owned())),
            "… …"
        );
        let (_dir, odd) = file(b"hunter\x072");
        let error = odd.resolve(&none).unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hunter"));
    }

    #[test]
    fn who_may_read_a_secret_file_is_looked_at() {
        let (_dir, secret) = file(b"s");
        let Secret::File(path) = &secret else {
            unreachable!()
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(!secret.is_world_readable());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(secret.is_world_readable());
    }
}
