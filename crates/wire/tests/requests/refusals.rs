//! Bodies that are refused, with what is said about them.

use fairlane_wire::request::RequestError;

use super::*;

fn refused(endpoint: Endpoint, body: &str) -> RequestError {
    match read(endpoint, body.as_bytes()) {
        Ok(_) => panic!("admitted: {body}"),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            error
        }
    }
}

#[test]
fn wrong_types_and_ranges_are_refused_with_their_path() {
    let chat = [
        (r#"{"model":7,"messages":[]}"#, "model"),
        (r#"{"model":null,"messages":[]}"#, "model"),
        (r#"{"model":"","messages":[]}"#, "model"),
        (r#"{"messages":[]}"#, "model"),
        (r#"{"model":"m"}"#, "messages"),
        (r#"{"model":"m","messages":{}}"#, "messages"),
        (r#"{"model":"m","messages":null}"#, "messages"),
        (r#"{"model":"m","messages":[1]}"#, "messages[0]"),
        (r#"{"model":"m","messages":[{},{"role":1}]}"#, "messages[1].role"),
        (r#"{"model":"m","messages":[],"stream":"true"}"#, "stream"),
        (r#"{"model":"m","messages":[],"stream":1}"#, "stream"),
        (r#"{"model":"m","messages":[],"n":0}"#, "n"),
        (r#"{"model":"m","messages":[],"n":129}"#, "n"),
        (r#"{"model":"m","messages":[],"n":-1}"#, "n"),
        (r#"{"model":"m","messages":[],"n":1.0}"#, "n"),
        (r#"{"model":"m","messages":[],"n_cmpl":1000}"#, "n_cmpl"),
        (r#"{"model":"m","messages":[],"max_tokens":1e400}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"max_tokens":100.0}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"max_tokens":-0}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"max_tokens":true}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"max_completion_tokens":0}"#, "max_completion_tokens"),
        (r#"{"model":"m","messages":[],"n_predict":-1}"#, "n_predict"),
        (r#"{"model":"m","messages":[],"stream_options":[]}"#, "stream_options"),
        (
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":"yes"}}"#,
            "stream_options.include_usage",
        ),
        (r#"{"model":"m","messages":[],"metadata":"x"}"#, "metadata"),
        (r#"{"model":"m","messages":[],"user":5}"#, "user"),
        (r#"{"model":"m","messages":[],"tools":{}}"#, "tools"),
    ];
    for (body, param) in chat {
        let error = refused(Endpoint::ChatCompletions, body);
        assert_eq!(error.param(), Some(param), "{body}: {error}");
    }
    let completions = [
        (r#"{"model":"m","prompt":5}"#, "prompt"),
        (r#"{"model":"m","prompt":[]}"#, "prompt"),
        (r#"{"model":"m","prompt":["a",1]}"#, "prompt[1]"),
        (r#"{"model":"m","prompt":[1,"a"]}"#, "prompt"),
        (r#"{"model":"m","prompt":[[1,-2]]}"#, "prompt[0]"),
        (r#"{"model":"m","prompt":[[1.5]]}"#, "prompt[0]"),
        (r#"{"model":"m","prompt":"a","n":3,"best_of":2}"#, "best_of"),
        (r#"{"model":"m","prompt":"a","best_of":129}"#, "best_of"),
    ];
    for (body, param) in completions {
        let error = refused(Endpoint::Completions, body);
        assert_eq!(error.param(), Some(param), "{body}: {error}");
    }
    let messages = [
        (r#"{"model":"m","messages":[],"max_tokens":null}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"max_tokens":-1}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"max_tokens":1,"system":5}"#, "system"),
        (r#"{"model":"m","messages":[],"max_tokens":1,"thinking":5}"#, "thinking"),
    ];
    for (body, param) in messages {
        let error = refused(Endpoint::Messages, body);
        assert_eq!(error.param(), Some(param), "{body}: {error}");
    }
    assert_eq!(refused(Endpoint::Embeddings, r#"{"model":"e"}"#).param(), Some("input"));
    assert_eq!(refused(Endpoint::Responses, r#"{"model":"e","input":5}"#).param(), Some("input"));
    assert_eq!(refused(Endpoint::Models, "{}"), RequestError::NoBodyExpected);
}

#[test]
fn zero_is_legal_only_in_messages() {
    let body = br#"{"model":"m","messages":[],"max_tokens":0}"#;
    assert_eq!(read(Endpoint::Messages, body).unwrap().output_bound, Some(0));
    assert!(read(Endpoint::ChatCompletions, body).is_err());
}

#[test]
fn a_count_of_tokens_needs_no_bound() {
    assert!(read(Endpoint::CountTokens, br#"{"model":"m","messages":[]}"#).is_ok());
}

#[test]
fn duplicate_keys_are_refused_wherever_the_gateway_reads() {
    for (body, param) in [
        (r#"{"model":"m","messages":[],"max_tokens":1,"max\u005ftokens":9}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"max\u005ftokens":1,"max_tokens":9}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"x":1,"x":1}"#, "x"),
        (r#"{"model":"m","messages":[],"priority":1,"priority":2}"#, "priority"),
        (
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":true,"include_usage":false}}"#,
            "stream_options.include_usage",
        ),
        (r#"{"model":"m","messages":[],"metadata":{"a":1,"a":2}}"#, "metadata.a"),
        (r#"{"model":"m","messages":[{"role":"user","content":"a","content":"b"}]}"#, "messages[0].content"),
        (
            r#"{"model":"m","messages":[{"content":[{"text":"a","te\u0078t":"b"}]}]}"#,
            "messages[0].content[0].text",
        ),
        (
            r#"{"model":"m","messages":[{"tool_calls":[{"function":{"name":"a","name":"b"}}]}]}"#,
            "messages[0].tool_calls[0].function.name",
        ),
    ] {
        let error = refused(Endpoint::ChatCompletions, body);
        assert!(matches!(error, RequestError::DuplicateKey { .. }), "{body}: {error}");
        assert_eq!(error.param(), Some(param), "{body}");
    }
    let thinking =
        r#"{"model":"m","messages":[],"max_tokens":1,"thinking":{"budget_tokens":1,"budget_tokens":2}}"#;
    assert_eq!(refused(Endpoint::Messages, thinking).param(), Some("thinking.budget_tokens"));
    let elsewhere = r#"{"model":"m","messages":[],"logit_bias":{"1":1,"1":2}}"#;
    assert!(read(Endpoint::ChatCompletions, elsewhere.as_bytes()).is_ok());
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    for (body, at) in [
        ("nonsense", 0),
        (r#"{"model":"m","messages":[]} x"#, 28),
        (r#"{"model":"m","messages":[]}{}"#, 27),
        (r#"{"model":"m","messages":[],}"#, 27),
        (r#"{"model":"m" "messages":[]}"#, 13),
        (r#"{"model":NaN}"#, 9),
        (r#"{"model":'m'}"#, 9),
        (r#"{model:"m"}"#, 1),
        (r#"{"a":01}"#, 6),
        (r#"{"a":1.}"#, 7),
        (r#"{"a":-}"#, 6),
        (r#"{"a":1e}"#, 7),
        (r#"{"a":tru}"#, 5),
        (r#"{"a":"\x"}"#, 7),
        (r#"{"a":"\u12g4"}"#, 10),
        ("{\"a\":\"\n\"}", 6),
        (r#"{"a":"b"#, 7),
        (r#"{"a":[1}"#, 7),
        (r#"{"a":{"b":1]}"#, 11),
    ] {
        let error = refused(Endpoint::ChatCompletions, body);
        assert!(matches!(error, RequestError::Syntax { .. }), "{body}: {error}");
        assert_eq!(error.at(), Some(at), "{body}: {error}");
    }
    let read = |body| read(Endpoint::ChatCompletions, body).unwrap_err();
    assert_eq!(read(b" \n\t "), RequestError::Empty);
    assert_eq!(read(b"\xEF\xBB\xBF{}"), RequestError::ByteOrderMark);
    assert_eq!(read(b"{\"model\":\"\xFF\"}"), RequestError::NotUtf8 { at: 10 });
    assert_eq!(read(b"{\"model\":\"\xED\xA0\x80\"}"), RequestError::NotUtf8 { at: 10 });
    for scalar in [&b"1"[..], b"null", b"\"model\"", b"[{}]"] {
        assert_eq!(read(scalar), RequestError::NotAnObject);
    }
}

#[test]
fn odd_text_is_no_reason_to_fail() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"\ud800 \udc00\ud800 \u0000"}]}"#;
    let facts = read(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
    assert_eq!(texts(&facts)[1], "\u{FFFD} \u{FFFD}\u{FFFD} \0");
}

#[test]
fn deep_nesting_is_refused_at_the_limit_wherever_it_stands() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    for head in [
        r#"{"model":"m","messages":[],"x":"#,
        r#"{"model":"m","messages":[{"content":"#,
        r#"{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"#,
    ] {
        let error = refused(Endpoint::ChatCompletions, &format!("{head}{}", nested(100_000)));
        assert!(matches!(error, RequestError::TooDeep { limit: 128, .. }), "{error}");
    }
    let at_limit = format!(r#"{{"model":"m","messages":[],"x":{}}}"#, nested(127));
    assert!(read(Endpoint::ChatCompletions, at_limit.as_bytes()).is_ok());
    let above = format!(r#"{{"model":"m","messages":[],"x":{}}}"#, nested(128));
    assert!(read(Endpoint::ChatCompletions, above.as_bytes()).is_err());
}

#[test]
fn too_many_pieces_are_refused() {
    let body = format!(r#"{{"model":"m","messages":[{}{{}}]}}"#, "{},".repeat(400_000));
    let error = refused(Endpoint::ChatCompletions, &body);
    assert!(matches!(error, RequestError::TooManyPieces { .. }));
    let body = format!(r#"{{"model":"m","prompt":[{}"a"]}}"#, "\"a\",".repeat(2_048));
    assert_eq!(refused(Endpoint::Completions, &body).param(), Some("prompt"));
}

#[test]
fn a_body_cut_at_any_byte_is_refused() {
    let bodies = [
        (Endpoint::ChatCompletions, CHAT),
        (Endpoint::Messages, MESSAGES),
        (Endpoint::CountTokens, MESSAGES),
        (Endpoint::Responses, RESPONSES),
        (Endpoint::Completions, r#"{"model":"m","prompt":[[1,2],"b"],"n":2,"echo":-1.5e+3}"#),
        (Endpoint::Embeddings, r#"{"model":"e","input":[1,2,3]}"#),
    ];
    for (endpoint, body) in bodies {
        assert!(read(endpoint, body.as_bytes()).is_ok(), "{body}");
        for cut in 0..body.len() {
            assert!(read(endpoint, &body.as_bytes()[..cut]).is_err(), "{body} cut at {cut}");
        }
    }
}
