//! Ways to read a request: exactly one, or none.

use proptest::prelude::*;

use super::head::Repeated;
use super::*;

const MAX_HEAD: usize = 8 * 1024;

/// What a stream holds: the requests (path and body) up to its end or to a refusal's status.
fn requests(bytes: &[u8], cap: u64) -> (Vec<(String, Vec<u8>)>, Option<u16>) {
    in_pieces(bytes, &[], cap)
}

/// The same, read in pieces that are cut at these places.
fn in_pieces(bytes: &[u8], cuts: &[usize], cap: u64) -> (Vec<(String, Vec<u8>)>, Option<u16>) {
    let mut reader = Reader::default();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    for piece in cuts.windows(2) {
        reader.input.extend_from_slice(&bytes[piece[0]..piece[1]]);
        if let Err(refusal) = reader.read(cap) {
            return (reader.out, Some(refusal.status()));
        }
    }
    (reader.out, None)
}

#[derive(Default)]
struct Reader {
    input: Vec<u8>,
    body: Option<(Head, Frame, Vec<u8>)>,
    out: Vec<(String, Vec<u8>)>,
}

impl Reader {
    fn read(&mut self, cap: u64) -> Result<(), Refusal> {
        loop {
            match self.body.take() {
                None => {
                    let Some(head) = head(&self.input, MAX_HEAD)? else {
                        return Ok(());
                    };
                    self.input.drain(..head.size);
                    let frame = Frame::new(head.framing, cap)?;
                    self.body = Some((head, frame, Vec::new()));
                }
                Some((head, mut frame, mut body)) => {
                    // Little room, as when memory is short.
                    let taken = frame.take(&self.input, &mut body, 3)?;
                    self.input.drain(..taken.used);
                    if taken.done {
                        self.out.push((head.path, body));
                    } else {
                        self.body = Some((head, frame, body));
                        if self.input.is_empty() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn one_way_to_read_it_or_none() {
    type Expected = Result<Option<(&'static str, Framing)>, u16>;
    let none = Framing::Length(0);
    let table: &[(&str, Expected)] = &[
        (
            "GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
            Ok(Some(("/status", none))),
        ),
        (
            "GET /status?a=/b HTTP/1.1\r\nHost: x\r\n\r\n",
            Ok(Some(("/status", none))),
        ),
        ("GET /status HTTP/1.0\r\n\r\n", Ok(Some(("/status", none)))),
        (
            "POST /sync HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 12\r\n\r\n",
            Ok(Some(("/sync", Framing::Length(12)))),
        ),
        (
            "POST /sync HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n",
            Ok(Some(("/sync", Framing::Chunked))),
        ),
        (
            "GET /hooks/%67ithub HTTP/1.1\r\nHost: x\r\n\r\n",
            Ok(Some(("/hooks/%67ithub", none))),
        ),
        (
            "GET /hooks/../github/ HTTP/1.1\r\nHost: x\r\n\r\n",
            Ok(Some(("/hooks/../github/", none))),
        ),
        (
            "\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n",
            Ok(Some(("/a", none))),
        ),
        ("GET /status HTTP/1.1\r\nHost", Ok(None)),
        ("GET /status HTTP/1.1\r\n\r\n", Err(400)),
        (
            "GET /status HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
            Err(400),
        ),
        (
            "GET /status HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
            Err(400),
        ),
        ("GET /status HTTP/1.1\r\nHost: x, y\r\n\r\n", Err(400)),
        ("GET /status HTTP/1.1\r\nHost: x/y\r\n\r\n", Err(400)),
        ("GET status HTTP/1.1\r\nHost: x\r\n\r\n", Err(400)),
        ("GET http://x/status HTTP/1.1\r\nHost: x\r\n\r\n", Err(400)),
        ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", Err(400)),
        ("CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", Err(400)),
        ("GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", Err(400)),
        ("GET /\u{e4} HTTP/1.1\r\nHost: x\r\n\r\n", Err(400)),
        ("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", Err(505)),
        ("GET /status HTTP/1.1\nHost: x\n\n", Err(400)),
        ("\nGET /status HTTP/1.1\r\nHost: x\r\n\r\n", Err(400)),
        ("GET /status HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", Err(400)),
        (
            "GET /status HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
            Err(400),
        ),
        (
            "GET /status HTTP/1.1\r\nHost: x\r\nA: b\r\n\tfolded\r\n\r\n",
            Err(400),
        ),
        ("GET /status HTTP/1.1\r\nHost : x\r\n\r\n", Err(400)),
        (
            "GET /status HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
            Err(400),
        ),
        (
            "GET /status HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
            Err(400),
        ),
        (
            "GET /status HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
            Err(400),
        ),
        ("GET /status HTTP/2.0\r\nHost: x\r\n\r\n", Err(505)),
        ("GET /status HTTP/1.2\r\nHost: x\r\n\r\n", Err(505)),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Err(505)),
        ("GET /status\r\n\r\n", Err(400)),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: 5 5\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err(400),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            Err(501),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            Err(501),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n",
            Err(501),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
            Err(501),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \"chunked\"\r\n\r\n",
            Err(501),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n",
            Err(501),
        ),
        (
            "POST /s HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n\r\n",
            Err(417),
        ),
        ("\u{0}\u{1}\u{2}", Err(400)),
        ("\u{16}\u{3}\u{1}", Err(400)),
    ];
    for (text, expected) in table {
        let read = head(text.as_bytes(), MAX_HEAD)
            .map(|head| head.map(|head| (head.path, head.framing)))
            .map_err(Refusal::status);
        let expected = expected.map(|head| head.map(|(path, framing)| (path.to_owned(), framing)));
        assert_eq!(read, expected, "{text:?}");
    }
}

const HEAD: &str = "POST /a HTTP/1.1\r\nHost: x\r\n";

#[test]
fn bodies_are_taken_exactly() {
    // Behind the head, what the body is, or the status of the refusal.
    let table: &[(&str, Result<&str, u16>)] = &[
        ("Content-Length: 5\r\n\r\nhello", Ok("hello")),
        ("Content-Length: 0\r\n\r\n", Ok("")),
        ("Content-Length: 0000000005\r\n\r\nhello", Ok("hello")),
        ("Content-Length: 17\r\n\r\n", Err(413)),
        ("Content-Length: 18446744073709551615\r\n\r\n", Err(413)),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Ok("")),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Ok("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n00000003\r\nllo\r\n000\r\n\r\n",
            Ok("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
            Ok("0123456789"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d\"\r\nhello\r\n0;x\r\n\r\n",
            Ok("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\nZ: \r\n\r\n",
            Ok("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
            Ok("0123456789abcdef"),
        ),
        ("Transfer-Encoding: chunked\r\n\r\n11\r\n", Err(413)),
        (
            "Transfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n8\r\n",
            Err(413),
        ),
        ("Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", Err(413)),
        (
            "Transfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
            Err(400),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n",
            Err(400),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
            Err(400),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
            Err(400),
        ),
    ];
    for (rest, expected) in table {
        let stream = format!("{HEAD}{rest}");
        let expected = match expected {
            Ok(body) => (vec![("/a".to_owned(), body.as_bytes().to_vec())], None),
            Err(status) => (Vec::new(), Some(*status)),
        };
        assert_eq!(requests(stream.as_bytes(), 16), expected, "{rest:?}");
    }
}

#[test]
fn ways_in_which_others_were_smuggled_through() {
    // What is hidden in each of them is a request for /evil. Nobody may ever see it as one.
    let evil = "GET /evil HTTP/1.1\r\nHost: x\r\n\r\n";
    let chunks = "Transfer-Encoding: chunked\r\n\r\n";
    let table: &[(&str, String)] = &[
        (
            "RFC 9112 6.3, CL.TE",
            format!("Content-Length: 6\r\n{chunks}0\r\n\r\n{evil}"),
        ),
        (
            "RFC 9112 6.3, TE.CL",
            format!(
                "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n1e\r\n{evil}\r\n0\r\n\r\n"
            ),
        ),
        (
            "RFC 9112 6.3, two lengths",
            format!("Content-Length: 0\r\nContent-Length: 31\r\n\r\n{evil}"),
        ),
        (
            "HTTP Desync Attacks (Kettle 2019): xchunked",
            format!("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{evil}"),
        ),
        (
            "HTTP Desync Attacks (Kettle 2019): space before the colon",
            format!("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{evil}"),
        ),
        (
            "HTTP Desync Attacks (Kettle 2019): two codings",
            format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n{evil}"),
        ),
        (
            "HTTP Desync Attacks (Kettle 2019): folded",
            format!("X: x\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n{evil}"),
        ),
        (
            "HTTP Desync Attacks (Kettle 2019): line feed in a field",
            format!("X: X\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n{evil}"),
        ),
        (
            "HTTP Desync Attacks (Kettle 2019): colon on the next line",
            format!("Transfer-Encoding\r\n: chunked\r\nContent-Length: 0\r\n\r\n{evil}"),
        ),
        (
            "CVE-2019-16276 (Go): space before the colon",
            format!("Content-Length : 31\r\n\r\n{evil}"),
        ),
        (
            "CVE-2019-18277 (HAProxy): a vertical tab",
            format!("Transfer-Encoding: \u{b}chunked\r\nContent-Length: 0\r\n\r\n{evil}"),
        ),
        (
            "CVE-2020-8287 (Node): the first of two codings",
            format!(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n{evil}"
            ),
        ),
        (
            "CVE-2021-32714 (hyper): a size over 64 bits",
            format!("{chunks}10000000000000000\r\n{evil}"),
        ),
        (
            "CVE-2021-32715 (hyper): a length with a plus",
            format!("Content-Length: +0\r\n\r\n{evil}"),
        ),
        (
            "CVE-2022-32214 (Node): fields that end with a line feed",
            format!("Content-Length: 0\n\r\n{evil}"),
        ),
        (
            "CVE-2022-32215 (Node): a coding over several lines",
            format!("Transfer-Encoding: chunked\r\n , identity\r\n\r\n0\r\n\r\n{evil}"),
        ),
        (
            "CVE-2023-30589 (Node): a field that ends with a carriage return",
            format!("X: y\rContent-Length: 0\r\n\r\n{evil}"),
        ),
        (
            "CVE-2024-1135 (gunicorn): codings that conflict",
            format!("Transfer-Encoding: chunked,gzip\r\n\r\n0\r\n\r\n{evil}"),
        ),
        (
            "CVE-2025-22871 (Go): a size that ends with a line feed",
            format!("{chunks}0\n\r\n{evil}"),
        ),
        (
            "Funky chunks (Weikop 2025): an extension that ends with a line feed",
            format!("{chunks}2;\nxx\r\n0\r\n\r\n{evil}"),
        ),
        (
            "Funky chunks (Weikop 2025): an extension with a carriage return",
            format!("{chunks}2;a\rb\r\nxx\r\n0\r\n\r\n{evil}"),
        ),
        (
            "CVE-2025-43859 (h11): data that ends with any two bytes",
            format!("{chunks}2\r\nxxAB0\r\n\r\n{evil}"),
        ),
        ("a size with a plus", format!("{chunks}+0\r\n\r\n{evil}")),
        ("a size with a prefix", format!("{chunks}0x0\r\n\r\n{evil}")),
        (
            "a size with spaces before it",
            format!("{chunks} 0\r\n\r\n{evil}"),
        ),
        (
            "a size with spaces behind it",
            format!("{chunks}0 \r\n\r\n{evil}"),
        ),
        (
            "a size with an underscore",
            format!("{chunks}0_0\r\n\r\n{evil}"),
        ),
        ("no size", format!("{chunks}\r\n\r\n{evil}")),
        (
            "a size of many zeros",
            format!("{chunks}{}\r\n\r\n{evil}", "0".repeat(1000)),
        ),
        (
            "extensions without end",
            format!("{chunks}0;{}\r\n\r\n{evil}", "a".repeat(1000)),
        ),
        (
            "trailers without end",
            format!("{chunks}0\r\n{}\r\n{evil}", "A: b\r\n".repeat(1000)),
        ),
        (
            "many trailers",
            format!("{chunks}0\r\n{}\r\n{evil}", "A: b\r\n".repeat(20)),
        ),
        (
            "a NUL in a name",
            format!("Content-Length\0: 31\r\n\r\n{evil}"),
        ),
    ];
    for (source, rest) in table {
        let (read, refused) = requests(format!("{HEAD}{rest}").as_bytes(), 4096);
        assert_eq!(read, [], "{source}");
        assert!(
            matches!(refused, Some(400 | 413 | 431 | 501)),
            "{source}: {refused:?}"
        );
    }
}

#[test]
fn heads_have_their_bounds() {
    let huge = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "a".repeat(MAX_HEAD));
    assert_eq!(requests(huge.as_bytes(), 0), (Vec::new(), Some(431)));
    let many = format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "a: b\r\n".repeat(MAX_FIELDS)
    );
    assert_eq!(requests(many.as_bytes(), 0), (Vec::new(), Some(431)));
    let empty_lines = "\r\n".repeat(MAX_HEAD);
    assert_eq!(requests(empty_lines.as_bytes(), 0), (Vec::new(), Some(431)));
    let most = format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "a: b\r\n".repeat(MAX_FIELDS - 1)
    );
    assert_eq!(
        requests(most.as_bytes(), 0),
        (vec![("/".into(), Vec::new())], None)
    );
}

#[test]
fn what_a_head_says_besides() {
    let read = |text: &str| head(text.as_bytes(), MAX_HEAD).unwrap().unwrap();
    let plain = read("POST /a?b=%20?c HTTP/1.1\r\nHost: x\r\nA: 1\r\nB:  two \r\na: 3\r\n\r\n");
    assert_eq!(
        (plain.path.as_str(), plain.query.as_deref()),
        ("/a", Some("b=%20?c"))
    );
    assert!(plain.keep_alive && !plain.expects_continue);
    assert_eq!(plain.fields.one("A"), Err(Repeated));
    assert_eq!(plain.fields.one("b"), Ok(Some(b"two".as_slice())));
    assert_eq!(plain.fields.one("c"), Ok(None));
    assert_eq!(plain.fields.all("a").collect::<Vec<_>>(), [b"1", b"3"]);
    assert!(
        !read("GET /a HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n")
            .keep_alive
    );
    assert!(!read("GET /a HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue);
    assert!(!read("GET /a HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n\r\n").keep_alive);
    assert!(read("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\n\r\n").expects_continue);
}

#[test]
fn what_an_answer_looks_like() {
    let text = |response: Response, to_head, keep| {
        String::from_utf8(response.to_bytes(to_head, keep)).unwrap()
    };
    let busy = Response::unavailable("busy", std::time::Duration::from_millis(1500));
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\nContent-Length: 5\r\n";
    assert_eq!(text(busy.clone(), false, true), format!("{head}\r\nbusy\n"));
    assert_eq!(
        text(busy, true, false),
        format!("{head}Connection: close\r\n\r\n")
    );
    assert_eq!(
        text(Response::new(204), false, true),
        "HTTP/1.1 204 No Content\r\n\r\n"
    );
    let split = Response::new(200).with_field("X", "a\r\nSet-Cookie: b");
    assert_eq!(
        text(split, false, true),
        "HTTP/1.1 200 OK\r\nX: aSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(
        Response::method_not_allowed("GET, HEAD").field("allow"),
        Some("GET, HEAD")
    );
}

/// Pieces of requests, right and wrong, put together at random.
fn scraps() -> impl Strategy<Value = Vec<u8>> {
    let scrap = prop_oneof![
        4 => Just(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        4 => Just(b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n1234567".to_vec()),
        4 => Just(b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;e\r\nhello\r\n3\r\nyou\r\n0\r\nT: t\r\n\r\n".to_vec()),
        1 => Just(b"\r\n".to_vec()),
        1 => Just(b"0\r\n\r\n".to_vec()),
        1 => Just(b"POST /d HTTP/1.0\r\nContent-Length: 3\r\n\r\n".to_vec()),
        1 => Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(scrap, 0..12).prop_map(|scraps| scraps.concat())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, cap in 0u64..100) {
        requests(&bytes, cap);
    }

    #[test]
    fn wherever_a_stream_is_cut_the_same_requests_come_out(
        stream in scraps(),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
        cap in 0u64..20,
    ) {
        prop_assert_eq!(in_pieces(&stream, &cuts, cap), requests(&stream, cap));
        let everywhere: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(in_pieces(&stream, &everywhere, cap), requests(&stream, cap));
    }

    #[test]
    fn nor_does_it_matter_with_a_byte_changed(stream in scraps(), at: usize, to: u8) {
        let mut stream = stream;
        if !stream.is_empty() {
            let at = at % stream.len();
            stream[at] = to;
        }
        let everywhere: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(in_pieces(&stream, &everywhere, 20), requests(&stream, 20));
    }
}
